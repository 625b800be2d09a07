"""Where streams start, as the program names it: of `src, dst = edges.t()` the one target that is meant."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from stridewise.findings import Site

if TYPE_CHECKING:
    from stridewise.analysis.case import Case
    from stridewise.analysis.lineage import Stream


def at_origin(case: Case, position: int, stream: Stream) -> int | None:
    """The tensor with which a copy's stream leaves its origin."""
    path = [case.copies[position].call, *stream.carriers]
    refs, given = case.log.refs, case.log.calls[path[-1]].inputs
    if stream.origin.kind != "call":
        return next((ref for ref in given if refs[ref].object == stream.origin.object), stream.ref)
    made = case.log.calls[stream.origin.call].outputs
    numbers = {refs[ref].object for ref in given}
    known = [ref for ref in made if refs[ref].object in numbers]
    return known[0] if known else made[0] if len(made) == 1 else None


def site_of_origin(case: Case, copies: Sequence[int]) -> Site:
    """Where the streams of copies of one origin start; where that unpacks a tensor into names, the name, if it is one.

    Of a gradient no part of it is named: it comes back through all of them.
    """
    found = [stream for position in copies if (stream := case.streams[position]) is not None]
    streams = [stream for stream in found if stream.origin == found[0].origin]
    site = case.origin_site(streams[0].origin)
    if streams[0].origin.kind != "call" or any(stream.operand is None for stream in streams):
        return site
    made = [case.log.refs[ref].object for ref in case.log.calls[streams[0].origin.call].outputs]
    refs = {at_origin(case, stream.copy, stream) for stream in streams}
    objects = {case.log.refs[ref].object for ref in refs if ref is not None}
    if None in refs or len(objects) != 1 or len(made) < 2 or not objects <= set(made):
        return site
    return _target(site, made.index(objects.pop()), len(made)) or site


def unpacking(case: Case, origin: Site | None, position: int) -> str | None:
    """The line that makes an origin's tensor by unpacking; None where the origin is an expression of its own."""
    stream = case.streams[position]
    if origin is None or stream is None or stream.origin.kind != "call":
        return None
    whole = case.origin_site(stream.origin)
    is_part = whole.expression != origin.expression and whole.text is not None
    return " ".join((whole.text or "").split()) if is_part else None


def where_made(case: Case, origin: Site | None, position: int) -> str:
    """What to call an origin where its edit is meant: its expression, its line if that unpacks; empty if unknown."""
    expression = " ".join(((origin.expression if origin else None) or "").split())
    line = unpacking(case, origin, position)
    if line is None and origin is not None and expression and origin.text:
        text = " ".join(origin.text.split())
        line = text if re.search(rf"{re.escape(expression)}[)\]]? ?=(?!=)", text) else None
    return line or expression


def _target(site: Site, place: int, count: int) -> Site | None:
    """The site of one of the names that a tensor is unpacked into; None where it unpacks none, or over lines."""
    if site.expression is None or site.column is None or site.line != site.end_line:
        return None
    try:
        names = ast.parse(site.expression, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(names, (ast.Tuple, ast.List)) or len(names.elts) != count:
        return None
    if any(isinstance(name, ast.Starred) for name in names.elts):
        return None
    name = names.elts[place]
    return msgspec.structs.replace(
        site,
        column=site.column + name.col_offset,
        end_column=site.column + (name.end_col_offset or 0),
        expression=ast.get_source_segment(site.expression, name),
    )
