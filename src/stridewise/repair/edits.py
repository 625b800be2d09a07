"""Edits of source: made from nodes, applied to bytes, and checked to change nothing else. No torch."""

import ast
from collections.abc import Iterable, Sequence

from stridewise.findings import Edit, Safety
from stridewise.repair.source import SourceFile, Span

_ATOMS = (ast.Call, ast.Attribute, ast.Name, ast.Subscript, ast.List, ast.Tuple, ast.Dict)


def append(file: SourceFile, node: ast.expr, suffix: str, *, safety: Safety = "unsafe") -> Edit:
    """Put a suffix such as `.contiguous()` behind an expression, in parentheses if it needs them."""
    text = file.source(node)
    return Edit(file.name, file.span(node), (text if _is_primary(node) else f"({text})") + suffix, safety)


def replace(file: SourceFile, node: ast.expr, text: str, *, safety: Safety = "unsafe") -> Edit:
    """Put other text in an expression's place, in parentheses if it needs them there."""
    new = ast.parse(text, mode="eval").body
    bare = _is_primary(new) or not _binds(file, node)
    return Edit(file.name, file.span(node), text if bare else f"({text})", safety)


def insert_before(file: SourceFile, statement: ast.stmt, line: str, *, safety: Safety = "unsafe") -> Edit:
    """Put a line of its own before a statement, as far indented."""
    start, _ = file.span(statement)
    begin = file.offset(statement.lineno, 0)
    indent = file.content[begin:start].decode(file.encoding)
    if indent.strip():
        raise ValueError("the statement does not begin its line")
    return Edit(file.name, (begin, begin), f"{indent}{line}{file.newline}", safety)


def insert_after(file: SourceFile, statement: ast.stmt, line: str, *, safety: Safety = "unsafe") -> Edit:
    """Put a line of its own behind a simple statement, as far indented."""
    raise NotImplementedError


def apply(content: bytes, encoding: str, edits: Iterable[Edit]) -> bytes:
    """The content with all edits. Raises ValueError if two of them overlap."""
    parts, at = [], 0
    for edit in ordered(edits):
        start, end = edit.span
        if start < at:
            raise ValueError("two edits overlap")
        parts += [content[at:start], edit.replacement.encode(encoding)]
        at = end
    return b"".join([*parts, content[at:]])


def ordered(edits: Iterable[Edit]) -> list[Edit]:
    """Edits of one file by where they stand, each once."""
    return sorted(dict.fromkeys(edits), key=lambda edit: edit.span)


def overlap(first: Sequence[Edit], second: Sequence[Edit]) -> bool:
    """Whether two groups of edits can't both be made. Equal edits can: they are made once."""
    raise NotImplementedError


def check(file: SourceFile, edits: Sequence[Edit]) -> None:
    """Raise ValueError unless the edited file parses to the same tree but for what the edits name."""
    raise NotImplementedError


def _is_primary(node: ast.expr) -> bool:
    return isinstance(node, _ATOMS)


def _binds(file: SourceFile, node: ast.expr) -> bool:
    """Whether what stands around an expression could take a part of another expression in its place for itself."""
    return isinstance(file.parent(node), ast.expr)


__all__ = ["Span", "append", "apply", "check", "insert_after", "insert_before", "ordered", "overlap", "replace"]
