"""Where a tensor left its layout, from the calls that a running recording has seen so far."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from stridewise.analysis.lineage import Flow, Goal
from stridewise.checks.contracts.kinds import Kind, meets
from stridewise.findings import Site
from stridewise.layout import Layout, memory_order
from stridewise.recorder.log import build_log
from stridewise.recording.model import CallLog, CallRow, LayoutRow

if TYPE_CHECKING:
    from torch import Tensor


class _Held(Goal, frozen=True):
    """A contract, asked of the tensors that a broken one comes from; of other ranks too, as a copy's goal is."""

    kind: str = "contiguous"
    other: Layout | None = None

    def is_met_by(self, row: LayoutRow) -> bool:
        given = row.layout
        if self.kind == "same_as" and self.other is not None and given.sizes != self.other.sizes:
            return memory_order(given) == tuple(sorted(memory_order(given)))
        if self.kind in ("channels_last", "channels_last_3d") and given.ndim != len(self.sizes):
            return meets("contiguous", given)
        return meets(self.kind, given, self.other)


def where_it_left(tensor: Tensor, kind: Kind, given: Layout, other: Layout | None) -> Site | None:
    """The call that took a tensor out of the layout that a contract asks for; None without a recording that saw it."""
    recorder = getattr(sys.modules.get("stridewise.recorder.live"), "_active", None)
    if recorder is None or not recorder.running:
        return None
    try:
        log = _log_with(recorder, tensor)
    except RuntimeError:  # other threads write to its tables: no origin is better than no error
        return None
    if log is None:
        return None
    flow = Flow(log)
    goal = _Held("reorder", memory_order(given), given.sizes, kind.name, other)
    found, _, _ = flow.walk(len(log.calls) - 1, 0, goal)
    if found.kind == "call":
        return _site_of(log, found.call)
    if found.kind in ("input", "parameter"):
        return Site(expression=found.name)
    first = _site_of(log, found.call) if found.call < len(log.calls) - 1 else None
    return None if first is None else Site(expression=f"the input of `{first.expression}` at {first.where}")


def _site_of(log: CallLog, call: int) -> Site | None:
    if log.calls[call].site < 0:
        return None
    return log.sites[log.calls[call].site].to_site()


def _log_with(recorder: Any, tensor: Tensor) -> CallLog | None:
    """What was recorded so far, and a last call that takes the tensor; None if no call has seen it."""
    import torch

    with torch._C.DisableTorchFunction():
        if recorder.calls.tensors.object_number(tensor) is None:
            return None
        ref = recorder.calls.ref(tensor)
    log = build_log(recorder.calls, recorder.modules, recorder.modules.learn_names())
    if not log.functions:
        return None
    log.calls.append(CallRow(sys.maxsize, -1, -1, 0, -1, [ref], []))
    return log
