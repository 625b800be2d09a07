"""Edits change what they name, and nothing else."""

import ast
import random
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stridewise.findings import Edit
from stridewise.source.edits import (
    append,
    apply,
    check,
    import_torch,
    insert_after,
    insert_before,
    ordered,
    overlap,
    replace,
    torch_name,
)
from stridewise.source.file import SourceFile
from stridewise.source.same import same

FUTURE = "from __future__ import annotations"
REAL = [Path(module.__file__) for module in (ast, random, pytest)]


def source(text: str | bytes) -> SourceFile:
    return SourceFile(Path("x.py"), "x.py", text.encode() if isinstance(text, str) else text)


def edited(file: SourceFile, *edits: Edit) -> str:
    check(file, edits)
    return apply(file.content, file.encoding, edits).decode(file.encoding)


def expression(file: SourceFile, text: str) -> ast.expr:
    """The one expression that reads so: the last, if there are several."""
    nodes = [node for node in ast.walk(file.tree) if isinstance(node, ast.expr) and not file.in_fstring(node)]
    return [node for node in nodes if file.source(node) == text][-1]


def edit_of(start: int, end: int, text: str) -> Edit:
    return Edit("x.py", (start, end), text, "safe")


@pytest.mark.parametrize(
    ("before", "text", "after"),
    [
        ("y = x", "x", "y = x.c()"),
        ("y = x.t(1, 2)", "x.t(1, 2)", "y = x.t(1, 2).c()"),
        ("y = x[:, ::2]", "x[:, ::2]", "y = x[:, ::2].c()"),
        ("y = a + b", "a + b", "y = (a + b).c()"),
        ("y = a + b * d", "b * d", "y = a + (b * d).c()"),
        ("y = (a + b) * d", "a + b", "y = (a + b).c() * d"),
        ("y = f(a + b)", "a + b", "y = f((a + b).c())"),
        ("y = f((a + b))", "a + b", "y = f((a + b).c())"),
        ("y = f(k=(a + b))", "a + b", "y = f(k=(a + b).c())"),
        ("y = (\n    a\n    + b  # sum\n)", "a\n    + b", "y = (\n    (a\n    + b).c()  # sum\n)"),
        ("y = (\n    a\n    + b\n)", "a\n    + b", "y = (\n    a\n    + b\n).c()"),
        ("y = (\n    a  # first\n    .t()\n)", "a  # first\n    .t()", "y = (\n    a  # first\n    .t().c()\n)"),
        ("y = a + \\\n    b", "a + \\\n    b", "y = (a + \\\n    b).c()"),
        ("y = -x", "-x", "y = (-x).c()"),
        ("y = x ** -z", "-z", "y = x ** (-z).c()"),
        ("y = not x", "not x", "y = (not x).c()"),
        ("async def f():\n    await x", "await x", "async def f():\n    (await x).c()"),
        ("def f():\n    y = yield x", "yield x", "def f():\n    y = (yield x).c()"),
        ("y = a if b else d", "a if b else d", "y = (a if b else d).c()"),
        ("y = lambda: x", "lambda: x", "y = (lambda: x).c()"),
        ("y = (z := x)", "z := x", "y = (z := x).c()"),
        ("if z := x: pass", "z := x", "if (z := x).c(): pass"),
        ("y = 1", "1", "y = (1).c()"),
        ("y = 1.5", "1.5", "y = 1.5.c()"),
        ("y = 'a' 'b'", "'a' 'b'", "y = 'a' 'b'.c()"),
        ('y = f"{a}b"', 'f"{a}b"', 'y = f"{a}b".c()'),
        ("y = a, b", "a, b", "y = (a, b).c()"),
        ("y = (a, b)", "(a, b)", "y = (a, b).c()"),
        ("y = (a), (b)", "(a), (b)", "y = ((a), (b)).c()"),
        ("y = x[a, b]", "a, b", "y = x[(a, b).c()]"),
        ("f(x for x in y)", "(x for x in y)", "f((x for x in y).c())"),
        ("f((x for x in y))", "(x for x in y)", "f((x for x in y).c())"),
        ("f(z, *(x for x in y))", "(x for x in y)", "f(z, *(x for x in y).c())"),
        ("f(*x, **y)", "x", "f(*x.c(), **y)"),
        ("y = [a for a in b if a]", "[a for a in b if a]", "y = [a for a in b if a].c()"),
        ("y = [a for a in p + q]", "p + q", "y = [a for a in (p + q).c()]"),
        ("@a\ndef f(): pass", "a", "@a.c()\ndef f(): pass"),
        ("def f(x=a + b): pass", "a + b", "def f(x=(a + b).c()): pass"),
        ("class A(a + b): pass", "a + b", "class A((a + b).c()): pass"),
        ("return_ = x;", "x", "return_ = x.c();"),
        ("def f(): return-x", "-x", "def f(): return(-x).c()"),
        ("y = 1if x else z", "1", "y = (1).c()if x else z"),
        ("assert(a + b)", "a + b", "assert(a + b).c()"),
        ("with (a + b) as z: pass", "a + b", "with (a + b).c() as z: pass"),
        ("y[0] = x", "y", "y.c()[0] = x"),
        ("y = größe + 'é' # ü", "größe", "y = größe.c() + 'é' # ü"),
        ("x = a\f.b", "a\f.b", "x = a\f.b.c()"),
    ],
)
def test_append(before: str, text: str, after: str) -> None:
    file = source(before)
    assert edited(file, append(file, expression(file, text), ".c()")) == after


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig", "utf-8"])
def test_append_in_any_encoding(encoding: str, newline: str) -> None:
    cookie = "# coding: latin-1" if encoding == "latin-1" else "#"
    text = f"{cookie}\nx = 'é' + g(\n\tü, a)  # ö\n".replace("\n", newline)
    file = source(text.encode(encoding))
    (edit,) = edits = [append(file, expression(file, "ü"), ".c('ß')")]
    check(file, edits)
    assert apply(file.content, file.encoding, edits) == text.replace("ü", "ü.c('ß')").encode(encoding)
    assert edit.replacement == "ü.c('ß')"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x = y", "x"),
        ("x.a = y", "x.a"),
        ("for x in y: pass", "x"),
        ("y[1:2]", "1:2"),
        ("y[:, 1]", ":, 1"),
        ("f(*x)", "*x"),
        ("del x", "x"),
    ],
)
def test_what_has_no_value(text: str, name: str) -> None:
    file = source(text)
    with pytest.raises(ValueError, match=r"value of its own|parentheses"):
        append(file, expression(file, name), ".c()")
    with pytest.raises(ValueError, match=r"value of its own|parentheses"):
        replace(file, expression(file, name), "z")


def test_parts_of_fstrings_are_left_alone() -> None:
    file = source('y = f"{a}" + b')
    (node,) = [node for node in ast.walk(file.tree) if isinstance(node, ast.Name) and node.id == "a"]
    with pytest.raises(ValueError, match="f-string"):
        append(file, node, ".c()")
    with pytest.raises(ValueError, match="f-string"):
        replace(file, node, "b")


@pytest.mark.parametrize(
    ("before", "text", "new", "after"),
    [
        ("y = x.c()", "x.c()", "x", "y = x"),
        ("y = (a + b).c()", "(a + b).c()", "a + b", "y = a + b"),
        ("y = x * z.c()", "z.c()", "a + b", "y = x * (a + b)"),
        ("y = f(z.c(), 1)", "z.c()", "a + b", "y = f(a + b, 1)"),
        ("y = f(k=z)", "z", "a if b else d", "y = f(k=a if b else d)"),
        ("y = f(z)", "z", "a, b", "y = f((a, b))"),
        ("y = (z)", "z", "a, b", "y = ((a, b))"),
        ("y = (z)", "z", "a + b", "y = (a + b)"),
        ("y = f(z)", "z", "q := 1", "y = f((q := 1))"),
        ("y = z", "z", "a, b", "y = (a, b)"),
        ("y = z", "z", "a\n.b", "y = (a\n.b)"),
        ("y = z", "z", "a(\n b)", "y = a(\n b)"),
        ("y = z[0]", "z", "-a", "y = (-a)[0]"),
        ("y = z[q]", "q", "-a", "y = z[-a]"),
        ("y = z ** 2", "z", "-a", "y = (-a) ** 2"),
        ("y = [a for a in z if q]", "z", "p if r else s", "y = [a for a in (p if r else s) if q]"),
        ("y = [z, 1]", "z", "lambda: 0", "y = [lambda: 0, 1]"),
        ("y = {z: 1}", "z", "lambda: 0", "y = {lambda: 0: 1}"),
        ("f(x for x in y)", "(x for x in y)", "z", "f(z)"),
        ("f(z)", "z", "x for x in y", "f((x for x in y))"),
        ("def f(): return-x", "-x", "x", "def f(): return(x)"),
        ("y = 'a'if x else b", "'a'", "q", "y = (q)if x else b"),
        ("y = q or-x", "-x", "'x'", "y = q or('x')"),
        ("y = z", "z", "a + b", "y = a + b"),
        ("y = f(*z)", "z", "a or b", "y = f(*(a or b))"),
    ],
)
def test_replace(before: str, text: str, new: str, after: str) -> None:
    file = source(before)
    assert edited(file, replace(file, expression(file, text), new)) == after


@pytest.mark.parametrize("text", ["", "a b", "a) + (b", "x = 1", "*a", "1:2", "a # c", "return", "a; b", "pass", "#"])
def test_replace_by_what_is_no_expression(text: str) -> None:
    file = source("y = z")
    with pytest.raises(ValueError, match="no expression"):
        replace(file, expression(file, "z"), text)


INSERTIONS = [
    ("x = 1\n", 0, "new\nx = 1\n", "x = 1\nnew\n"),
    ("x = 1", 0, "new\nx = 1", "x = 1\nnew"),
    ("x = 1  # c", 0, "new\nx = 1  # c", "x = 1  # c\nnew"),
    ("x = f(\n  1)  # c\ny = 2\n", 0, "new\nx = f(\n  1)  # c\ny = 2\n", "x = f(\n  1)  # c\nnew\ny = 2\n"),
    ("# c\r\nx = 1\r\n", 0, "# c\r\nnew\r\nx = 1\r\n", "# c\r\nx = 1\r\nnew\r\n"),
    ("a = 1\r\nx = 1\ny = 2", 1, "a = 1\r\nnew\nx = 1\ny = 2", "a = 1\r\nx = 1\nnew\ny = 2"),
    ("x = 1\ry = 2\r", 0, "new\rx = 1\ry = 2\r", "x = 1\rnew\ry = 2\r"),
    ("\ufeffx = 1\n", 0, "\ufeffnew\nx = 1\n", "\ufeffx = 1\nnew\n"),
    ("if a:\n \t x = 1\n", "x", "if a:\n \t new\n \t x = 1\n", "if a:\n \t x = 1\n \t new\n"),
    ("@a\n@ b(\n 1)\ndef x(): y\n", 0, "new\n@a\n@ b(\n 1)\ndef x(): y\n", "@a\n@ b(\n 1)\ndef x(): y\nnew\n"),
    ("if a: x\nelse: y\n", 0, "new\nif a: x\nelse: y\n", "if a: x\nelse: y\nnew\n"),
    ("# c \\\nx = 1\n", 0, "# c \\\nnew\nx = 1\n", "# c \\\nx = 1\nnew\n"),
    ("\x0cx = 1\n", 0, "\x0cnew\n\x0cx = 1\n", "\x0cx = 1\n\x0cnew\n"),
]  # fmt: skip


def statement(file: SourceFile, at: int | str) -> ast.stmt:
    if isinstance(at, int):
        return file.tree.body[at]
    found = [node for node in ast.walk(file.tree) if isinstance(node, ast.stmt) and file.source(node).startswith(at)]
    return found[-1]


@pytest.mark.parametrize(("text", "at", "before", "after"), INSERTIONS)
def test_insert(text: str, at: int | str, before: str, after: str) -> None:
    file = source(text)
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    for edit, expected in ((insert_before, before), (insert_after, after)):
        content = edited(file, edit(file, statement(file, at), "new"))
        assert content == expected
        assert content.startswith(mark)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("a; x = 1\n", "x"),
        ("if a: x = 1\n", "x"),
        ("if a: \\\n    x = 1\n", "x"),
        ("class A: x = 1\n", "x"),
        ("if a:\n    b\nelif x:\n    c\n", "elif"),
    ],
)
def test_no_line_of_its_own(text: str, at: str) -> None:
    file = source(text)
    for insert in (insert_before, insert_after):
        with pytest.raises(ValueError, match="the statement"):
            insert(file, statement(file, at), "new")


@pytest.mark.parametrize("text", ["x = 1; y = 2\n", "x = 1;\n", "x = 1 \\\n\n", "x = '''\n'''; y = 1\n"])
def test_nothing_goes_behind_what_shares_its_last_line(text: str) -> None:
    file = source(text)
    with pytest.raises(ValueError, match="does not end its line"):
        insert_after(file, file.tree.body[0], "new")


@pytest.mark.parametrize("text", ['"""Doc."""\n', "from __future__ import annotations\n", 'def f():\n    """Doc."""\n'])
def test_nothing_goes_before_what_stays_first(text: str) -> None:
    file = source(text)
    first = next(node for node in ast.walk(file.tree) if isinstance(node, (ast.Expr, ast.ImportFrom)))
    with pytest.raises(ValueError, match="nothing may stand before"):
        insert_before(file, first, "new")


def test_behind_a_block_and_its_last_line() -> None:
    file = source("for x in y:\n    f(x)\n")
    outer, inner = file.tree.body[0], file.tree.body[0].body[0]  # type: ignore[attr-defined]
    edits = [insert_after(file, outer, "a"), insert_after(file, inner, "b")]
    assert edited(file, *edits) == edited(file, *edits[::-1]) == "for x in y:\n    f(x)\n    b\na\n"


def test_several_lines() -> None:
    file = source("def f():\r\n\tx = 1\r\n")
    node = statement(file, "x")
    assert (
        edited(file, insert_after(file, node, "if x:\n\ta\n\nb"))
        == "def f():\r\n\tx = 1\r\n\tif x:\r\n\t\ta\r\n\r\n\tb\r\n"
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch", "torch"),
        ("import torch as th", "th"),
        ("import torch.nn", "torch"),
        ("import torch.nn as nn", None),
        ("from torch import nn", None),
        ("def f():\n    import torch", None),
        ("import os, torch", "torch"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", "torch"),
        ("if available():\n    import torch as t", "t"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", None),
        ("", None),
    ],
)
def test_torch_name(text: str, name: str | None) -> None:
    assert torch_name(source(text)) == name


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import os\nfrom torch import nn\n\nx = 1\n", "import os\nfrom torch import nn\nimport torch\n\nx = 1\n"),
        (f'"""D."""\n{FUTURE}\n\nx = 1\n', f'"""D."""\n{FUTURE}\n\nimport torch\n\nx = 1\n'),
        ('"""Doc."""\nx = 1\n', '"""Doc."""\n\nimport torch\nx = 1\n'),
        ('#!/bin/python\n"""Doc."""', '#!/bin/python\n"""Doc."""\n\nimport torch'),
        ("# c\n@a\ndef f(): pass\n", "# c\nimport torch\n\n@a\ndef f(): pass\n"),
        ("import os\nfrom .a import b\n", "import os\nimport torch\nfrom .a import b\n"),
        ("from .a import b\n", "import torch\n\nfrom .a import b\n"),
        ("import os; import sys\n", "import torch\nimport os; import sys\n"),
        ("import os\r\n", "import os\r\nimport torch\r\n"),
        ("", "import torch\n"),
        ("# c", "# c\nimport torch\n"),
    ],
)  # fmt: skip
def test_import_torch(before: str, after: str) -> None:
    file = source(before)
    assert edited(file, import_torch(file)) == after
    assert torch_name(source(after)) == "torch"


def test_apply_keeps_to_the_file() -> None:
    with pytest.raises(ValueError, match="overlap"):
        apply(b"x = 1", "utf-8", [edit_of(0, 3, "a"), edit_of(2, 5, "b")])
    for start, end in ((-1, 2), (3, 2), (0, 99)):
        with pytest.raises(ValueError, match="outside"):
            apply(b"x = 1", "utf-8", [edit_of(start, end, "a")])
    with pytest.raises(ValueError, match="several files"):
        apply(b"x = 1", "utf-8", [edit_of(0, 1, "a"), Edit("y.py", (2, 3), "b", "safe")])
    assert apply(b"\xef\xbb\xbfx", "utf-8-sig", [edit_of(3, 4, "y")]) == b"\xef\xbb\xbfy"


def test_equal_edits_are_made_once() -> None:
    one, other = edit_of(2, 2, "a\n"), Edit("x.py", (2, 2), "a\n", "unsafe")
    assert ordered([one, edit_of(0, 1, "b"), other, one]) == [edit_of(0, 1, "b"), one]
    assert ordered([edit_of(2, 2, "b"), edit_of(2, 2, "a")]) == [edit_of(2, 2, "b"), edit_of(2, 2, "a")]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.sampled_from(["a", "b"])), max_size=2, min_size=2))
def test_edits_overlap_if_they_cant_both_be_applied(places: list[tuple[int, int, str]]) -> None:
    one, other = (edit_of(start, start + size, text) for start, size, text in places)
    try:
        apply(b"0123456789", "utf-8", [one, other])
    except ValueError:
        assert overlap([one], [other])
        assert overlap([other], [one])
    else:
        assert not overlap([one], [other])
    assert not overlap([one], [one])
    assert not overlap([one], [Edit("y.py", other.span, "c", "safe")])
    assert not overlap([], [one])


@pytest.mark.parametrize(
    ("text", "edits"),
    [
        ("y = a * b\n", [(4, 5, "c + d")]),  # binds otherwise
        ("y = a * b\n", [(8, 9, "b.c() + d")]),
        ("y = a + b\n", [(8, 9, "b.c()"), (0, 1, "z")]),  # a target
        ("y = a + b\n", [(4, 9, "(a + b")]),
        ("y = a + b\n", [(4, 9, "a + b # c"), (0, 0, "if x:\n ")]),
        ("y = a\nz = b\n", [(4, 7, "q")]),
        ("y = a\nz = b\n", [(2, 2, "= q ")]),
        ("f(x for x in y)\n", [(1, 15, "(x for x in y).c()")]),
        ("f(a + b)\n", [(1, 8, "(a + b).c()")]),
        ("def f():\n    return 1\n", [(0, 0, "return 2\n")]),  # parses, but is no program
        ("from __future__ import annotations\n", [(0, 0, "import os\n")]),
        ("y = 1\n", [(4, 5, "'\ud800'")]),
        ("y = a\n", [(4, 5, "b"), (0, 0, "# coding: latin-1\n")]),
        ("match x:\n    case a.b: pass\n", [(18, 21, "a.b.c()")]),
        ("y = 1\n", [(6, 6, "  z = 1\n")]),
    ],
)
def test_check_refuses(text: str, edits: list[tuple[int, int, str]]) -> None:
    with pytest.raises(ValueError, match=r"x\.py|no Python|encoding"):
        check(source(text), [edit_of(*edit) for edit in edits])


@pytest.mark.parametrize(
    ("text", "edits"),
    [
        ("y = a * b\n", [(4, 5, "(c + d)"), (8, 9, "e[0]")]),
        ("y = (a + b)\n", [(4, 11, "(a + b).c()")]),
        ("y = ( # c\n a + b # d\n)\n", [(4, 22, "q")]),
        ("y = a\n", [(4, 5, "( # c\n b\n)")]),
        ("y = (\n  a\n).b\nz = c\n", [(0, 13, "y = a.b")]),  # a statement in fewer lines
        ("y = 1\nz = 2\nw = 3\n", [(0, 11, "y, z = 1, 2")]),  # two become one
        ("y = 1\nz = 2\n", [(0, 5, "if x:\n    y = 1\nelse:\n    y = 2")]),
        ("y = 1\nz = 2\n", [(0, 6, "")]),  # one goes
        ("for i in x:\n    y = f(a)\n    g(y)\n", [(0, 0, "y = f(a)\n"), (12, 25, "")]),  # one is moved
        ("if x:\n    y = 1\n", [(10, 15, "y = 2")]),
        ("f(a)\n", [(0, 4, "a = f(b)")]),
        ("@a\ndef f(): pass\n", [(0, 16, "def f(): return 1")]),
        ("try:\n    y = 1\nexcept E:\n    z = 1\nmatch a:\n    case 1:\n        y = 2\n", [(29, 34, "z = 2")]),
        ("y = 1\n", [(5, 5, "  # comment")]),
        ("y = x.c() + z\n", [(4, 9, "x")]),
        ("y = a + b\n", [(4, 9, "a + b; z = 1")]),  # one is put in
        ("y = x[a:b]\n", [(6, 9, "z")]),
    ],
)
def test_check_accepts(text: str, edits: list[tuple[int, int, str]]) -> None:
    check(source(text), [edit_of(*edit) for edit in edits])


def test_check_says_where() -> None:
    file = source("x = 1\ny = (2 +\n    a * b)\n")
    with pytest.raises(ValueError, match=r"^x.py:2 would change in more than what the edit names$"):
        check(file, [edit_of(19, 20, "a + c")])


def test_check_in_a_cell_that_awaits() -> None:
    file = source("x = await f(a)\n")
    check(file, [append(file, expression(file, "a"), ".c()")])


@pytest.mark.parametrize(("one", "other"), [("1", "True"), ("1", "1.0"), ("0.0", "-0.0"), ("'a'", "b'a'"), ("x", "y")])
def test_what_looks_equal_differs(one: str, other: str) -> None:
    assert same(ast.parse(one), ast.parse(f"({one})  # c"))
    assert not same(ast.parse(one), ast.parse(other))


LEAVES = ["a", "é", "1", "'s'", "f(b)", "x[0]", "x[:, 1]", "f'{a}'"]
SHAPES = [
    "({0} + {1})",
    "({0} * {1})",
    "{0}**{1}",
    "({0}\n or {1})",
    "({0} if {1} else c)",
    "({0}<{1})",
    "-{0}",
    "(not {0})",
    "f({0}, k=({1}))",
    "f(q for q in {0})",
    "[q for q in {0} if {1}]",
    "(lambda é={0}: {1})",
    "(  # c\n{0}\n, {1})",
    "({0}).b[{1}, 0]",
]
expressions = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.builds(str.format, st.sampled_from(SHAPES), inner, inner),
    max_leaves=5,
)


@given(expressions, st.data(), st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["utf-8", "latin-1"]))
def test_any_expression_can_be_appended_to(text: str, data: st.DataObject, newline: str, encoding: str) -> None:
    program = f"# coding: {encoding}\ndef f(x):\n\tif x:\n\t\treturn {text}  # ü\n\treturn z\n"
    file = source(program.replace("\n", newline).encode(encoding))
    nodes = [node for node in ast.walk(file.tree) if isinstance(node, ast.expr) and not file.in_fstring(node)]
    node = data.draw(st.sampled_from(nodes))
    try:
        edit = append(file, node, ".contiguous()")
    except ValueError:
        assume(False)
    check_and_undo(file, edit)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_files(path: Path) -> None:
    file = SourceFile(path, "x.py")
    nodes = [node for node in ast.walk(file.tree) if isinstance(node, ast.expr) and not file.in_fstring(node)]
    values = [node for node in nodes if isinstance(getattr(node, "ctx", ast.Load()), ast.Load)]
    for node in random.Random(0).sample(values, min(8, len(values))):
        if not isinstance(node, (ast.Starred, ast.Slice)):
            check_and_undo(file, append(file, node, ".contiguous()"))
            check_and_undo(file, replace(file, node, "a if b else c"))


def check_and_undo(file: SourceFile, edit: Edit) -> None:
    check(file, [edit])
    content = apply(file.content, file.encoding, [edit])
    size = len(edit.replacement.encode(file.encoding))
    undo = Edit(edit.file, (edit.span[0], edit.span[0] + size), file.decode(edit.span), "safe")
    assert apply(content, file.encoding, [undo]) == file.content
