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


def test_the_program_that_shows_it_runs_as_it_stands(folder):
    ran = check(folder, "scale.pt2", "--model", "net.py:Scale", "--sample", "net.py:sample", "--format", "json")
    (made,) = json.loads(ran.stdout)["snippets"]
    assert "from net import Scale\n" in made["code"]
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", made["code"]], cwd=folder, capture_output=True, text=True, timeout=100
    )
    assert shown.returncode == 1
    assert "AssertionError: Tensor-likes are not close" in shown.stderr


def test_no_guard_is_needed_where_every_layout_is_right(folder):
    ran = check(folder, "scale.pt2", "--guard", "unneeded.py")
    assert ran.returncode == 0
    assert ran.stderr == (
        "stridewise: no guard is needed, and none was written: every layout that was tried is right\n"
    )
    assert not (folder / "unneeded.py").exists()


@pytest.mark.parametrize("guard", ["scale.pt2", "./scale.pt2", "hard.pt2", "symbolic.pt2", "net.py"])
def test_a_guard_never_replaces_what_is_read(folder, guard):
    (folder / "hard.pt2").unlink(missing_ok=True)
    (folder / "symbolic.pt2").unlink(missing_ok=True)
    os.link(folder / "scale.pt2", folder / "hard.pt2")
    (folder / "symbolic.pt2").symlink_to(folder / "scale.pt2")
    before = (folder / "scale.pt2").read_bytes(), (folder / "net.py").read_bytes()
    ran = check(folder, "scale.pt2", "--sample", "net.py:sample", "--guard", guard)
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("stridewise: --guard ")
    assert line.endswith("itself: give the guard a file of its own")
    assert before == ((folder / "scale.pt2").read_bytes(), (folder / "net.py").read_bytes())


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
