"""The parts of the baseline that need no session: the file, what differs, what is gone."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.errors import InputError
from stridewise.findings import Cost, Finding, Site
from stridewise.integrations.pytest_support import file
from stridewise.integrations.pytest_support.collected import Collected
from stridewise.integrations.pytest_support.known import Known, compare, grouped, known

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
        file.write(tmp_path / "nowhere" / "base.json", "")


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
    (row, other) = known(grouped([first, second], tmp_path))
    assert (row.expression, row.copies, row.bytes, row.count) == ("x.t( )", 1, 8, 1)
    assert (other.copies, other.bytes, other.count) == (1.333, 16, 2)


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
