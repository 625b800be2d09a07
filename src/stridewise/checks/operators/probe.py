"""Runs a callable on operands in some layout, in this process, and holds what it does against contiguous ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stridewise.checks.operators import backward, fake, faults
from stridewise.checks.operators.backward import GRADIENT, Incoming
from stridewise.checks.operators.case import Arrangement, Case, Described, Fault, Outcome
from stridewise.checks.operators.compare import calibrated, difference, largest_magnitude, slack, tolerance_of
from stridewise.checks.operators.grid import CONTIGUOUS, place
from stridewise.checks.operators.memory import Watched, arranged_values
from stridewise.checks.operators.operands import Bound
from stridewise.checks.operators.options import Options
from stridewise.checks.operators.runs import Raised, Ran, called, copied, given, nudged
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.layout import Layout

_WRITES = ("in place", "out")
_OTHER_SEEDS = (1, 2, 3)
_NUDGES = (10, 20, 30, 40)
_NOT_COMPARABLE = 0.01
"""Equal calls that differ by more than this share say nothing of layouts."""


class Probe:
    """A callable with a sample of its arguments. Nothing is caught that is no Exception."""

    USUAL = "contiguous operands"
    OWN_STORAGE = False
    """Operands have storages that begin with them, and not with what is watched in front."""
    """What layouts are held against, in words."""

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options, name: str
    ) -> None:
        self._bound = self._bind(fn, args, kwargs)
        self._home: dict[str, Arrangement] = {}
        """The layouts of operands of which nothing else is said; contiguous without one."""
        self._options = options
        self._name = name
        self._values = {operand: copied(tensor) for operand, tensor in self._bound.tensors.items()}
        self.described: Described | None = None
        """What `describe` gave, here or in another process."""

    def _bind(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        return Bound(fn, args, kwargs)

    def answer(self, question: str) -> bytes:
        """What probes of some kinds say when they are asked."""
        raise NotImplementedError(question)

    # ------------------------------------------------------------------------------------------------ what it is

    def describe(self) -> Described:
        """What contiguous runs tell of the callable. Raises UsageError if it fails even then."""
        if self.described is not None:
            return self.described
        try:
            first, again, *others = (self._forward(self._values, {}, seed=seed) for seed in (0, 0, *_OTHER_SEEDS))
        except Raised as error:
            raise UsageError(
                f"`{self._name}` fails for {self.USUAL}: {error}",
                expected="Expected: a sample that it takes, to compare other layouts with.",
            ) from None
        written = self._bound.written | {name for name, watched in first.operands.items() if watched.is_written}
        results = first.held(written)
        # Numbers are Python's, of 64 bits, whatever they were computed in.
        base = tolerance_of(tensor.dtype for tensor in (*results.values(), *self._values.values()))
        noise = _largest(results, again.held(written))
        asked = self._options.tolerance
        tolerance = calibrated(base, self._inexact(results, written)) if asked is None else asked
        by_seed = max(_largest(results, other.held(written)) for other in others)
        gradients, notes = self._gradients_of_sample(written)
        self.described = Described(
            op=self._name,
            operands=tuple(
                replace(
                    operand,
                    role="in place" if operand.name in written and operand.role == "input" else operand.role,
                    home=self._home.get(operand.name),
                )
                for operand in self._bound.operands
            ),
            outputs=tuple(first.results),
            differentiable=bool(gradients),
            random=noise > _NOT_COMPARABLE or by_seed > max(tolerance, 10 * noise),
            noise=min(noise, 1.0),
            tolerance=min(max(tolerance, 10 * noise), 1.0),
            tolerance_words=_words(tolerance, base, noise, asked),
            magnitudes={name: largest_magnitude(tensor) for name, tensor in (results | gradients).items()},
            has_fake=False,
            notes=(*self._bound.notes, *notes),
        )
        return self._with_fake(self.described)

    def _inexact(self, results: Mapping[str, Tensor], written: Collection[str]) -> float | None:
        """How far results are from those in float64; None where it can't be told."""
        import torch

        narrow = torch.float16, torch.bfloat16, torch.float32
        values = {name: v.double() if v.dtype in narrow else v for name, v in self._values.items()}
        # A kernel behind an address may take what it gets for float32, and leave it.
        if all(values[name] is self._values[name] for name in values) or not fake.is_of_torch(
            self._bound, self._values
        ):
            return None
        try:
            exact = self._forward(values, {}).held(written)
        except Raised:
            return None
        if exact.keys() != results.keys() or any(exact[name].shape != results[name].shape for name in exact):
            return None
        return _largest(exact, {name: tensor.to(exact[name].dtype) for name, tensor in results.items()})

    def _gradients_of_sample(self, written: Collection[str]) -> tuple[dict[str, Tensor], tuple[str, ...]]:
        """The gradients of the operands that it has them for, and what to say if it fails."""
        if not self._options.gradients:
            return {}, ()
        able = [o for o in self._bound.operands if o.is_float and o.name not in written and o.role != "buffer"]
        names = [operand.name for operand in able]
        failed = None
        # Some operands it may have no gradient for: then those that the sample asks them for, then each alone.
        for leaves in (names, [o.name for o in able if o.requires_grad], [n for n in names if self._has_gradient(n)]):
            try:
                found = self._gradients(self._values, {}, frozenset(leaves), Incoming(CONTIGUOUS, CONTIGUOUS)).results
            except Raised as error:
                failed = failed or str(error)
            else:
                if found:
                    return found, ()
                if leaves == names:  # of nothing it has one
                    return {}, ()
        return {}, (f"Gradients were not compared: with operands that require them it raises {failed}",)

    def _has_gradient(self, name: str) -> bool:
        try:
            incoming = Incoming(CONTIGUOUS, CONTIGUOUS)
            return bool(self._gradients(self._values, {}, frozenset({name}), incoming).results)
        except Raised:
            return False

    def _with_fake(self, described: Described) -> Described:
        if not self._options.fake:
            return described
        notes = described.notes
        try:
            fake.promised(self._bound, {name: (value, CONTIGUOUS) for name, value in self._values.items()})
        except fake.NotFake as error:
            if self._bound.is_of_library:  # of others nobody expects one
                notes = (*notes, f"Strides that are promised to compilers were not compared: {error}.")
            self.described = replace(described, notes=notes)
        else:
            self.described = replace(described, has_fake=True)
        return self.described

    # --------------------------------------------------------------------------------------------------- one case

    def run(self, case: Case) -> Outcome:
        """Run a case, and hold it against contiguous operands of the same values."""
        described = self.describe()
        written = {operand.name for operand in described.operands if operand.role in _WRITES}
        try:
            _require_writable(case, written)
            values = self._case_values(case)
            if case.aspect == "fake":
                outcome = self._run_fake(case, values)
            elif case.aspect == "values":
                outcome = self._run_values(case, values, written, described)
            else:
                outcome = self._run_gradient(case, values, written, described)
        except NotApplicable as error:
            return Outcome(case, "not applicable", reference=str(error))
        return replace(outcome, layouts=_layouts(self._home | case.arrangements, values))

    def _run_values(self, case: Case, values: Mapping[str, Tensor], written: set[str], described: Described) -> Outcome:
        reference = _reference(lambda: self._forward(values, {}))
        # Of other sizes it may write what it did not write of the sample's.
        written = written | {name for name, watched in reference.operands.items() if watched.is_written}
        _require_writable(case, written)
        wanted = reference.held(written)
        if case.sizes:
            self._require_valid(values, reference, written, described)
        try:
            runs = [self._forward(values, case.arrangements, fill=fill) for fill in (0, 1)]
        except Raised as error:
            return Outcome(case, "raised", message=str(error))
        found = [fault for ran in runs for fault in faults.harm(ran, written)]
        if not described.random:
            results = [ran.held(written) for ran in runs]
            found += wrong(
                results, wanted, described, lambda nudge: self._forward(nudged(values, nudge), {}).held(written), values
            )
        found += faults.without_effect(runs[0], reference, written)
        return Outcome(case, "ran", faults.distinct(found))

    def _require_valid(
        self, values: Mapping[str, Tensor], reference: Ran, written: set[str], described: Described
    ) -> None:
        """Sizes that it does not take may make it leave its operands in any layout: that says nothing of layouts."""
        again = _reference(lambda: self._forward(values, {}, fill=1))
        wanted, results = reference.held(written), again.held(written)
        differ = faults.compared([results] * 2, wanted, described.tolerance, described.magnitudes)
        if any(faults.harm(reference, written)) or (not described.random and any(differ)):
            raise NotApplicable("For these sizes it leaves its operands even when they are contiguous.")

    def _run_gradient(
        self, case: Case, values: Mapping[str, Tensor], written: set[str], described: Described
    ) -> Outcome:
        if described.random:
            raise NotApplicable("Its values change at each call.")
        leaves = frozenset(name for name in values if f"{GRADIENT}{name}" in described.magnitudes)
        arrangement, second = case.gradient or CONTIGUOUS, case.aspect == "second order"

        def contiguous(nudge: int | None = None) -> Ran:
            own = values if nudge is None else nudged(values, nudge)
            return self._gradients(own, {}, leaves, Incoming(arrangement, CONTIGUOUS, nudge), second=second)

        reference = _reference(contiguous)
        incoming = Incoming(arrangement, arrangement)
        try:
            runs = [
                self._gradients(values, case.arrangements, leaves, incoming, fill=fill, second=second)
                for fill in (0, 1)
            ]
        except Raised as error:
            return Outcome(case, "raised", message=str(error))
        found = [fault for ran in runs for fault in faults.harm(ran, written, reference)]
        results = [ran.results for ran in runs]
        found += wrong(results, reference.results, described, lambda nudge: contiguous(nudge).results, values)
        return Outcome(case, "ran", faults.distinct(found))

    def _run_fake(self, case: Case, values: Mapping[str, Tensor]) -> Outcome:
        try:
            operands = {name: (value, case.arrangements.get(name, CONTIGUOUS)) for name, value in values.items()}
            promised = fake.promised(self._bound, operands)
            ran = self._forward(values, case.arrangements)
        except (fake.NotFake, Raised) as error:
            raise NotApplicable(str(error)) from None
        given_strides = {name: (tuple(ran.results[name].shape), strides) for name, strides in ran.strides.items()}
        return Outcome(case, "ran", tuple(fake.broken_promises(promised, given_strides)))

    # ------------------------------------------------------------------------------------------------------- runs

    def _case_values(self, case: Case) -> dict[str, Tensor]:
        """The values of each operand: those of the sample, cut to the case's sizes, shared where indices share them."""
        found = {}
        least = _least(case, self._values)
        for name, value in self._values.items():
            sizes = case.sizes.get(name)
            if sizes is not None:
                if len(sizes) != value.dim() or any(want > has for want, has in zip(sizes, value.shape, strict=True)):
                    raise NotApplicable(f"`{name}` has no {sizes} first positions.")
                value = value[tuple(slice(size) for size in sizes)].contiguous()
            if least is not None and _is_index(value):
                if not least and value.numel():
                    raise NotApplicable(f"`{name}` may hold indices, and there is nothing left to index.")
                value = value.clamp(-least, least - 1) if least else value
            try:
                found[name] = self._arranged(name, value, case)
            except RuntimeError as error:
                raise NotApplicable(f"`{name}` can't be laid out so: {error}") from None
        return found

    def _arranged(self, name: str, value: Tensor, case: Case) -> Tensor:
        """Values that both layouts can hold: the case's, and the one that it is held against."""
        home = self._home.get(name, CONTIGUOUS)
        held = arranged_values(arranged_values(value, home), case.arrangements.get(name, home))
        if not home.writable and not held.equal(arranged_values(held, home)):
            raise NotApplicable(f"`{name}` would share elements in two ways.")
        return held

    def _forward(
        self, values: Mapping[str, Tensor], arrangements: Mapping[str, Arrangement], *, fill: int = 0, seed: int = 0
    ) -> Ran:
        """Call it with operands of these values."""
        import torch

        operands = self._watched(values, arrangements, fill)

        def run() -> Ran:
            with torch.no_grad():
                tensors = {name: watched.tensor for name, watched in operands.items()}
                return given(self._bound.call(tensors, seed), operands)

        found: Ran = called(run, seed)
        return found

    def _gradients(
        self,
        values: Mapping[str, Tensor],
        arrangements: Mapping[str, Arrangement],
        leaves: frozenset[str],
        incoming: Incoming,
        *,
        fill: int = 0,
        second: bool = False,
    ) -> Ran:
        operands = self._watched(values, arrangements, fill)
        return backward.gradients(self._bound, operands, leaves, incoming, fill, second=second)

    def _watched(
        self, values: Mapping[str, Tensor], arrangements: Mapping[str, Arrangement], fill: int
    ) -> dict[str, Watched]:
        """Operands with these values, laid out."""
        own = self._home | dict(arrangements)
        return {
            name: Watched(value, own.get(name, CONTIGUOUS), fill, own_storage=self.OWN_STORAGE)
            for name, value in values.items()
        }


class NotApplicable(Exception):
    """A case that can't be run, or says nothing; its text says why."""


def _layouts(arrangements: Mapping[str, Arrangement], values: Mapping[str, Tensor]) -> dict[str, Layout]:
    return {
        name: place(arrangements.get(name, CONTIGUOUS), tuple(value.shape)).layout for name, value in values.items()
    }


def _reference(run: Callable[[], Ran]) -> Ran:
    try:
        return run()
    except Raised as error:
        raise NotApplicable(f"It fails for contiguous operands of these values: {error}") from None


def _require_writable(case: Case, written: set[str]) -> None:
    for name in written:
        if not case.arrangements.get(name, CONTIGUOUS).writable:
            raise NotApplicable(f"`{name}` is written to, and would share elements.")


def _least(case: Case, values: Mapping[str, Tensor]) -> int | None:
    """The smallest size that some operand was cut to; None if none was."""
    cut = [
        size
        for name, sizes in case.sizes.items()
        if name in values and len(sizes) == values[name].dim()
        for size, whole in zip(sizes, values[name].shape, strict=True)
        if size < whole
    ]
    return min(cut, default=None)


def _is_index(value: Tensor) -> bool:
    import torch

    return value.dtype in (torch.int32, torch.int64)


def wrong(
    runs: Sequence[Mapping[str, Tensor]],
    wanted: Mapping[str, Tensor],
    described: Described,
    rounded: Callable[[int], Mapping[str, Tensor]],
    values: Mapping[str, Tensor],
) -> list[Fault]:
    """What differs from the reference by more than how it differs itself for operands `rounded` otherwise."""
    allowed = described.tolerance, described.magnitudes
    found = list(faults.compared(runs, wanted, *allowed))
    if not found:
        return found
    try:
        others = [rounded(nudge) for nudge in _NUDGES]
    except Raised:
        return found
    magnitude = max(map(largest_magnitude, values.values()), default=0.0)
    return list(faults.compared(runs, wanted, *allowed, slack(wanted, others, magnitude)))


def _largest(results: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> float:
    """The largest difference of results with equal names, as a share."""
    found = [difference(result, others[name], 0.0) for name, result in results.items() if name in others]
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
