"""Patterns of files as ruff's settings have them: `*` and `**` cross slashes, `{a,b}` is either."""

import functools
import os
import re
from collections.abc import Iterable

from stridewise.source.file import quiet

_SPECIAL = re.compile(r"[][\\^&~|]")
"""What means something between the brackets of a regular expression, but for ranges."""


class Globs:
    """Some patterns of one folder, for absolute paths below and beside it."""

    def __init__(self, patterns: Iterable[str], folder: str) -> None:
        names: list[str] = []
        paths: list[str] = []
        for pattern in patterns:
            whole = os.path.normpath(pattern)
            if "/" not in whole:
                names.append(translated(whole))
            paths.append(_anchored(whole, folder))
        with quiet():  # of what later versions of Python may take for a difference of sets: `--`
            self._name = re.compile("|".join(names)) if names else None
            self._path = re.compile("|".join(paths)) if paths else None

    def match(self, path: str, name: str) -> bool:
        """Whether one of them fits a path, or its last part."""
        return bool(
            (self._name is not None and self._name.fullmatch(name))
            or (self._path is not None and self._path.fullmatch(path))
        )


def _anchored(pattern: str, folder: str) -> str:
    if os.path.isabs(pattern):
        return translated(pattern)
    while pattern.startswith("../"):
        pattern, folder = pattern[3:], os.path.dirname(folder)
    return re.escape(folder.rstrip("/") + "/") + translated(pattern)


@functools.cache
def translated(pattern: str) -> str:
    """The regular expression for a pattern; what is no pattern in it stands for itself."""
    found, at, depth = [], 0, 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            beyond = at
            while pattern[beyond : beyond + 1] == "*":
                beyond += 1
            # `**/` stands for no folder too; a slash that follows belongs to it.
            if beyond > at and pattern[beyond : beyond + 1] == "/" and (at == 1 or pattern[at - 2] == "/"):
                found.append("(?:.*/)?")
                beyond += 1
            else:
                found.append(".*")
            at = beyond
        elif character == "?":
            found.append(".")
        elif character == "[" and (choice := _choice(pattern, at)):
            found.append(choice[0])
            at = choice[1]
        elif character == "{" and "}" in pattern[at:]:
            found.append("(?:")
            depth += 1
        elif depth and character in ",}":
            found.append("|" if character == "," else ")")
            depth -= character == "}"
        else:
            found.append(re.escape(character))
    return "(?s:" + "".join(found) + ")" * (depth + 1)


def _choice(pattern: str, at: int) -> tuple[str, int] | None:
    """What a bracket before a position stands for, and where its pattern ends; None if it is one like any character."""
    negated = pattern[at : at + 1] in ("!", "^")
    end = pattern.find("]", at + 1 + negated)
    if end < 0:
        return None
    members = _SPECIAL.sub(r"\\\g<0>", pattern[at + negated : end])
    choice = f"[{'^' * negated}{members}]"
    try:
        with quiet():
            re.compile(choice)
    except re.error:  # a range that runs backwards
        return None
    return choice, end + 1
