"""What a project asks of `lint`: `[tool.stridewise.lint]` in its pyproject.toml."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from stridewise.config.reading import Key, Keys, parse_codes, read_codes, read_table
from stridewise.errors import UsageError

Patterns = tuple[str, ...]
Ignores = tuple[tuple[str, tuple[str, ...]], ...]


class LintConfig(Struct, frozen=True):
    """`[tool.stridewise.lint]`, or what the command line says in its place. Empty is what is not said.

    Codes may be beginnings of codes: of those that fit a rule the longest decides, and of equally long ones `ignore`.
    Patterns without a slash fit the name of a file or a folder; others a path relative to `folder`. Their `*` and `**`
    cross slashes, as ruff's do.
    """

    folder: Path | None = None
    """Absolute: what the patterns are relative to. None for the current folder."""
    select: tuple[str, ...] = ()
    """Run these rules only, on by default or not; empty for those that are on by default."""
    extend_select: tuple[str, ...] = ()
    """Run these too."""
    ignore: tuple[str, ...] = ()
    """Do not run these."""
    extend_ignore: tuple[str, ...] = ()
    """Nor these."""
    per_file_ignores: Ignores = ()
    """Codes to leave out in files that fit a pattern; in all others if it begins with `!`."""
    extend_per_file_ignores: Ignores = ()
    """More of them."""
    exclude: Patterns | None = None
    """Files and folders that are not looked at, in the place of the usual ones: `.venv`, `build` and others."""
    extend_exclude: Patterns = ()
    """Files and folders that are not looked at either."""


def parse_patterns(texts: Iterable[str]) -> Patterns:
    """Read patterns of files, of which a text may hold several with commas."""
    return tuple(dict.fromkeys(part.strip() for text in texts for part in _split(text) if part.strip()))


def parse_ignores(texts: Iterable[str]) -> Ignores:
    """Read `PATTERN:CODE` for the command line, several with commas. Raises `UsageError`."""
    found: dict[str, list[str]] = {}
    for part in parse_patterns(texts):
        pattern, colon, code = (piece.strip() for piece in part.rpartition(":"))
        if not colon or not pattern or not code:
            raise UsageError(f"`{part}` is not a pattern and a code such as tests/*:SW301")
        found.setdefault(pattern, []).append(code)
    return tuple((pattern, parse_codes(codes)) for pattern, codes in found.items())


def read_lint(value: object) -> LintConfig:
    """Read the table. Raises `UsageError` for an unknown key, or a value that cannot be meant."""
    return LintConfig(**read_table(value, LINT_KEYS, "[tool.stridewise.lint]"))


def _patterns(value: object) -> Patterns:
    if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
        raise UsageError(f'{value!r} is not a list of patterns such as ["tests/*", "setup.py"]')
    return tuple(dict.fromkeys(value))


def _ignores(value: object) -> Ignores:
    if not isinstance(value, dict) or not all(pattern.strip("! ") for pattern in value):
        raise UsageError(f'{value!r} is not a table such as {{ "tests/*" = ["SW301"] }}')
    return tuple((pattern, read_codes(codes)) for pattern, codes in value.items())


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no braces: `{a,b}.py` is one pattern."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


LINT_KEYS: Keys = {
    "select": Key("select", read_codes, "a list of codes"),
    "extend-select": Key("extend_select", read_codes, "a list of codes"),
    "ignore": Key("ignore", read_codes, "a list of codes"),
    "extend-ignore": Key("extend_ignore", read_codes, "a list of codes"),
    "per-file-ignores": Key("per_file_ignores", _ignores, "a table of codes by patterns"),
    "extend-per-file-ignores": Key("extend_per_file_ignores", _ignores, "a table of codes by patterns"),
    "exclude": Key("exclude", _patterns, "a list of patterns"),
    "extend-exclude": Key("extend_exclude", _patterns, "a list of patterns"),
}
