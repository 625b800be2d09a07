"""pre-commit itself runs the hooks of .pre-commit-hooks.yaml on a repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MANIFEST = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
BAD = "import torch\n\n\ndef f(x):\n    x.contiguous()\n    return x\n"
GOOD = "def f(x):\n    return x.contiguous()\n"


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with a good file; `stridewise` on the path is the one under test."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "SKIP"):
        monkeypatch.delenv(name, raising=False)
    git("init", "--quiet")
    (folder / "good.py").write_text(GOOD)
    (folder / "notes.txt").write_text(BAD)
    git("add", "--all")
    return folder


def git(*arguments):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True)


def pre_commit(*arguments):
    command = [sys.executable, "-m", "pre_commit", *arguments, "--all-files", "--verbose", "--color=never"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def test_every_hook_of_the_manifest_fails_for_a_finding_and_only_then(repository):
    """As the manifest has them, but for the environment of its own that `python` makes, with all of torch in it."""
    hooks = [hook | {"language": "system"} for hook in MANIFEST]
    config = {"repos": [{"repo": "local", "hooks": hooks}]}
    Path(".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    code, said = pre_commit("run")
    assert code == 0, said
    assert said.count("Passed") == len(hooks)
    (repository / "bad.py").write_text(BAD)
    git("add", "--all")
    code, said = pre_commit("run")
    assert code == 1, said
    assert said.count("Failed") == len(hooks)
    assert said.count("bad.py:5:5 SW301") == len(hooks)
    assert "notes.txt" not in said


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="pre-commit reads a manifest from a git repository")
def test_a_repository_uses_the_hook_of_this_one(repository):
    (repository / "bad.py").write_text(BAD)
    git("add", "--all")
    code, said = pre_commit("try-repo", str(ROOT), "stridewise-lint-system")
    assert code == 1, said
    assert "bad.py:5:5 SW301" in said
    assert "good.py" not in said
