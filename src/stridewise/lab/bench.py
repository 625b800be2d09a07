"""What an experiment is given to measure with, and what it has found so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stridewise.lab.compared import Compared
from stridewise.lab.recorded import Recorded, record_call
from stridewise.lab.refusal import Refused, Result, tried
from stridewise.measure.rounds import rounds
from stridewise.results.lab import Counts, Prediction, Sameness

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.lab.devices import Device
    from stridewise.lab.ranks import Ranks

_TOLERANCE: Mapping[str, float] = {"float64": 1e-9, "float32": 1e-4, "bfloat16": 3e-2, "float16": 3e-3}
"""Relative to the largest value: what another order of the same sums may change."""
_TF32 = 3e-3
"""Of float32 on a GPU, where convolutions multiply 10 bits of each number by default."""


class Effort(Struct, frozen=True):
    """How long arms are measured."""

    rounds: int
    sample_ns: float
    quick: bool


QUICK = Effort(rounds=15, sample_ns=1.5e6, quick=True)
FULL = Effort(rounds=21, sample_ns=20e6, quick=False)


class Bench:
    """Measures arms, and keeps what was found.

    An experiment measures with `compare`, `record` and `count`, and says with each prediction what has to be seen if a
    claim is true, and whether it was: `predict` takes those that a comparison makes (`times.faster(…)`), `expect` and
    its kin take a fact. What can't be tested here is `untested`, with why.
    """

    def __init__(self, device: Device, effort: Effort, ranks: Ranks) -> None:
        self.device = device
        self.effort = effort
        self.ranks = ranks
        """Two processes that can reduce tensors together."""
        self.compared: list[Compared] = []
        self.counted: list[Counts] = []
        self.predictions: list[tuple[str, Prediction]] = []
        self._coins = Random(0)

    @property
    def quick(self) -> bool:
        """Whether what takes long is left out."""
        return self.effort.quick

    @property
    def on_gpu(self) -> bool:
        """Whether tensors lie on a GPU."""
        return self.device.kind == "cuda"

    def randn(self, *sizes: int, **options: Any) -> Tensor:
        """Random numbers on the device; `options` as those of `torch.randn`."""
        import torch

        return torch.randn(*sizes, device=self.device.place, **options)

    def compare(
        self,
        title: str,
        arms: Mapping[str, Callable[[], Any]],
        *,
        grad: bool = False,
        timed: bool = True,
        tolerance: float | None = None,
    ) -> Compared:
        """Time arms against each other, compare what they return with what the first returns, and count their copies.

        An arm's name is what it does, as code or in words; it returns its result, or None. Without `grad` they run
        under `torch.no_grad()`. Without `timed` only copies are counted and results compared. `tolerance` is what
        rounding may change, relative to the largest value; unless it is given, the results' type says.

        An arm that an operator refuses is not timed, and what is predicted of it did not come true. Raises what the
        first raises if all are refused.
        """
        import torch

        with torch.set_grad_enabled(grad):
            results = {name: tried(run) for name, run in arms.items()}
            refused = {name: result for name, result in results.items() if isinstance(result, Refused)}
            if len(refused) == len(arms):
                raise next(iter(refused.values())).error
            first, *others = results
            tolerances = self._tolerances(tolerance)
            same = {name: _sameness(results[first], results[name], tolerances) for name in others}
            del results
            records = {name: self.record(partial(tried, run) if name in refused else run) for name, run in arms.items()}
            samples = None
            if timed:

                def sample(run: Callable[[], Any]) -> Callable[[int], float]:
                    return lambda calls: self.device.time(run, calls)

                runs = [sample(run) for name, run in arms.items() if name not in refused]
                samples = rounds(runs, self.effort.rounds, self.effort.sample_ns, self._coins)
        found = Compared(title, records, same, samples, refused)
        if timed:
            self.compared.append(found)
        if refused:
            self.count(f"Calls that raise: {title}", "calls", dict.fromkeys(refused, 1))
        return found

    def record(self, run: Callable[[], object]) -> Recorded:
        """What the recorder sees of one call. Raises what that raises: what may be refused is called by `tried`."""

        def whole() -> None:
            run()
            self.device.wait()

        return record_call(whole)

    def count(self, title: str, unit: str, values: Mapping[str, float]) -> None:
        """Keep counted things for the report; `unit` says of what: `copies`, `kernels`, `B`."""
        self.counted.append(Counts(title, unit, dict(values)))

    def predict(self, claim: str, prediction: Prediction) -> None:
        """What has to be seen if a claim is true, and whether it was."""
        self.predictions.append((claim, prediction))

    def expect(self, claim: str, text: str, came_true: bool, measured: object) -> None:
        """A prediction from its parts: what the claim predicts, whether that was seen, and what was, with figures."""
        self.predict(claim, Prediction(text, bool(came_true), str(measured)))

    def expect_of(
        self,
        claim: str,
        text: str,
        result: Result | Refused,
        came_true: Callable[[Result], bool],
        measured: Callable[[Result], object],
    ) -> None:
        """A prediction about the result of a call, as `tried` gives it: of one that was refused it was not seen."""
        if isinstance(result, Refused):
            self.expect(claim, text, False, f"it {result.said}")
        else:
            self.expect(claim, text, came_true(result), measured(result))

    def expect_of_all(self, claim: str, text: str, came_true: Collection[bool], measured: object, none: str) -> None:
        """A prediction about each of several things: not tested if there are none, which is what `none` says."""
        if came_true:
            self.expect(claim, text, all(came_true), measured)
        else:
            self.untested(claim, text, none)

    def untested(self, claim: str, text: str, why: str) -> None:
        """A prediction that can't be tested here, and why."""
        self.predict(claim, Prediction(text, None, why))

    def _tolerances(self, given: float | None) -> Mapping[str, float]:
        """What rounding may change, by type."""
        if given is not None:
            return dict.fromkeys(_TOLERANCE, given)
        return {**_TOLERANCE, "float32": _TF32} if self.on_gpu else _TOLERANCE


def _sameness(one: Any, other: Any, tolerances: Mapping[str, float]) -> Sameness | None:
    """How two results compare, as far as they are tensors, or tuples and lists of them and of others."""
    import torch

    known = torch.Tensor, tuple, list
    return _of_values(one, other, tolerances) if isinstance(one, known) and isinstance(other, known) else None


def _of_values(one: Any, other: Any, tolerances: Mapping[str, float]) -> Sameness | None:
    import torch

    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return _of_tensors(one, other, tolerances)
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        if len(one) != len(other):
            return "different"
        found = {_of_values(left, right, tolerances) for left, right in zip(one, other, strict=True)}
        return next((worst for worst in _WORST_FIRST if worst in found), None)
    return "bit by bit" if type(one) is type(other) and one == other else "different"


_WORST_FIRST: tuple[Sameness, ...] = ("different", "within rounding", "bit by bit")


def _of_tensors(one: Tensor, other: Tensor, tolerances: Mapping[str, float]) -> Sameness:
    import torch

    if one.shape != other.shape:
        return "different"
    if one.dtype == other.dtype and torch.equal(one, other):
        return "bit by bit"
    left, right = one.detach().double(), other.detach().double()
    tolerance = max(tolerances.get(str(value.dtype).removeprefix("torch."), 0.0) for value in (one, other))
    finite = left[left.isfinite()]
    scale = finite.abs().max().item() if finite.numel() else 0.0
    return "within rounding" if torch.allclose(left, right, 0.0, tolerance * scale, equal_nan=True) else "different"
