"""The calls of a recording by the nodes of source that made them, and who wrote to their memory."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct

from stridewise.analysis.functions import short_name
from stridewise.findings import Site
from stridewise.recording.model import LayoutRow
from stridewise.repair.context import Context, place_of
from stridewise.repair.reading.imported import Names
from stridewise.source.file import SourceFile

_WRITES = frozenset({"__setitem__", "__set__"})


class Requested(Struct, frozen=True):
    """A place in the source that asks for copies, with the copies that it made."""

    file: SourceFile
    node: ast.Call
    copies: tuple[int, ...]
    """Positions in the case's copies."""


class Recorded:
    """Answers what a recording knows of nodes in source files."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.case = context.case
        self._names: dict[str, Names] = {}

    def names(self, file: SourceFile) -> Names:
        """The names of a file."""
        return self._names.setdefault(file.name, Names(file))

    def calls(self, file: SourceFile, node: ast.expr | ast.stmt) -> list[int]:
        """The calls whose site is exactly a node, those inside torch (`nn.Dropout`) included."""
        key = (file.name, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        return self.context.calls_at.get(key, [])

    def places(self, function: str) -> Iterator[Site]:
        """The places that call a function by its short name, in order of time."""
        found: dict[int, int] = {}
        for position, call in enumerate(self.case.log.calls):
            if call.via < 0 <= call.site and self.name(position) == function:
                found.setdefault(call.site, position)
        return (self.case.site(position) for position in found.values())

    def inputs(self, call: int) -> list[LayoutRow | None]:
        """The layouts of what went into a call."""
        return [self.case.flow.row(ref) for ref in self.case.log.calls[call].inputs]

    def output(self, call: int) -> LayoutRow | None:
        """The layout of the first tensor that came out of a call."""
        outputs = self.case.log.calls[call].outputs
        return self.case.flow.row(outputs[0]) if outputs else None

    def name(self, call: int) -> str:
        """The short name of the function that was called."""
        return short_name(self.case.function(call))

    def findings(self, copies: Iterator[int] | tuple[int, ...]) -> tuple[str, ...]:
        """The fingerprints of the findings that copies are charged to."""
        rows = (self.context.report.copies[position].finding for position in copies)
        return tuple(dict.fromkeys(row for row in rows if row is not None))

    def requested(self, *functions: str) -> Iterator[Requested]:
        """Where the program itself calls functions that then copy, costliest first."""
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for position in self.case.taxed:
            copy = self.case.copies[position]
            row = self.case.log.calls[copy.call] if copy.direct and copy.call >= 0 else None
            if row is not None and row.via < 0 <= row.site and self.name(copy.call) in functions:
                groups[place_of(self.case.log.sites[row.site])].append(position)
        for copies in sorted(groups.values(), key=lambda group: -self._duration(group)):
            site = self.case.site(self.case.copies[copies[0]].call)
            file = self.context.file(site.file)
            node = None if file is None else file.expression(site)
            if file is not None and isinstance(node, ast.Call):
                yield Requested(file, node, tuple(copies))

    def is_written(self, call: int) -> bool:
        """Whether a copy has to stay a copy: its memory, or while it is used that of its source, is written to."""
        row = self.case.log.calls[call]
        if not row.inputs or not row.outputs:
            return True
        made, source = self.case.log.refs[row.outputs[0]], self.case.log.refs[row.inputs[0]]
        if made.storage < 0 or source.storage < 0 or made.storage == source.storage:
            return True
        uses = [use for use in self._uses[made.storage] if use[0] > call]
        last = max((use[0] for use in uses), default=call)
        if any(writes or version > made.version for _, version, writes in uses):
            return True
        return any(
            writes or version > source.version
            for at, version, writes in self._uses[source.storage]
            if call < at <= last
        )

    def _duration(self, copies: list[int]) -> int:
        return sum(self.case.copies[position].duration_ns or 0 for position in copies)

    @cached_property
    def _uses(self) -> dict[int, list[tuple[int, int, bool]]]:
        """Of each storage: the calls that saw it, at which version, and whether they wrote to it."""
        found: dict[int, list[tuple[int, int, bool]]] = defaultdict(list)
        log = self.case.log
        for position, call in enumerate(log.calls):
            name = self.name(position)
            in_place = name in _WRITES or name.rstrip("_") + "_" == name or name.startswith("__i")
            for place, index in enumerate(call.inputs):
                ref = log.refs[index]
                writes = in_place and (place == 0 or name.startswith("_foreach"))
                found[ref.storage].append((position, ref.version, writes))
            for index in call.outputs:
                found[log.refs[index].storage].append((position, log.refs[index].version, False))
        return found
