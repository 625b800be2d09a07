"""Candidates that make one copy where streams start, or pass, instead of those behind."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from stridewise.analysis.functions import EXPLICIT, short_name
from stridewise.findings import Edit, Site
from stridewise.recording.model import LayoutRow
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.places import copy_behind, copy_on_entry, expression_of
from stridewise.repair.reading.streams import Point, bytes_saved
from stridewise.source.file import SourceFile


class Target(Struct, frozen=True):
    """What such a copy is to make."""

    kind: str
    behind: str
    """What is done behind an expression: ``copy once behind `{}` ``."""
    on_entry: str
    """What is done with what the model is given: ``copy `{}` once, on entry to `{}` ``."""
    suffix: Callable[[SourceFile, LayoutRow], str | None]
    """The call that makes it of a tensor, as that file can write it; None for a tensor that can't be so."""
    is_met: Callable[[LayoutRow], bool]


class _Edited(Struct, frozen=True):
    """What one point comes to in the source."""

    point: Point
    site: Site
    what: str
    edit: Edit


def copies_at(context: Context, found: Iterable[Point], target: Target) -> Iterator[Candidate]:
    """One candidate for each expression: its copies at all the places where a function has it, if they move less."""
    groups: dict[tuple[object, ...], list[_Edited]] = defaultdict(list)
    edited_calls: set[int] = set()
    for point in found:
        if point.repeats >= 0 and point.repeats in edited_calls:
            continue
        edited = _behind(context, point, target) if point.call >= 0 else _on_entry(context, point, target)
        if edited is not None:
            edited_calls.add(point.call)
            expression = " ".join((edited.site.expression or "").split())
            groups[edited.site.file, edited.site.function, expression, edited.what].append(edited)
    for group in groups.values():
        if bytes_saved(context, [edited.point for edited in group], target.is_met, _calls(context, group)) > 0:
            yield Candidate(
                kind=target.kind,
                what=group[0].what,
                site=group[0].site,
                findings=tuple(dict.fromkeys(one for edited in group for one in edited.point.findings)),
                edits=tuple(dict.fromkeys(edited.edit for edited in group)),
            )


def _calls(context: Context, group: Sequence[_Edited]) -> list[int]:
    """The calls of the steps that the edited expressions make: those without payers would copy as well."""
    case = context.case
    sites = {edited.site: case.function(edited.point.call) for edited in group if edited.point.call >= 0}
    made = (
        call
        for site, calls in context.calls_of(sites).items()
        for call in calls
        if case.function(call) == sites[site] and context.is_in_step(call)
    )
    return list(dict.fromkeys(made))


def _behind(context: Context, point: Point, target: Target) -> _Edited | None:
    found = expression_of(context, point.call)
    if found is None or short_name(context.case.function(point.call)) in EXPLICIT:
        return None
    suffix = _suffix(context, found[0], point, target)
    edit = copy_behind(context, point, suffix) if suffix is not None else None
    if edit is None:
        return None
    site = context.case.site(point.call)
    return _Edited(point, site, target.behind.format(_short(site.expression or "")), edit)


def _on_entry(context: Context, point: Point, target: Target) -> _Edited | None:
    row = context.case.flow.row(point.refs[0])
    found = copy_on_entry(context, point, lambda file: target.suffix(file, row) if row is not None else None)
    if found is None:
        return None
    file, function, name, edit = found
    site = Site(file=file.name, line=function.lineno, function=function.name, expression=name)
    return _Edited(point, site, target.on_entry.format(name, function.name), edit)


def _suffix(context: Context, file: SourceFile, point: Point, target: Target) -> str | None:
    """The same for all tensors there; None unless at least one is not so yet."""
    rows = [context.case.flow.row(ref) for ref in point.refs]
    if any(row is None for row in rows) or all(row is not None and target.is_met(row) for row in rows):
        return None
    suffixes = {target.suffix(file, row) for row in rows if row is not None}
    return suffixes.pop() if len(suffixes) == 1 else None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "…"


__all__ = ["Target", "copies_at"]
