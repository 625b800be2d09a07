"""Which kind of artefact a file is, told by what its archive holds; nothing of it is run or unpickled here."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from stridewise.errors import UsageError
from stridewise.results.artefacts import ArtefactKind

_EXPECTED = (
    "Expected: a .pt2 of torch.export.save or of AOTInductor (aoti_compile_and_package), or a TorchScript file of "
    "torch.jit.save."
)
_AOTI = "data/aotinductor/"
_CHECK = re.compile(r'input_handles\[(\d+)\]: unmatched (dim|stride) value at (\d+), "\s*<<\s*"expected: (-?\d+)')
_DTYPE = re.compile(r"input_handles\[(\d+)\]: unmatched dtype.*?\(at::k(\w+)\)", re.DOTALL)

_MOST_INPUTS = 10_000
"""More no program has: such a number is no input's."""


class Baked(Struct, frozen=True):
    """What the checks in an AOTInductor package's wrapper say of one input; sizes that may change are missing."""

    sizes: dict[int, int]
    strides: dict[int, int]
    dtype: str | None
    """As ATen calls it: `Float`."""


def kind_of(path: Path) -> ArtefactKind:
    """Raises UsageError, with what the file seems to be, for what is no artefact."""
    with _opened(path) as archive:
        names = _names(archive)
    if any(name.startswith(_AOTI) for name in names):
        return "AOTInductor package"
    if any(name.startswith("models/") for name in names) or "serialized_exported_program.json" in names:
        return "exported program"
    if "constants.pkl" in names and any(name.startswith("code/") for name in names):
        return "TorchScript module"
    if "data.pkl" in names:
        raise UsageError(
            f"{path} was written by torch.save: it holds values, such as a state_dict, and no program.",
            expected=_EXPECTED,
        )
    raise UsageError(f"{path} is a zip archive, but no exported program.", expected=_EXPECTED)


def versions_of(path: Path, kind: ArtefactKind) -> dict[str, str]:
    """What the archive tells of how it was made."""
    with _opened(path) as archive:
        names = _names(archive)
        if kind == "exported program":
            found = next((name for name in names if name.startswith("models/") and name.endswith(".json")), None)
            told = _json(archive, names[found]) if found else {}
            return {"torch": str(told["torch_version"])} if told.get("torch_version") else {}
        if kind == "AOTInductor package":
            found = next((name for name in names if name.endswith("wrapper_metadata.json")), None)
            told = _json(archive, names[found]) if found else {}
            return {key.removeprefix("AOTI_").lower(): str(value) for key, value in told.items() if value}
        version = archive.read(names["version"]).decode(errors="replace").strip() if "version" in names else ""
        return {"format": version} if version else {}


def baked_of(path: Path) -> tuple[Baked, ...]:
    """What an AOTInductor package was made for, by input; nothing if the source of its wrapper was not packed."""
    with _opened(path) as archive:
        names = _names(archive)
        own = f"{_AOTI}{model_of(path)}/"
        found = next((name for name in names if name.startswith(own) and name.endswith("wrapper.cpp")), None)
        text = archive.read(names[found]).decode(errors="replace") if found else ""
    by_input: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
    dtypes = {int(at): name for at, name in _DTYPE.findall(text)}
    for at, what, dim, value in _CHECK.findall(text):
        sizes, strides = by_input.setdefault(int(at), ({}, {}))
        (sizes if what == "dim" else strides)[int(dim)] = int(value)
    count = 1 + max((at for at in (*by_input, *dtypes) if at < _MOST_INPUTS), default=-1)
    return tuple(Baked(*by_input.get(at, ({}, {})), dtypes.get(at)) for at in range(count))


def model_of(path: Path) -> str:
    """The name of the model in an AOTInductor package: `model`, or the first of others."""
    with _opened(path) as archive:
        found = [name.removeprefix(_AOTI).partition("/")[0] for name in _names(archive) if name.startswith(_AOTI)]
    return "model" if "model" in found else found[0]


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", expected=_EXPECTED)
    if not path.is_file():
        raise UsageError(f"There is no file {path}.", expected=_EXPECTED)
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError) as error:
        raise UsageError(f"{path} {_why_no_zip(path, error)}.", expected=_EXPECTED) from None


def _why_no_zip(path: Path, error: Exception) -> str:
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as fault:
        return f"can't be read: {fault.strerror or fault}"
    if not start:
        return "is empty"
    if start.startswith(b"PK"):
        return f"is a zip archive that is cut off or damaged ({error})"
    if start.startswith(b"\x80"):
        return "is a pickle, and no exported program"
    return "is no zip archive, as exported programs are"


def _names(archive: zipfile.ZipFile) -> dict[str, str]:
    """Names of entries, without the folder that all of them are in, and as they stand."""
    found = archive.namelist()
    top = {name.partition("/")[0] for name in found}
    nested = len(top) == 1 and all("/" in name for name in found)
    return {name.partition("/")[2] if nested else name: name for name in found}


def _json(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    try:
        told = json.loads(archive.read(name))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
