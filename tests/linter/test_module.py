"""What rules see of a file."""

import ast
import sys

import pytest

from stridewise.linter.module import Module

from .texts import source_of


def module(text: str, *words: str) -> Module:
    return Module(source_of(text), words or ("contiguous", "view"))


def call(text: str, name: str = "contiguous") -> tuple[Module, ast.Call]:
    parsed = module(text)
    return parsed, next(parsed.calls(name))


def test_only_lines_with_a_word_are_indexed() -> None:
    parsed = module("a = x.contiguous()\nb = x.transpose(0, 1)\nc = x.view(1)\n")
    assert [*parsed.calls("transpose")] == []
    assert [ast.unparse(node) for node in parsed.calls("contiguous", "view")] == ["x.contiguous()", "x.view(1)"]


def test_a_word_in_a_longer_name_is_none() -> None:
    assert [*module("a = x.contiguous_format()\nreview(b)\n").nodes(ast.Call)] == []


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_a_call_over_several_lines(newline: str) -> None:
    parsed, node = call(newline.join(["def f(x):", "    return (", "        x", "        .contiguous()", "    )", ""]))
    assert parsed.text(node) == "x .contiguous()"
    assert parsed.site(node).line == 3
    assert parsed.site(node).function == "f"


def test_what_stands_in_a_decorator_of_a_function_on_later_lines() -> None:
    parsed = module("@register(x.contiguous())\ndef f():\n    pass\n")
    assert len([*parsed.calls("contiguous")]) == 1


def test_fstrings_are_left_out() -> None:
    assert [*module('print(f"{x.contiguous()} {y.view(1)!r:>{z.view(1)}}")\n').calls("contiguous", "view")] == []


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("x.contiguous()", None),
        ("def f():\n    x.contiguous()", "f"),
        ("def f():\n    g(lambda: x.contiguous())", "f"),
        ("def f():\n    [y.contiguous() for y in x]", "f"),
        ("def f(a=x.contiguous()):\n    pass", None),
        ("def f(a: x.contiguous()):\n    pass", None),
        ("def f():\n    def g(a=x.contiguous()):\n        pass", "f"),
        ("def f():\n    class A:\n        b = x.contiguous()", None),
        ("class A:\n    def f(self):\n        x.contiguous()", "f"),
        ("class A(x.contiguous()):\n    pass", None),
        ("@g(x.contiguous())\nasync def f():\n    pass", None),
        ("async def f():\n    await x.contiguous()", "f"),
    ],
)
def test_in_which_function_a_call_is_made(text: str, function: str | None) -> None:
    parsed, node = call(text + "\n")
    found = parsed.function(node)
    assert (found.name if found is not None else None) == function


def test_a_site_counts_columns_in_utf8() -> None:
    parsed, node = call("class Ä:\n    def f(self, ö):\n        é = 'ß' + ö.contiguous()\n")
    site = parsed.site(node)
    assert (site.line, site.column, site.end_line, site.end_column) == (3, 20, 3, 35)
    assert site.function == "Ä.f"
    assert site.expression == "ö.contiguous()"
    assert site.text == "        é = 'ß' + ö.contiguous()"


def test_names_are_found_by_imports_anywhere() -> None:
    parsed = module("def f():\n    import torch.nn.functional as F\n    F.view(1)\n    other.view(2)\n")
    assert [parsed.name(node.func) for node in parsed.calls("view")] == ["torch.nn.functional.view", None]


def test_the_class_of_a_method() -> None:
    parsed, node = call("class A:\n    def f(self):\n        def g():\n            x.contiguous()\n")
    inner = parsed.function(node)
    assert inner is not None
    assert parsed.class_of(inner) is None
    outer = next(above for above in parsed.above(inner) if isinstance(above, ast.FunctionDef))
    owner = parsed.class_of(outer)
    assert owner is not None
    assert owner.name == "A"


def test_an_expression_that_is_nested_too_deeply_is_not_known() -> None:
    parsed, node = call("import torch\nx = " + "+".join(["y"] * 900) + "\nz = torch.zeros(1).contiguous()\n")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # a compiler that ran in this process may have raised it
    try:
        assert parsed.value(node).op is None
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("def f(a):\n    np.view(a)", "numpy.view"),
        ("def f(np):\n    np.view(1)", None),
        ("def f(*, np=None):\n    np.view(1)", None),
        ("def f(**np):\n    np.view(1)", None),
        ("def f(a):\n    np = a\n    np.view(1)", None),
        ("def f(a):\n    for np in a:\n        np.view(1)", None),
        ("def f(a):\n    with a as np:\n        np.view(1)", None),
        ("def f(a):\n    def np(): pass\n    np.view(1)", None),
        ("def f(a):\n    lambda np: np.view(1)", None),
        ("def f(np):\n    def g(a):\n        np.view(a)", None),
        ("def f(a):\n    def g(np): pass\n    np.view(a)", "numpy.view"),
        (
            "def f(a):\n    try:\n        import numpy as np\n    except OSError:\n        np = None\n    np.view(a)",
            "numpy.view",
        ),
        ("def f(a):\n    global np\n    np = a\n    np.view(a)", "numpy.view"),
        ("np = np or None\ndef f(a):\n    g(a, np)\n    np.view(a)", "numpy.view"),
    ],
)
def test_a_name_of_a_function_s_own_is_no_import(function: str, name: str | None) -> None:
    parsed, node = call(f"import numpy as np\n{function}\n", "view")
    assert parsed.name(node.func) == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("(x  # rows\n.clone(  # all\n).contiguous())", "x .clone( ).contiguous()"),
        ("(x['#']  # rows\n.contiguous())", "x['#'] .contiguous()"),
        ("(x['#'].contiguous())", "x['#'].contiguous()"),
    ],
)
def test_a_text_is_without_comments(text: str, shown: str) -> None:
    parsed, node = call(text + "\n")
    assert parsed.text(node) == shown
