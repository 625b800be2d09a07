"""Edits of source: made from nodes, applied to bytes, and checked to change nothing else. No torch."""

import ast
from collections.abc import Iterable, Sequence
from contextlib import suppress

from stridewise.errors import InputError
from stridewise.findings import Edit, Safety
from stridewise.source.file import SourceFile, Span
from stridewise.source.same import Region, difference, same

_BLANK = " \t\f"
_OPERATORS = (ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Lambda, ast.Await)
"""They need no parentheses where a comma, a bracket or the line's end separates them from what is around."""


def append(file: SourceFile, node: ast.expr, suffix: str, *, safety: Safety = "unsafe") -> Edit:
    """Put a suffix such as `.contiguous()` behind an expression, in parentheses if it needs them.

    Raises ValueError for what has no value of its own: targets, slices, starred arguments, parts of f-strings.
    """
    _must_be_value(file, node)
    span, text = file.span(node), file.source(node)
    if not _is_primary(text):
        span, text = _parentheses(file, node) or span, f"({text})"
        if span != file.span(node):
            text = file.decode(span)
    text += suffix
    return Edit(file.name, span, f"({text})" if _is_only_generator(file, node) else text, safety)


def replace(file: SourceFile, node: ast.expr, text: str, *, safety: Safety = "unsafe") -> Edit:
    """Put other text in an expression's place, in parentheses if it needs them there.

    Raises ValueError if the text is no expression, and for what has no value of its own, as `append` does.
    """
    _must_be_value(file, node)
    return Edit(file.name, file.span(node), text if _fits(file, node, text) else f"({text})", safety)


def insert_before(file: SourceFile, statement: ast.stmt, line: str, *, safety: Safety = "unsafe") -> Edit:
    """Put a line of its own before a statement and its decorators, as far indented.

    Raises ValueError if another statement shares the line, or must stay the first (a docstring, `__future__`).
    """
    indent = _indent(file, statement)
    if _stays_first(file, statement):
        raise ValueError("nothing may stand before this statement")
    begin, end = file.line_at(file.begin(statement))
    newline = file.newline_at(end)
    return Edit(file.name, (begin, begin), "".join(text + newline for text in _indented(line, indent)), safety)


def insert_after(file: SourceFile, statement: ast.stmt, line: str, *, safety: Safety = "unsafe") -> Edit:
    """Put a line of its own behind a statement, as far indented. Raises ValueError if another shares its lines."""
    indent = _indent(file, statement)
    _, end = file.span(statement)
    _, stop = file.line_at(end)
    rest = file.decode((end, stop)).lstrip(_BLANK)
    if rest and not rest.startswith("#"):
        raise ValueError("the statement does not end its line")
    newline = file.newline_at(stop)
    return Edit(file.name, (stop, stop), "".join(newline + text for text in _indented(line, indent)), safety)


def torch_name(file: SourceFile) -> str | None:
    """The name under which a module has torch once it is imported: `torch`, `th`; None if it has none."""
    for statement in _at_import(file.tree.body):
        for alias in statement.names if isinstance(statement, ast.Import) else ():
            if alias.name == "torch":
                return alias.asname or "torch"
            if alias.name.startswith("torch.") and alias.asname is None:
                return "torch"
    return None


def import_torch(file: SourceFile, *, safety: Safety = "unsafe") -> Edit:
    """An `import torch` among the module's first imports. Raises ValueError if there is no line for it."""
    body = file.tree.body
    if not body:
        end = len(file.content)
        gap = file.newline if file.line_at(end)[0] != end else ""
        return Edit(file.name, (end, end), f"{gap}import torch{file.newline}", safety)
    first = next((at for at, statement in enumerate(body) if not _stays_first(file, statement)), len(body))
    last = next((at for at in range(first, len(body)) if not _is_absolute_import(body[at])), len(body))
    for statement in reversed(body[first:last]):
        with suppress(ValueError):
            return insert_after(file, statement, "import torch", safety=safety)
    if first:
        return insert_after(file, body[first - 1], "\nimport torch", safety=safety)
    return insert_before(file, body[0], "import torch" if last else "import torch\n", safety=safety)


def apply(content: bytes, encoding: str, edits: Iterable[Edit]) -> bytes:
    """The content with all edits. Raises ValueError if two of them overlap, or one lies outside of it."""
    codec = "utf-8" if encoding == "utf-8-sig" else encoding  # else each replacement would get a mark of its own
    parts, at = [], 0
    for edit in ordered(edits):
        start, end = edit.span
        if not 0 <= start <= end <= len(content):
            raise ValueError("an edit lies outside of the file")
        if start < at:
            raise ValueError("two edits overlap")
        parts += [content[at:start], edit.replacement.encode(codec)]
        at = end
    return b"".join([*parts, content[at:]])


def ordered(edits: Iterable[Edit]) -> list[Edit]:
    """Edits of one file by where they stand, each once; those at the same place in the order given.

    Raises ValueError if they are of several files.
    """
    once: dict[tuple[Span, str], Edit] = {}
    for edit in edits:
        once.setdefault((edit.span, edit.replacement), edit)
    if len({edit.file for edit in once.values()}) > 1:
        raise ValueError("the edits are of several files")
    return sorted(once.values(), key=lambda edit: (edit.span, -_depth(edit)))


def overlap(first: Sequence[Edit], second: Sequence[Edit]) -> bool:
    """Whether two groups of edits can't both be made. Equal edits can: they are made once."""
    return any(_collide(one, other) for one in first for other in second)


def check(file: SourceFile, edits: Sequence[Edit]) -> None:
    """Raise ValueError unless the edited file compiles, and to the same tree but for what the edits name.

    An edit names the expression or the statements that it covers, and puts one expression or statements in their
    place. An edit that covers nothing inserts statements.
    """
    try:
        content = apply(file.content, file.encoding, edits)
        after = SourceFile(file.path, file.name, content, above=file.above)
        after.compile()
    except (InputError, SyntaxError, UnicodeEncodeError) as error:
        raise ValueError(f"the edited file is no Python: {error}") from None
    if after.encoding != file.encoding:
        raise ValueError("the edited file declares another encoding")
    line = difference(file, after, _regions(file, edits))
    if line is not None:
        raise ValueError(f"{file.name}:{line} would change in more than what the edit names")


def _depth(edit: Edit) -> int:
    """How far indented the lines are that are put behind a line: those of an inner block must come first."""
    line = edit.replacement.lstrip("\r\n")
    return len(line) - len(line.lstrip(_BLANK)) if line != edit.replacement else 0


def _collide(one: Edit, other: Edit) -> bool:
    if one.file != other.file or (one.span, one.replacement) == (other.span, other.replacement):
        return False
    return one.span[0] < other.span[1] and other.span[0] < one.span[1]


def _regions(file: SourceFile, edits: Sequence[Edit]) -> list[Region]:
    found, shift = [], 0
    for edit in ordered(edits):
        start, end = edit.span
        size = len(edit.replacement.encode(file.encoding))
        found.append(Region((start, end), (start + shift, start + shift + size)))
        shift += size - (end - start)
    return found


def _must_be_value(file: SourceFile, node: ast.expr) -> None:
    if file.in_fstring(node):
        raise ValueError("the expression stands in an f-string")
    if isinstance(node, (ast.Starred, ast.Slice)) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        raise ValueError("the expression has no value of its own")
    parsed = _parse(f"({file.source(node)}\n)")
    if parsed is None or not same(parsed, node):
        raise ValueError("the expression can't stand in parentheses")


def _parse(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _is_primary(text: str) -> bool:
    """Whether a suffix would bind to all of an expression."""
    bare, longer = _parse(f"({text}\n)"), _parse(f"({text}.stridewise\n)")
    return (
        bare is not None
        and isinstance(longer, ast.Attribute)
        and longer.attr == "stridewise"
        and same(longer.value, bare)
    )


def _fits(file: SourceFile, node: ast.expr, text: str) -> bool:
    """Whether text may stand bare where an expression does, and is one operand there."""
    new = _parse(f"({text})")
    # The second finds brackets that are not in pairs: `a) + (b`.
    if not text.strip() or new is None or _parse(f"[{text}]") is None:
        raise ValueError("the text is no expression")
    if _is_only_generator(file, node) or _is_glued(file, node, text):
        return False
    if _parentheses(file, node) is not None:  # a tuple or a generator would take them for its own
        return _is_primary(text) or not isinstance(new, (ast.Tuple, ast.GeneratorExp))
    if _parse(text) is None:  # its line breaks need brackets around them
        return False
    return _is_primary(text) or (_is_separated(file, node) and isinstance(new, _OPERATORS))


def _is_separated(file: SourceFile, node: ast.expr) -> bool:
    parent = file.parent(node)
    if isinstance(parent, ast.Call):
        return node is not parent.func
    if isinstance(parent, ast.Subscript):
        return node is parent.slice
    if isinstance(parent, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return node is parent.value
    return isinstance(parent, (ast.keyword, ast.List, ast.Set, ast.Tuple, ast.Dict, ast.Return, ast.Expr))


def _is_glued(file: SourceFile, node: ast.expr, text: str) -> bool:
    """Whether the text would run together with a word beside the expression: `return-x`, `(a)if b`."""
    start, end = file.span(node)
    before, after = file.content[:start][-1:], file.content[end:][:1]
    return (_is_word(before) and (_is_word(text[:1].encode()) or text[:1] in "\"'")) or (
        _is_word(after) and _is_word(text[-1:].encode())
    )


def _is_word(byte: bytes) -> bool:
    return byte.isalnum() or byte == b"_" or byte > b"\x7f"


def _is_only_generator(file: SourceFile, node: ast.expr) -> bool:
    """Whether an expression is a generator whose parentheses are those of the call that it is handed to."""
    parent = file.parent(node)
    return (
        isinstance(node, ast.GeneratorExp)
        and isinstance(parent, ast.Call)
        and parent.args == [node]
        and file.span(parent)[1] == file.span(node)[1]
    )


def _parentheses(file: SourceFile, node: ast.expr) -> Span | None:
    """What the parentheses around an expression cover, if there are some and they belong to nothing else."""
    start, end = file.span(node)
    begin = len(file.content[:start].rstrip()) - 1
    stop = len(file.content) - len(file.content[end:].lstrip()) + 1
    if begin < 0 or file.content[begin : begin + 1] != b"(" or file.content[stop - 1 : stop] != b")":
        return None
    parent = file.parent(node)
    if isinstance(parent, ast.Call) and node is not parent.func and file.span(parent)[1] == stop:
        return None
    return None if isinstance(parent, ast.ClassDef) else (begin, stop)


def _indent(file: SourceFile, statement: ast.stmt) -> str:
    start = file.begin(statement)
    begin, _ = file.line_at(start)
    indent = file.decode((begin, start))
    if indent.strip(_BLANK):
        raise ValueError("the statement does not begin its line")
    if isinstance(statement, ast.If) and file.content.startswith(b"elif", start):
        raise ValueError("the statement is a branch of another")
    before = file.content[:begin].rstrip(b"\r\n")
    above = before[max(before.rfind(b"\n"), before.rfind(b"\r")) + 1 :]
    if above.endswith(b"\\") and not above.lstrip().startswith(b"#"):
        raise ValueError("the statement does not begin its line: the one above goes on")
    return indent


def _indented(line: str, indent: str) -> list[str]:
    return [indent + text if text.strip() else "" for text in line.split("\n")]


def _stays_first(file: SourceFile, statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, or an import from `__future__`."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__" and statement.level == 0
    parent = file.parent(statement)
    return (
        isinstance(parent, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and parent.body[0] is statement
        and isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_absolute_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import) or (isinstance(statement, ast.ImportFrom) and statement.level == 0)


def _at_import(body: Sequence[ast.stmt]) -> Iterable[ast.stmt]:
    """The statements that run when a module is imported, those for type checkers left out."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.Try) or (
            isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.dump(statement.test)
        ):
            yield from _at_import(statement.body)


__all__ = [
    "Span",
    "append",
    "apply",
    "check",
    "import_torch",
    "insert_after",
    "insert_before",
    "ordered",
    "overlap",
    "replace",
    "torch_name",
]
