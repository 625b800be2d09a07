"""Places in the program, from the stack traces that the compiler keeps of each node and prints. No torch."""

import ast
import linecache
import re
from collections.abc import Iterator

from msgspec.structs import replace

from stridewise.compiled.capture import OWN_FILE
from stridewise.compiled.graph_text import Place
from stridewise.findings import Site
from stridewise.recording.filenames import public_path, public_place

_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]*)", line (?P<line>\d+), in (?P<function>.*)$')
OWN = public_path(OWN_FILE)
"""Where the function is that calls the program's, which is no place in the program."""
_MARKS = re.compile(r"^(\s*)([~^]+)\s*$")


def sites_of(trace: str) -> list[Site]:
    """The frames of a formatted stack trace, outermost first, each with the expression that is marked in it."""
    return [site for site in _frames(trace.splitlines()) if site.file != OWN]


def _frames(lines: list[str]) -> Iterator[Site]:
    at = 0
    while at < len(lines):
        frame = _FRAME.match(lines[at])
        at += 1
        if frame is None:
            continue
        text = marks = ""
        if at < len(lines) and not _FRAME.match(lines[at]):
            text = lines[at]
            at += 1
            if at < len(lines) and _MARKS.match(lines[at]):
                marks = lines[at]
                at += 1
        yield _site(frame["file"], int(frame["line"]), frame["function"].strip(), text, marks)


def _site(file: str, line: int, function: str, text: str, marks: str) -> Site:
    shown = text.strip()
    found = _MARKS.match(marks)
    if found is None:
        return _whole(Place(file, line, function, shown))
    first = len(found[1]) - (len(text) - len(text.lstrip()))
    expression = _expression_at(shown, first) or shown[first : first + len(found[2])]
    source = linecache.getline(file, line).rstrip("\n")
    file, number = public_place(file, line)
    if not expression or first < 0 or source.strip() != shown:  # another file than it was, or none
        return Site(file=file, line=number, function=function, expression=expression or shown, text=shown)
    start = len(source) - len(source.lstrip()) + first
    column = len(source[:start].encode())
    return Site(
        file=file,
        line=number,
        column=column,
        end_line=number,
        end_column=column + len(expression.encode()),
        function=function,
        expression=expression,
        text=source,
    )


def _expression_at(line: str, column: int) -> str | None:
    """The longest expression of a line that begins at a column: the marks begin right, and may go on to its end."""
    for text in (line, f"{line} pass", line[column:], _balanced(line[column:])):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        first = column if text.startswith(line) else 0
        wanted = len(text[:first].encode())
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and node.col_offset == wanted]
        if nodes:
            longest = max(nodes, key=lambda node: node.end_col_offset or 0)
            return text.encode()[wanted : longest.end_col_offset].decode()
    return None


def narrowed(site: Site, name: str) -> Site:
    """The site of a method's call, where an expression goes on behind it, or a whole line has just one such call."""
    text = site.expression or ""
    try:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    except (SyntaxError, ValueError, RecursionError):
        return site
    own = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == name]
    if site.column is not None:
        own = sorted((call for call in own if call.col_offset == 0), key=lambda call: call.end_col_offset or 0)[:1]
    if len(own) != 1:
        return site
    first, last = own[0].col_offset, own[0].end_col_offset
    end = site.column + last if site.column is not None and last is not None else None
    return replace(site, expression=text.encode()[first:last].decode(), end_column=end)


def _balanced(text: str) -> str:
    """The text up to where a bracket closes that it did not open."""
    depth = 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0:
            return text[:at]
    return text


def _whole(place: Place) -> Site:
    file, line = public_place(place.file, place.line)
    return Site(
        file=file,
        line=line,
        function=place.function,
        expression=place.text or None,
        text=place.text or None,
    )


def site_of(place: Place | None, candidates: tuple[Site, ...] = (), number: int = 0) -> Site | None:
    """The site of a node's line: of the expressions that are known on it the one with this number, else the line."""
    if place is None or public_path(place.file) == OWN:
        return candidates[min(number, len(candidates) - 1)] if candidates else None
    file, line = public_place(place.file, place.line)
    alike = [site for site in candidates if site.file == file and site.line == line]
    return alike[min(number, len(alike) - 1)] if alike else _whole(place)
