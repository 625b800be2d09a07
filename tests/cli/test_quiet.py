"""`--quiet` leaves a line for each thing to act on, in every command that shows a report."""

import json
from pathlib import Path

import pytest

from stridewise import api
from stridewise.cli import main

FAULTY = "import torch\n\n\ndef f(größe):\n    größe.contiguous()\n    return größe\n"
SCRIPT = """\
import torch
from torch import nn

x = torch.ones(64, 256, 128)
norm = nn.LayerNorm(256)
print("of the script")
for _ in range(3):
    y = norm(x.transpose(1, 2)) + norm(x.transpose(1, 2))
"""
OPERATOR = """\
import torch


def scale(x):
    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride()) * 2


def scale_sample():
    return (torch.rand(3, 4),)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text("")
    Path("fine.py").write_text("import torch\nfor _ in range(3):\n    torch.ones(2, 3) + 1\n")
    Path("faulty.py").write_text(FAULTY)
    return tmp_path


def call(capsys, *arguments):
    capsys.readouterr()
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    return caught.value.code, out, err


def test_lint(capsys):
    code, out, err = call(capsys, "lint", "-q", "faulty.py")
    assert (code, err) == (1, "")
    assert out.startswith("faulty.py:5:5: SW301 ")
    assert out.count("\n") == 1
    assert call(capsys, "lint", "--quiet", "fine.py") == (0, "", "")


def test_lint_that_would_fix(capsys):
    code, out, _ = call(capsys, "lint", "-q", "--diff", "--unsafe-fixes", "faulty.py")
    shown = call(capsys, "lint", "--diff", "--unsafe-fixes", "faulty.py")[1]
    assert code == int("+++" in shown)
    assert out == ("faulty.py: would fix SW301\n" if code else "")


def test_a_file_that_cannot_be_read_is_still_named(capsys):
    Path("broken.py").write_text("def f(:\n")
    code, out, err = call(capsys, "lint", "-q", "broken.py")
    assert (code, out) == (2, "")
    assert "broken.py" in err


def test_run(capsys):
    Path("script.py").write_text(SCRIPT)
    code, out, err = call(
        capsys, "run", "-q", "--steps", "3", "--warmup", "0", "--module-step", "LayerNorm", "script.py"
    )
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first == "of the script"
    assert rest
    assert all(line.startswith("script.py:8:") and ": SW1" in line for line in rest)


def test_run_that_is_fine(capsys):
    assert call(capsys, "run", "-q", "fine.py") == (0, "", "")


def test_a_budget_is_still_told(capsys):
    Path("script.py").write_text(SCRIPT)
    code, _, err = call(capsys, "run", "-q", "--budget", "copies=0", "script.py")
    assert code == 1
    assert err.startswith("stridewise: over budget: ")


@pytest.fixture
def recordings(capsys):
    Path("script.py").write_text(SCRIPT)
    call(capsys, "run", "--save", "strided.json", "script.py")
    Path("script.py").write_text(SCRIPT.replace(".transpose(1, 2)", ".reshape(64, 128, 256)"))
    call(capsys, "run", "--save", "fine.json", "script.py")


def test_traces_and_what_differs(capsys, recordings):
    whole = json.loads(call(capsys, "trace", "--format", "json", "strided.json")[1])
    codes = [finding["code"] for finding in whole["findings"] if finding["severity"] != "note"]
    code, out, err = call(capsys, "trace", "-q", "strided.json")
    assert (code, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()] == codes
    assert codes
    assert call(capsys, "trace", "-q", "fine.json") == (0, "", "")
    assert call(capsys, "diff", "-q", "strided.json", "fine.json") == (0, "", "")
    code, out, err = call(capsys, "diff", "-q", "fine.json", "strided.json")
    assert (code, err) == (1, "")
    assert out.startswith("script.py:8:")
    assert " appeared: " in out


def test_many_traces(capsys, recordings):
    Path("broken.json").write_text("{")
    code, out, err = call(capsys, "trace", "-q", "--workers", "1", "strided.json", "fine.json", "broken.json")
    assert code == 0
    assert out.splitlines()[0].endswith("(1 of 2 files)")
    assert err.startswith("stridewise: broken.json: ")


def test_formats_for_programs_and_files_stay_whole(capsys, recordings):
    assert call(capsys, "trace", "-q", "--format", "json", "strided.json") == call(
        capsys, "trace", "--format", "json", "strided.json"
    )
    assert call(capsys, "trace", "-q", "--output", "report.txt", "strided.json") == (0, "", "")
    assert Path("report.txt").read_text() == call(capsys, "trace", "strided.json")[1]


def test_check(capsys):
    Path("kernels.py").write_text(OPERATOR)
    code, out, err = call(capsys, "check", "op", "-q", "--time-limit", "20", "kernels.py:scale")
    assert (code, err) == (1, "")
    assert out.startswith("kernels.py:4")
    assert " SW401 " in out


def test_fix(capsys):
    Path("target.py").write_text("import torch\ndef make():\n    return torch.nn.Linear(4, 4), (torch.ones(2, 4),)\n")
    assert call(capsys, "fix", "-q", "--time-limit", "5", "target.py:make") == (0, "", "")


def test_demo(capsys, recordings, monkeypatch):
    monkeypatch.setattr(api, "demo", lambda *, paths: api.analyze("strided.json", paths=paths))
    code, out, err = call(capsys, "demo", "-q")
    assert (code, err) == (0, "")
    assert out == call(capsys, "trace", "-q", "strided.json")[1]
