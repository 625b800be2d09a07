"""`stridewise check artefact`, in a process as people call it."""

import json
import os
import subprocess
import sys

import pytest
import torch

from .models import exported

NET = """
import torch

class Scale(torch.nn.Module):
    def forward(self, x):
        if x.is_contiguous():
            return 2 * x
        return 3 * x

def sample():
    return (torch.randn(4, 6),)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("artefact")
    (path / "net.py").write_text(NET)
    scope = {}
    exec(NET, scope)
    torch.export.save(exported(scope["Scale"](), *scope["sample"]()), path / "scale.pt2")
    torch.save({"weight": torch.zeros(3)}, path / "weights.pt")
    return path


def check(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "stridewise", "check", "artefact", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=100, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip


def test_a_branch_that_was_fixed_exits_with_1(folder):
    ran = check(folder, "scale.pt2", "--model", "net.py:Scale", "--sample", "net.py:sample", "--guard", "guard.py")
    assert ran.returncode == 1
    assert ran.stderr == f"stridewise: the guard is in {folder / 'guard.py'}\n"
    assert ran.stdout.startswith(
        "`scale.pt2`, an exported program, is silently wrong for 10 of 11 other layouts of `x`"
    )
    assert "error[SW208] baked-branch" in ran.stdout
    assert "It was executed, in a child process" in ran.stdout
    assert all(len(line) <= 100 for line in ran.stdout.splitlines())
    assert "def guard(program: Any" in (folder / "guard.py").read_text()


def test_without_the_model_it_is_right(folder):
    ran = check(folder, "scale.pt2", "--format", "json")
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert (found["kind"], found["guard"], len(found["cases"])) == ("exported program", None, 12)


def test_help_says_that_it_is_executed(folder):
    assert "EXECUTED" in check(folder, "--help").stdout


@pytest.mark.parametrize("file", ["weights.pt", "nothing.pt2", "net.py", "."])
def test_what_is_no_artefact_exits_with_2(folder, file):
    ran = check(folder, file)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("stridewise: ")
    assert len(ran.stderr.splitlines()) == 2
    assert "Traceback" not in ran.stderr
