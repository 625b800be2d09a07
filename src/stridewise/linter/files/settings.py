"""Which rules run for a file, and which of their findings its `per-file-ignores` leave out."""

import functools
import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from stridewise.config import LintConfig, read_lint_config
from stridewise.errors import InputError, UsageError
from stridewise.linter.files.globs import Globs
from stridewise.linter.rule import Rule
from stridewise.linter.rules import UNUSED, all_rules

EXCLUDED = (
    *(".bzr", ".direnv", ".eggs", ".git", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pyenv"),
    *(".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".venv", ".vscode", "__pycache__"),
    *("__pypackages__", "_build", "buck-out", "build", "dist", "node_modules", "site-packages", "venv"),
)
"""What is not looked at unless `exclude` says otherwise: what other linters of Python leave out."""


NOTHING_SAID = LintConfig()


class Settings(Struct, frozen=True):
    """What is asked of one file. Files of a run that have equal settings share one object."""

    codes: tuple[str, ...]
    """The rules that run, in the order of codes."""
    ignored: frozenset[str] = frozenset()
    """Codes whose findings are left out here, as `per-file-ignores` say."""
    unused: bool = True
    """Whether comments that suppress nothing are reported (SW300)."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that run."""
        return _rules(self.codes)


class Projects:
    """The settings of files: the nearest pyproject.toml with `[tool.stridewise]` counts, and the overrides above it.

    What it read is kept as long as it lives: make one for a run. Raises InputError for a pyproject.toml that can't be
    read, and for codes in it that no rule has; UsageError for such codes in the overrides.
    """

    def __init__(self, overrides: LintConfig = NOTHING_SAID) -> None:
        self._overrides = overrides
        self._projects: dict[str, _Project] = {}
        _check_codes(overrides)
        self._none = _Project(LintConfig(), overrides)

    def settings(self, path: str | os.PathLike[str]) -> Settings:
        """The settings of a file."""
        folder, name = os.path.split(os.path.abspath(path))
        return self.of(folder).settings(os.path.join(folder, name), name)

    def of(self, folder: str) -> "_Project":
        """What counts for the files in a folder, given as an absolute path."""
        project = self._projects.get(folder)
        if project is None:
            config = read_lint_config(Path(folder))
            above = os.path.dirname(folder)
            if config is not None:
                _check(config)
                project = _Project(config, self._overrides)
            else:
                project = self._none if above == folder else self.of(above)
            self._projects[folder] = project
        return project


class _Project:
    """A pyproject.toml and the overrides, ready to ask."""

    def __init__(self, config: LintConfig, overrides: LintConfig) -> None:
        self.folder = str(config.folder) if config.folder is not None else None
        """Of the pyproject.toml; None if there is none."""
        enabled = enabled_codes(config, overrides)
        self._codes = tuple(code for code in enabled if code != UNUSED.code)
        self._unused = UNUSED.code in enabled
        self._excluded = _excluded(config, overrides)
        self._ignores = _ignores(config, overrides)
        self._shared: dict[tuple[bool, ...], Settings] = {}

    def excludes(self, path: str, name: str) -> bool:
        """Whether a file or folder is left out, given by its absolute path and the last part of that."""
        return any(globs.match(path, name) for globs in self._excluded)

    def settings(self, path: str, name: str) -> Settings:
        """The settings of a file, given by its absolute path and the last part of that."""
        applied = tuple(globs.match(path, name) is not negated for globs, negated, _ in self._ignores)
        settings = self._shared.get(applied)
        if settings is None:
            named = [codes for (_, _, codes), yes in zip(self._ignores, applied, strict=True) if yes]
            left_out = tuple(code for codes in named for code in codes)
            ignored = frozenset(code for code in (*self._codes, UNUSED.code) if code.startswith(left_out))
            settings = self._shared[applied] = Settings(self._codes, ignored, self._unused)
        return settings


def enabled_codes(*layers: LintConfig) -> tuple[str, ...]:
    """The codes of the rules that run, SW300 among them, when each layer stands above the one before.

    A layer that selects starts anew: what lower ones say counts no more. Within a layer the longest beginning of a code
    decides, and `ignore` of equally long ones.
    """
    states = {UNUSED.code: True} | {rule.code: rule.default for rule in all_rules()}
    for layer in layers:
        chosen, dropped = (*layer.select, *layer.extend_select), (*layer.ignore, *layer.extend_ignore)
        for code, before in states.items():
            on, off = _longest(code, chosen), _longest(code, dropped)
            if on or off:
                states[code] = on > off
            else:
                states[code] = before and not layer.select
    return tuple(sorted(code for code, state in states.items() if state))


def _longest(code: str, prefixes: Iterable[str]) -> int:
    return max((len(prefix) for prefix in prefixes if code.startswith(prefix)), default=0)


def _excluded(config: LintConfig, overrides: LintConfig) -> tuple[Globs, ...]:
    base = overrides if overrides.exclude is not None else config
    patterns = EXCLUDED if base.exclude is None else base.exclude
    given = ((base, patterns), (config, config.extend_exclude), (overrides, overrides.extend_exclude))
    return tuple(Globs(patterns, _folder(layer)) for layer, patterns in given if patterns)


def _ignores(config: LintConfig, overrides: LintConfig) -> list[tuple[Globs, bool, tuple[str, ...]]]:
    base = overrides if overrides.per_file_ignores else config
    given = (
        *((base, *each) for each in base.per_file_ignores),
        *((config, *each) for each in config.extend_per_file_ignores),
        *((overrides, *each) for each in overrides.extend_per_file_ignores),
    )
    return [
        (Globs([pattern.removeprefix("!")], _folder(layer)), pattern.startswith("!"), codes)
        for layer, pattern, codes in given
    ]


def _folder(layer: LintConfig) -> str:
    return os.path.abspath(layer.folder or os.curdir)


def _check(config: LintConfig) -> None:
    try:
        _check_codes(config)
    except UsageError as error:
        assert config.folder is not None
        raise InputError(f"{config.folder / 'pyproject.toml'}: lint: {error.given}") from None


def _check_codes(config: LintConfig) -> None:
    """Raise UsageError for a code that no source rule has: it would do nothing."""
    known = (UNUSED.code, *(rule.code for rule in all_rules()))
    for option in ("select", "extend_select", "ignore", "extend_ignore"):
        _require_known(option, getattr(config, option), known)
    for option in ("per_file_ignores", "extend_per_file_ignores"):
        for _, codes in getattr(config, option):
            _require_known(option, codes, known)


def _require_known(option: str, codes: Iterable[str], known: tuple[str, ...]) -> None:
    for code in codes:
        if not any(name.startswith(code) for name in known):
            raise UsageError(
                f"{option.replace('_', '-')} names {code}, which no source rule has: "
                "`stridewise rule` lists all codes, and those of source rules begin with SW3"
            )


@functools.cache
def _rules(codes: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in all_rules() if rule.code in codes)
