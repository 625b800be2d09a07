"""What a recording saw at the expressions of the source: how tensors lay in every call, and what copies cost there."""

import ast
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from stridewise.analysis.case import Case
from stridewise.analysis.tally import Tally
from stridewise.findings import NOT_MEASURED, Cost
from stridewise.layout import LayoutClass, name
from stridewise.linter.facts.value import State

Place = tuple[int, int, int, int]
"""Line, column, end line and end column, as `ast` has them."""

_STATES: dict[LayoutClass, State] = {
    "contiguous": State.CONTIGUOUS,
    "channels_last": State.CHANNELS_LAST,
    "channels_last_3d": State.CHANNELS_LAST,
    "permuted": State.PERMUTED,
    "expanded": State.EXPANDED,
    "overlapping": State.GAPPED,
    "gapped": State.GAPPED,
}


class SeenCall(Struct, frozen=True):
    """All recorded calls of one expression. A state is None unless the tensor had it in each of them."""

    place: Place
    text: str | None
    """The line that the expression begins on, as it read when it was recorded."""
    calls: int
    receiver: State | None
    """How the first tensor that went in lay: a method's own."""
    output: State | None
    cost: Cost
    """Of the layout copies that the calls made, per step."""


class SeenFile(Struct, frozen=True):
    """The recorded calls of one file's source as it reads now."""

    calls: dict[Place, SeenCall]
    stale: int = 0
    """How many other calls are of lines that read otherwise now."""

    def at(self, node: ast.expr | ast.stmt) -> SeenCall | None:
        """The calls that an expression made; None if the recording has none."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.calls.get((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset))

    def output(self, node: ast.expr) -> State | None:
        """How what an expression gave lay in every recorded call."""
        call = self.at(node)
        return call.output if call is not None else None

    def receiver(self, node: ast.expr) -> State | None:
        """How the tensor whose method a call is lay in every recorded call."""
        call = self.at(node)
        return call.receiver if call is not None else None

    def cost(self, node: ast.expr | ast.stmt) -> Cost:
        """What the copies within a node cost per step; NOT_MEASURED if none of its calls was recorded."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        found = [call.cost for place, call in self.calls.items() if start <= place[:2] and place[2:] <= end]
        return _sum(found) if found else NOT_MEASURED


class Seen(Struct, frozen=True):
    """The recorded calls of all files, by the names that recordings give these."""

    files: dict[str, tuple[SeenCall, ...]]
    share_of: str

    def name_of(self, path: Path, name: str) -> str | None:
        """What the recording calls a file that is called `name` here; None if it has none of it.

        It names files relative to the folder that its run was started in, which may be another than this one.
        """
        if name in self.files:
            return name
        ends = [each for each in self.files if not os.path.isabs(each) and path.as_posix().endswith(f"/{each}")]
        return max(ends, key=len, default=None)

    def of(self, path: Path, name: str, lines: Sequence[str]) -> SeenFile | None:
        """The calls in a file, but for those on lines that read otherwise now; None if it was not recorded."""
        recorded = self.name_of(path, name)
        if recorded is None:
            return None
        found = self.files[recorded]
        current = {call.place: call for call in found if call.text is None or _reads(lines, call)}
        return SeenFile(current, len(found) - len(current))


def seen_calls(case: Case) -> Seen:
    """What a recording saw. Without a call log (a trace of torch's profiler) that is nothing."""
    log, tally = case.log, Tally(case)
    calls: dict[tuple[str, Place], list[int]] = defaultdict(list)
    for position, row in enumerate(log.calls):
        site = log.sites[row.site] if row.site >= 0 else None
        if site is None or site.line is None or site.column is None or site.end_line is None or site.end_column is None:
            continue
        calls[site.file, (site.line, site.column, site.end_line, site.end_column)].append(position)
    copies: dict[int, list[int]] = defaultdict(list)
    for position in case.taxed:
        copies[case.copies[position].call].append(position)
    files: dict[str, list[SeenCall]] = defaultdict(list)
    for (file, place), positions in calls.items():
        rows = [log.calls[position] for position in positions]
        files[file].append(
            SeenCall(
                place=place,
                text=log.sites[rows[0].site].text,
                calls=len(rows),
                receiver=_common(case, (row.inputs[:1] for row in rows)),
                output=_common(case, (row.outputs[:1] for row in rows)),
                cost=tally.cost([copy for position in positions for copy in copies[position]]),
            )
        )
    return Seen({file: tuple(found) for file, found in files.items()}, tally.share_of)


def _common(case: Case, refs: Iterable[list[int]]) -> State | None:
    """The state that all of some tensors have; None if they differ, or one's layout is not known."""
    states = {_state(case, ref[0]) if ref else None for ref in refs}
    return states.pop() if len(states) == 1 else None


def _state(case: Case, ref: int) -> State | None:
    row = case.flow.row(ref)
    return _STATES[name(row.layout)] if row is not None else None


def _sum(costs: list[Cost]) -> Cost:
    moved = [cost.bytes_moved for cost in costs]
    times = [cost.duration_ns for cost in costs]
    shares = [cost.share for cost in costs]
    return Cost(
        copies=sum(cost.copies or 0 for cost in costs),
        bytes_moved=None if None in moved else sum(filter(None, moved)),
        duration_ns=None if None in times else sum(filter(None, times)),
        share=None if None in shares else sum(filter(None, shares)),
    )


def _reads(lines: Sequence[str], call: SeenCall) -> bool:
    number = call.place[0]
    return 0 < number <= len(lines) and lines[number - 1].strip() == (call.text or "").strip()
