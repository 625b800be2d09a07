"""The parts of the baseline that need no session: the file, what differs, what is gone."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.analysis.notes import INSIDE_COMPILED
from stridewise.errors import InputError
from stridewise.findings import Cost, Finding, Site
from stridewise.integrations.pytest_support import file
from stridewise.integrations.pytest_support.collected import Collected
from stridewise.integrations.pytest_support.known import Change, Known, compare, grouped, known
from stridewise.integrations.pytest_support.told import tell
from stridewise.recording.build import LEFT_OUT

KNOWN = Known("SW103", "a.py", "f", "x.t()", 1, 1, 4096)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ROWS = st.builds(
    Known, TEXT, TEXT, TEXT, TEXT, st.integers(0, 9), st.floats(0, 9).map(lambda x: round(x, 3)), st.integers(0)
)


@given(st.dictionaries(TEXT, st.lists(ROWS, max_size=3).map(tuple), max_size=3))
def test_what_is_written_is_read_again_a_finding_a_line(tests):
    text = file.dumps(tests)
    assert file.loads(text, "x") == {test: tuple(sorted(rows)) for test, rows in tests.items()}
    assert sum(line.startswith('      {"code"') for line in text.split("\n")) == sum(map(len, tests.values()))
    assert file.dumps(file.loads(text, "x")) == text


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2, "tests": {}}', '{"version": 1, "tests": {"a": [{"code": 1}]}}']
)
def test_other_files_are_refused(text):
    with pytest.raises(InputError, match=r"^base\.json "):
        file.loads(text, "base.json")


def test_a_file_takes_the_old_ones_place_whole(tmp_path):
    path = tmp_path / "base.json"
    assert file.read(path) is None
    file.write(path, "old")
    path.chmod(0o640)
    file.write(path, "new")
    assert file.read(path) == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [*tmp_path.iterdir()] == [path]
    with pytest.raises(InputError, match="can't be written"):
        file.write(path / "base.json", "")


def test_its_folder_is_made_also_behind_a_link(tmp_path):
    file.write(tmp_path / "new" / "deep" / "base.json", "text")
    (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere" / "base.json")
    file.write(tmp_path / "link.json", "text")
    assert file.read(tmp_path / "new" / "deep" / "base.json") == file.read(tmp_path / "link.json") == "text"
    assert (tmp_path / "link.json").is_symlink()


def test_a_byte_order_mark_is_no_part_of_it(tmp_path):
    text = file.dumps({"a": (KNOWN,)})
    (tmp_path / "base.json").write_text(text, encoding="utf-8-sig")
    assert file.read(tmp_path / "base.json") == text


def test_one_of_a_later_version_says_so_whatever_is_in_it():
    text = '{"version": 2, "more": [], "tests": {"a": [{"way": 1}]}}'
    with pytest.raises(InputError, match=r"(?s)version 2.*It needs a newer stridewise"):
        file.loads(text, "base.json")


def test_merge_conflicts_are_named_by_line():
    lines = file.dumps({"a": (KNOWN,)}).splitlines()
    text = "\n".join([*lines[:4], "<<<<<<< ours", lines[4], "=======", lines[4], ">>>>>>> theirs", *lines[5:]])
    with pytest.raises(InputError) as raised:
        file.loads(text, "base.json")
    assert "base.json holds merge conflict markers, the first in line 5." in str(raised.value)
    assert "delete" not in str(raised.value)


@pytest.mark.parametrize(
    ("before", "now", "new", "grown", "gone"),
    [
        ([], [KNOWN], 1, 0, 0),
        ([KNOWN], [], 0, 0, 1),
        ([KNOWN], [KNOWN], 0, 0, 0),
        ([KNOWN], [Known("SW103", "a.py", "f", "x.t()", 1, 2, 4096)], 0, 1, 0),
        ([KNOWN], [Known("SW103", "a.py", "f", "x.t()", 1, 1, 4097)], 0, 1, 0),
        ([KNOWN], [Known("SW103", "a.py", "f", "x.t()", 2, 1, 4096)], 0, 1, 0),
        ([KNOWN], [Known("SW103", "a.py", "f", "x.t()", 1, 0.5, 4096)], 0, 0, 1),
        ([KNOWN], [Known("SW103", "a.py", "g", "x.t()", 1, 1, 4096)], 1, 0, 1),
    ],
)
def test_what_differs(before, now, new, grown, gone):
    change = compare(before, now)
    assert (len(change.new), len(change.grown), len(change.gone)) == (new, grown, gone)


class Report:
    def __init__(self, *findings):
        self.findings = findings


def finding(line, file="m.py", expression="x.t()", **cost):
    site = Site(file=file, line=line, function="f", expression=expression)
    return Finding("SW103", "hidden-copy", "warning", "", 1, site, None, (), (), Cost(**cost))


def test_lines_and_spaces_do_not_count_and_equal_ones_add_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = Report(finding(3, copies=1, bytes_moved=8), finding(9, expression="x.t( )", copies=1, bytes_moved=8))
    second = Report(finding(30, copies=1 / 3, bytes_moved=8))
    third = Report(finding(31, expression="y.t()", copies=1, bytes_moved=8))
    (row, other) = known(grouped([first, second, third], tmp_path))
    assert (row.expression, row.copies, row.bytes, row.count) == ("x.t()", 2.333, 24, 3)
    assert (other.expression, other.copies, other.bytes, other.count) == ("y.t()", 1, 8, 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("torch.ones(n,n).t()", "torch.ones(n, n).t()"),
        ("f(x, 'a')", 'f(x, "a")'),
        ("f(x, y)", "f(\n    x,\n    y,\n)"),
        ("(a @ b)", "a @ b"),
        ("a\n    @ b", "a @ b"),
        ("x[::2, 1 : n]", "x[::2, 1:n]"),
        ("x += y.t( )", "x += y.t()"),
        ("no  python at all", "no python  at all"),
    ],
)
def test_a_formatter_makes_no_finding_new(before, after, tmp_path):
    (now,) = known(grouped([Report(finding(1, expression=after, copies=1, bytes_moved=8))], tmp_path))
    (same,) = known(grouped([Report(finding(1, expression=before, copies=1, bytes_moved=8))], tmp_path))
    assert now == same
    earlier = Known("SW103", "m.py", "f", before, 1, 1, 8)  # as files of earlier versions have it
    assert compare([earlier], [now]) == Change((), (), ())


def test_expressions_that_are_one_now_add_up():
    twice = [Known("SW103", "a.py", "f", text, 1, 1, 8) for text in ("f(a,b)", "f(a, b)")]
    both = [Known("SW103", "a.py", "f", "f(a, b)", 2, 2, 16)]
    assert compare(twice, both) == compare(both, both)
    assert compare(twice, [Known("SW103", "a.py", "f", "f(a, b)", 3, 3, 24)]).grown


def test_names_of_files_are_the_same_from_everywhere(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "m.py").touch()

    def named(file):
        ((row),) = known(grouped([Report(finding(1, file))], tmp_path))
        return row.file

    for folder, given_name in ((tmp_path, "src/m.py"), (tmp_path / "src", "m.py")):
        monkeypatch.chdir(folder)
        assert named(given_name) == "src/m.py"
    assert named(str(tmp_path / "src" / "m.py")) == "src/m.py"
    assert named("/nowhere/else/m.py") == ".../m.py"
    assert named("transformers/models/nothing.py") == "transformers/models/nothing.py"


def test_a_project_reached_by_a_link(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "m.py").touch()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    for folder in (link, tmp_path / "real"):
        monkeypatch.chdir(folder)
        ((row),) = known(grouped([Report(finding(1))], link))
        assert row.file == "m.py"
    assert Collected(complete=True).lacks("m.py::test", link, (tmp_path / "real",))


def test_what_stands_in_its_file_and_was_not_collected_is_passed_over(tmp_path):
    text = "if cuda:\n    def test_a(): pass\n    class TestB:\n        def test_c(self): pass\ndef test_d(n): pass\n"
    (tmp_path / "test_m.py").write_text(text)
    (tmp_path / "broken.py").write_text("def test_(:\n")
    passed_over = ("test_m.py::test_a[1]", "test_m.py::TestB::test_c", "broken.py::test_e")
    gone = ("test_m.py::test_c", "test_m.py::TestB::test_d", "test_m.py::test_d[2]", "test_none.py::test_a")
    collected = Collected(functions=["test_m.py::test_d"], complete=True)
    assert collected.passed_over((*gone, *passed_over), tmp_path) == passed_over


def test_a_test_is_gone_only_if_all_were_seen():
    root = Path("/p")
    seen = Collected(tests=["t/a.py::x"], complete=True)
    assert seen.lacks("t/a.py::y", root, (root,))
    assert not seen.lacks("t/a.py::x", root, (root,))
    assert not seen.lacks("t/a.py::y", root, ())
    assert not seen.lacks("t/a.py::y", root, (root / "u",))
    assert not Collected(tests=[], complete=True, narrowed=True).lacks("t/a.py::y", root, (root,))
    assert not Collected().lacks("t/a.py::y", root, (root,))
    skipped = Collected(unseen=["t/a.py"], complete=True)
    assert not skipped.lacks("t/a.py::y", root, (root,))
    assert skipped.lacks("t/ab.py::y", root, (root,))
    seen.add(Collected(tests=["t/a.py::y"], complete=True))
    assert not seen.lacks("t/a.py::y", root, (root,))


def test_notes_of_a_test_reach_the_controller_of_xdist():
    report = pytest.TestReport("a.py::t", ("a.py", 0, "t"), {}, "passed", None, "call")
    report.stridewise_notes = [f"1 calls of compiled regions: {INSIDE_COMPILED}", LEFT_OUT]
    there = pytest.TestReport._from_json(json.loads(json.dumps(report._to_json())))
    said = []
    terminal = SimpleNamespace(section=said.append, write_line=said.append)
    tell(terminal, [there.stridewise_notes, [LEFT_OUT]])
    assert said == [
        "layout",
        f"1 recorded test calls code of torch.compile: {INSIDE_COMPILED} `stridewise run --compiled` does.",
        "In 2 recorded tests threads were at work that ran before: what they did there is left out.",
    ]
