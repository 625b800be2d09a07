"""The baseline's file: JSON that is reviewed, one finding a line, in an order that does not change by itself."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from stridewise.errors import InputError
from stridewise.integrations.pytest_support.known import Known

Tests = dict[str, tuple[Known, ...]]
"""By node ids."""

_VERSION = 1
_ABOUT = "Layout findings of tests that are known: pytest --layout-baseline=check fails for any other. Made by update."


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: int
    tests: dict[str, list[Known]]
    about: str = ""


class _Version(msgspec.Struct):
    version: int


def dumps(tests: Mapping[str, tuple[Known, ...]]) -> str:
    """The whole file."""
    return "".join(_lines(tests))


def loads(text: str, name: str) -> Tests:
    """What a file holds. Raises InputError if it is none of ours."""
    marker = next((number for number, line in enumerate(text.split("\n"), 1) if line.startswith("<<<<<<< ")), None)
    if marker is not None:
        advice = "Take either side of each, then run: pytest --layout-baseline=update"
        raise InputError(f"{name} holds merge conflict markers, the first in line {marker}.", advice=advice)
    try:
        version = msgspec.json.decode(text, type=_Version).version  # first: a later one may have other fields
        if version > _VERSION:
            advice = f"It needs a newer stridewise: this one reads version {_VERSION}."
            raise InputError(f"{name} has version {version}.", advice=advice)
        found = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, UnicodeError) as error:
        advice = "Mend it, or delete it and run: pytest --layout-baseline=update"
        raise InputError(f"{name} is no baseline of stridewise: {error}.", advice=advice) from None
    if found.version != _VERSION:
        raise InputError(f"{name} has version {found.version}, and this stridewise reads version {_VERSION}.")
    return {test: tuple(findings) for test, findings in found.tests.items()}


def read(path: Path) -> str | None:
    """The text of a file, None if there is none. Raises InputError if it can't be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}.") from None


def write(path: Path, text: str) -> None:
    """Put a text in the place of a file, whole or not at all; makes its folder. Raises InputError if it can't be."""
    path = Path(os.path.realpath(path))
    unfinished = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(handle, "w", encoding="utf-8", newline="\n") as out:
            out.write(text)
        os.chmod(unfinished, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        os.replace(unfinished, path)
    except OSError as error:
        if unfinished is not None:
            with suppress(OSError):
                os.unlink(unfinished)
        raise InputError(f"{path} can't be written: {error.strerror}.") from None


def _lines(tests: Mapping[str, tuple[Known, ...]]) -> Iterator[str]:
    yield f'{{\n  "about": {json.dumps(_ABOUT)},\n  "version": {_VERSION},\n  "tests": {{'
    for number, test in enumerate(sorted(tests)):
        yield f"{',' if number else ''}\n    {_text(test)}: ["
        rows = [f"\n      {_row(each)}" for each in sorted(tests[test])]
        yield f"{','.join(rows)}\n    ]" if rows else "]"
    yield f"{chr(10) + '  ' if tests else ''}}}\n}}\n"


def _row(each: Known) -> str:
    parts = []
    for key, value in msgspec.structs.asdict(each).items():
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        parts.append(f'"{key}": {_text(number)}')
    return f"{{{', '.join(parts)}}}"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
