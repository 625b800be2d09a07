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
from stridewise.config.reading import MOST, Key, Keys, count, flag, name, parse_share, read_codes, read_table
from stridewise.errors import InputError, UsageError


class Config(Struct, frozen=True):
    """`[tool.stridewise]`, with defaults for what it does not say. `lint` looks at nothing but its own table."""

    select: tuple[str, ...] = ()
    """Codes that reports of recordings show, or beginnings of codes; empty for all."""
    ignore: tuple[str, ...] = ()
    """Codes that they leave out."""
    min_share: float = 0.001
    """Findings below this share of a step fold into one line."""
    steps: int = 3
    """How many steps of a script are recorded."""
    warmup: int = 2
    """How many whole steps pass before that."""
    module_step: str | None = None
    """A step is one call of this module."""
    library_copies: bool = False
    """Copies inside oneDNN are recorded too, which slows the run."""
    max_ops: int = 200_000
    """Recording ends after about so many operators, and the program goes on."""
    budget: Budget = Budget()
    """What layout may cost in a step."""
    kernel_patterns: dict[str, str] = {}
    """Regular expressions for names of kernels that change layout, and their causes: see `results.Cause`."""
    lint: LintConfig = LintConfig()
    """What `lint` is asked."""


def load_config(start: Path | None = None) -> Config:
    """Read `[tool.stridewise]` of the nearest pyproject.toml, from `start` (else the current folder) upwards.

    Raises `InputError` for a file that is not TOML, an unknown key, or a value that cannot be meant.
    """
    file = project_file(start)
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
    file = project_file(start)
    return file.parent if file is not None else (start or Path.cwd()).absolute()


def project_file(start: Path | None = None) -> Path | None:
    """The nearest pyproject.toml from `start` (else the current folder) upwards, if there is one."""
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
    except ValueError as error:  # a number of more digits than Python reads is one too
        raise InputError(f"{file} is not TOML: {error}") from None
    except RecursionError:
        raise InputError(f"{file} can't be read: it is nested too deeply") from None


def _section(document: Mapping[str, Any]) -> object:
    tool = document.get("tool")
    return tool.get("stridewise") if isinstance(tool, dict) else None


def _config(file: Path, document: Mapping[str, Any]) -> Config:
    section = _section(document)
    try:
        return Config(**read_table({} if section is None else section, CONFIG_KEYS, "[tool.stridewise]", _ELSEWHERE))
    except UsageError as error:
        raise InputError(f"{file}: {error.in_one_line}") from None


def _patterns(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(cause, str) for cause in value.values()):
        raise UsageError(f'{value!r} is not a table such as {{ "my_transpose_.*" = "transpose" }}')
    return dict(value)


CONFIG_KEYS: Keys = {
    "select": Key("select", read_codes, "a list of codes"),
    "ignore": Key("ignore", read_codes, "a list of codes"),
    "min-share": Key("min_share", parse_share, 'a percentage such as `"2%"`, or a fraction'),
    "steps": Key("steps", count(1), f"a whole number from 1 to {MOST:_}"),
    "warmup": Key("warmup", count(0), f"a whole number from 0 to {MOST:_}"),
    "module-step": Key("module_step", name, "a path in the model, or a class name"),
    "library-copies": Key("library_copies", flag, "`true` or `false`"),
    "max-ops": Key("max_ops", count(1), f"a whole number from 1 to {MOST:_}"),
    "budget": Key("budget", read_budget, "a budget, as a text or a table"),
    "kernel-patterns": Key("kernel_patterns", _patterns, "a table of causes by regular expressions"),
    "lint": Key("lint", read_lint, "a table"),
}
_ELSEWHERE = dict.fromkeys(LINT_KEYS, "[tool.stridewise.lint] has it")
