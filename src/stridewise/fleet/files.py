"""Which files are meant: globs and folders, here or behind a URL, are replaced by what is in them."""

import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from stridewise.errors import InputError, UsageError
from stridewise.recording.text import is_url

SUFFIXES = (".json", ".json.gz", ".sqlite")
"""What is taken from a folder."""


def expand(names: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The files and URLs that are meant, in the order given, each once; those of one glob or folder by number.

    A name without a glob's characters is taken as it is, whether or not there is such a file; one with them too, if
    there is. Raises UsageError for a glob or folder that holds nothing, and InputError for a store that can't be asked.
    """
    found: dict[str, str] = {}
    for given in names:
        # Without its `file://` it needs no fsspec, and is the same file as its path.
        name = os.fspath(given).removeprefix("file://")
        try:
            files = _remote(name) if is_url(name) else _local(name)
        except ValueError as error:
            raise UsageError(f"{name} is no name of a file or URL: {error}") from None
        for file in files:
            found.setdefault(file if is_url(file) else os.path.realpath(file), file)
    return tuple(found.values())


def shown_names(files: Iterable[str]) -> tuple[str, ...]:
    """What files are called in reports: without the passwords and signatures that URLs can hold, and all different."""
    names: dict[str, None] = {}
    for file in files:
        name = base = _without_secrets(file).encode("utf-8", "replace").decode()
        number = 1
        while name in names:
            number += 1
            name = f"{base} ({number})"
        names[name] = None
    return tuple(names)


def _without_secrets(file: str) -> str:
    if not is_url(file):
        return file
    shown = re.sub(r"//[^/@]*@", "//", file)
    return shown.partition("?")[0] if file.lower().startswith(("http://", "https://")) else shown


def _local(name: str) -> list[str]:
    path = os.path.expanduser(name)
    if glob.has_magic(path) and not os.path.lexists(path):
        found = [file for file in glob.glob(path, recursive=True) if not os.path.isdir(file)]
        if not found:
            raise UsageError(f"no file matches {name}")
        return sorted(found, key=by_number)
    if os.path.isdir(path):
        found = [str(Path(path, entry)) for entry in os.listdir(path) if entry.endswith(SUFFIXES)]
        return _in_folder(name, [file for file in found if os.path.isfile(file)])
    return [name if os.path.lexists(name) else path]


def _remote(url: str) -> list[str]:
    first, _, rest = url.partition("::")
    # `?` begins the query of a web address.
    magic = "*" if urlsplit(first).scheme.lower() in ("http", "https") else "*["
    is_glob, may_be_folder = any(char in first for char in magic), _may_be_folder(first)
    if not is_glob and not may_be_folder:
        return [url]
    fs, path = _store(url)
    try:
        if is_glob and not fs.exists(path):
            found = [name for name, entry in fs.glob(path, detail=True).items() if entry["type"] == "file"]
            if not found:
                raise UsageError(f"no file matches {_without_secrets(url)}")
        elif may_be_folder and fs.isdir(path):
            listed = fs.ls(path, detail=True)
            inside = [str(entry["name"]) for entry in listed if entry["type"] == "file"]
            found = _in_folder(_without_secrets(url), [entry for entry in inside if entry.endswith(SUFFIXES)])
        else:
            return [url]
    except UsageError:
        raise
    except Exception as error:  # every store has errors of its own
        raise _unreadable(url, error) from None
    chain = f"::{rest}" if rest else ""
    return sorted((fs.unstrip_protocol(entry) + chain for entry in found), key=by_number)


def _may_be_folder(url: str) -> bool:
    # To ask takes a round trip: not for names that look like files.
    name = url.rpartition("/")[2]
    return "." not in name and not url.lower().startswith(("http://", "https://"))


def _store(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise InputError(
            f"{_without_secrets(url)} is a URL, which takes fsspec.", advice="pip install 'stridewise[fleet]'"
        ) from None
    try:
        store: tuple[Any, str] = url_to_fs(url)
    except Exception as error:  # an unknown protocol, a package that is missing, credentials
        raise _unreadable(url, error) from None
    return store


def _unreadable(url: str, error: Exception) -> InputError:
    return InputError(f"{_without_secrets(url)} can't be listed: {type(error).__name__}: {error}".rstrip(": "))


def _in_folder(name: str, files: list[str]) -> list[str]:
    if not files:
        raise UsageError(f"{name} is a folder without a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file")
    return sorted(files, key=by_number)


def by_number(name: str) -> list[tuple[int, str]]:
    """Sort key under which `rank10` comes after `rank9`."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"([0-9]+)", name)]
