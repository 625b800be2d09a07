"""Code that IPython ran has the name of its cell, in whatever names a place."""

import sys
from typing import Any

import pytest
import torch

import stridewise
from stridewise.recording.filenames import public_path
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
