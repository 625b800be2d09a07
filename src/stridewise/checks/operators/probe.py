"""Runs a callable on operands in some layout, in this process, and holds what it does against contiguous ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from stridewise.checks.operators import fake
from stridewise.checks.operators.case import Arrangement, Case, Described, Fault, Outcome
from stridewise.checks.operators.compare import Difference, calibrated, difference, tolerance_of
from stridewise.checks.operators.grid import CONTIGUOUS
from stridewise.checks.operators.memory import Watched, arranged_values
from stridewise.checks.operators.operands import Bound, tensors_of
from stridewise.checks.operators.options import Options
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

_LONGEST = 300
"""Characters of an exception's message that are kept."""
_WRITES = ("in place", "out")


class Ran(Struct):
    """What one run gave."""

    results: dict[str, Any]
    """Tensors by name: outputs, and gradients."""
    operands: dict[str, Watched]
    unwritten: frozenset[str] = frozenset()
    """Outputs that are operands."""


class Raised(Exception):
    """The callable raised; its text says what."""


class Probe:
    """A callable with a sample of its arguments. Nothing is caught that is no Exception."""

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options, name: str
    ) -> None:
        self._bound = Bound(fn, args, kwargs)
        self._options = options
        self._name = name
        self._values = {
            operand: tensor.detach().clone().contiguous() for operand, tensor in self._bound.tensors.items()
        }
        self._described: Described | None = None

    # ------------------------------------------------------------------------------------------------ what it is

    def describe(self) -> Described:
        """What contiguous runs tell of the callable. Raises UsageError if it fails even then."""
        if self._described is not None:
            return self._described
        try:
            first, again, other = (self._forward(Case(), 0, seed) for seed in (0, 0, 1))
        except Raised as error:
            raise UsageError(
                f"`{self._name}` fails for contiguous operands: {error}",
                expected="Expected: a sample that it takes, to compare other layouts with.",
            ) from None
        written = {name for name, watched in first.operands.items() if watched.is_changed()}
        operands = tuple(
            replace(operand, role="in place") if operand.name in written and operand.role == "input" else operand
            for operand in self._bound.operands
        )
        results = self._all_results(first, written)
        base = tolerance_of({tensor.dtype for tensor in results.values()})
        noise = _largest(results, self._all_results(again, written))
        asked = self._options.tolerance
        tolerance = calibrated(base, self._inexact(results, written)) if asked is None else asked
        is_random = _largest(results, self._all_results(other, written)) > max(tolerance, 10 * noise)
        self._described = Described(
            op=self._name,
            operands=operands,
            outputs=tuple(first.results),
            differentiable=self._options.gradients and self._is_differentiable(written),
            random=is_random,
            noise=noise,
            tolerance=max(tolerance, 10 * noise) if noise < float("inf") else noise,
            tolerance_words=_words(tolerance, base, noise, asked),
            has_fake=False,
            notes=tuple(self._bound.notes),
        )
        if self._options.fake:
            reason = self._without_fake()
            notes = self._described.notes if reason is None else (*self._described.notes, reason)
            self._described = replace(self._described, has_fake=reason is None, notes=notes)
        return self._described

    def _all_results(self, ran: Ran, written: Any) -> dict[str, Tensor]:
        """Outputs, and what operands hold that it writes."""
        return ran.results | {name: ran.operands[name].values() for name in ran.operands if name in written}

    def _inexact(self, results: Mapping[str, Tensor], written: Any) -> float | None:
        """How far results are from those in float64; None where it can't be told."""
        import torch

        values = {
            n: v.double() if v.dtype in (torch.float16, torch.bfloat16, torch.float32) else v
            for n, v in self._values.items()
        }
        if all(values[name].dtype == self._values[name].dtype for name in values):
            return None
        try:
            exact = self._all_results(self._forward(Case(), 0, 0, values=values), written)
        except Raised:
            return None
        if exact.keys() != results.keys() or any(exact[name].shape != results[name].shape for name in exact):
            return None
        return _largest(exact, {name: tensor.to(exact[name].dtype) for name, tensor in results.items()})

    def _is_differentiable(self, written: Any) -> bool:
        try:
            return bool(self._gradients(Case(), CONTIGUOUS, 0, written).results)
        except Raised:
            return False

    def _without_fake(self) -> str | None:
        """Why it has no fake kernel; None if it has."""
        try:
            fake.promised(self._bound, {name: (value, CONTIGUOUS) for name, value in self._values.items()})
        except fake.NotFake as error:
            return f"Strides that are promised to compilers were not compared: {error}."
        return None

    # --------------------------------------------------------------------------------------------------- one case

    def run(self, case: Case) -> Outcome:
        """Run a case, and hold it against contiguous operands of the same values."""
        described = self.describe()
        written = {operand.name for operand in described.operands if operand.role in _WRITES}
        unable = [name for name in written if not case.arrangements.get(name, CONTIGUOUS).writable]
        if unable:
            return Outcome(case, "not applicable", reference=f"`{unable[0]}` is written to, and would share elements.")
        try:
            if case.aspect in ("gradient", "second order"):
                return self._run_gradient(case, written)
            if case.aspect == "fake":
                return self._run_fake(case)
            return self._run_values(case, written, described)
        except _NotApplicable as error:
            return Outcome(case, "not applicable", reference=str(error))

    def _run_values(self, case: Case, written: set[str], described: Described) -> Outcome:
        reference = self._reference(lambda: self._forward(_contiguous(case), 0, 0, like=case))
        wanted = self._all_results(reference, written)
        try:
            runs = [self._forward(case, fill, 0) for fill in (0, 1)]
        except Raised as error:
            return Outcome(case, "raised", message=str(error), layouts=self._layouts(case))
        faults = [fault for ran in runs for fault in _harm(ran, written, wanted)]
        results = [self._all_results(ran, written) for ran in runs]
        if not described.random:
            faults += _compared(results, wanted, described.tolerance)
        faults += _without_effect(runs[0], reference, written)
        return Outcome(case, "ran", _distinct(faults), layouts=self._layouts(case))

    def _run_gradient(self, case: Case, written: set[str]) -> Outcome:
        assert self._described is not None
        if self._described.random:
            return Outcome(case, "not applicable", reference="Its values change at each call.")
        arrangement = case.gradient or CONTIGUOUS
        second = case.aspect == "second order"
        wanted = self._reference(
            lambda: self._gradients(_contiguous(case), CONTIGUOUS, 0, written, second=second, like=(case, arrangement))
        )
        try:
            runs = [self._gradients(case, arrangement, fill, written, second=second) for fill in (0, 1)]
        except Raised as error:
            return Outcome(case, "raised", message=str(error), layouts=self._layouts(case))
        faults = [fault for ran in runs for fault in _harm(ran, set(), {})]
        faults += _compared([ran.results for ran in runs], wanted.results, self._described.tolerance)
        return Outcome(case, "ran", _distinct(faults), layouts=self._layouts(case))

    def _run_fake(self, case: Case) -> Outcome:
        values = self._case_values(case)
        operands = {name: (value, case.arrangements.get(name, CONTIGUOUS)) for name, value in values.items()}
        try:
            promised = fake.promised(self._bound, operands)
        except fake.NotFake as error:
            return Outcome(case, "not applicable", reference=str(error))
        try:
            ran = self._forward(case, 0, 0)
        except Raised as error:
            return Outcome(case, "not applicable", reference=str(error))
        faults = fake.broken_promises(promised, ran.results)
        return Outcome(case, "ran", tuple(faults), layouts=self._layouts(case))

    def _reference(self, run: Callable[[], Ran]) -> Ran:
        try:
            return run()
        except Raised as error:
            raise _NotApplicable(f"It fails for contiguous operands of these values: {error}") from None

    # ------------------------------------------------------------------------------------------------------- runs

    def _case_values(self, case: Case, values: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """The values of each operand: those of the sample, cut to the case's sizes, shared where indices share them."""
        found = {}
        for name, value in (values or self._values).items():
            sizes = case.sizes.get(name)
            if sizes is not None:
                if len(sizes) != value.dim() or any(want > has for want, has in zip(sizes, value.shape, strict=True)):
                    raise _NotApplicable(f"`{name}` has no {sizes} first positions.")
                value = value[tuple(slice(size) for size in sizes)].contiguous()
            try:
                found[name] = arranged_values(value, case.arrangements.get(name, CONTIGUOUS))
            except RuntimeError as error:
                raise _NotApplicable(f"`{name}` can't be laid out so: {error}") from None
        return found

    def _watched(
        self, case: Case, fill: int, values: Mapping[str, Tensor] | None, like: Case | None
    ) -> dict[str, Watched]:
        own = self._case_values(like or case, values)
        return {name: Watched(value, case.arrangements.get(name, CONTIGUOUS), fill) for name, value in own.items()}

    def _forward(
        self, case: Case, fill: int, seed: int, *, values: Mapping[str, Tensor] | None = None, like: Case | None = None
    ) -> Ran:
        """Call it. `like` is the case whose values are taken."""
        import torch

        operands = self._watched(case, fill, values, like)
        with _quiet(), torch.no_grad():
            output = _called(lambda: self._bound.call({n: w.tensor for n, w in operands.items()}), seed)
        return Ran(_results(output), operands)

    def _gradients(
        self,
        case: Case,
        arrangement: Arrangement,
        fill: int,
        written: set[str],
        *,
        second: bool = False,
        like: tuple[Case, Arrangement] | None = None,
    ) -> Ran:
        """Gradients of every differentiable operand, by name, for gradients of the outputs in an arrangement."""

        operands = self._watched(case, fill, None, like[0] if like else None)
        wanted = {
            name: watched.tensor.detach().requires_grad_()
            for name, watched in operands.items()
            if name not in written and (watched.tensor.is_floating_point() or watched.tensor.is_complex())
        }
        given = {name: wanted.get(name, watched.tensor) for name, watched in operands.items()}
        held: dict[str, Watched] = {}

        def run() -> dict[str, Tensor]:
            output = self._bound.call(given)
            outputs = {n: t for n, t in _tensors(output).items() if t.requires_grad}
            for at, (name, tensor) in enumerate(outputs.items()):
                incoming = arranged_values(_incoming(tensor, at), like[1] if like else arrangement)
                held[f"gradient of {name}"] = Watched(incoming, arrangement, fill)
            return self._backward(outputs, wanted, held, second=second)

        with _quiet():
            results = _called(run, 0) if wanted else {}
        return Ran(results, operands | held)

    def _backward(
        self, outputs: Mapping[str, Tensor], wanted: Mapping[str, Tensor], held: Mapping[str, Watched], *, second: bool
    ) -> dict[str, Tensor]:
        import torch

        if not outputs:
            return {}
        incoming = [watched.tensor for watched in held.values()]
        first: Any = torch.autograd.grad(
            [*outputs.values()], [*wanted.values()], incoming, create_graph=second, allow_unused=True
        )
        names = [f"gradient of {name}" for name in wanted]
        if second:
            rooted = [gradient for gradient in first if gradient is not None and gradient.requires_grad]
            if not rooted:
                return {}
            seeds = [_incoming(gradient, at) for at, gradient in enumerate(rooted)]
            first = torch.autograd.grad(rooted, [*wanted.values()], seeds, allow_unused=True)
            names = [f"second gradient of {name}" for name in wanted]
        return {
            name: gradient.detach().clone() for name, gradient in zip(names, first, strict=True) if gradient is not None
        }

    def _layouts(self, case: Case) -> dict[str, Any]:
        from stridewise.checks.operators.grid import place

        values = self._case_values(case)
        return {
            name: place(case.arrangements.get(name, CONTIGUOUS), tuple(value.shape)).layout
            for name, value in values.items()
        }


class _NotApplicable(Exception):
    pass


# ------------------------------------------------------------------------------------------------------------ faults


def _harm(ran: Ran, written: set[str], wanted: Mapping[str, Tensor]) -> Iterator[Fault]:
    """What was written that is not to be written."""
    for name, watched in ran.operands.items():
        damage = watched.damage()
        if damage:
            yield Fault("writes outside", name, f"{damage.words} were written")
        elif name not in written and watched.is_changed():
            yield Fault("writes outside", name, "it is only read when it is contiguous, and was written")


def _compared(runs: list[dict[str, Tensor]], wanted: Mapping[str, Tensor], tolerance: float) -> Iterator[Fault]:
    for name, expected in wanted.items():
        found = [run.get(name) for run in runs]
        if any(result is None for result in found):
            yield Fault("wrong values", name, "there is none", 1.0)
            continue
        wrong = [difference(result, expected, tolerance) for result in found if result is not None]
        worst = max((entry for entry in wrong if entry is not None), key=lambda entry: entry.share, default=None)
        if worst is None:
            continue
        one, other = found
        assert one is not None
        assert other is not None
        varies = difference(one, other, tolerance)
        read = " What lies around an operand decides: memory was read that is not its own." if varies else ""
        yield Fault("wrong values", name, worst.detail + (f".{read}" if read else ""), worst.share)


def _without_effect(ran: Ran, reference: Ran, written: set[str]) -> Iterator[Fault]:
    """Operands that it writes when they are contiguous, and left as they were."""
    for name in written:
        if reference.operands[name].is_changed() and not ran.operands[name].is_changed():
            yield Fault("does nothing", name, "it still holds what it held before", 1.0)


def _distinct(faults: Any) -> tuple[Fault, ...]:
    """One fault of a kind for each result; of what had no effect it is not said that values are wrong."""
    found: dict[tuple[str, str], Fault] = {}
    for fault in faults:
        found.setdefault((fault.verdict, fault.what), fault)
    idle = {what for verdict, what in found if verdict == "does nothing"}
    outputs = {what for _, what in found}
    return tuple(
        fault
        for (verdict, what), fault in found.items()
        if not (verdict == "wrong values" and (what in idle or (idle and what.startswith("output") and outputs)))
    )


# -------------------------------------------------------------------------------------------------------- small things


def _contiguous(case: Case) -> Case:
    return replace(case, arrangements={}, gradient=None if case.gradient is None else CONTIGUOUS)


@contextmanager
def _quiet() -> Iterator[None]:
    """What it warns of was said when it ran in the program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _called(run: Callable[[], Any], seed: int) -> Any:
    import random
    import sys

    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    try:
        return run()
    except Exception as error:
        text = " ".join(str(error).split())[:_LONGEST]
        raise Raised(f"{type(error).__name__}: {text}" if text else type(error).__name__) from None


def _tensors(output: Any) -> dict[str, Tensor]:
    from stridewise.checks.operators.operands import _not_strided

    found = {name: tensor for name, tensor in tensors_of(output, "output") if not _not_strided(tensor)}
    return found


def _results(output: Any) -> dict[str, Tensor]:
    """Tensors of an output by name, and numbers; strides as they are."""
    import torch

    found = {name: tensor.detach() for name, tensor in _tensors(output).items()}
    if isinstance(output, (float, complex)):
        found["output"] = torch.tensor(output, dtype=torch.complex128 if isinstance(output, complex) else torch.float64)
    return found


def _incoming(tensor: Tensor, number: int) -> Tensor:
    """A gradient for a tensor: values that are all different, and do not depend on its layout."""
    import torch

    count = tensor.numel()
    values = torch.linspace(-1, 1.5, max(count, 1), dtype=torch.float64)[:count] + 0.25 * number
    return (
        values[torch.randperm(count, generator=torch.Generator().manual_seed(count))].reshape(tensor.shape).to(tensor)
    )


def _largest(results: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> float:
    """The largest difference of results with equal names, as a share."""
    found: list[Difference | None] = [
        difference(result, others[name], 0.0) for name, result in results.items() if name in others
    ]
    return max((entry.share for entry in found if entry is not None), default=0.0)


def _words(tolerance: float, base: float, noise: float, asked: float | None) -> str:
    if noise > tolerance:
        return f"within 10 times what equal calls differ by, {100 * noise:.2g} % of a result's largest magnitude"
    whole = f"within {100 * tolerance:.2g} % of a result's largest magnitude"
    if asked is not None:
        return f"{whole}, as asked"
    if not tolerance:
        return "all elements are the same"
    return (
        f"{whole}, ten times what it differs by from float64" if tolerance > base else f"{whole}, as its dtype allows"
    )
