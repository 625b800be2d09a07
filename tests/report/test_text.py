"""Text from elsewhere is shown, never interpreted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from stridewise.report.text import inert, one_line, shorten, shorten_left


@given(st.text())
def test_inert_text_prints_and_stays_so(text):
    shown = inert(text)
    assert shown.isprintable()
    assert inert(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b]0;title\x07", r"\x1b[31mred\x1b]0;title\x07"),
        ("a\u202eb\u200bc", r"a\u202eb\u200bc"),
        ("\udc80", r"\udc80"),
        ("::error file=x::y", r":\:error file=x::y"),
        ("::Add-Mask::y", r":\:Add-Mask::y"),
        ("##[error]y", r"#\#[error]y"),
        (
            "x[::2], x[:, ::step], at::native::add, autograd::Node",
            "x[::2], x[:, ::step], at::native::add, autograd::Node",
        ),
        ("größer 模型 [red] <b>", "größer 模型 [red] <b>"),
    ],
)
def test_inert(text, shown):
    assert inert(text) == shown


def test_one_line():
    assert one_line(" a\n\tb\r\nc ") == "a b c"


@given(st.text(st.characters(exclude_categories=["C", "Z", "M"])), st.integers(3, 20))
def test_shortened_text_fits(text, cells):
    assert cell_len(shorten(text, cells)) <= cells
    assert cell_len(shorten_left(text, cells)) <= cells
    if cell_len(text) > cells:
        assert shorten(text, cells).endswith("…")
        assert shorten_left(text, cells).startswith("…")
        assert text.startswith(shorten(text, cells)[:-1])
        assert text.endswith(shorten_left(text, cells)[1:])
