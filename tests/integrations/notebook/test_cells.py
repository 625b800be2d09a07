"""Code that IPython ran has the name of its cell, in whatever names a place."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import stridewise
from stridewise.recording.filenames import public_path, public_place
from stridewise.repair.code.swap import plan
from stridewise.source.files import Files

pytest.importorskip("IPython", reason='IPython is in the extra "notebook"')

from IPython.core.interactiveshell import InteractiveShell


def code_name(shell: InteractiveShell, source: str) -> str:
    """The file name that IPython gives the code of a cell that it runs now."""
    shell.run_cell(f"{source}\nimport sys; name = sys._getframe().f_code.co_filename", store_history=True)
    name: str = shell.user_ns["name"]
    return name


def test_a_cells_code_is_called_as_ipython_counts_it(shell: InteractiveShell) -> None:
    first, second = code_name(shell, "a = 1"), code_name(shell, "a = 2")
    assert [public_path(name) for name in (first, second)] == ["In [1]", "In [2]"]
    assert public_path(f"{sys.prefix}/{second}") == "In [2]"


PLACE = "import sys; name, line = sys._getframe().f_code.co_filename, sys._getframe().f_lineno"

CELLS = {
    "plain": (f"a = 1\n{PLACE}", 2),
    "blank lines above": (f"\n  \n\n{PLACE}", 4),
    "a magic over two lines": (f"%config \\\n  Application.log_level = 30\n\n{PLACE}", 4),
    "a string with a backslash": (f"a = 'b\\\nc'\n{PLACE}", 3),
    "capture": (f"%%capture\n{PLACE}", 2),
    "capture, and blank lines": (f"\n%%capture\n\n\na = 1\n{PLACE}", 6),
    "capture in capture": (f"%%capture\n%%capture\n\n{PLACE}", 4),
    "stridewise and capture": (f"%%stridewise\n%%capture\n\na = 1\n{PLACE}", 5),
    "capture and stridewise": (f"%%capture\n\n%%stridewise --name r\n\n{PLACE}", 5),
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("again", [False, True])
def test_a_place_is_the_cells_own_line(shell: InteractiveShell, cell: str, again: bool) -> None:
    source, line = CELLS[cell]
    shell.run_cell("%load_ext stridewise", store_history=True)
    for _ in range(1 + again):
        shell.run_cell(source, store_history=True)
    ran = f"In [{2 + again}]"
    assert public_place(shell.user_ns["name"], shell.user_ns["line"]) == (ran, line)
    shell.run_cell("a = 2", store_history=True)
    assert public_place(shell.user_ns["name"], shell.user_ns["line"]) == (ran, line)
    assert public_path(code_name(shell, "a = 3")) == f"In [{4 + again}]"
    shell.run_cell("%reset -f in", store_history=True)
    later = code_name(shell, "%config\na = 4")
    assert public_path(later) == f"In [{6 + again}]"


@pytest.mark.parametrize("program", ["get_ipython().run_cell(text)", "exec(compile(text, '<mine>', 'exec'))"])
def test_code_of_which_no_cell_is_known_has_no_cells_name(shell: InteractiveShell, program: str) -> None:
    shell.user_ns["text"] = PLACE
    shell.run_cell(program, store_history=True)
    shell.run_cell("a = 1", store_history=True)
    name = shell.user_ns["name"]
    assert public_place(name, 1) == (name, 1)
    assert name.startswith("<")
    shell.run_cell(PLACE)  # nor has it what is not kept
    assert public_path(shell.user_ns["name"]).startswith("<ipython-input-3-")


def test_the_source_of_a_cell_below_a_magic_has_the_cells_lines(shell: InteractiveShell, tmp_path: Path) -> None:
    shell.user_ns.update(torch=torch, stridewise=stridewise, x=torch.randn(64, 64))
    cell = "%%capture\n\ndef f(x):\n    y = (x\n        .t().contiguous())\n    return y"
    shell.run_cell(cell, store_history=True)
    file = Files(tmp_path).open("In [1]")
    assert file is not None
    assert file.content.decode().splitlines()[2:] == cell.splitlines()[2:]
    record = "with stridewise.record() as recording: f(x)\nstridewise.analyze(recording)"
    (finding,) = shell.run_cell(record, store_history=True).result.findings
    site = finding.site
    assert (site.file, site.line, site.end_line) == ("In [1]", 4, 5)
    assert (site.text, site.expression) == ("    y = (x", "x\n        .t().contiguous()")
    assert file.expression(site) is not None
    with plan(file, file.content.replace(b".t().contiguous()", b".contiguous().t()")):
        assert shell.user_ns["f"](torch.ones(2, 3)).stride() == (1, 3)
    assert shell.user_ns["f"](torch.ones(2, 3)).stride() == (2, 1)


COPY = "y = x.t().contiguous()"


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        (f"%%time\n%stridewise --name found\n{COPY}\ny.shape", 3),
        (f"%%stridewise --name found\n%%time\n\n{COPY}\ny.shape", 4),
        (f"%%time\n\n%%stridewise --name found\n\n{COPY}", 5),
        (f"%%stridewise --name found\n%%time\n{COPY.partition('= ')[2]}", 3),
        (f"%%stridewise --name found\n%%time\ndef f():\n    {COPY}\nf()", 4),
    ],
)
def test_a_place_below_time(shell: InteractiveShell, cell: str, line: int) -> None:
    shell.user_ns["x"] = torch.randn(64, 64)
    shell.run_cell("%load_ext stridewise", store_history=True)
    shell.run_cell(cell, store_history=True)
    (finding,) = shell.user_ns["found"].findings
    site = finding.site
    assert (site.where, site.expression) == (f"In [2]:{line}", "x.t().contiguous()")
    assert site.text is not None
    assert site.text.endswith("x.t().contiguous()")


@pytest.mark.parametrize("emptied", [False, True])
def test_a_function_that_was_defined_below_time(shell: InteractiveShell, emptied: bool) -> None:
    shell.run_cell("%reset -f in" if emptied else "a = 1", store_history=True)
    shell.user_ns.update(torch=torch, stridewise=stridewise, x=torch.randn(64, 64))
    shell.run_cell(f"%%time\n\ndef f(x):\n    {COPY}\n    return y", store_history=True)
    shell.run_cell("%%time\na = 1\ndef f_(x): pass", store_history=True)
    record = "with stridewise.record() as recording: f(x)\nstridewise.analyze(recording)"
    (finding,) = shell.run_cell(record, store_history=True).result.findings
    assert finding.site.where == "In [2]:4"


def test_other_files_keep_their_names(shell: InteractiveShell) -> None:
    assert public_path("<string>") == "<string>"
    assert public_path("<ipython-input-9-000000000000>") == "<ipython-input-9-000000000000>"
    assert public_path(__file__).endswith("test_cells.py")


@pytest.mark.parametrize("broken", [None, object(), type("Shell", (), {"compile": object()})()])
def test_a_shell_of_another_kind_does_no_harm(monkeypatch: pytest.MonkeyPatch, broken: object) -> None:
    monkeypatch.setattr("IPython.get_ipython", lambda: broken)
    assert public_path("<ipython-input-9-000000000000>") == "<ipython-input-9-000000000000>"


def test_the_source_of_a_cell_is_found_by_its_name(shell: InteractiveShell, tmp_path: Any) -> None:
    code_name(shell, "def f(x):\n    return x.t()")
    file = Files(tmp_path).open("In [1]")
    assert file is not None
    assert file.content.decode().startswith("def f(x):\n    return x.t()\n")


def test_a_cell_that_runs_again_is_compared_with_itself(shell: InteractiveShell) -> None:
    shell.user_ns.update(torch=torch, stridewise=stridewise, x=torch.randn(64, 64))
    cell = "with stridewise.record() as recording:\n    y = x.t().reshape(-1)\nrecording"
    recordings = [shell.run_cell(cell, store_history=True).result for _ in range(2)]
    edited = shell.run_cell(f"\n# said\n{cell}", store_history=True).result
    for again in (recordings[1], edited):
        (row,) = stridewise.diff(recordings[0], again).findings
        assert row.trend == "same"
