"""Which files are found below some paths, how they are named, and what is said of those that can't be read."""

import os
import random
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from stridewise.config import LintConfig
from stridewise.errors import InputError, UsageError
from stridewise.linter.files.discover import discover
from stridewise.linter.files.globs import translated
from stridewise.recording.filenames import public_path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make(*names: str, text: str = "") -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def names(*paths: str, overrides: LintConfig = LintConfig(), **options: bool) -> list[str]:  # noqa: B008
    found, unread = discover(paths, overrides, **options)
    assert unread == ()
    return [each.name for each in found]


def unread(*paths: str) -> list[str]:
    return [each.reason for each in discover(paths)[1]]


def test_python_below_a_folder_by_name():
    make("b.py", "a/z.py", "a/y.pyi", "a/data.txt", "a/book.ipynb", "a.py", ".hidden/c.py", "script")
    assert names() == names(".") == [".hidden/c.py", "a.py", "a/book.ipynb", "a/y.pyi", "a/z.py", "b.py"]
    assert names("a") == ["a/book.ipynb", "a/y.pyi", "a/z.py"]


def test_a_file_that_is_named_may_be_called_anything():
    make("script", "a.py")
    assert names("script", "a.py", ".") == ["a.py", "script"]


def test_names_can_be_opened_from_here(here, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    make("a.py", f"{other}/site-packages/lib/b.py")
    found, _ = discover([f"{here}/a.py", f"{other}/site-packages/lib"])
    assert {each.name for each in found} == {"a.py", f"{other}/site-packages/lib/b.py"}
    assert all(each.path.is_absolute() and each.path.samefile(each.name) for each in found)
    assert {each.recorded_name for each in found} == {"a.py", "lib/b.py"}
    assert all(each.recorded_name == public_path(str(each.path)) for each in found)


def test_a_name_that_is_no_text_is_shown_as_one(here):
    (here / os.fsdecode(b"\xff.py")).touch()
    assert names() == ["\\xff.py"]


def test_a_path_that_does_not_exist():
    for path in ("missing.py", "", "a\0b"):
        with pytest.raises(UsageError) as caught:
            discover([path])
        assert "does not exist" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1


def test_the_current_folder_is_gone(here, monkeypatch):
    (here / "gone").mkdir()
    monkeypatch.chdir(here / "gone")
    (here / "gone").rmdir()
    with pytest.raises(UsageError, match="the current folder does not exist any more"):
        discover([])


# ------------------------------------------------------------------------------------------------- settings, exclusion


def test_each_file_has_the_settings_of_its_project():
    make("pyproject.toml", text="[tool.stridewise.lint]\nselect = ['SW301']")
    make("own/pyproject.toml", text="[tool.stridewise.lint]\nselect = ['SW302']")
    make("a.py", "own/b.py")
    found, _ = discover()
    assert [each.settings.codes for each in found] == [("SW301",), ("SW302",)]
    found, _ = discover(overrides=LintConfig(select=("SW306",)))
    assert [each.settings.codes for each in found] == [("SW306",), ("SW306",)]


def test_a_broken_project_file_is_an_error():
    make("sub/pyproject.toml", text="[tool.stridewise.lint]\nselct = []")
    make("sub/a.py")
    with pytest.raises(InputError, match="did you mean select"):
        discover()


def test_what_is_excluded_is_found_only_if_it_is_named():
    make("pyproject.toml", text="[tool.stridewise.lint]\nextend-exclude = ['old', 'gen/*_pb2.py']")
    make("a.py", "old/b.py", "gen/c_pb2.py", "gen/d.py", "build/e.py", "x/.venv/lib/f.py")
    assert names() == ["a.py", "gen/d.py"]
    assert names("old", "gen/c_pb2.py", "build/e.py") == ["build/e.py", "gen/c_pb2.py", "old/b.py"]
    assert names(overrides=LintConfig(exclude=())) == ["a.py", "build/e.py", "gen/d.py", "x/.venv/lib/f.py"]
    assert names(overrides=LintConfig(extend_exclude=("gen",))) == ["a.py"]


def test_force_exclude_leaves_out_what_is_named():
    make("pyproject.toml", text="[tool.stridewise.lint]\nextend-exclude = ['old', 'gen/*_pb2.py']")
    make("a.py", "old/deep/b.py", "gen/c_pb2.py", "build/e.py")
    assert names("a.py", "old/deep", "old/deep/b.py", "gen/c_pb2.py", "build/e.py", force_exclude=True) == ["a.py"]


def test_force_exclude_looks_at_nothing_above_the_project(monkeypatch):
    make("build/project/pyproject.toml", text="[tool.stridewise]")
    make("build/project/a.py", "build/plain/b.py")
    assert names("build/project/a.py", "build/project", force_exclude=True) == ["build/project/a.py"]
    monkeypatch.chdir("build/plain")
    assert names("b.py", ".", force_exclude=True) == ["b.py"]


# ----------------------------------------------------------------------------------------------------------- gitignore


def git(*arguments: str) -> str:
    command = ["git", "-c", "core.excludesFile=", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_what_git_ignores_is_not_found():
    make(".git/HEAD", "a.py", "gen/b.py", "deep/c.py", "deep/keep.py", "deep/d_test.py", "more/b.py", "private.py")
    make(".gitignore", text="/gen/\nc.py\nkeep.py\n")
    make("deep/.gitignore", text="!keep.py\n*_test.py\n")
    make(".git/info/exclude", text="private.py\n")
    assert names() == ["a.py", "deep/keep.py", "more/b.py"]
    assert names("deep") == ["deep/keep.py"]
    assert len(names(respect_gitignore=False)) == 7


def test_what_git_ignores_is_found_if_it_is_named():
    make(".git/HEAD", "a.py", "gen/deep/b.py", "c.py")
    make(".gitignore", text="gen/\nc.py\n")
    assert names("gen", "c.py") == names("gen/deep", "c.py") == ["c.py", "gen/deep/b.py"]
    assert names("gen", "gen/deep", "gen/deep/b.py", "c.py", "a.py", force_exclude=True) == ["a.py"]


def test_another_repository_has_its_own_rules():
    make(".git/HEAD", "a.py", "sub/a.py", "sub/b.py", "tree/a.py", "tree/b.py", "tree/c.py")
    make(".gitignore", text="a.py\n")
    make("sub/.git/HEAD", "sub/x")
    make("sub/.gitignore", text="b.py\n")
    make("tree/.git", text="gitdir: ../.git/worktrees/tree\n")  # as worktrees and submodules have it
    make(".git/worktrees/tree/commondir", text="../..\n")
    make(".git/info/exclude", text="c.py\n")
    assert names() == ["sub/a.py", "tree/a.py", "tree/b.py"]
    assert names("sub", "tree") == ["sub/a.py", "tree/a.py", "tree/b.py"]


def test_outside_of_a_repository_only_what_lies_below_counts():
    make("a.py", "deep/a.py", "deep/b.py")
    make(".gitignore", text="a.py\n")
    assert names() == ["deep/b.py"]
    assert names("deep") == ["deep/a.py", "deep/b.py"]


def test_lines_that_are_no_pattern_are_passed_over(here):
    make(".git/HEAD", "a.py", "b.py")
    (here / ".gitignore").write_bytes(b"\xef\xbb\xbf# caf\xe9\r\n!\r\n/\r\na.py\r\n")
    assert names() == ["b.py"]


@pytest.mark.filterwarnings("error")
def test_brackets_in_brackets_give_no_warnings():
    re.purge()  # what is compiled already gives none
    translated.cache_clear()
    make(".git/HEAD", "a.py", "b.py", "[x.py", "c.py", "d.py")
    make(".gitignore", text="[[]x.py\n[[:space:]]*\n[a||b].pyi\n[a-c--]x\n")
    assert names() == ["a.py", "b.py", "c.py", "d.py"]
    exclude = ("[[a].py", "[b||b].py", "[c&&~~].py", "[x-z--].py")
    assert names(overrides=LintConfig(exclude=exclude)) == ["d.py"]


@needs_git
@pytest.mark.parametrize("seed", range(8))
def test_the_same_files_as_git(seed):
    random_ = random.Random(seed)
    folders = ["", "a/", "b/", "a/b/", "a/b/c/", "b/a/"]
    make(*(f"{folder}{name}.py" for folder in folders for name in "abc"))
    parts = ["a", "b", "c", "*", "**", "a.py", "b.py", "*.py", "?.py", "[ab].py", "[!a]"]
    for folder in random_.sample(folders, 3):
        lines = []
        for _ in range(random_.randint(1, 4)):
            pattern = "/".join(random_.choices(parts, k=random_.randint(1, 3)))
            begin, end = random_.choice(["", "", "!", "/", "!/"]), random_.choice(["", "/"])
            lines.append(begin + pattern + end)
        make(f"{folder}.gitignore", text="\n".join(lines))
    git("init", "--quiet")
    listed = git("ls-files", "--others", "--exclude-standard").splitlines()
    assert names() == sorted(name for name in listed if name.endswith(".py"))


# ------------------------------------------------------------------------------------------- links, and what is no file


def test_a_file_with_several_names_is_found_once(here):
    make("real/b.py")
    (here / "a.py").symlink_to("real/b.py")
    (here / "z.py").symlink_to("real/b.py")
    assert names() == names("a.py", "real") == ["real/b.py"]
    assert names("a.py") == ["a.py"]


def test_links_to_folders_are_followed_only_if_they_are_named(here, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    make("a/b.py", f"{other}/c.py")
    (here / "a" / "loop").symlink_to(here)
    (here / "loop.py").symlink_to(here)
    (here / "other").symlink_to(other)
    assert names() == ["a/b.py"]
    assert names("other") == ["other/c.py"]
    assert names("a/loop", "a") == ["a/b.py"]


def test_what_is_no_file_is_said_and_not_opened(here):
    make("a.py")
    os.mkfifo("pipe.py")
    Path("broken.py").symlink_to("nowhere")
    Path("self.py").symlink_to("self.py")
    Path("null.py").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.py")
        found, _ = discover()
        expected = [
            "broken.py can't be read: it is a link to something that does not exist.",
            "null.py was not read: it is a device and no file.",
            "pipe.py was not read: it is a pipe and no file.",
            f"self.py can't be read: {os.strerror(40)}.",
            "socket.py was not read: it is a socket and no file.",
        ]
        assert unread() == unread("a.py", "broken.py", "null.py", "pipe.py", "self.py", "socket.py") == expected
    assert [each.name for each in found] == ["a.py"]


def test_a_folder_that_cannot_be_listed(here, monkeypatch):
    make("a/b.py", "c.py")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("/a"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found, missed = discover()
    assert [each.name for each in found] == ["c.py"]
    assert [(each.file, each.line, each.reason) for each in missed] == [
        ("a", None, "a can't be listed: Permission denied.")
    ]
