"""Edits that take something out: a link of a chain of calls, or a whole statement."""

import ast

from stridewise.findings import Edit
from stridewise.repair.reading.applied import Applied, operand_text
from stridewise.source import edits
from stridewise.source.file import SourceFile

_BLOCKS = ("body", "orelse", "finalbody")
_QUESTIONS = frozenset(
    [
        "is_contiguous",
        "stride",
        "size",
        "dim",
        "ndimension",
        "numel",
        "nelement",
        "storage_offset",
        "element_size",
        "is_floating_point",
        "is_complex",
        "is_tensor",
        "data_ptr",
        "get_device",
        "isinstance",
        "len",
        "getattr",
        "hasattr",
        "any",
        "all",
        "type",
    ]
)
"""Functions and methods of tensors that change nothing."""


def drop_link(file: SourceFile, link: Applied, behind: ast.Attribute | None = None, name: str = "") -> Edit:
    """Put what `.contiguous()` is called on in the place of the call, all else as it stands there.

    With `behind`, the attribute that follows it, that one gets another name.
    """
    start, end = file.span(link.node)
    if link.is_method:
        assert isinstance(link.node, ast.Call)
        assert isinstance(link.node.func, ast.Attribute)
        stop, dot = _behind(file, link.node.func)
        text = file.decode((start, dot if b"#" in file.content[stop:dot] else stop))  # a comment in between stays
    else:
        text = file.source(link.subject)
        text = text if behind is None and "\n" not in text else operand_text(file, link.subject)
    if behind is None:
        return Edit(file.name, (start, end), text, "unsafe") if link.is_method else edits.replace(file, link.node, text)
    rest = file.decode((end, file.span(behind)[1])).removesuffix(behind.attr)
    return Edit(file.name, file.span(behind), f"{text}{rest}{name}", "unsafe")


def rename(file: SourceFile, attribute: ast.Attribute, name: str) -> Edit:
    """Write another name behind an attribute's dot."""
    text = file.source(attribute).removesuffix(attribute.attr) + name
    return Edit(file.name, file.span(attribute), text, "unsafe")


def remove_statement(file: SourceFile, statement: ast.stmt) -> Edit:
    """Take out a statement, with its line; where it shares its line or is alone in its block, `pass` comes in."""
    start, end = file.span(statement)
    begin, stop = file.line_at(start)[0], file.line_at(end)[1]
    rest = file.decode((end, stop)).strip()
    own_lines = not file.decode((begin, start)).strip() and (not rest or rest.startswith("#"))
    if not own_lines or len(block(file, statement)) == 1:
        return Edit(file.name, (start, end), "pass", "unsafe")
    newline = file.newline_at(stop) if stop < len(file.content) else ""
    return Edit(file.name, (begin, stop + len(newline.encode(file.encoding))), "", "unsafe")


def enclosing(file: SourceFile, statement: ast.stmt) -> ast.stmt:
    """The statement to take out with one: every `if` around it that would hold nothing else, and only looks.

    An `elif` stays: it decides what the next branch is.
    """
    parent = file.parent(statement)
    if not isinstance(parent, ast.If) or parent.body != [statement] or parent.orelse:
        return statement
    if not _only_looks(parent.test) or file.source(parent).startswith("elif"):
        return statement
    return enclosing(file, parent)


def _only_looks(test: ast.expr) -> bool:
    """Whether a condition is known to do nothing but to be true or false."""
    for node in ast.walk(test):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if name not in _QUESTIONS:
                return False
        elif isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return False
    return True


def block(file: SourceFile, statement: ast.stmt) -> list[ast.stmt]:
    """The statements that one stands among."""
    parent = file.parent(statement)
    for field in _BLOCKS:
        body = getattr(parent, field, None)
        if isinstance(body, list) and any(each is statement for each in body):
            return body
    return [statement]


def has_comment(file: SourceFile, first: ast.expr, last: ast.expr) -> bool:
    """Whether there is a comment, which an edit would lose, between the ends of two expressions."""
    return b"#" in file.content[file.span(first)[1] : file.span(last)[1]]


def with_parentheses(file: SourceFile, node: ast.expr) -> tuple[int, int]:
    """The span of an expression that others are chained to, with the parentheses that it needed for that."""
    start, end = file.span(node)
    parent = file.parent(node)
    if isinstance(parent, ast.Attribute):
        return file.span(parent)[0], _behind(file, parent)[0]
    return start, end


def _behind(file: SourceFile, attribute: ast.Attribute) -> tuple[int, int]:
    """Where the value of an attribute ends, its parentheses included, and where the dot behind it stands."""
    content, at = file.content, file.span(attribute.value)[1]
    end = at
    while content[at : at + 1] != b".":
        if content[at : at + 1] == b"#":
            while content[at : at + 1] not in (b"\n", b"\r"):
                at += 1
        at += 1
        if content[at - 1 : at] == b")":
            end = at
    return end, at
