"""What git is told to ignore: `.gitignore` files and `.git/info/exclude`, nested ones over those above."""

import os
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct
from pathspec import GitIgnoreSpec, RegexPattern

from stridewise.source.file import quiet

NAME = ".gitignore"


_ANYWHERE = "^(?:.+/)?"
"""How pathspec's expressions begin for patterns that fit in every folder below: most of them."""
_GROUP = re.compile(r"\(\?P<\w+>")


class Patterns(Struct, frozen=True):
    """The patterns of one file."""

    base: str
    """The folder that they are relative to, and a slash."""
    some: re.Pattern[str]
    """Fits what any of them fits. Nearly always none does."""
    each: tuple[tuple[re.Pattern[str], bool], ...]
    """The last first: each with whether it ignores what it fits, or takes it back."""


class Ignores(Struct, frozen=True):
    """What counts for the entries of one folder."""

    files: tuple[Patterns, ...] = ()
    """The innermost last."""
    inside: bool = False
    """Whether the folder is ignored itself, or lies in one that is."""

    def match(self, path: str, *, folder: bool) -> bool:
        """Whether an entry is ignored, given by its absolute path."""
        for patterns in reversed(self.files):
            name = path[len(patterns.base) :] + "/" * folder
            if patterns.some.search(name):
                for pattern, ignored in patterns.each:
                    if _fits(pattern, name):
                        return ignored
        return False

    def enter(self, folder: str, names: Collection[str]) -> "Ignores":
        """What counts in a folder below, which is not ignored, by the names of what is in it."""
        # Git looks into no other repository: its own rules count there, and no others.
        files = () if ".git" in names else self.files
        added = [_exclude_file(folder)] if ".git" in names else []
        added += [os.path.join(folder, NAME)] if NAME in names else []
        base = folder.rstrip("/") + "/"
        more = tuple(patterns for file in added if (patterns := _read(file, base)) is not None)
        return Ignores((*files, *more)) if more or files is not self.files else self


class Repositories:
    """Finds what counts in a folder by the folders above it, up to the top of its repository."""

    def __init__(self) -> None:
        self._known: dict[str, Ignores] = {}

    def above(self, folder: str) -> Ignores:
        """What those above a folder say of its entries. Nothing, if it lies in no repository."""
        parent = os.path.dirname(folder)
        if _is_top(folder) or _top(parent) is None:
            return Ignores()
        ignores = self.of(parent)
        return Ignores(ignores.files, ignores.inside or ignores.match(folder, folder=True))

    def of(self, folder: str) -> Ignores:
        """What counts for the entries of a folder."""
        found = self._known.get(folder)
        if found is None:
            above = self.above(folder)
            names = [name for name in (".git", NAME) if os.path.lexists(os.path.join(folder, name))]
            entered = above.enter(folder, names)
            found = self._known[folder] = Ignores(entered.files, above.inside)
        return found

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether a file or a folder is ignored, or lies in a folder that is."""
        if folder:
            return self.above(path).inside
        around = self.of(os.path.dirname(path))
        return around.inside or around.match(path, folder=False)


def _fits(pattern: re.Pattern[str], name: str) -> bool:
    """Whether a pattern fits an entry itself: one that fits a folder around it has had its say there.

    The one group that pathspec's expressions have is the slash behind a folder that fits.
    """
    return any(not found.lastindex or found.end(found.lastindex) == len(name) for found in pattern.finditer(name))


def _is_top(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, ".git"))


def _top(folder: str) -> str | None:
    while not _is_top(folder):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return None
    return folder


def _exclude_file(top: str) -> str:
    """The `info/exclude` of a repository; `.git` may be a file that names another folder (submodules, worktrees)."""
    folder = os.path.join(top, ".git")
    with suppress(OSError):
        if os.path.isfile(folder):
            folder = os.path.join(top, _line(folder).removeprefix("gitdir:").strip())
        common = os.path.join(folder, "commondir")
        if os.path.isfile(common):
            folder = os.path.join(folder, _line(common))
    return os.path.join(folder, "info", "exclude")


def _line(file: str) -> str:
    with open(file, "rb") as stream:
        return os.fsdecode(stream.readline().rstrip(b"\r\n"))


def _read(file: str, base: str) -> Patterns | None:
    """The patterns of a file; None if there are none, or it can't be read: git does without it then too."""
    try:
        with open(file, "rb") as stream:
            lines = os.fsdecode(stream.read().removeprefix(b"\xef\xbb\xbf")).splitlines()
    except OSError:
        return None
    with quiet():  # of what later versions of Python may take for sets in sets
        parsed = [pattern for line in lines for pattern in _parsed(line)]
        each = [(pattern.regex, pattern.include) for pattern in parsed if pattern.regex and pattern.include is not None]
        return Patterns(base, _union([regex.pattern for regex, _ in each]), tuple(reversed(each))) if each else None


def _union(expressions: Iterable[str]) -> re.Pattern[str]:
    """What fits if any of some expressions does. What many begin with is tried once: four times as fast."""
    unnamed = [_GROUP.sub("(?:", expression) for expression in expressions]
    anywhere = "|".join(each.removeprefix(_ANYWHERE) for each in unnamed if each.startswith(_ANYWHERE))
    others = [each for each in unnamed if not each.startswith(_ANYWHERE)]
    return re.compile("|".join([*others, f"{_ANYWHERE}(?:{anywhere})"] if anywhere else others))


def _parsed(line: str) -> Sequence[RegexPattern]:
    if re.search(r"[^/!]/\*\*/\s*$", line):  # the folders below; pathspec takes it for the one above too
        line = f"{line.rstrip()}*/"
    try:
        return GitIgnoreSpec.from_lines([line]).patterns
    except ValueError:  # git passes over what is no pattern
        return ()
