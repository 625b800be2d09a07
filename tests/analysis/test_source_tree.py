"""Source lines come from regular Python files in one folder, whatever a trace names."""

import os
from pathlib import Path

import pytest

from stridewise.analysis.source_tree import SourceTree


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "model.py").write_text("def forward(x):\n    return x.t()\n")
    (root / "secret.txt").write_text("password\n")
    (tmp_path / "outside.py").write_text("password\n")
    (root / "link.py").symlink_to(tmp_path / "outside.py")
    (root / "folder.py").mkdir()
    (root / "latin.py").write_bytes(b"x = '\xe9'\n")
    os.mkfifo(root / "pipe.py")
    return SourceTree(root)


def test_a_line_is_found_by_a_relative_and_by_a_full_name(tree: SourceTree) -> None:
    assert tree.line("pkg/model.py", 2) == "    return x.t()"
    assert tree.line(str(tree.root / "pkg" / "model.py"), 1) == "def forward(x):"
    assert tree.line("latin.py", 1) == "x = '\N{REPLACEMENT CHARACTER}'"


@pytest.mark.parametrize("line", [0, -1, 3, 10**9])
def test_there_is_no_such_line(tree: SourceTree, line: int) -> None:
    assert tree.line("pkg/model.py", line) is None


@pytest.mark.parametrize(
    "file",
    [
        *("secret.txt", "../outside.py", "link.py", "folder.py", "pipe.py", "gone.py", "/dev/zero", "/etc/passwd"),
        *("pkg/../../outside.py", "no\0name.py", "\udc80.py", "", "x" * 5000 + ".py"),
    ],
    ids=lambda file: ascii(file)[1:30],
)
def test_nothing_else_is_opened(tree: SourceTree, file: str) -> None:
    assert tree.line(file, 1) is None
