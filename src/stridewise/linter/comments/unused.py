"""SW300 unused-suppression: a comment that leaves findings out has none to leave out.

What it means
    `# noqa: SW304` or `# stridewise: ignore[SW304]` stands where SW304 finds nothing, names a code that no rule has, or
    can't be understood.

Why it happens
    The code was mended and the comment stayed, or it stands on another line than the finding. A comment counts from the
    first to the last line of the expression, and on the last line of its statement; `# stridewise: ignore[...]` on a
    line of its own counts for the statement below. The next real finding in that place would go unseen.

How to fix it
    `stridewise lint --fix` takes the code out, or the comment with it, and leaves other codes and what else the comment
    says. ruff knows only its own codes and takes out all others as unused (RUF100), unless its settings say
    `lint.external = ["SW"]`.

When to ignore it
    While a rule is off it is not said to be unused, and neither is a bare `# noqa`, which may stand for other tools.
    Keep a comment that only some versions need with `# noqa: SW304,SW300`.
"""

import ast
import bisect
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property

from stridewise.codes import doc_of
from stridewise.findings import NOT_MEASURED, Edit, Finding, Site
from stridewise.linter.comments.directives import Directive
from stridewise.source.file import SourceFile

DOC = doc_of(sys.modules[__name__])
_READS = "`# stridewise: ignore[SW304]`, `# stridewise: ignore` or `# stridewise: skip-file`"
_BLANK = b" \t\f"


class Functions:
    """The functions and classes of a file by their lines: the tree is walked once, and only if one is asked for."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree

    def at(self, line: int) -> str | None:
        """The dotted name of the function or class that a line stands in."""
        found = bisect.bisect_right(self._borders, line, key=lambda border: border[0])
        return self._borders[found - 1][1] if found else None

    @cached_property
    def _borders(self) -> list[tuple[int, str | None]]:
        """The lines from which on another one is the innermost, ascending. Of equal ones the last counts."""
        return sorted(_borders(self._tree), key=lambda border: border[0])


def unused(
    source: SourceFile, directive: Directive, codes: Sequence[str], unknown: Sequence[str], functions: Functions
) -> Finding:
    """The finding for a comment of which some codes leave nothing out, and some are of no rule."""
    found = directive.codes or ()
    edits: tuple[Edit, ...] = ()
    if directive.kind == "mistake":
        message = f"`{directive.text}` can't be understood and leaves nothing out: it reads {_READS}."
        advice = "Write it so, or delete it."
    else:
        reasons = [f"{_list(codes)} {_verb(codes, 'finds', 'find')} nothing here"] if codes else []
        reasons += [f"no source rule has the code{'s' * (len(unknown) > 1)} {_list(unknown)}"] if unknown else []
        reason = " and ".join(reasons) or "no source rule finds anything here"
        wanted = [code for code, _ in found if code not in codes and code not in unknown]
        message = f"`{directive.text}` {'says too much' if wanted else 'leaves nothing out'}: {reason}."
        advice = f"Take {_list((*codes, *unknown))} out of it." if wanted else "Delete it."
        edits = (_shortened(source, directive, wanted) if wanted else _removed(source, directive),)
    return Finding(
        code=DOC.code,
        title=DOC.title,
        severity="note",
        message=message,
        count=1,
        site=_site(source, directive, functions),
        origin=None,
        carriers=(),
        payers=(),
        cost=NOT_MEASURED,
        advice=advice,
        edits=edits,
    )


def _shortened(source: SourceFile, directive: Directive, wanted: Sequence[str]) -> Edit:
    """The list with the wanted codes only, and what stands between them."""
    codes = directive.codes or ()
    text = ""
    for at, (code, span) in enumerate(codes):
        if code in wanted:
            before = source.decode((codes[at - 1][1][1], span[0])) if text else ""
            text += before + source.decode(span)
    return Edit(source.name, (codes[0][1][0], codes[-1][1][1]), text, "safe")


def _removed(source: SourceFile, directive: Directive) -> Edit:
    """The line without the comment, or the comment without what it says to stridewise."""
    content, (start, end), comment = source.content, directive.span, directive.comment
    rest = content[end : comment[1]]
    line, stop = source.line_at(start)
    if start == comment[0] and rest.strip(b" \t\f,"):
        said = rest.lstrip(b" \t\f,:;-")
        return Edit(source.name, (start, comment[1] - len(said)), "" if said.startswith(b"#") else "# ", "safe")
    if rest.strip(b" \t\f,"):
        end = comment[1] - len(rest.lstrip(b" \t\f,"))
        return Edit(source.name, (start, end), "", "safe")
    if not content[line:start].strip():
        return Edit(source.name, (line, stop + len(source.newline_at(stop)) * (stop < len(content))), "", "safe")
    return Edit(source.name, (len(content[:start].rstrip(_BLANK)), stop), "", "safe")


def _site(source: SourceFile, directive: Directive, functions: Functions) -> Site:
    (line, column), (end_line, end_column) = (source.position(offset) for offset in directive.span)
    return Site(
        file=source.name,
        line=line,
        column=column,
        end_line=end_line,
        end_column=end_column,
        function=functions.at(line),
        expression=directive.text,
        text=source.decode(source.line_at(directive.span[0])),
    )


def _borders(tree: ast.Module) -> Iterator[tuple[int, str | None]]:
    """The first line of each function and class with its name, and the line behind it with that of the one around."""
    waiting: list[tuple[ast.AST | int, str | None]] = [(tree, None)]
    while waiting:
        node, name = waiting.pop()
        if isinstance(node, int):
            yield node, name
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            waiting.append(((node.end_lineno or node.lineno) + 1, name))
            name = node.name if name is None else f"{name}.{node.name}"
            yield node.lineno, name
        below = [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case))
        ]
        waiting += [(child, name) for child in reversed(below)]


def _list(codes: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(codes[:-1]), codes[-1])))


def _verb(codes: Sequence[str], one: str, several: str) -> str:
    return one if len(codes) == 1 else several
