"""What kinds of candidates look at: a recording, the source that it names, and the objects that were live. No torch."""

import ast
import inspect
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

from msgspec import Struct

from stridewise.analysis import inside
from stridewise.analysis.case import Case
from stridewise.analysis.copies import step_of
from stridewise.errors import InputError
from stridewise.findings import Finding, Site
from stridewise.recording.filenames import public_place
from stridewise.recording.model import SiteRow
from stridewise.repair.plan.costs import NO_COSTS, Costs
from stridewise.repair.plan.slow import Slow
from stridewise.results import Report
from stridewise.source.file import Function, SourceFile

Place = tuple[str | None, int | None, int | None, int | None, int | None]


class Live(Struct, frozen=True):
    """The objects of the program that was recorded. Their types are torch's; nothing here imports it."""

    model: Any | None
    """The `nn.Module` that a step calls, if there is one."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    output: Any = None
    """What a step returned."""
    loaders: tuple[Any, ...] = ()
    """The DataLoaders of the program."""
    target: Callable[..., Any] | None = None
    """The function that built the model and its arguments."""


class Context:
    """A report, the case behind it (positions in `report.copies` and `case.copies` are the same), and the source."""

    def __init__(
        self,
        report: Report,
        case: Case,
        live: Live,
        open_source: Callable[[str], SourceFile | None],
        slow: Sequence[Slow] = (),
        costs: Costs = NO_COSTS,
    ) -> None:
        self.report = report
        self.case = case
        self.live = live
        self.slow = tuple(slow)
        """The calls that were measured to be slower for their operands' strides."""
        self.costs = costs
        """Of all calls that were measured, and of copies."""
        self._open = open_source
        self._files: dict[str, SourceFile | None] = {}

    def findings(self, *codes: str) -> Iterator[tuple[Finding, list[int]]]:
        """The findings with one of these codes, costliest first, each with the copies that it is charged with."""
        for finding in self.report.findings:
            if finding.code in codes:
                yield finding, self._charged[finding.fingerprint]

    def file(self, name: str | None) -> SourceFile | None:
        """A source file by the name that sites have; None if it can't be edited, or is not what was running."""
        if name is None:
            return None
        if name not in self._files:
            try:
                self._files[name] = self._open(name)
            except InputError:
                self._files[name] = None
        return self._files[name]

    def calls_of(self, sites: Iterable[Site]) -> dict[Site, list[int]]:
        """The logged calls made at each of some places: the same expression, in whatever module."""
        return {site: list(self.calls_at.get(place_of(site), ())) for site in sites}

    def expression(self, site: Site) -> tuple[SourceFile, ast.expr] | None:
        """The expression at a site; None unless the file can be edited and still reads there as it did."""
        file = self.file(site.file)
        node = file.expression(site) if file is not None else None
        if file is None or node is None or site.expression is None:
            return None
        now, then = (" ".join(text.split()) for text in (file.source(node), site.expression))
        return (file, node) if now.startswith(then) else None  # the recorder keeps the beginning of a very long one

    def is_in_step(self, call: int) -> bool:
        """Whether a logged call was made in one of the steps that figures are of."""
        return self.step_of(call) is not None

    def step_of(self, call: int) -> int | None:
        """Which of those steps a logged call was made in, counted from 0."""
        mark = self.case.op_of_call(call)
        start_ns = None if mark is None else self.case.trace.ops.start_ns[mark]
        return step_of(self.case.trace, self._starts, start_ns)

    def is_written_after(self, call: int, ref: int) -> bool:
        """Whether the memory of a tensor that a call was given is written to later in the recording's step."""
        log, given = self.case.log, self.case.log.refs[ref]
        for later in takewhile(self.is_in_step, range(call, len(log.calls))):
            seen = (log.refs[at] for at in (*log.calls[later].inputs, *log.calls[later].outputs))
            if any(one.storage == given.storage >= 0 and one.version > given.version for one in seen):
                return self.step_of(later) == self.step_of(call)
        return False

    def modules_around(self, call: int) -> Iterator[int]:
        """The module calls that a logged call was made in, from the inside out."""
        return inside.modules_around(self.case.log, call)

    def called_module(self, call: int) -> int | None:
        """The module call that the expression at a call's site made: the outermost around the call that is torch's."""
        return inside.called_module(self.case.log, call)

    def is_what_its_site_gives(self, call: int) -> bool:
        """Whether a call gave what the expression at its site came to, and not something on the way there in torch."""
        return inside.is_what_its_site_gives(self.case.log, call)

    def functions_at(self, file: SourceFile, node: ast.expr) -> set[str]:
        """The functions of torch that an expression of a file called."""
        return self._functions.get(
            (file.name, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset), set()
        )

    def module(self, number: int) -> Any | None:
        """The live module that a module call ran; None if the live model has none of that path and type."""
        path, kind = self.case.log.modules[self.case.log.module_calls[number].module]
        try:
            found = self.live.model.get_submodule(path) if self.live.model is not None else None
        except AttributeError:
            return None
        return found if type(found).__name__ == kind else None

    def definition(self, function: Callable[..., Any]) -> tuple[SourceFile, Function] | None:
        """Where a live function is defined; None if that can't be edited."""
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is None:
            return None
        name, line = public_place(os.path.abspath(code.co_filename), code.co_firstlineno)
        file = self.file(name)
        if file is None:
            return None
        for node in ast.walk(file.tree):
            if isinstance(node, Function) and node.name == code.co_name and _first_line(node) == line:
                return file, node
        return None

    @cached_property
    def calls_at(self) -> dict[Place, list[int]]:
        """The logged calls by the place of their expression."""
        found: dict[Place, list[int]] = defaultdict(list)
        for position, call in enumerate(self.case.log.calls):
            if call.site >= 0:
                found[place_of(self.case.log.sites[call.site])].append(position)
        return found

    @cached_property
    def _functions(self) -> dict[tuple[object, ...], set[str]]:
        log = self.case.log
        found: dict[tuple[object, ...], set[str]] = defaultdict(set)
        for call in log.calls:
            if call.site >= 0 and call.via < 0:
                found[place_of(log.sites[call.site])].add(log.functions[call.function])
        return found

    @cached_property
    def _starts(self) -> list[int]:
        return [step.start_ns for step in self.case.trace.steps]

    @cached_property
    def _charged(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for position, copy in enumerate(self.report.copies):
            if copy.finding is not None:
                found[copy.finding].append(position)
        return found


def place_of(site: Site | SiteRow) -> Place:
    """What tells a place from others, whatever module ran it."""
    return site.file, site.line, site.column, site.end_line, site.end_column


def _first_line(function: Function) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
