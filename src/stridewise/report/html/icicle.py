"""Where a step's copied bytes are, from modules over calls down to copies: the data of an icicle, and of a table."""

from collections import defaultdict
from typing import Any, NamedTuple

from stridewise.report.html.text import label
from stridewise.results import Copy, Report

_MOST_LEAVES = 600
_OUTSIDE = "outside modules"

_Path = tuple[str, ...]


class Paid(NamedTuple):
    """What the copies of one call in one module come to, in all steps."""

    module: str
    call: str
    where: str
    copies: int
    moved: int


def paid_by_call(report: Report) -> list[Paid]:
    """The calls that hold copies of the tax, those that move most first."""
    found: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for copy in _taxed(report):
        found[_module(copy), _call(copy), copy.site.where if copy.site and copy.site.file else ""].append(
            copy.bytes_moved or 0
        )
    rows = [Paid(*key, len(moved), sum(moved)) for key, moved in found.items()]
    return sorted(rows, key=lambda row: -row.moved)


def icicle_data(report: Report) -> dict[str, Any] | None:
    """Ids, labels, parents and bytes moved a step, as plotly takes them; None where no copy has a size."""
    leaves: defaultdict[_Path, float] = defaultdict(float)
    for copy in _taxed(report):
        if copy.bytes_moved:
            leaves[_path(copy)] += copy.bytes_moved / report.totals.steps
    if not leaves:
        return None
    kept = sorted(leaves.items(), key=lambda item: -item[1])
    rest = sum(moved for _, moved in kept[_MOST_LEAVES:])
    kept = kept[:_MOST_LEAVES] + ([(("smaller ones",), rest)] if rest else [])
    return _columns({path: round(moved) for path, moved in kept})


def _taxed(report: Report) -> list[Copy]:
    return [copy for copy in report.copies if copy.taxed]


def _module(copy: Copy) -> str:
    return (copy.site.module if copy.site is not None else None) or _OUTSIDE


def _call(copy: Copy) -> str:
    return (copy.site.expression if copy.site is not None else None) or copy.call or copy.op


def _path(copy: Copy) -> _Path:
    module = _module(copy)
    modules = (module,) if module == _OUTSIDE else tuple(label(part) for part in module.split("."))
    line = copy.site.line if copy.site is not None else None
    call = f"{label(_call(copy))} · line {line}" if line else label(_call(copy))
    what = f"{copy.kind} {copy.change}{' in backward' if copy.backward else ''} of {copy.sizes}"
    return (*modules, call, what)


def _named(path: _Path) -> str:
    """A node by its own part of the path; one of a list of modules with the list's name."""
    if not path:
        return "copies of a step"
    return f"{path[-2]}.{path[-1]}" if len(path) > 1 and path[-1].isdecimal() else path[-1]


def _columns(leaves: dict[_Path, int]) -> dict[str, Any]:
    """Every node with the sum of what lies below it. Branches with a single child stay: they name the module."""
    totals: defaultdict[_Path, int] = defaultdict(int)
    for path, moved in leaves.items():
        for depth in range(len(path) + 1):
            totals[path[:depth]] += moved
    paths = sorted(totals, key=lambda path: (len(path), -totals[path]))
    numbers = {path: str(number) for number, path in enumerate(paths)}
    return {
        "ids": [numbers[path] for path in paths],
        "labels": [_named(path) for path in paths],
        "parents": [numbers[path[:-1]] if path else "" for path in paths],
        "values": [totals[path] for path in paths],
    }
