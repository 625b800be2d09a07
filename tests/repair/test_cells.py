"""What is defined in a notebook: in the module `__main__`, which has no file, from source that lies in no file."""

import ast
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import stridewise
from stridewise.repair.code.swap import plan
from stridewise.repair.refused import Refused
from stridewise.repair.trial import bench
from stridewise.repair.trial import session as sessions
from stridewise.source.file import SourceFile

from .programs import FAULTS
from .simulated import SimulatedTimer

Run = Callable[[str, str], None]
NAMES = ["<ipython-input-3-0123abcd>", "{folder}/ipykernel_7/1234567.py"]


class Notebook:
    """Runs cells as IPython does: each statement is compiled by itself, and the source is known to linecache only."""

    def __init__(self, module: ModuleType) -> None:
        self.globals: dict[str, Any] = vars(module)
        self.names: list[str] = []

    def run(self, name: str, source: str) -> None:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        self.names.append(name)
        for statement in ast.parse(source).body:
            exec(compile(ast.Module([statement], []), name, "exec", dont_inherit=True), self.globals)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Notebook]:
    monkeypatch.setattr(bench, "Timer", SimulatedTimer)
    monkeypatch.setattr(sessions, "REPLAYED", 0.0)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    notebook = Notebook(module)
    yield notebook
    for name in notebook.names:
        linecache.cache.pop(name, None)


@pytest.mark.parametrize("name", NAMES)
def test_fix(name: str, notebook: Notebook, tmp_path: Path) -> None:
    name = name.format(folder=tmp_path)
    notebook.run(name, FAULTS["permuted stream"].source)
    model, args = notebook.globals["make"]()
    repair = stridewise.fix(model, *args, time_limit=1000)
    assert [trial.candidate for trial in repair.won] == ["copy-at-origin"]
    header, _, hunks = repair.diff.partition("@@")
    assert all(line.split("/", 1)[1].endswith(name.lstrip("/")) for line in header.splitlines())
    assert "\n+        y = x.transpose(1, 2).contiguous()  # tokens last\n" in hunks
    (row,) = repair.write()
    assert (row.what, row.reason) == ("skipped", "it is no file but a notebook's cell: make the edit there")
    assert not list((tmp_path / "project").iterdir())
    before = model(*args)
    repair.apply()
    torch.testing.assert_close(model(*args), before)
    assert "contiguous" in type(model).forward.__code__.co_names


CELL = "def f(x):\n    return x + 1\n"


def cell(name: str, source: str = CELL) -> SourceFile:
    return SourceFile(Path(name), name, source.encode())


@pytest.mark.parametrize("name", NAMES)
def test_a_cell_among_others(name: str, notebook: Notebook) -> None:
    name = name.format(folder="/nowhere")
    notebook.run(name, CELL)
    notebook.run(f"{name}2", "def g(x):\n    return f(x) + 1\n")
    notebook.run(name, CELL.replace("f(", "f ("))  # the same cell again: what was defined first is gone
    linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
    with plan(cell(name), CELL.replace("+ 1", "+ 2").encode()) as swap:
        assert notebook.globals["g"](1) == 4
    assert notebook.globals["g"](1) == 3
    assert [function.__name__ for function in swap.functions] == ["f"]


def test_a_cell_that_waits_at_its_top_level(notebook: Notebook) -> None:
    source = CELL + "await done()\n"
    notebook.run("<cell>", CELL)
    with plan(cell("<cell>", source), source.replace("+ 1", "+ 2").encode()):
        assert notebook.globals["f"](1) == 3


def test_a_cell_that_nothing_runs_any_more(notebook: Notebook) -> None:
    notebook.run("<cell>", CELL)
    notebook.run("<another>", CELL)
    with pytest.raises(Refused, match="nothing that is alive runs <cell>"):
        plan(cell("<cell>"), CELL.replace("+ 1", "+ 2").encode())
