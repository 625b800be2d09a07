"""Which files a run of `lint` reads: those named, and those in the folders named that nothing excludes."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from stridewise.config import LintConfig
from stridewise.errors import UsageError
from stridewise.linter.files.gitignore import Ignores, Repositories
from stridewise.linter.files.settings import NOTHING_SAID, Projects, Settings
from stridewise.recording.filenames import public_path
from stridewise.results.lint import Unread
from stridewise.source import notebook

SUFFIXES = (".py", ".pyi", notebook.SUFFIX)
"""Of the files that are looked for in folders; one that is named may have any."""

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Found(Struct, frozen=True):
    """One file to lint."""

    path: Path
    """Absolute."""
    name: str
    """As findings name it, for editors and CI to open: below the current folder relative to that, else absolute."""
    settings: Settings

    @property
    def is_notebook(self) -> bool:
        """Whether its cells are what is linted."""
        return self.path.name.endswith(notebook.SUFFIX)

    @property
    def recorded_name(self) -> str:
        """As recordings name it."""
        return public_path(str(self.path))


def discover(
    paths: Sequence[str | os.PathLike[str]] = (),
    overrides: LintConfig = NOTHING_SAID,
    *,
    respect_gitignore: bool = True,
    force_exclude: bool = False,
) -> tuple[tuple[Found, ...], tuple[Unread, ...]]:
    """Give the files that some paths (else the current folder) stand for, and what can't be read of them, by name.

    What is named is taken although it is excluded or ignored, unless `force_exclude`; what lies in a folder is not.
    Links to folders are followed only if they are named. Raises UsageError for a path that does not exist and for codes
    in `overrides` that no rule has, InputError for a pyproject.toml that can't be read.
    """
    walk = _Walk(_current(), Projects(overrides), respect_gitignore, force_exclude)
    for path in paths or (os.curdir,):
        walk.add(os.fspath(path))
    return walk.result()


def found_by_name(
    name: str, overrides: LintConfig = NOTHING_SAID, *, respect_gitignore: bool = True, force_exclude: bool = False
) -> Found | None:
    """A file that somebody hands in the content of, on the disk or not; None if it is left out (`force_exclude`).

    Raises what `discover` does.
    """
    return _Walk(_current(), Projects(overrides), respect_gitignore, force_exclude).named(name)


class _Walk:
    """The files found so far."""

    def __init__(self, current: str, projects: Projects, respect_gitignore: bool, force_exclude: bool) -> None:
        self._current = current
        self._projects = projects
        self._repositories = Repositories() if respect_gitignore else None
        self._force_exclude = force_exclude
        self._paths: dict[str, str] = {}
        """By real path: a file with several names is linted once."""
        self._unread: dict[str, Unread] = {}

    def result(self) -> tuple[tuple[Found, ...], tuple[Unread, ...]]:
        """What was found, by name."""
        found = []
        for path in self._paths.values():
            folder, name = os.path.split(path)
            found.append(Found(Path(path), self._shown(path), self._projects.of(folder).settings(path, name)))
        found.sort(key=lambda each: each.name)
        return tuple(found), tuple(self._unread[name] for name in sorted(self._unread))

    def named(self, given: str) -> Found | None:
        """A file of that name, unless it is left out."""
        if not given or "\0" in given:
            raise UsageError(f"{given!a} is no name of a file")
        path = os.path.abspath(given)
        if self._force_exclude and self._is_left_out(path):
            return None
        folder, name = os.path.split(path)
        return Found(Path(path), self._shown(path), self._projects.of(folder).settings(path, name))

    def add(self, given: str) -> None:
        """A file or a folder that was named."""
        if not given or "\0" in given or not os.path.lexists(given):
            raise UsageError(f"{given or 'an empty path'} does not exist: lint takes files and folders")
        path = os.path.abspath(given)
        if self._force_exclude and self._is_left_out(path):
            return
        if not os.path.isdir(path):
            self._add_other(path)
            return
        ignores = None
        if self._repositories is not None:
            ignores = self._repositories.above(path)
            if ignores.inside:  # it was asked for all the same: what is around it does not count
                ignores = Ignores()
        self._add_folder(path, os.path.realpath(path), ignores)

    def _add_folder(self, path: str, real: str, ignores: Ignores | None) -> None:
        waiting = [(path, real, ignores)]
        while waiting:
            path, real, ignores = waiting.pop()
            try:
                with os.scandir(path) as entries:
                    inside = list(entries)
            except OSError as error:
                self._skip(path, f"can't be listed: {error.strerror}")
                continue
            project = self._projects.of(path)
            if ignores is not None:
                ignores = ignores.enter(path, {entry.name for entry in inside})
            begin, real_begin = path.rstrip("/") + "/", real.rstrip("/") + "/"
            for entry in inside:
                name = entry.name
                folder = _is_folder(entry)
                if not folder and not name.endswith(SUFFIXES):
                    continue
                below = begin + name
                if project.excludes(below, name) or (ignores is not None and ignores.match(below, folder=folder)):
                    continue
                if folder:
                    waiting.append((below, real_begin + name, ignores))
                elif _is_plain(entry):
                    self._keep(below, real_begin + name)
                elif not os.path.isdir(below):  # a link to a folder may be called like a file
                    self._add_other(below)

    def _add_other(self, path: str) -> None:
        """A file that may be a link, or no file at all."""
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            self._skip(path, "can't be read: it is a link to something that does not exist")
        except OSError as error:
            self._skip(path, f"can't be read: {error.strerror}")
        else:
            if stat.S_ISREG(mode):
                self._keep(path, os.path.realpath(path))
            else:  # opening it might wait for ever
                kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
                self._skip(path, f"was not read: it is {kind} and no file")

    def _keep(self, path: str, real: str) -> None:
        if real not in self._paths or path == real:  # its own name, rather than that of a link to it
            self._paths[real] = path

    def _skip(self, path: str, why: str) -> None:
        name = self._shown(path)
        self._unread[name] = Unread(name, None, f"{name} {why}.")

    def _is_left_out(self, path: str) -> bool:
        """Whether a path that was named would not be found from its project's folder, or else the current one."""
        folder = os.path.isdir(path)
        if self._repositories is not None and self._repositories.ignores(path, folder=folder):
            return True
        project = self._projects.of(path if folder else os.path.dirname(path))
        top = Path(project.folder or self._current)
        below_top = (parent for parent in Path(path).parents if parent != top and parent.is_relative_to(top))
        return path != str(top) and any(project.excludes(str(each), each.name) for each in (Path(path), *below_top))

    def _shown(self, path: str) -> str:
        begin = self._current.rstrip("/") + "/"
        name = path.removeprefix(begin) or "."
        # Names may be any bytes; what people and JSON read is text.
        return os.fsencode(name).decode("utf-8", "backslashreplace")


def _current() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the current folder does not exist any more") from None


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:  # what it is can't be told: reading it will say why
        return False


def _is_plain(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False
