"""What kinds of candidates look at: a recording, the source that it names, and the objects that were live. No torch."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

from msgspec import Struct

from stridewise.analysis.case import Case
from stridewise.errors import InputError
from stridewise.findings import Finding, Site
from stridewise.repair.source import SourceFile
from stridewise.results import Report


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
        self, report: Report, case: Case, live: Live, open_source: Callable[[str], SourceFile | None]
    ) -> None:
        self.report = report
        self.case = case
        self.live = live
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
        wanted = {_place(site): site for site in sites}
        found: dict[Site, list[int]] = {site: [] for site in wanted.values()}
        for call in range(len(self.case.log.calls)):
            site = wanted.get(_place(self.case.site(call)))
            if site is not None:
                found[site].append(call)
        return found

    @cached_property
    def _charged(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for position, copy in enumerate(self.report.copies):
            if copy.finding is not None:
                found[copy.finding].append(position)
        return found


def _place(site: Site) -> tuple[object, ...]:
    return site.file, site.line, site.column, site.end_line, site.end_column
