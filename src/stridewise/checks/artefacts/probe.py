"""Runs an artefact, in a child process, and holds it against itself in the layouts it was made for, and a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from stridewise.checks.artefacts import branches, elided
from stridewise.checks.artefacts.arguments import leaves_of
from stridewise.checks.artefacts.opened import Called, Opened, steady
from stridewise.checks.operators.case import Arrangement, Beside, Case, Outcome
from stridewise.checks.operators.check import require_small
from stridewise.checks.operators.memory import Watched, arranged_values
from stridewise.checks.operators.operands import Bound
from stridewise.checks.operators.options import Options
from stridewise.checks.operators.probe import Probe, wrong
from stridewise.checks.operators.runs import Raised, called, copied, given
from stridewise.layout import Layout, contiguous_strides, is_overlapping

if TYPE_CHECKING:
    from torch import Tensor

MADE_FOR = "the layouts that it was made for"
_UNMATCHED = re.compile(r"input_handles\[(\d+)\]: unmatched stride value at (\d+), expected: (-?\d+)")
_MOST_ASKED = 200


class ArtefactProbe(Probe):
    """An artefact with its arguments, and the eager model that it was made from, if that is there."""

    USUAL = MADE_FOR
    OWN_STORAGE = True

    def __init__(self, opened: Opened, options: Options, model: Callable[..., Any] | None = None) -> None:
        self._opened = opened
        super().__init__(opened.call, *opened.arguments, options, opened.subject.name)
        self._model = None if model is None else Called(steady(model), *opened.arguments, opened.names)
        require_small(self._bound)
        for name, tensor in self._bound.tensors.items():
            strides = opened.strides.get(id(tensor), tuple(tensor.stride()))
            home = _home(tuple(tensor.shape), strides, int(tensor.storage_offset()))
            if home is not None:
                self._home[name] = home
                self._values[name] = arranged_values(self._values[name], home)

    def _bind(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        return Called(fn, args, kwargs, self._opened.names)

    def _inexact(self, results: Mapping[str, Tensor], written: Collection[str]) -> float | None:
        """It takes no other dtypes than its own."""
        return None

    def run(self, case: Case) -> Outcome:
        """Run a case, and hold it against the layouts that it was made for, and against the model."""
        outcome = super().run(case)
        if self._model is None or outcome.status == "not applicable":
            return outcome
        return replace(outcome, beside=self._beside(case, outcome))

    def answer(self, question: str) -> bytes:
        """`facts`; `strides` that it asks for; `asked CASE`, by the model; `node CASE`, at which it raises."""
        what, _, about = question.partition(" ")
        found: Any
        if what == "facts":
            found = self._opened.facts({id(tensor): name for name, tensor in self._bound.tensors.items()})
        elif what == "strides":
            found = self._strides_asked()
        elif what == "alone":
            found = super().run(msgspec.json.decode(about, type=Case))
        else:
            case = msgspec.json.decode(about, type=Case)
            found = self._layouts_asked(case) if what == "asked" else self._node(case)
        return msgspec.json.encode(found)

    # -------------------------------------------------------------------------------------------------- the model

    def _beside(self, case: Case, outcome: Outcome) -> Beside | None:
        described = self.describe()
        values = self._case_values(case)
        try:
            own = None if outcome.status == "raised" else list(self._forward(values, case.arrangements).results.items())
            names = None if own is None else [name for name, _ in own]
            eager = self._eager(values, case, names)
            if own is None or described.random:
                return Beside()
            if eager is None:
                return None
            found = wrong(
                [dict(own)] * 2, eager, described, lambda nudge: self._eager_nudged(values, case, names, nudge), values
            )
        except Raised as error:
            return Beside(str(error))
        return Beside(faults=tuple(found))

    def _eager(self, values: Mapping[str, Tensor], case: Case, names: list[str] | None) -> dict[str, Tensor] | None:
        """What the model gives, by the names of the artefact's results; None if it gives another number of them."""
        import torch

        model = self._model
        assert model is not None
        tensors = self._laid_out(values, case)

        def run() -> list[Tensor]:
            with torch.no_grad():
                return list(given(model.call(tensors), {}).results.values())

        results = called(run, 0)
        if names is None or len(results) != len(names):
            return None
        return dict(zip(names, results, strict=True))

    def _eager_nudged(
        self, values: Mapping[str, Tensor], case: Case, names: list[str] | None, nudge: int
    ) -> dict[str, Tensor]:
        from stridewise.checks.operators.runs import nudged

        return self._eager(nudged(values, nudge), case, names) or {}

    def _laid_out(self, values: Mapping[str, Tensor], case: Case) -> dict[str, Tensor]:
        return {name: watched.tensor for name, watched in self._watched(values, case.arrangements, 0).items()}

    def _layouts_asked(self, case: Case) -> tuple[Any, ...]:
        model = self._model
        if model is None:
            return ()
        values = self._case_values(case)
        home, other = (self._laid_out(values, each) for each in (Case(), case))
        return branches.differing(lambda: model.call(home), lambda: model.call(other))

    # ---------------------------------------------------------------------------------------------- the artefact

    def _node(self, case: Case) -> Any:
        """The node of an exported graph at which it raises for a case; None if it has no graph, or does not."""
        if self._opened.graph is None:
            return None
        trace = elided.Trace(self._opened.graph)
        args, kwargs = self._opened.arguments
        tensors = self._laid_out(self._case_values(case), case)
        return trace.raising(lambda: Called(trace, args, kwargs, self._opened.names).call(tensors))

    def _strides_asked(self) -> tuple[tuple[int, ...], ...] | None:
        """The strides that an AOTInductor package expects, where it checks them; None if it does not."""
        import torch

        leaves = [leaf for leaf in leaves_of(self._opened.arguments) if isinstance(leaf, torch.Tensor)]
        strides = [list(self._opened.strides.get(id(leaf), leaf.stride())) for leaf in leaves]
        if not self._does_check(leaves):
            return None
        for _ in range(_MOST_ASKED):
            error = self._error(leaves, strides)
            found = _UNMATCHED.search(error or "")
            if found is None:
                return tuple(map(tuple, strides)) if error is None else None
            at, dim, wanted = map(int, found.groups())
            strides[at][dim] = wanted
        return None

    def _does_check(self, leaves: list[Tensor]) -> bool:
        """Whether strides that none was made for are refused."""
        odd = [[2 * stride + 1 for stride in leaf.stride()] for leaf in leaves]
        return bool(_UNMATCHED.search(self._error(leaves, odd) or ""))

    def _error(self, leaves: list[Tensor], strides: list[list[int]]) -> str | None:
        """What it raises for these strides."""
        values = {name: copied(tensor) for name, tensor in self._bound.tensors.items()}
        by_id = dict(zip(map(id, leaves), strides, strict=True))
        arranged = {name: Arrangement("asked", strides=tuple(by_id[id(self._bound.tensors[name])])) for name in values}
        tensors = {name: Watched(value, arranged[name], 0).tensor for name, value in values.items()}
        try:
            called(lambda: self._bound.call(tensors), 0)
        except Raised as error:
            return str(error)
        return None


def _home(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Arrangement | None:
    """The layout of these strides, so many elements behind the beginning of its storage; None for a usual one."""
    if strides == contiguous_strides(sizes) and not offset:
        return None
    shares = is_overlapping(Layout(sizes, strides, 0))
    return Arrangement("x as it was made for", strides=strides, shares=shares, offset=offset)
