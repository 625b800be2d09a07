"""`--layout-baseline`, in sessions of pytest."""

import contextlib
import json

import pytest

from . import programs

pytest_plugins = ["pytester"]

FIRST = """
    @pytest.mark.layout_budget(copies=2)
    @pytest.mark.parametrize("n", [1, 2])
    def test_wide(x, n):
        for _ in range(n):
            wide(x)

    def test_block(x, record_layout):
        with record_layout():
            fine(x)

    @pytest.mark.layout_budget(copies=9)
    def test_flaky(x):
        wide(x)
        assert torch.initial_seed() >= 0

    def test_other(x):
        wide(x)

    @pytest.mark.layout_budget(copies=9)
    @pytest.mark.skip(reason="not here")
    def test_skipped(x):
        wide(x)
"""
SECOND = """
    class TestMethods(unittest.TestCase):
        @pytest.mark.layout_budget(copies=9)
        def test_method(self):
            wide(torch.ones(4, 8, 16))
"""
NAME = ".stridewise-baseline.json"
WIDE = {
    "code": "SW103",
    "file": "src/package/layers.py",
    "function": "wide",
    "expression": "torch.nn.functional.layer_norm(x.transpose(1, 2), (8,))",
    "count": 1,
    "copies": 1,
    "bytes": 4096,
}


def run(pytester, mode, *arguments):
    return pytester.runpytest_subprocess(f"--layout-baseline={mode}", *arguments)


def kept(pytester, name=NAME):
    return json.loads((pytester.path / name).read_text())["tests"]


@pytest.fixture
def made(pytester):
    programs.project(pytester, test_first=FIRST, test_second=SECOND)
    return pytester


def edit(pytester, path, before, after):
    file = pytester.path / path
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


def test_the_life_of_a_baseline(made):
    missing = run(made, "check")
    assert (missing.ret, missing.stderr.lines[0]) == (
        4,
        f"ERROR: there is no {NAME} to check against: run pytest --layout-baseline=update",
    )

    said = programs.passed(run(made, "update"), passed=6, skipped=1)
    assert f"{NAME} has 4 findings of 5 tests: 4 new or larger, 0 gone or smaller" in said
    first = (made.path / NAME).read_text()
    assert sum('"code"' in line for line in first.splitlines()) == 4
    assert str(made.path) not in first
    tests = kept(made)
    assert list(tests) == sorted(tests)
    assert tests["tests/test_first.py::test_block"] == []
    assert tests["tests/test_first.py::test_wide[1]"] == [WIDE]
    assert tests["tests/test_second.py::TestMethods::test_method"] == [WIDE]
    assert tests["tests/test_first.py::test_wide[2]"] == [WIDE | {"code": "SW102", "copies": 2, "bytes": 8192}]

    # Lines move; a copy more in one place, none in another. From another folder.
    edit(made, "src/package/layers.py", "import torch\n", "import torch\n# moved\n\n")
    edit(made, "src/package/layers.py", "layer_norm(x, (16,))", "layer_norm(x, (16,)).transpose(0, 1).contiguous()")
    edit(made, "tests/test_second.py", "wide(torch", "fine(torch")
    said = programs.passed(elsewhere(made), passed=4, failed=2, skipped=1)
    assert f"layout got worse than {NAME} knows" in said
    assert "layers.py:10: SW114 requested-copy, new" in said
    assert "torch.nn.functional.layer_norm(x, (16,)).transpose(0, 1).contiguous()" in said
    assert "known before:" in said
    assert (
        "    src/package/layers.py, wide: SW103 torch.nn.functional.layer_norm(x.transpose(1, 2), (8,)), 1 copy" in said
    )
    assert f"better than {NAME} says; these can be removed or lowered: run pytest --layout-baseline=update" in said
    assert "tests/test_second.py::TestMethods::test_method: src/package/layers.py, wide: SW103" in said

    # A part of the tests: the others keep their entries, also those that are gone. A failure keeps its own.
    edit(made, "tests/test_first.py", "torch.initial_seed() >= 0", "torch.initial_seed() < 0")
    edit(made, "tests/test_second.py", "test_method", "test_renamed")
    programs.passed(run(made, "update", "-k", "block or flaky"), passed=1, failed=1, deselected=5)
    assert kept(made) == tests | {"tests/test_first.py::test_block": kept(made)["tests/test_first.py::test_block"]}
    assert [row["code"] for row in kept(made)["tests/test_first.py::test_block"]] == ["SW114"]

    # All of them, but for one that is defined only elsewhere.
    block = "def test_block(x, record_layout):\n    with record_layout():\n        fine(x)\n"
    edit(made, "tests/test_first.py", block, "if not torch:\n    def test_block(x): pass\n")
    said = programs.passed(run(made, "update"), passed=4, failed=1, skipped=1)
    assert "gone: tests/test_second.py::TestMethods::test_method" in said
    assert "was not collected, its entry stays: tests/test_first.py::test_block" in said
    assert "did not pass or run, its entry stays: tests/test_first.py::test_flaky" in said
    assert tests.keys() - kept(made).keys() == {"tests/test_second.py::TestMethods::test_method"}
    assert kept(made).keys() - tests.keys() == {"tests/test_second.py::TestMethods::test_renamed"}


def test_workers_are_handed_the_file_and_hand_over_what_they_find(made):
    edit(made, "src/package/layers.py", "layer_norm(x, (16,))", "layer_norm(x, (16,)).transpose(0, 1).contiguous()")
    edit(made, "tests/test_second.py", "test_method", "test_renamed")
    first, second = "tests/test_first.py", "tests/test_second.py::TestMethods::test_method"
    known = {f"{first}::test_wide[1]": [WIDE], f"{first}::test_wide[2]": [WIDE | {"code": "SW102", "copies": 3}]}
    known |= {f"{first}::test_flaky": [WIDE], f"{first}::test_block": [], second: [WIDE]}
    (made.path / NAME).write_text(json.dumps({"version": 1, "tests": known}))
    said = programs.passed(run(made, "check", "-n", "2"), passed=3, failed=3, skipped=1)
    assert "layers.py:8: SW114 requested-copy, new" in said
    assert "SW102 repeated-copy, 8,192 B where 4,096 B were known" in said
    assert f"{NAME} does not have this test" in said
    assert f"{second}: the test is not there or not recorded" in said
    assert kept(made) == known


def test_a_file_that_can_not_be_written_is_a_line_and_the_summary_is_there(pytester):
    pytester.makepyprojecttoml(programs.CONFIG)
    (pytester.path / NAME).write_text(json.dumps({"version": 1, "tests": {"gone.py::test_gone": []}}))
    programs.write(
        pytester,
        "test_one.py",
        f"""
        import os

        def test_passes():
            os.rename("{NAME}", "aside")
            os.mkdir("{NAME}")
        """,
    )
    result = run(pytester, "update", "-p", "no:xdist")
    said = programs.passed(result, passed=1)
    assert result.ret == 4
    assert f"not written: {pytester.path / NAME} can't be written: Is a directory." in said
    assert "Traceback" not in said + result.stderr.str()


def test_settings_that_leave_tests_out_remove_no_entry(pytester):
    pytester.makepyprojecttoml(programs.CONFIG)
    there = json.dumps({"version": 1, "tests": {"check_one.py::check_it": [], "test_two.py::test_old": []}})
    (pytester.path / NAME).write_text(there)
    programs.write(pytester, "check_one.py", "def check_it(): pass\n")
    programs.write(pytester, "test_two.py", "def test_new(): pass\n")
    said = programs.passed(run(pytester, "update", "-o", "python_functions=no_*", "-p", "no:xdist"))
    assert kept(pytester) == json.loads(there)["tests"]
    said = programs.passed(run(pytester, "update", "-p", "no:xdist"), passed=1)
    assert "gone: test_two.py::test_old" in said
    assert "was not collected, its entry stays: check_one.py::check_it" in said
    assert kept(pytester) == {"check_one.py::check_it": []}


def elsewhere(pytester):
    """From a folder below the root, without xdist."""
    folder = pytester.path / "below"
    folder.mkdir()
    with contextlib.chdir(folder):
        return run(pytester, "check", "-p", "no:xdist", "../tests")


def test_growth_unknown_tests_and_all_tests(pytester):
    text = """
    @pytest.mark.layout_budget(copies=9)
    def test_grows(x):
        wide(torch.cat([x, x]))

    def test_plain(x):
        wide(x)

    def test_profiles(x):
        with torch.profiler.profile():
            wide(x)
    """
    programs.project(pytester, test_one=text)
    name = "known/layout.json"
    (pytester.path / "known").mkdir()
    edit(pytester, "pyproject.toml", "filterwarnings", f'layout_baseline_file = "{name}"\nfilterwarnings')
    (pytester.path / name).write_text(
        json.dumps({"version": 1, "tests": {"tests/test_one.py::test_grows": [WIDE], "tests/gone.py::test_gone": []}})
    )
    said = programs.passed(run(pytester, "check", "--layout-all"), passed=1, failed=2)
    assert "SW103 hidden-copy, 8,192 B where 4,096 B were known" in said
    assert f"{name} does not have this test: run pytest --layout-baseline=update, and review what it adds" in said
    assert "not recorded, as it profiles itself: tests/test_one.py::test_profiles" in said
    assert "tests/gone.py::test_gone: the test is not there or not recorded" in said
    (pytester.path / name).write_text("<<<<<<< ours\n")
    broken = run(pytester, "update")
    assert broken.ret == 4
    assert broken.stderr.lines[0].startswith(f"ERROR: {name} holds merge conflict markers, the first in line 1.")
    assert (pytester.path / name).read_text() == "<<<<<<< ours\n"
