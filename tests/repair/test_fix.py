"""`stridewise.fix` and `fix_target`: what comes back, what it writes, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stridewise
from stridewise import api
from stridewise.errors import UsageError
from stridewise.repair.trial import bench
from stridewise.repair.trial import session as sessions

from .programs import FAULTS, HEALTHY
from .running import load
from .simulated import SimulatedTimer


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "Timer", SimulatedTimer)
    monkeypatch.setattr(sessions, "REPLAYED", 0.0)
    monkeypatch.chdir(tmp_path)


def made(folder: Path, name: str = "permuted stream") -> Any:
    return load(folder, FAULTS[name].source, "program")


def test_a_model(tmp_path):
    model, args = made(tmp_path).make()
    repair = stridewise.fix(model, *args, time_limit=1000)
    assert not repair.ok
    assert [trial.candidate for trial in repair.won] == ["copy-at-origin"]
    assert str(repair).startswith("1 edit makes a step ")
    assert json.loads(repair.to_json())["diff"] == repair.diff


def test_a_step_with_a_backward_and_an_optimizer(tmp_path):
    module = made(tmp_path)
    model, args = module.make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [parameter.detach().clone() for parameter in model.parameters()]

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(*args).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    repair = stridewise.fix(step, time_limit=1000)
    assert "copy-at-origin" in [trial.candidate for trial in repair.won]
    assert all(map(torch.equal, before, model.parameters()))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_writing_once_and_twice(tmp_path):
    model, args = made(tmp_path).make()
    repair = stridewise.fix(model, *args, time_limit=1000)
    assert [row.what for row in repair.write()] == ["written"]
    after = (tmp_path / "program.py").read_text()
    assert "y = x.transpose(1, 2).contiguous()  # tokens last" in after
    assert "written" not in [row.what for row in repair.write()]
    assert (tmp_path / "program.py").read_text() == after


def test_a_file_that_was_edited_meanwhile_is_not_written(tmp_path):
    model, args = made(tmp_path).make()
    repair = stridewise.fix(model, *args, time_limit=1000)
    path = tmp_path / "program.py"
    path.write_text(path.read_text() + "# mine\n")
    (row,) = repair.write()
    assert row.what == "skipped"
    assert path.read_text().endswith("# mine\n")
    assert "contiguous" not in path.read_text()


def test_a_file_that_was_edited_before_is_refused(tmp_path):
    model, args = made(tmp_path).make()
    path = tmp_path / "program.py"
    path.write_text(path.read_text().replace("y = y + norm(y)", "y = y + norm(y) * 1"))
    repair = stridewise.fix(model, *args, time_limit=1000)
    assert not repair.won
    assert repair.diff == ""


def test_applying_in_this_process(tmp_path):
    model, args = made(tmp_path).make()
    code, expected = type(model).forward.__code__, model(*args)
    repair = stridewise.fix(model, *args, time_limit=1000)
    assert type(model).forward.__code__ is code
    repair.apply()
    repair.apply()
    assert type(model).forward.__code__ is not code
    assert torch.equal(model(*args), expected)
    assert repair.together is not None
    assert stridewise.diagnose(model, *args).totals.copies == repair.together.copies_after


def test_nothing_to_apply_changes_nothing(tmp_path):
    model, args = load(tmp_path, HEALTHY, "program").make()  # type: ignore[attr-defined]
    repair = stridewise.fix(model, *args, time_limit=1000)
    repair.apply()
    assert repair.ok
    assert repair.write() == ()
    assert str(repair).startswith("Nothing to try")


def test_what_the_program_raises_is_its_own(tmp_path):
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        stridewise.fix(nn.Linear(3, 3), torch.ones(2, 2))


def test_an_unknown_kind_and_a_limit_that_is_none():
    with pytest.raises(UsageError, match="did you mean hoist"):
        stridewise.fix(nn.Linear(3, 3), torch.ones(2, 3), only=["hoists"])
    with pytest.raises(UsageError, match="time limit"):
        stridewise.fix(nn.Linear(3, 3), torch.ones(2, 3), time_limit=0)


def test_several_ranks_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(UsageError, match="one of 8 ranks"):
        stridewise.fix(nn.Linear(3, 3), torch.ones(2, 3))


def test_a_target(tmp_path):
    (tmp_path / "target_of_test.py").write_text(FAULTS["permuted stream"].source)
    repair = api.fix_target("target_of_test.py:make", time_limit=1000)
    assert [trial.candidate for trial in repair.won] == ["copy-at-origin"]
    assert api.fix_target("target_of_test:make", time_limit=1000).diff == repair.diff


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "make is not there in broken_target.py"),
        ("make = 1", "make is no function in broken_target.py"),
        ("def make(a): pass", r"broken_target.py:make takes arguments \(a\)"),
        ("def make(): return 'text'", "broken_target.py:make returns str"),
        ("from torch import nn\ndef make(): return nn.Linear(1, 1)", "returns a model without arguments"),
    ],
    ids=["nothing", "a number", "arguments", "text", "a model alone"],
)
def test_a_target_that_is_none(source, message, tmp_path):
    (tmp_path / "broken_target.py").write_text(source)
    with pytest.raises(UsageError, match=message):
        api.fix_target("broken_target.py:make")


def test_a_target_that_fails_says_so_itself(tmp_path):
    (tmp_path / "failing_target.py").write_text("raise ValueError('mine')")
    with pytest.raises(ValueError, match="mine"):
        api.fix_target("failing_target.py:make")


def test_a_missing_file_or_module():
    with pytest.raises(UsageError, match=r"There is no file nothing\.py"):
        api.fix_target("nothing.py:make")
    with pytest.raises(UsageError, match="There is no module nothing_at_all"):
        api.fix_target("nothing_at_all:make")


def with_weight(forward: str, more: str = "") -> str:
    return (
        "import torch\nfrom torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.w = nn.Parameter(torch.ones(256, 256))\n\n"
        f"    def forward(self, x):\n        {forward}\n\n{more}\n"
        "def make():\n    return Net(), (torch.randn(256),)\n"
    )


def test_what_an_edit_writes_behind_the_back_of_torch_is_refused_and_undone(tmp_path):
    source = with_weight(
        "return scaled(self.w.detach().t().contiguous()) + x",
        "def scaled(w):\n    w.numpy()[0] *= 2\n    return w * 1\n",
    )
    model, args = load(tmp_path, source, "program").make()  # type: ignore[attr-defined]
    repair = stridewise.fix(model, *args, time_limit=1000)
    assert not repair.won
    assert [trial.verdict for trial in repair.trials] == ["refused"]
    assert "which the program itself does not" in (repair.trials[0].reason or "")
    assert torch.equal(model.w, torch.ones(256, 256))


def test_a_snapshot_that_would_become_an_alias_is_refused(tmp_path):
    source = with_weight("return x * 2, self.w.detach().t().contiguous()")
    model, args = load(tmp_path, source, "program").make()  # type: ignore[attr-defined]
    repair = stridewise.fix(model, *args, time_limit=1000)
    assert not repair.won
    assert any("share memory with parameter `w`" in (trial.reason or "") for trial in repair.trials)
