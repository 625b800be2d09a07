"""The line that is shown is the one that was recorded, and what is marked is the expression: bytes, tabs, wide text."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from stridewise.findings import Site
from stridewise.report.source import character_region, excerpt, source_rows

from .samples import site

words = st.text(st.just(" ") | st.characters(exclude_categories=["C", "Z", "M"]), max_size=30)


@given(words, words.filter(lambda text: text.strip()), words)
def test_the_marks_stand_under_the_expression(before, expression, after):
    text = before + expression + after
    column = len(before.encode())
    place = Site("m.py", 1, column, 1, column + len(expression.encode()), expression=expression, text=text)
    (line,) = excerpt(place)
    assert (line.before, line.marked, line.after) == (before, expression, after)
    assert character_region(place) == (len(before) + 1, len(before + expression) + 1)
    ((_, shown, marks),) = source_rows([line], 1000)
    assert len(marks.strip()) == cell_len(expression.lstrip() if not before.strip() else expression)
    assert cell_len(marks) <= cell_len(shown)


@given(words, words, words, st.integers(20, 60))
def test_rows_fit(before, expression, after, width):
    text = before + expression + after
    column = len(before.encode())
    lines = excerpt(Site("m.py", 1, column, 1, column + len(expression.encode()), text=text))
    for _, shown, marks in source_rows(lines, width):
        assert cell_len(shown) <= width
        assert len(marks) <= width


def test_tabs_and_indentation():
    ((_, shown, marks),) = source_rows(excerpt(site("\t\treturn\tx.t()", "x.t()")), 80)
    assert shown == "return    x.t()"
    assert marks == "          ^^^^^"


def test_an_expression_of_several_lines():
    expression = "torch.stack(\n        [x],\n    ).t()"
    place = Site("pkg/model.py", 2, 8, 4, 9, expression=expression, text="    y = torch.stack(")
    lines = excerpt(place)
    assert [line.number for line in lines] == [2, 3, 4]
    assert [line.marked for line in lines] == ["torch.stack(", "[x],", ").t()"]
    assert character_region(place) == (9, 10)
    rows = list(source_rows(lines, 80))
    assert rows[0] == (2, "y = torch.stack(", "    ^^^^^^^^^^^^")
    assert rows[2] == (4, ").t()", "^^^^^")


def test_no_file_is_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("y = x.t()\n")
    assert excerpt(Site("model.py", 1, 4, 1, 9, expression="x.t()")) == ()


def test_sites_that_know_little():
    assert excerpt(Site()) == ()
    assert excerpt(Site("m.py", 3, text="y = x.t()"))[0].before == "y = x.t()"
    assert character_region(Site("m.py", 3, text="y = x.t()")) is None
    assert excerpt(Site("m.py", 3, 90, 3, 95, text="short"))[0].text == "short"
    assert excerpt(Site("m.py", 3, 0, 10**9, 5, text="x = f("))[0].marked == "x = f("
