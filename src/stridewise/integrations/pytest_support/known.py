"""What is known of a test's layout: its findings, told apart by what survives edits elsewhere in their files."""

import ast
import functools
import os
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from stridewise.findings import Finding, Site
from stridewise.results import Report, numbers

Key = tuple[str, str, str, str]
_DIGITS = 3
"""Of copies a step: a third of one is 0.333."""


class Known(Struct, frozen=True, order=True):
    """The findings of one code at one expression of one function; figures are per step, of all of them together."""

    code: str
    file: str
    """From the root folder on, in an installed package from that on; empty where there is none."""
    function: str
    expression: str
    count: int
    copies: float
    bytes: int

    @property
    def key(self) -> Key:
        """What makes it the same finding in another run, also if a formatter went over its file meanwhile."""
        return self.code, self.file, self.function, _plain(self.expression)

    def __str__(self) -> str:
        place = f"{self.file}, {self.function}" if self.file and self.function else self.file or self.function
        return f"{place or 'the whole test'}: {self.code} {self.expression}{self._figures()}"

    def _figures(self) -> str:
        if not self.copies:
            return f", {numbers.count(self.count, 'time')}"
        return f", {numbers.count(self.copies, 'copy', 'copies')}, {numbers.byte_count(self.bytes)}"


class Change(Struct, frozen=True):
    """What differs in a test from what was known."""

    new: tuple[Known, ...]
    grown: tuple[tuple[Known, Known], ...]
    """Before and now: more of them, more copies, or more bytes."""
    gone: tuple[Known, ...]
    """Or fewer, as it was before."""


def grouped(reports: Iterable[Report], root: Path) -> dict[Key, list[Finding]]:
    """The findings of a test's recordings, those together that are one in the baseline."""
    groups: dict[Key, list[Finding]] = {}
    for report in reports:
        for finding in report.findings:
            groups.setdefault(_key(finding, root), []).append(finding)
    return groups


def known(groups: Mapping[Key, Sequence[Finding]]) -> tuple[Known, ...]:
    """What the baseline keeps of them, in order."""
    return tuple(sorted(_sum(key, findings) for key, findings in groups.items()))


def compare(before: Collection[Known], now: Collection[Known]) -> Change:
    """What differs between two runs of a test. Time is no part of it."""
    old, new = _by_key(before), _by_key(now)
    pairs = [(old[key], new[key]) for key in new if key in old]
    return Change(
        new=tuple(each for key, each in new.items() if key not in old),
        grown=tuple((one, other) for one, other in pairs if _grew(one, other)),
        gone=(
            *(each for key, each in old.items() if key not in new),
            *(one for one, other in pairs if _grew(other, one) and not _grew(one, other)),
        ),
    )


def _by_key(side: Iterable[Known]) -> dict[Key, Known]:
    found: dict[Key, Known] = {}
    for each in side:
        if (same := found.get(each.key)) is not None:
            sums = (each.count + same.count, round(each.copies + same.copies, _DIGITS), each.bytes + same.bytes)
            each = Known(*each.key, *sums)
        found[each.key] = each
    return found


def _grew(before: Known, now: Known) -> bool:
    return now.count > before.count or now.copies > before.copies or now.bytes > before.bytes


def _key(finding: Finding, root: Path) -> Key:
    site = finding.site
    file = _portable(site.file, root) if site.file is not None else ""
    return finding.code, file, site.function or _module(site), _plain(site.expression or "")


@functools.lru_cache(4096)
def _plain(expression: str) -> str:
    """An expression without what formatters change: spaces, quotes, brackets, commas. What is no Python stays."""
    for text in (f"({expression}\n)", expression):
        try:
            with warnings.catch_warnings(action="ignore"):
                return " ".join(ast.unparse(ast.parse(text)).split())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return " ".join(expression.split())


def _module(site: Site) -> str:
    return site.module or "" if site.file is None else ""


def _sum(key: Key, findings: Sequence[Finding]) -> Known:
    copies = sum(finding.cost.copies or 0 for finding in findings)
    moved = sum(finding.cost.bytes_moved or 0 for finding in findings)
    count = sum(finding.count for finding in findings)
    return Known(*key, count, round(copies, _DIGITS), round(moved))


def _portable(file: str, root: Path) -> str:
    """A name that is the same on every machine and from every folder: recordings name files from where they ran on."""
    root = Path(os.path.realpath(root))
    for folder in _folders(root):
        path = os.path.join(folder, file)
        if os.path.isfile(path):
            real = Path(os.path.realpath(path))
            if real.is_relative_to(root) and not {"site-packages", "dist-packages"} & set(real.parts):
                return real.relative_to(root).as_posix()
            break
    return file.replace(os.sep, "/") if not os.path.isabs(file) else f".../{os.path.basename(file)}"


def _folders(root: Path) -> Iterator[str]:
    yield os.getcwd()
    yield str(root)
    yield from sys.path
