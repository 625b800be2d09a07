"""`layout_budget` and `record_layout`, in tests that pytest runs."""

import torch

from . import programs

pytest_plugins = ["pytester"]

MARKED = """
    @pytest.mark.layout_budget(copies=0)
    def test_over(x):
        wide(x)

    @pytest.mark.layout_budget("copies=1,bytes=4096B")
    def test_within(x):
        wide(x)

    @pytest.mark.layout_budget(bytes="4kB")
    def test_bytes(x):
        wide(x)

    @pytest.mark.layout_budget(forbid=["SW103"])
    @pytest.mark.parametrize("which", [fine, wide], ids=["fine", "wide"])
    def test_forbid(x, which):
        which(x)

    @pytest.mark.layout_budget(copies=0)
    def test_before_any_module(x):
        x.transpose(0, 1).contiguous()
        torch.nn.LayerNorm(16)(x)

    @pytest.mark.layout_budget(copies=0)
    def test_own_failure(x):
        wide(x)
        assert x.dim() == 4

    @pytest.mark.layout_budget(copies=0)
    @pytest.mark.xfail(strict=True)
    def test_known_to_be_over(x):
        wide(x)

    @pytest.mark.layout_budget("copies=0,bytes=0,share=0,time=0s")
    def test_no_operator():
        assert sum([1, 2]) == 3

    @pytest.mark.layout_budget(copies=1)
    def test_after_the_last_step(x):
        for _ in range(3):
            wide(x)
            stridewise.step()
        wide(x)

    @pytest.mark.layout_budget(copies=2)
    def test_before_the_first_step(x):
        for _ in range(2):
            wide(x)
            wide(x)
            stridewise.step()
        assert x.dim() == 3  # no operator

    stop = threading.Event()

    def at_work():
        while not stop.wait(0.001):
            wide(torch.ones(4, 8, 16))

    def test_leaves_a_thread():
        threading.Thread(target=at_work).start()

    @pytest.mark.layout_budget(copies=0)
    def test_beside_the_thread(x):
        for _ in range(200):
            fine(x)
        stop.set()

    @pytest.mark.layout_budget(copies=0)
    def test_compiled(x):
        torch.compile(lambda x: x + 1, backend="eager")(x)

    @pytest.mark.layout_budget(copies=0)
    def test_skipped():
        pytest.skip("no reason")

    @pytest.mark.layout_budget(copies=0)
    def test_profiles():
        with torch.profiler.profile():
            pass

    class TestMethods(unittest.TestCase):
        def setUp(self):
            self.x = torch.randn(4, 16, 8).transpose(1, 2).contiguous()

        @pytest.mark.layout_budget(copies=0)
        def test_over(self):
            wide(self.x)

        @pytest.mark.layout_budget(copies=1)
        def test_within(self):
            wide(self.x)

    @pytest.mark.layout_budget(copies=0)
    class TestClass:
        def test_nearer_marker(self, x):
            fine(x)

        @pytest.mark.layout_budget(copies=1)
        def test_own_marker(self, x):
            wide(x)
"""

BLOCKS = """
    def test_report(x, record_layout):
        wide(x)
        with record_layout() as recording:
            wide(x)
            recording.step()
        (finding,) = record_layout.report.findings
        assert (finding.code, finding.site.expression) == (
            "SW103",
            "torch.nn.functional.layer_norm(x.transpose(1, 2), (8,))",
        )
        with record_layout("copies=0"):
            fine(x)
        assert record_layout.report.ok and len(record_layout.reports) == 2

    def test_block_over(x, record_layout):
        with record_layout(copies=0):
            wide(x)

    @pytest.mark.layout_budget(copies=0)
    def test_marker_is_for_blocks(x, record_layout):
        wide(x)
        with record_layout():
            fine(x)

    @pytest.mark.layout_budget(copies=0)
    def test_marker_over_in_block(x, record_layout):
        with record_layout():
            wide(x)

    @pytest.mark.layout_budget(copies=0)
    def test_no_block(x, record_layout):
        fine(x)

    def test_exception(x, record_layout):
        with pytest.raises(ZeroDivisionError), record_layout(copies=0):
            wide(x)
            1 / 0

    def test_block_in_a_block(x, record_layout):
        with record_layout(copies=0):
            with record_layout():
                fine(x)

    def test_no_operator(record_layout):
        with record_layout(copies=0):
            pass
        assert record_layout.report.ok and record_layout.report.totals.copies == 0

    def test_mistake(record_layout):
        record_layout(copys=0)

    def test_no_report(record_layout):
        record_layout.report

    @pytest.fixture
    def profiler():
        with torch.profiler.profile():
            yield

    def test_in_profiler(profiler, record_layout):
        with record_layout():
            pass

    @pytest.mark.layout_budget(copies=0)
    def test_in_a_profiler(profiler):
        pass
"""


def test_markers(pytester):
    programs.project(pytester, test_marked=MARKED)
    said = programs.passed(pytester.runpytest_subprocess("-rA"), passed=10, failed=8, skipped=1, xfailed=1)
    for name in (
        "over",
        "after_the_last_step",
        "bytes",
        "forbid[wide]",
        "before_any_module",
        "own_failure",
        "profiles",
    ):
        assert f"FAILED tests/test_marked.py::test_{name}" in said
    assert "FAILED tests/test_marked.py::TestMethods::test_over" in said
    over = said.partition("_ test_over _")[2].partition("\n___")[0].splitlines()[1:]
    assert [line.split(" µs")[0].split(" ms")[0] for line in over[:3]] == [
        "over the layout budget copies=0",
        "  copies: 1 a step, the budget allows 0",
        "src/package/layers.py:5: SW103 hidden-copy",
    ]
    assert over[3] == "    torch.nn.functional.layer_norm(x.transpose(1, 2), (8,))"
    assert over[4].startswith("    1 copy, 4.1 kB")
    assert "Make `x.transpose(1, 2)` give the order that the operator needs" in over[5]
    assert len(over) == 6
    own = said.partition("_ test_own_failure _")[2].partition("\n___")[0]
    assert "assert 3 == 4" in own
    assert "layout" not in own.replace("layout_budget", "")
    assert "bytes: 4.1 kB a step, the budget allows 4 kB" in said
    assert "The test starts a profiler, or a recording, of its own" in said
    assert "  copies: 1.33 a step, the budget allows 1" in said
    summary = said.partition("= layout =")[2].splitlines()
    assert summary[1] == (
        "1 recorded test calls code of torch.compile: what generated code does inside is not looked into. "
        "`stridewise run --compiled` does."
    )
    if torch.__version__ >= "2.7":  # before, other threads are in no recording
        assert summary[2] == "In 1 recorded test threads were at work that ran before: what they did there is left out."


def test_blocks(pytester):
    programs.project(pytester, test_blocks=BLOCKS)
    said = programs.passed(pytester.runpytest_subprocess("-rA"), passed=4, failed=8)
    for name in (
        "block_over",
        "block_in_a_block",
        "marker_over_in_block",
        "no_block",
        "mistake",
        "no_report",
        "in_profiler",
    ):
        assert f"FAILED tests/test_blocks.py::test_{name}" in said
    assert "no block is recorded by it" in said
    assert "record_layout: a block can't be inside another; end one before the next begins" in said
    assert "has no key `copys`: did you mean copies?" in said
    assert "record_layout has no report yet" in said
    assert said.count("\nlayout can't be recorded: Another profiler is running") == 2


def test_a_mistake_in_a_marker_is_a_line(pytester):
    text = """
    import pytest

    @pytest.mark.layout_budget(copies=-1)
    def test_a(): pass

    @pytest.mark.layout_budget()
    def test_b(): pass

    @pytest.mark.layout_budget("copies=0", bytes=1)
    def test_c(): pass

    @pytest.mark.layout_budget(forbid="SW199")
    def test_d(): pass

    @pytest.mark.layout_budget(forbid=["SW9"])
    def test_e(): pass

    @pytest.mark.layout_budget(forbid="SW3")
    def test_f(): pass

    @pytest.mark.layout_budget(forbid="SW114")
    def test_g(): pass
    """
    pytester.makepyprojecttoml(programs.CONFIG + '\n[tool.stridewise]\nignore = ["SW114"]\n')
    programs.write(pytester, "test_mistakes.py", text)
    result = pytester.runpytest_subprocess()
    assert result.ret == 4
    said = [line for line in result.stderr.lines if line.startswith("ERROR")]
    assert len(said) == 6
    assert "test_mistakes.py::test_a: layout_budget: copies: `-1` is not a number of copies" in said[0]
    assert "it has no limit" in said[1]
    assert "it takes limits by name" in said[2]
    assert "forbid names SW199, which no rule has" in said[3]
    assert "forbid names SW9, which no rule has" in said[4]
    assert "and 2 more of these" in said[5]
    result = pytester.runpytest_subprocess("-k", "test_f or test_g")
    said = [line for line in result.stderr.lines if line.startswith("ERROR")]
    assert "forbid names SW3, which only `stridewise lint` finds" in said[0]
    assert "forbid names SW114, which ignore leaves out of the report" in said[1]
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_nothing_is_loaded_where_nothing_is_used(pytester):
    pytester.makepyprojecttoml(programs.CONFIG)
    programs.write(
        pytester,
        "test_free.py",
        """
        import sys

        def test_free(request):
            loaded = {name for name in sys.modules if name.startswith("stridewise.")}
            assert loaded <= {"stridewise.integrations", "stridewise.integrations.pytest_plugin"}
            assert not {"torch", "msgspec", "numpy"} & sys.modules.keys()
            plugin = request.config.pluginmanager.get_plugin("stridewise")
            hooks = {name for name in vars(plugin) if name.startswith("pytest_")}
            assert hooks == {
                "pytest_addoption",
                "pytest_configure",
                "pytest_collection_finish",
                "pytest_terminal_summary",
            }
            names = [name for name, _ in request.config.pluginmanager.list_name_plugin()]
            assert [name for name in names if "stridewise" in name] == ["stridewise"]
        """,
    )
    programs.passed(pytester.runpytest_subprocess("-p", "no:xdist"), passed=1)
    assert "layout_budget(copies=0" in pytester.runpytest_subprocess("--markers").stdout.str()
    refused = pytester.runpytest_subprocess("--layout-all")
    assert (refused.ret, refused.stderr.lines[0]) == (
        4,
        "ERROR: --layout-all goes with --layout-baseline=check or --layout-baseline=update",
    )
