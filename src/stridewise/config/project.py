"""What a project asks for: `[tool.stridewise]` in its pyproject.toml."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from stridewise.config.budget import Budget, read_budget
from stridewise.config.lint import LINT_KEYS, LintConfig, read_lint
from stridewise.config.reading import Keys, count, flag, name, parse_share, read_codes, read_table
from stridewise.errors import InputError, UsageError


class Config(Struct, frozen=True):
    """`[tool.stridewise]`, with defaults for what it does not say. `lint` looks at nothing but its own table."""

    select: tuple[str, ...] = ()
    """Codes that reports of recordings show, or beginnings of codes; empty for all."""
    ignore: tuple[str, ...] = ()
    min_share: float = 0.001
    """Findings below this share of a step fold into one line."""
    steps: int = 3
    warmup: int = 2
    module_step: str | None = None
    library_copies: bool = False
    max_ops: int = 200_000
    budget: Budget = Budget()
    kernel_patterns: dict[str, str] = {}
    """Regular expressions for names of kernels that change layout, and their causes: see `results.Cause`."""
    lint: LintConfig = LintConfig()


def load_config(start: Path | None = None) -> Config:
    """Read `[tool.stridewise]` of the nearest pyproject.toml, from `start` (else the current folder) upwards.

    Raises `InputError` for a file that is not TOML, an unknown key, or a value that cannot be meant.
    """
    file = _project_file(start)
    return Config() if file is None else _config(file, _document(file, _content(file)))


def read_lint_config(folder: Path) -> LintConfig | None:
    """Read `[tool.stridewise.lint]` of the pyproject.toml in a folder; None unless that has something for stridewise.

    Raises `InputError` as `load_config` does.
    """
    file = folder / "pyproject.toml"
    if not os.path.isfile(file):
        return None
    content = _content(file)
    # A file of somebody else's that is broken, as fixtures of tests are, is none of our business.
    if b"stridewise" not in content:
        return None
    document = _document(file, content)
    if _section(document) is None:
        return None
    return msgspec.structs.replace(_config(file, document).lint, folder=folder.absolute())


def project_root(start: Path | None = None) -> Path:
    """The folder of the nearest pyproject.toml from `start` (else the current folder) upwards; without one, `start`."""
    file = _project_file(start)
    return file.parent if file is not None else (start or Path.cwd()).absolute()


def _project_file(start: Path | None) -> Path | None:
    try:
        folder = (start or Path.cwd()).absolute()
    except FileNotFoundError:
        raise UsageError("the current folder is gone") from None
    candidates: Iterator[Path] = (parent / "pyproject.toml" for parent in (folder, *folder.parents))
    return next((path for path in candidates if os.path.isfile(path)), None)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from None


def _document(file: Path, content: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not TOML: {error}") from None
    except RecursionError:
        raise InputError(f"{file} can't be read: it is nested too deeply") from None


def _section(document: Mapping[str, Any]) -> object:
    tool = document.get("tool")
    return tool.get("stridewise") if isinstance(tool, dict) else None


def _config(file: Path, document: Mapping[str, Any]) -> Config:
    section = _section(document)
    try:
        return Config(**read_table({} if section is None else section, _KEYS, "[tool.stridewise]", _ELSEWHERE))
    except UsageError as error:
        raise InputError(f"{file}: {error.given}", expected=error.expected) from None


def _patterns(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(cause, str) for cause in value.values()):
        raise UsageError(f'{value!r} is not a table such as {{ "my_transpose_.*" = "transpose" }}')
    return dict(value)


_KEYS: Keys = {
    "select": ("select", read_codes),
    "ignore": ("ignore", read_codes),
    "min-share": ("min_share", parse_share),
    "steps": ("steps", count(1)),
    "warmup": ("warmup", count(0)),
    "module-step": ("module_step", name),
    "library-copies": ("library_copies", flag),
    "max-ops": ("max_ops", count(1)),
    "budget": ("budget", read_budget),
    "kernel-patterns": ("kernel_patterns", _patterns),
    "lint": ("lint", read_lint),
}
_ELSEWHERE = dict.fromkeys(LINT_KEYS, "[tool.stridewise.lint] has it")
