"""Where a step's copied bytes are, from modules over calls down to copies: the data of an icicle."""

from collections import defaultdict
from typing import Any

from stridewise.report.text import one_line
from stridewise.results import Copy, Report

_MOST_LEAVES = 600
_OUTSIDE = "outside modules"

_Path = tuple[str, ...]


def icicle_data(report: Report) -> dict[str, Any] | None:
    """Ids, labels, parents and bytes moved a step, as plotly takes them; None where no copy has a size."""
    leaves: dict[_Path, float] = defaultdict(float)
    for copy in report.copies:
        if copy.taxed and copy.step is not None and copy.bytes_moved:
            leaves[_path(copy)] += copy.bytes_moved / report.totals.steps
    if not leaves:
        return None
    kept = sorted(leaves.items(), key=lambda item: -item[1])
    rest = sum(moved for _, moved in kept[_MOST_LEAVES:])
    kept = kept[:_MOST_LEAVES] + ([(("smaller ones",), rest)] if rest else [])
    return _columns(dict(kept))


def _path(copy: Copy) -> _Path:
    site = copy.site
    module = site.module if site is not None and site.module else ""
    modules = tuple(one_line(module).split(".")) if module else (_OUTSIDE,)
    expression = one_line((site.expression if site is not None else None) or copy.call or copy.op)
    call = f"{expression} · line {site.line}" if site is not None and site.line else expression
    what = f"{copy.kind} {copy.change}{' in backward' if copy.backward else ''} of {copy.sizes}"
    return (*modules, call, what)


def _columns(leaves: dict[_Path, float]) -> dict[str, Any]:
    """Every node with the sum of what lies below it. Branches with a single child stay: they name the module."""
    totals: dict[_Path, float] = defaultdict(float)
    for path, moved in leaves.items():
        for depth in range(len(path) + 1):
            totals[path[:depth]] += moved
    paths = sorted(totals, key=lambda path: (len(path), -totals[path]))
    numbers = {path: str(number) for number, path in enumerate(paths)}
    return {
        "ids": [numbers[path] for path in paths],
        "labels": [path[-1] if path else "copies of a step" for path in paths],
        "parents": [numbers[path[:-1]] if path else "" for path in paths],
        "values": [round(totals[path]) for path in paths],
    }
