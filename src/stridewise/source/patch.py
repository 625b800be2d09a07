"""Edits as a diff, and on disk: only in files that still read as they did when the edits were made."""

import contextlib
import difflib
import os
import stat
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from stridewise.findings import Edit
from stridewise.source import edits as editing
from stridewise.source.file import SourceFile
from stridewise.source.files import Files

_NOTE = "This change is to a package, not to the project: take it to whoever maintains the package.\n"
_NO_NEWLINE = b"\n\\ No newline at end of file\n"


class Change(Struct, frozen=True):
    """What some edits make of one file."""

    file: SourceFile
    edits: tuple[Edit, ...]
    after: bytes


class Document(Struct, frozen=True):
    """A file that is edited although it is no Python as a whole."""

    path: Path
    name: str
    content: bytes
    encoding: str = "utf-8"
    on_disk: bool = False


class Rewrite(Struct, frozen=True):
    """What some edits make of such a file."""

    file: Document
    after: bytes


class Written(Struct, frozen=True):
    """What became of one file."""

    file: str
    what: Literal["written", "patch file", "skipped"]
    where: str | None
    """The file that was written; None if none was."""
    reason: str | None
    """Why it was skipped, or why there is a patch file: a clause that a person reads, without a full stop."""


class Skipped(Exception):
    """A file that is left as it is. Its text is the reason."""


def changes(open: Callable[[str], SourceFile | None], edits: Iterable[Edit]) -> tuple[Change, ...]:
    """What edits make of the files that they name, in the order of the names.

    Raises ValueError if edits overlap, change more than they name, or name a file that can't be opened.
    """
    groups: dict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        groups[edit.file].append(edit)
    found: dict[Path, Change] = {}
    for name in sorted(groups):
        file = open(name)
        if file is None:
            raise ValueError(f"{name} can't be opened")
        editing.check(file, groups[name])
        ordered = tuple(editing.ordered(groups[name]))
        real = file.path.resolve()
        if real in found:
            raise ValueError(f"{name} and {found[real].file.name} are one file")
        found[real] = Change(file, ordered, editing.apply(file.content, file.encoding, ordered))
    return tuple(change for change in found.values() if change.after != change.file.content)


def unified(changes: Sequence[Change | Rewrite], root: Path) -> str:
    """A unified diff of all changes, for `patch -p1` in the root. Files outside of it have their public names.

    Written in UTF-8 it can be applied to every change that `is_exact`; the others can only be read.
    """
    files = Files(root)
    parts = ((change.file.encoding, *_diff(change, files)) for change in changes)
    return "".join(header.decode() + _text(hunks, encoding) for encoding, header, hunks in parts)


def is_exact(change: Change | Rewrite) -> bool:
    """Whether what a diff shows of a change is in UTF-8, whatever the file says of itself."""
    return all(map(_is_utf8, (change.file.content, change.after))) or _is_utf8(_hunks(change))


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(hunks: bytes, encoding: str) -> str:
    if _is_utf8(hunks):
        return hunks.decode()
    try:
        return hunks.decode(encoding, "backslashreplace")
    except (UnicodeError, LookupError):  # some codecs take no bytes but whole lines, or none of a hunk's marks
        return hunks.decode("utf-8", "backslashreplace")


def write(changes: Sequence[Change], files: Files, *, patch_dir: Path) -> tuple[Written, ...]:
    """Write what may be written, each file as a whole or not at all; one that fails leaves the others as they are.

    A file is written if it is the project's own, no link leads out of the project, and it reads as it did when the
    trials ran. An installed file gets a patch file in `patch_dir` instead.
    """
    return tuple(_write(change, files, patch_dir) for change in changes)


def _write(change: Change, files: Files, patch_dir: Path) -> Written:
    file = change.file
    try:
        if not file.on_disk:
            raise Skipped("it is no file but a notebook's cell: make the edit there")
        if files.is_installed(file.path):
            where = _write_patch(change, files, patch_dir)
            return Written(
                file.name, "patch file", str(where), "it is not the project's own: the patch is for upstream"
            )
        return Written(file.name, "written", str(_replace(change, files)), None)
    except Skipped as skipped:
        return Written(file.name, "skipped", None, str(skipped))
    except OSError as error:
        return Written(file.name, "skipped", None, f"it could not be written: {error.strerror or error}")
    except RuntimeError:  # what Python before 3.13 raises for links that lead in a circle
        return Written(file.name, "skipped", None, "its links lead in a circle")


def replace(path: Path, before: bytes, after: bytes, *, may_write: Callable[[Path], bool], since: str) -> Path:
    """Put other content in a file, as a whole or not at all; where links lead to is what is written, and given.

    Raises Skipped unless the file reads as `before` until the last moment, may be written by its owner, and is one
    that `may_write` allows, with all links followed. `since` says in the reason since when it was edited.
    """
    real = path.resolve()
    _must_be_unchanged(real, before, after, since)
    mode = real.stat().st_mode
    # Root may write everything: what the bits say is what its owner wants.
    if not mode & stat.S_IWUSR or not os.access(real, os.W_OK):
        raise Skipped("it is read-only")
    if not real.parent.stat().st_mode & stat.S_IWUSR or not os.access(real.parent, os.W_OK):
        raise Skipped("its folder is read-only")

    def still_ours() -> None:
        if path.resolve() != real or not may_write(real):
            raise Skipped("it was moved meanwhile")
        _must_be_unchanged(real, before, after, since)

    _put(real, after, still_ours, like=real.stat())
    return real


def _replace(change: Change, files: Files) -> Path:
    return replace(
        change.file.path,
        change.file.content,
        change.after,
        may_write=lambda real: not files.is_installed(real),
        since="the trials ran",
    )


def _must_be_unchanged(real: Path, before: bytes, after: bytes, since: str) -> None:
    try:
        if not stat.S_ISREG(real.stat().st_mode):
            raise Skipped("it is no longer a file")
        content = real.read_bytes()
    except FileNotFoundError:
        raise Skipped("it is gone") from None
    if content == after:
        raise Skipped("already applied")
    if content != before:
        raise Skipped(f"it was edited since {since}")


def _write_patch(change: Change, files: Files, patch_dir: Path) -> Path:
    content = b"".join((_NOTE.encode(), *_diff(change, files)))
    patch_dir.mkdir(parents=True, exist_ok=True)
    stem = "-".join(part for part in Path(change.file.name).parts if part not in ("/", "~", ".", ".."))
    for number in range(1, 1000):
        path = patch_dir / f"{stem}{'' if number == 1 else f'-{number}'}.patch"
        if not os.path.lexists(path):
            _put(path, content, lambda: None)
            return path
        if path.is_file() and path.read_bytes() == content:
            return path
    raise Skipped(f"{patch_dir} holds too many patches of that name")


def _put(path: Path, content: bytes, ready: Callable[[], None], like: os.stat_result | None = None) -> None:
    """Put a file in its place in one step, once `ready` has raised nothing. Nothing else is left behind."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".tmp")
    try:
        with open(handle, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        if like is not None:
            with contextlib.suppress(OSError, AttributeError):  # only root may give files away; Windows has no owners
                os.chown(temporary, like.st_uid, like.st_gid)
        os.chmod(temporary, 0o644 if like is None else stat.S_IMODE(like.st_mode))
        ready()
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _diff(change: Change | Rewrite, files: Files) -> tuple[bytes, bytes]:
    """A unified diff of one file: its header in UTF-8, its hunks in the file's own bytes."""
    name = _shown_name(change.file, files)
    return f"--- {_quoted(f'a/{name}')}\n+++ {_quoted(f'b/{name}')}\n".encode(), _hunks(change)


def _hunks(change: Change | Rewrite) -> bytes:
    lines = difflib.diff_bytes(difflib.unified_diff, _lines(change.file.content), _lines(change.after))
    return b"".join(line if line.endswith(b"\n") else line + _NO_NEWLINE for line in list(lines)[2:])


def _lines(content: bytes) -> list[bytes]:
    """Lines as `patch` and `git apply` count them: nothing but a line feed ends one."""
    *lines, last = content.split(b"\n")
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _shown_name(file: SourceFile | Document, files: Files) -> str:
    if file.on_disk and not files.is_installed(file.path):
        return file.path.resolve().relative_to(files.root).as_posix()
    return "/".join(part for part in Path(file.name).parts if part not in ("/", ".", ".."))


def _quoted(name: str) -> str:
    """A name as `git diff` writes it: in quotes if it would be read wrongly, with a tab behind one that has blanks."""
    if name.isprintable() and not any(char in '"\\' for char in name):
        return f"{name}\t" if " " in name else name
    escaped = {'"': '\\"', "\\": "\\\\"}
    parts = (
        escaped.get(char) or (char if char.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(char)))
        for char in name
    )
    return f'"{"".join(parts)}"'
