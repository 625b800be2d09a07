"""`%%stridewise` leaves a cell as it is, and reports below it; `%stridewise_explain` answers."""

import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from stridewise.errors import BudgetExceeded
from stridewise.integrations.notebook.extension import load_ipython_extension, rest_of_cell, unload_ipython_extension
from stridewise.recorder import live

pytest.importorskip("IPython", reason='IPython is in the extra "notebook"')

from IPython.core.error import UsageError
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output

COPY = "y = x.transpose(0, 1).reshape(-1)\n"
ALL = "--min-share 0%"
"""A share of time is another in each run."""


@pytest.fixture(autouse=True)
def loaded(shell: InteractiveShell) -> Iterator[None]:
    shell.run_line_magic("load_ext", "stridewise")
    shell.user_ns.update(torch=torch, x=torch.randn(64, 64), norm=torch.nn.LayerNorm(64))
    yield
    assert live._active is None
    assert live._watching is None


def run(shell: InteractiveShell, cell: str, **kwargs: Any) -> tuple[ExecutionResult, CapturedIO]:
    with capture_output() as shown:
        result = shell.run_cell(cell, store_history=True, **kwargs)
    return result, shown


def reports(shown: CapturedIO) -> list[str]:
    texts = [output.data["text/plain"] for output in shown.outputs]
    return [text for text in texts if re.match(r"Layout costs|Layout is fine|What layout costs", text)]


# -- the cell ---------------------------------------------------------------------------------------------------------


def test_the_report_names_the_cell_and_its_line(shell: InteractiveShell) -> None:
    shell.run_cell("before = 1", store_history=True)
    _, shown = run(shell, f"%%stridewise {ALL} --name found\n\n{COPY}")
    (report,) = reports(shown)
    assert "In [2]:3" in report
    (finding,) = shell.user_ns["found"].findings
    site = finding.site
    assert (site.file, site.line, site.function) == ("In [2]", 3, "<module>")
    assert (site.expression, site.text) == ("x.transpose(0, 1).reshape(-1)", COPY.rstrip())
    assert site.where == "In [2]:3"


def test_code_of_earlier_cells_has_their_names(shell: InteractiveShell) -> None:
    shell.run_cell("def f(x):\n    return norm(x.t())", store_history=True)
    with torch.no_grad():
        run(shell, f"%%stridewise {ALL} --name found\nf(x)")
    assert [finding.site.where for finding in shell.user_ns["found"].findings] == ["In [1]:2"]


def test_the_last_value_is_shown_and_kept_as_ever(shell: InteractiveShell) -> None:
    plain, without = run(shell, f"print('printed')\n{COPY}y.shape")
    own, shown = run(shell, f"%%stridewise {ALL}\nprint('printed')\n{COPY}y.shape")
    assert own.success
    assert own.result == plain.result == shell.user_ns["_"] == shell.user_ns["Out"][2]
    assert shown.stdout == without.stdout.replace("Out[1]", "Out[2]")
    assert "torch.Size([4096])" in shown.stdout
    assert len(shown.outputs) == len(reports(shown)) == 1


def test_what_a_value_computes_to_show_itself_is_not_recorded(shell: InteractiveShell) -> None:
    import stridewise

    _, shown = run(shell, "%%stridewise --save cell.json\nx + 1")
    recorded = {op.name for op in stridewise.load("cell.json").trace.ops}
    assert "aten::add" in recorded
    assert not {"aten::abs", "aten::masked_select", "aten::isfinite", "aten::select"} & recorded
    assert "tensor(" in shown.stdout


def test_names_are_bound_as_without(shell: InteractiveShell) -> None:
    body = "import math as m\nfor i in range(2):\n    pass\ndef f(): return i\nclass C: pass\n[j for j in range(3)];"
    names = []
    for head in ("", "%%stridewise\n"):
        before = set(shell.user_ns)
        result, _ = run(shell, head + body)
        assert result.success
        names.append({name for name in set(shell.user_ns) - before if not name.startswith("_")})
        for name in names[-1]:
            del shell.user_ns[name]
    assert names[0] == names[1] == {"m", "i", "f", "C"}


def test_a_semicolon_still_hides_the_value(shell: InteractiveShell) -> None:
    _, shown = run(shell, f"%%stridewise {ALL}\n{COPY}y;")
    assert len(shown.outputs) == len(reports(shown)) == 1


def test_top_level_await(shell: InteractiveShell) -> None:
    result, shown = run(shell, f"%%stridewise {ALL}\nimport asyncio\nawait asyncio.sleep(0)\n{COPY}y.shape")
    assert result.success
    assert result.result == torch.Size([4096])
    assert "In [1]:4" in reports(shown)[0]


def test_every_value_where_ipython_shows_all(shell: InteractiveShell) -> None:
    shell.ast_node_interactivity = "all"
    _, shown = run(shell, f"%%stridewise {ALL}\n1\n{COPY}2")
    assert re.findall(r"Out\[1\]: (\d)", shown.stdout) == ["1", "2"]
    assert "In [1]:3" in reports(shown)[0]


@pytest.mark.parametrize("inner", ["get_ipython().run_cell('1')", "get_ipython().run_cell('1/0')"])
def test_a_cell_inside_the_cell_does_not_end_it(shell: InteractiveShell, inner: str) -> None:
    _, shown = run(shell, f"%%stridewise {ALL}\n{inner}\n{COPY}")
    (report,) = reports(shown)
    assert "In [1]:3" in report


def test_as_a_line_it_records_the_rest(shell: InteractiveShell) -> None:
    _, shown = run(shell, f"{COPY}%stridewise {ALL}\nz = 1\n{COPY}")
    (report,) = reports(shown)
    assert "In [1]:4" in report
    assert "In [1]:1" not in report


def test_another_cell_magic_may_follow(shell: InteractiveShell) -> None:
    _, shown = run(shell, f"%%stridewise {ALL}\n%%time\n{COPY}")
    assert "Wall time" in shown.stdout
    assert len(reports(shown)) == 1


def test_within_another_cell_magic(shell: InteractiveShell) -> None:
    result, _ = run(shell, f"%%capture captured\n%%stridewise --name found\n{COPY}y.shape")
    assert result.success
    assert shell.user_ns["found"].totals.copies == 1
    assert len(shell.user_ns["captured"].outputs) == 2


def test_called_by_a_program(shell: InteractiveShell) -> None:
    with capture_output() as shown:
        shell.run_cell_magic("stridewise", "--name found", COPY)
    assert shell.user_ns["found"].totals.copies == 1
    assert len(reports(shown)) == 1


def test_it_has_help(shell: InteractiveShell) -> None:
    text = shell.find_line_magic("stridewise").__doc__
    for option in ("--budget", "--save", "--library-copies", "--min-share", "--name"):
        assert option in text


# -- exceptions -------------------------------------------------------------------------------------------------------


def frames(error: BaseException | None) -> list[tuple[str, str]]:
    assert error is not None
    rows = traceback.extract_tb(error.__traceback__)
    return [(Path(row.filename).name, row.name) for row in rows if "ipython-input" not in row.filename]


@pytest.mark.parametrize(
    "body",
    [
        "torch.nn.functional.layer_norm(x, (3,))",
        "1/0",
        "raise KeyboardInterrupt",
        "x @ torch.ones(3, 3)",
        "raise ExceptionGroup('two', [ValueError()])",
    ],
)
def test_an_exception_is_the_cells_own(shell: InteractiveShell, body: str) -> None:
    plain, without = run(shell, f"\n{COPY}{body}")
    own, shown = run(shell, f"%%stridewise {ALL}\n{COPY}{body}")
    assert type(own.error_in_exec) is type(plain.error_in_exec)
    assert frames(own.error_in_exec) == frames(plain.error_in_exec)
    assert "stridewise/" not in shown.stdout
    assert shown.stderr.count("\n") == without.stderr.count("\n")
    (report,) = reports(shown)
    assert "In [2]:2" in report


def test_a_syntax_error_is_ipythons(shell: InteractiveShell) -> None:
    result, shown = run(shell, "%%stridewise\nx = = 1")
    assert isinstance(result.error_before_exec, SyntaxError)
    assert not reports(shown)


def test_everything_is_put_back(shell: InteractiveShell) -> None:
    hooks = {name: list(shell.events.callbacks[name]) for name in shell.events.callbacks}
    own = dict(vars(shell))
    for body in (COPY, "1/0", "x"):
        displayhook = sys.displayhook
        run(shell, f"%%stridewise --budget copies=0\n{body}")
        assert sys.displayhook is displayhook
        assert {name: list(shell.events.callbacks[name]) for name in shell.events.callbacks} == hooks
        assert ("showtraceback" in vars(shell)) == ("showtraceback" in own)


def test_a_traceback_of_the_users_making_is_put_back(shell: InteractiveShell) -> None:
    seen = []
    shell.showtraceback = lambda *args, **kwargs: seen.append(sys.exc_info()[0])
    own = shell.showtraceback
    run(shell, "%%stridewise\n1/0")
    assert seen == [ZeroDivisionError]
    assert vars(shell)["showtraceback"] is own


# -- options ----------------------------------------------------------------------------------------------------------


def test_a_budget_that_is_exceeded_fails_the_cell(shell: InteractiveShell) -> None:
    result, shown = run(shell, f"%%stridewise --budget copies=0\n{COPY}")
    assert isinstance(result.error_in_exec, BudgetExceeded)
    assert not result.success
    assert shown.stdout.strip() == "BudgetExceeded: copies: 1 a step, the budget allows 0"
    assert len(reports(shown)) == 1
    result, shown = run(shell, f"%%stridewise --budget copies=1\n{COPY}")
    assert result.success
    assert shown.stdout == shown.stderr == ""


def test_a_cell_that_fails_by_itself_keeps_its_error(shell: InteractiveShell) -> None:
    result, shown = run(shell, f"%%stridewise --budget copies=0\n{COPY}1/0")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert shown.stderr == "stridewise: over budget: copies: 1 a step, the budget allows 0\n"


def test_save_select_ignore_and_min_share(shell: InteractiveShell, tmp_path: Path) -> None:
    import stridewise

    run(shell, f"where = 'cell.json.gz'\n%stridewise --save {{where}} --name found\n{COPY}")
    kept = stridewise.analyze(tmp_path / "cell.json.gz")
    assert kept.totals == shell.user_ns["found"].totals
    assert [finding.code for finding in kept.findings] == ["SW114"]
    for option in ("--ignore SW114", "--select SW103"):
        run(shell, f"%%stridewise {option} --name found\n{COPY}")
        assert not shell.user_ns["found"].findings, option
    _, shown = run(shell, f"%%stridewise --min-share 100%\n{COPY}")
    assert "too small to list" in reports(shown)[0]


def test_library_copies_and_max_ops(shell: InteractiveShell) -> None:
    result, _ = run(shell, f"%%stridewise --library-copies --max-ops 1000 --name found\n{COPY}")
    assert result.success
    assert shell.user_ns["found"].totals.copies == 1


def test_a_recording_that_ended_before_its_cell_did_is_not_called_fine(shell: InteractiveShell) -> None:
    result, shown = run(shell, "%%stridewise --max-ops 3 --budget copies=9\nfor i in range(20): y = x.t().contiguous()")
    (report,) = reports(shown)
    assert report.startswith("What layout costs is not known: the recording ended before its step was over.")
    assert isinstance(result.error_in_exec, BudgetExceeded)
    assert "copies: not known, as the recording ended before its step was over" in shown.stdout
    _, shown = run(shell, f"%%stridewise {ALL}\nx + 1\n1/0")
    assert reports(shown)[0].startswith("What layout costs is not known")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('--name "', 'No closing quotation: --name "'),
        ("--budget copis=0", "budget `copis=0`: a budget has no key `copis`"),
        ("--bogus", "unrecognized arguments: --bogus"),
        ("--name 1x", "--name 1x: no variable can be called that."),
        ("--name class", "--name class: no variable can be called that."),
        ("--max-ops 0", "--max-ops 0: expected a number of operators from 1 to 1_000_000_000."),
        ("--select SW999", "select names SW999, which no rule has"),
        ("--save .", "is a folder: give the name of a file in it"),
    ],
)
def test_a_mistake_is_one_line_and_the_cell_does_not_run(shell: InteractiveShell, line: str, said: str) -> None:
    result, shown = run(shell, f"%%stridewise {line}\nran = True")
    assert isinstance(result.error_in_exec, UsageError)
    assert shown.stderr.startswith("UsageError: ")
    assert shown.stderr.count("\n") == 1
    assert said in shown.stderr
    assert "ran" not in shell.user_ns


@pytest.mark.parametrize(
    ("around", "said"),
    [("stridewise.record()", "A recording is running already."), ("torch.profiler.profile()", "Another profiler")],
)
def test_nested_is_one_line(shell: InteractiveShell, around: str, said: str) -> None:
    cell = f"import stridewise\nwith {around}:\n    %stridewise\n    ran = True"
    result, shown = run(shell, cell)
    assert isinstance(result.error_in_exec, UsageError)
    assert said in shown.stderr
    assert shown.stderr.count("UsageError") == 1
    assert "ran" not in shell.user_ns


# -- loading ----------------------------------------------------------------------------------------------------------


def test_unloading_takes_all_of_it_away(shell: InteractiveShell) -> None:
    load_ipython_extension(shell)
    assert shell.input_transformers_cleanup.count(rest_of_cell) == 1
    shell.run_line_magic("unload_ext", "stridewise")
    assert rest_of_cell not in shell.input_transformers_cleanup
    assert shell.find_line_magic("stridewise") is None
    assert shell.find_line_magic("stridewise_explain") is None
    assert shell.find_cell_magic("stridewise") is None
    unload_ipython_extension(shell)
    shell.run_line_magic("load_ext", "stridewise")
    assert len(reports(run(shell, f"%%stridewise {ALL}\n{COPY}")[1])) == 1


@pytest.mark.parametrize(
    "lines",
    [[], ["x = 1\n"], ["%%stridewise?\n"], ["%%stridewise_x\n", "1\n"], ["x\n", "%%stridewise\n"], ["%%time\n", "1\n"]],
)
def test_other_cells_are_left_alone(lines: list[str]) -> None:
    assert rest_of_cell(list(lines)) == lines


# -- explain ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x", "contiguous: its 4096 elements (16.4 kB)"),
        ("x[:, ::2]", "gapped: "),
        ("x.t()", "permuted: "),
        ("x.to_sparse()", "sparse_coo: it has no strides"),
        ("2,3,4", "contiguous: its 24 elements"),
        ("2x3x4 12,1,3", "permuted: "),
        ("(2, 3, 4) (12, 1, 3)", "permuted: "),
        ("[2, 3] [1, 2] --offset 4", "permuted: "),
        ("torch.Size([2, 3]) (1, 2)", "permuted: "),
        ("torch.Size([2, 3])", "contiguous: its 6 elements"),
        ("x.shape", "contiguous: its 4096 elements"),
        ("()", "contiguous: it has 1 element only."),
    ],
)
def test_explain(shell: InteractiveShell, line: str, said: str) -> None:
    _, shown = run(shell, f"%stridewise_explain {line}")
    assert shown.stderr == ""
    assert shown.stdout.replace("\n", " ").startswith(said)


def test_explain_knows_local_names(shell: InteractiveShell) -> None:
    cell = "def f():\n    local = x.t()\n    n = 2\n    %stridewise_explain [local[:, ::n] for _ in range(1)][0]\nf()"
    _, shown = run(shell, cell)
    assert shown.stderr == ""
    assert shown.stdout.startswith("gapped: ")
    assert "local" not in shell.user_ns


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "stridewise_explain needs a tensor, or sizes and strides such as 2,3,4 1,8,2."),
        ("nothing", "nothing: NameError: name 'nothing' is not defined"),
        ("x[", "x[: SyntaxError: "),
        ("norm", "norm is a LayerNorm. Expected: a tensor, or sizes and strides."),
        ("2,3 1", "There is no such layout: 2 sizes, but 1 strides."),
    ],
)
def test_explain_refuses_in_one_line(shell: InteractiveShell, line: str, said: str) -> None:
    result, shown = run(shell, f"%stridewise_explain {line}")
    assert isinstance(result.error_in_exec, UsageError)
    assert shown.stderr.startswith(f"UsageError: {said}")
    assert shown.stderr.count("\n") == 1
