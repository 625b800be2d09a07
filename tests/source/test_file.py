"""Places in a source file are bytes, whatever it is written in."""

import ast
import threading
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.errors import InputError
from stridewise.findings import Site
from stridewise.source.file import SourceFile

PROGRAM = """# coding: {encoding}
größe = 'é' + g(größe . T,
    b)  # ü
def f(x):
\tif x: return 'ß', x[  'ö', 1:]
\x0cz = (lambda é: é)(3)
"""


def source(text: str | bytes) -> SourceFile:
    return SourceFile(Path("example.py"), "example.py", text.encode() if isinstance(text, str) else text)


def site_of(node: ast.expr) -> Site:
    return Site("example.py", node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)


def expressions(file: SourceFile) -> list[ast.expr]:
    return [node for node in ast.walk(file.tree) if isinstance(node, ast.expr) and not file.in_fstring(node)]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "cp1252", "iso-8859-15"])
def test_spans_are_bytes(encoding: str, newline: str) -> None:
    declared = "utf-8" if encoding == "utf-8-sig" else encoding
    content = PROGRAM.format(encoding=declared).replace("\n", newline).encode(encoding)
    file = source(content)
    assert file.newline == newline
    for node in expressions(file):
        assert file.expression(site_of(node)) is node
        assert file.expression_in(file.span(node)) is node
        text = file.source(node)
        if not isinstance(node, (ast.Slice, ast.Tuple)):
            assert ast.unparse(ast.parse(f"({text}\n)", mode="eval")) == ast.unparse(node)
        start, end = file.span(node)
        assert file.offset(*file.position(start)) == start
        assert file.offset(*file.position(end)) == end
        assert content[start:end].decode(encoding.removesuffix("-sig")) == text


def test_multibyte_encodings_of_other_scripts() -> None:
    file = source("# coding: shift_jis\nx = 'テスト' + f(名)\n".encode("shift_jis"))
    assert [file.source(node) for node in expressions(file)] == [
        "x",
        "'テスト' + f(名)",
        "'テスト'",
        "f(名)",
        "f",
        "名",
    ]


def test_mixed_newlines() -> None:
    file = source(b"a = 1\r\nb = 2\rc = 3\nd = e")
    assert [file.source(statement) for statement in file.tree.body] == ["a = 1", "b = 2", "c = 3", "d = e"]
    assert [file.newline_at(file.span(statement)[1]) for statement in file.tree.body] == ["\r\n", "\r", "\n", "\r\n"]


def test_characters_that_end_no_line() -> None:
    file = source("a = '\x0b\x1c\x85\u2028'; b = c\nd = e\n")
    assert [file.source(statement) for statement in file.tree.body] == ["a = '\x0b\x1c\x85\u2028'", "b = c", "d = e"]


def test_parts_of_fstrings_are_not_found() -> None:
    file = source('x = f"{a + b:{width}}" + g(c)\n')
    names = {node.id: node for node in ast.walk(file.tree) if isinstance(node, ast.Name)}
    for name in ("a", "b", "width"):
        assert file.in_fstring(names[name])
        assert file.expression(site_of(names[name])) is not names[name]
        with pytest.raises(ValueError, match="f-string"):
            file.span(names[name])
    assert file.source(names["c"]) == "c"
    (whole,) = [node for node in ast.walk(file.tree) if isinstance(node, ast.JoinedStr) and not file.in_fstring(node)]
    assert file.source(whole) == 'f"{a + b:{width}}"'
    assert file.expression(site_of(whole)) is whole


def test_a_place_that_covers_no_expression() -> None:
    file = source("x = a + b\n")
    assert file.expression(Site("example.py", 1, 4, 1, 7)) is None
    assert file.expression(Site("example.py", 9, 0, 9, 7)) is None
    assert file.expression(Site("example.py", 1)) is None
    assert file.expression(Site()) is None


def test_the_outermost_of_a_generator() -> None:
    file = source("f(x for x in y)\n")
    generator = next(node for node in expressions(file) if isinstance(node, ast.GeneratorExp))
    assert file.source(generator) == "(x for x in y)"


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "\ufeff", "\ufeff# c\n"])
def test_files_without_a_statement(text: str) -> None:
    assert source(text).tree.body == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x = (\n", "example.py:1 can't be read as Python: '(' was never closed."),
        (b"x = 1\0\n", "example.py can't be read as Python: source code string cannot contain null bytes."),
        (b"x = '\xff'\n", None),
        (b"# coding: nowhere\nx = 1\n", None),
        (b"# coding: rot13\nx = 1\n", None),
        (b"# coding: utf-7\nx = '+AOk-'\n", None),
        (b"# coding: raw_unicode_escape\nx = '\\u00e9'\n", None),
        ("# coding: iso2022_jp\nx = 'テスト'\n".encode("iso2022_jp") + b"y = '\x1b$B\n'", None),
        (b"x = " + b"-" * 100_000 + b"1\n", "example.py can't be read as Python: it is nested too deeply."),
        (b"def f():\n\tx = 1\n        y = 2\n", None),
        (b"print 'hello'\n", None),
    ],
)
def test_what_is_no_python_is_told_in_a_line(content: bytes, message: str | None) -> None:
    with pytest.raises(InputError) as caught:
        source(content)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("example.py")
    assert message is None or str(caught.value) == message


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"example.py can't be read: No such file"):
        SourceFile(tmp_path / "gone.py", "example.py")
    with pytest.raises(InputError, match="Is a directory"):
        SourceFile(tmp_path, "example.py")


def test_warnings_of_the_source_are_its_own() -> None:
    assert source("x = '\\d'\nassert (x, 1)\nx is 1\n").tree.body  # pytest makes warnings errors


def test_what_a_node_stands_in() -> None:
    file = source(
        "def f(x):\n    for a in x:\n        while p(a):\n            g(a)\n        else:\n            h(a)\n"
        "    return lambda: k(x)\n\nclass C:\n    y = m(1)\n"
    )
    calls = {file.source(node.func): node for node in ast.walk(file.tree) if isinstance(node, ast.Call)}
    outer, inner = file.tree.body[0].body[0], file.tree.body[0].body[0].body[0]  # type: ignore[attr-defined]
    assert file.loops(calls["g"]) == [inner, outer]
    assert file.loops(calls["h"]) == [outer]
    assert file.loops(calls["p"]) == [outer]
    assert file.function(calls["g"]) is file.tree.body[0]
    assert file.function(calls["k"]) is None
    assert file.function(calls["m"]) is None
    assert isinstance(file.statement(calls["k"]), ast.Return)


def test_a_decorated_function_begins_with_its_decorators() -> None:
    file = source("@a\n@ b(1)\ndef f(): pass\n")
    assert file.begin(file.tree.body[0]) == 0
    assert file.span(file.tree.body[0])[0] == 10


@given(st.text(alphabet="aé'\"\n\r\t #+(){}=\x0c\\名😀", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        file = source(text)
    except InputError:
        return
    for node in expressions(file):
        start, end = file.span(node)
        assert 0 <= start < end <= len(file.content)
        assert file.expression_in((start, end)) is not None


def test_threads_leave_the_filters_of_warnings_as_they_were():
    before = list(warnings.filters)

    def read():
        for _ in range(200):
            SourceFile(Path("x.py"), "x.py", b'a = "\\d"\n')

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before
