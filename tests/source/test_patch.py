"""Diffs that `patch` and git take, and files that are written whole, or not at all."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from stridewise.findings import Edit
from stridewise.source import patch
from stridewise.source.edits import append, insert_after
from stridewise.source.file import SourceFile
from stridewise.source.files import Files
from stridewise.source.patch import Change, Written, changes, is_exact, unified, write

TEXT = "import torch\n\n\ndef f(x):\n    y = x.t()  # c\n    return y\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def put(path: Path, content: str | bytes = TEXT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def edit_of(file: SourceFile, old: str = "x.t()", new: str = "x.t().contiguous()") -> Edit:
    start = file.content.index(old.encode(file.encoding))
    return Edit(file.name, (start, start + len(old.encode(file.encoding))), new, "unsafe")


def change_of(path: Path, name: str | None = None) -> Change:
    file = SourceFile(path, name or path.name)
    (change,) = changes({file.name: file}.get, [edit_of(file)])
    return change


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def written(change: Change, root: Path, *, patch_dir: Path | None = None) -> Written:
    (row,) = write([change], Files(root), patch_dir=patch_dir or root / "patches")
    return row


# ------------------------------------------------------------------------------------------------------- changes


def test_changes_are_by_file(root: Path) -> None:
    files = {name: SourceFile(put(root / name), name) for name in ("b.py", "a.py")}
    edits = [edit_of(files["b.py"]), edit_of(files["a.py"]), edit_of(files["b.py"], "return y", "return y.x")]
    found = changes(files.get, [edits[2], *edits])
    assert [change.file.name for change in found] == ["a.py", "b.py"]
    assert found[1].edits == (edits[0], edits[2])
    assert found[0].after == TEXT.replace("x.t()", "x.t().contiguous()").encode()


def test_what_changes_nothing_is_no_change(root: Path) -> None:
    file = SourceFile(put(root / "a.py"), "a.py")
    assert changes({"a.py": file}.get, [edit_of(file, "x.t()", "x.t()")]) == ()
    assert changes({"a.py": file}.get, []) == ()


def test_edits_that_can_not_be_made(root: Path) -> None:
    file = SourceFile(put(root / "a.py"), "a.py")
    again = SourceFile(root / "a.py", "again.py")
    for edits, message in (
        ([edit_of(file), edit_of(file, "t()", "q()")], "overlap"),
        ([edit_of(file, "x.t()", "x.t(")], "no Python"),
        ([edit_of(file, "x.t()", "x + 1; return")], "more than what the edit names"),
        ([Edit("gone.py", (0, 0), "", "safe")], "gone.py can't be opened"),
        ([edit_of(file), edit_of(again)], "are one file"),
    ):
        with pytest.raises(ValueError, match=message):
            changes({"a.py": file, "again.py": again}.get, edits)


# ---------------------------------------------------------------------------------------------------------- diff


def test_how_a_diff_reads(root: Path, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    own = change_of(put(root / "src" / "model.py"), "src/model.py")
    other = change_of(put(tmp_path / "lib" / "site-packages" / "pkg" / "m.py", TEXT.rstrip()), "pkg/m.py")
    assert unified([own, other], root) == snapshot


CONTENTS = {
    "plain": TEXT,
    "crlf": TEXT.replace("\n", "\r\n"),
    "cr": TEXT.replace("\n", "\r"),
    "mixed": "a = 1\r\nb = 2\rc = 3\ndef f(x): return x.t()\r\n",
    "no newline": "def f(x):\n    return x.t()",
    "no newline, crlf": "def f(x):\r\n    return x.t()",
    "no newline far away": "def f(x):\n    return x.t()\n" + "# c\n" * 9 + "z = 1",
    "mark": "\ufeffdef f(x):\n    return x.t()\n",
    "not ascii": "größe = '名\x0c\x0b\u2028😀'\ndef f(x):\n    return x.t() + größe\n",
    "long": "y = 1\n" * 500 + TEXT + "y = 1\n" * 500,
    "looks like a diff": '"""\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n"""\ny = x.t()\n',
    "one line": "y = x.t()",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1", "--quiet", "-i"]], ids=["git", "patch"])
def test_tools_take_it(root: Path, content: str, tool: list[str]) -> None:
    change = change_of(put(root / "sub" / "model.py", content), "sub/model.py")
    put(root / "x.diff", unified([change], root))
    assert run(root, *tool, "x.diff") == ""
    assert (root / "sub" / "model.py").read_bytes() == change.after


@pytest.mark.parametrize("name", ["a b.py", "größe.py", 'quo"te.py', "back\\slash.py", "tab\tname.py", "new\nline.py"])
@pytest.mark.parametrize("tool", [["git", "apply"], ["patch", "-p1", "--quiet", "-i"]], ids=["git", "patch"])
def test_names(root: Path, name: str, tool: list[str]) -> None:
    change = change_of(put(root / name), name)
    text = unified([change], root)
    assert len(text.splitlines()[:2]) == 2
    assert text.splitlines()[2].startswith("@@")
    put(root / "x.diff", text)
    assert run(root, *tool, "x.diff") == ""
    assert (root / name).read_bytes() == change.after


def test_several_files_and_edits(root: Path) -> None:
    files = {name: SourceFile(put(root / name, "# c\n" * 20 + TEXT), name) for name in ("a.py", "b/c.py")}
    first = files["a.py"].tree.body[0]
    edits = [*map(edit_of, files.values()), insert_after(files["a.py"], first, "import os")]
    found = changes(files.get, edits)
    put(root / "x.diff", unified(found, root))
    assert run(root, "git", "apply", "--check", "--verbose", "x.diff").count("Checking patch") == 2
    run(root, "git", "apply", "x.diff")
    assert [change.file.path.read_bytes() for change in found] == [change.after for change in found]


def test_another_encoding_is_shown_as_text_and_kept_as_bytes(root: Path, tmp_path: Path) -> None:
    content = "# coding: latin-1\nx = 'é'\ny = x.t()\n".encode("latin-1")
    assert " x = 'é'\n" in unified([change_of(put(root / "größe.py", content))], root)
    assert "+++ b/größe.py\n" in unified([change_of(root / "größe.py")], root)
    change = change_of(put(tmp_path / "lib" / "m.py", content))
    row = written(change, root)
    assert row.where is not None
    assert run(tmp_path / "lib", "git", "apply", row.where) == ""
    assert (tmp_path / "lib" / "m.py").read_bytes() == change.after


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "gbk", "shift_jis", "utf-8"])
def test_only_what_is_utf8_is_exact(root: Path, encoding: str) -> None:
    text = f"# coding: {encoding}\nx = '{'§' if encoding == 'cp1252' else '×'}'\ny = x.t()\n"
    near = change_of(put(root / "near.py", text.encode(encoding)))
    far = change_of(put(root / "far.py", text.replace("y =", "# c\n" * 9 + "y =").encode(encoding)))
    assert is_exact(near) is (encoding == "utf-8")
    assert is_exact(far)  # what can't be shown is not shown
    put(root / "x.diff", unified([far], root))
    assert run(root, "git", "apply", "x.diff") == ""
    assert (root / "far.py").read_bytes() == far.after


@pytest.mark.parametrize("encoding", ["idna", "utf-7", "punycode"])
@pytest.mark.parametrize("char", ["x", "\xe9"])
def test_codecs_that_read_no_diff(root: Path, encoding: str, char: str) -> None:
    before = f"# {char * 90}\ny = x.t()\n".encode("latin-1")
    after = before.replace(b"x.t()", b"x.t().contiguous()")
    change = patch.Rewrite(patch.Document(put(root / "a.py", before), "a.py", before, encoding, on_disk=True), after)
    text = unified([change], root)
    assert text.startswith("--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n # ") or char != "x"
    assert is_exact(change) is (char == "x")
    if char == "x":
        put(root / "x.diff", text)
        assert run(root, "git", "apply", "x.diff") == ""
        assert (root / "a.py").read_bytes() == after


def test_no_change_no_diff(root: Path) -> None:
    assert unified([], root) == ""


def test_a_cell_in_a_diff(root: Path) -> None:
    file = SourceFile(Path("<ipython-input-1>"), "<ipython-input-1>", b"y = x.t()\n")
    found = changes({file.name: file}.get, [edit_of(file)])
    assert unified(found, root).startswith("--- a/<ipython-input-1>\n+++ b/<ipython-input-1>\n@@ -1 +1 @@\n")


# --------------------------------------------------------------------------------------------------------- write


def test_it_is_written_once(root: Path) -> None:
    path = put(root / "model.py")
    path.chmod(0o750)
    change = change_of(path)
    assert written(change, root) == Written("model.py", "written", str(path), None)
    assert everything(root) == {"model.py": change.after}
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    before = path.stat()
    assert written(change, root) == Written("model.py", "skipped", None, "already applied")
    assert path.stat() == before
    assert everything(root) == {"model.py": change.after}


def test_a_file_that_was_edited_meanwhile(root: Path) -> None:
    change = change_of(put(root / "model.py"))
    put(root / "model.py", TEXT + "# mine\n")
    assert written(change, root) == Written("model.py", "skipped", None, "it was edited since the trials ran")
    assert everything(root) == {"model.py": (TEXT + "# mine\n").encode()}


@pytest.mark.parametrize(
    ("interfere", "reason"),
    [
        (lambda path: put(path, "mine"), "it was edited since the trials ran"),
        (lambda path: path.unlink(), "it is gone"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/hostname")), "it was moved meanwhile"),
        (lambda path: (path.unlink(), path.mkdir()), "it is no longer a file"),
    ],
)
def test_interference_at_the_last_moment(
    root: Path, monkeypatch: pytest.MonkeyPatch, interfere: Callable[[Path], object], reason: str
) -> None:
    path = put(root / "model.py")
    change = change_of(path)
    sync = os.fsync

    def fsync(handle: int) -> None:
        sync(handle)
        interfere(path)

    monkeypatch.setattr(os, "fsync", fsync)
    assert written(change, root) == Written("model.py", "skipped", None, reason)
    assert [entry.name for entry in root.iterdir()] in ([], ["model.py"])
    assert not path.is_file() or path.read_bytes() != change.after


def test_a_file_that_is_gone(root: Path) -> None:
    change = change_of(put(root / "model.py"))
    (root / "model.py").unlink()
    assert written(change, root).reason == "it is gone"
    assert everything(root) == {}


def test_what_became_no_file(root: Path) -> None:
    change = change_of(put(root / "model.py"))
    (root / "model.py").unlink()
    os.mkfifo(root / "model.py")  # reading it would wait for ever
    assert written(change, root).reason == "it is no longer a file"


def test_links_in_a_circle(root: Path) -> None:
    change = change_of(put(root / "model.py"))
    (root / "model.py").unlink()
    (root / "model.py").symlink_to(root / "model.py")
    assert written(change, root).what == "skipped"


def test_a_read_only_file(root: Path) -> None:
    path = put(root / "model.py")
    change = change_of(path)
    path.chmod(0o444)
    assert written(change, root).reason == "it is read-only"
    assert path.read_text() == TEXT
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_a_read_only_folder(root: Path) -> None:
    change = change_of(put(root / "sub" / "model.py"))
    (root / "sub").chmod(0o555)
    try:
        assert written(change, root).reason == "its folder is read-only"
        assert everything(root) == {"sub/model.py": TEXT.encode()}
    finally:
        (root / "sub").chmod(0o755)


def test_a_link_inside_the_project_stays_a_link(root: Path) -> None:
    target = put(root / "real" / "model.py")
    (root / "model.py").symlink_to("real/model.py")
    change = change_of(root / "model.py")
    assert "+++ b/real/model.py\n" in unified([change], root)
    assert written(change, root).where == str(target)
    assert (root / "model.py").is_symlink()
    assert target.read_bytes() == change.after


@pytest.mark.parametrize("folder", [False, True])
def test_a_link_that_leads_out_of_the_project(root: Path, tmp_path: Path, folder: bool) -> None:
    outside = put(tmp_path / "outside" / "model.py")
    if folder:
        (root / "sub").symlink_to(outside.parent, target_is_directory=True)
    else:
        (root / "sub").mkdir()
        (root / "sub" / "model.py").symlink_to(outside)
    row = written(change_of(root / "sub" / "model.py", "sub/model.py"), root)
    assert (row.what, row.where) == ("patch file", str(root / "patches" / "sub-model.py.patch"))
    assert outside.read_text() == TEXT


@pytest.mark.parametrize("place", ["project/.venv/lib/python3.11/site-packages/pkg", "elsewhere/pkg"])
def test_an_installed_file_gets_a_patch(root: Path, tmp_path: Path, place: str) -> None:
    path = put(tmp_path / place / "m.py")
    change = change_of(path, "pkg/m.py")
    row = written(change, root)
    assert row == Written(
        "pkg/m.py",
        "patch file",
        str(root / "patches" / "pkg-m.py.patch"),
        "it is not the project's own: the patch is for upstream",
    )
    assert path.read_text() == TEXT
    before = everything(root)
    assert written(change, root) == row
    assert everything(root) == before
    assert run(path.parent.parent, "git", "apply", str(row.where)) == ""
    assert path.read_bytes() == change.after


def test_a_patch_takes_no_other_files_place(root: Path, tmp_path: Path) -> None:
    change = change_of(put(tmp_path / "lib" / "m.py"))
    mine = put(root / "patches" / "m.py.patch", "mine")
    (root / "patches" / "m.py-2.patch").symlink_to(tmp_path / "lib" / "nowhere")
    assert written(change, root).where == str(root / "patches" / "m.py-3.patch")
    assert mine.read_text() == "mine"
    assert not (tmp_path / "lib" / "nowhere").exists()


@pytest.mark.parametrize("name", ["/abs/m.py", "~/m.py", "../../m.py", "a/../../m.py"])
def test_patches_stay_in_their_folder(root: Path, tmp_path: Path, name: str) -> None:
    row = written(change_of(put(tmp_path / "lib" / "m.py"), name), root)
    assert row.where is not None
    assert Path(row.where).parent == root / "patches"
    assert ".." not in (root / "patches" / row.where).read_text()


def test_no_folder_for_patches(root: Path, tmp_path: Path) -> None:
    row = written(change_of(put(tmp_path / "lib" / "m.py")), root, patch_dir=put(root / "file"))
    assert row.what == "skipped"
    assert row.reason == "it could not be written: File exists"


def test_a_cell_is_never_written(root: Path) -> None:
    file = SourceFile(root / "cell.py", "cell.py", b"y = x.t()\n")
    put(root / "cell.py", "y = x.t()\n")
    (change,) = changes({"cell.py": file}.get, [edit_of(file)])
    assert written(change, root).reason == "it is no file but a notebook's cell: make the edit there"
    assert everything(root) == {"cell.py": b"y = x.t()\n"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "stop"])
@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
def test_a_failure_leaves_the_others_and_no_trace(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    found = [change_of(put(root / name)) for name in ("a.py", "b.py", "c.py")]
    real, calls = getattr(os, call), []

    def fails_once(*args: object) -> object:
        calls.append(args)
        if len(calls) == 2:
            raise error
        return real(*args)

    monkeypatch.setattr(patch.os, call, fails_once)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            write(found, Files(root), patch_dir=root)
        assert everything(root) == {"a.py": found[0].after, "b.py": TEXT.encode(), "c.py": TEXT.encode()}
        return
    rows = write(found, Files(root), patch_dir=root)
    assert [row.what for row in rows] == ["written", "skipped", "written"]
    assert rows[1].reason == "it could not be written: No space left on device"
    assert everything(root) == {"a.py": found[0].after, "b.py": TEXT.encode(), "c.py": found[2].after}


def test_the_owner_stays(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "chown", lambda path, user, group: given.append((user, group)))
    path = put(root / "model.py")
    owner = path.stat()
    written(change_of(path), root)
    assert given == [(owner.st_uid, owner.st_gid)]

    def refuse(*args: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refuse)
    assert written(change_of(put(root / "other.py")), root).what == "written"


def test_an_appended_edit_all_the_way(root: Path) -> None:
    path = put(root / "model.py", TEXT.replace("\n", "\r\n"))
    file = SourceFile(path, "model.py")
    statement = file.tree.body[1].body[0]  # type: ignore[attr-defined]
    (change,) = changes({"model.py": file}.get, [append(file, statement.value, ".contiguous()")])
    assert written(change, root).what == "written"
    assert path.read_bytes() == TEXT.replace("x.t()", "x.t().contiguous()").replace("\n", "\r\n").encode()


def run(folder: Path, *command: str) -> str:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    environment = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(folder.parent), "LC_ALL": "C"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return "" if result.stderr == "" or "warning" in result.stderr else result.stderr
