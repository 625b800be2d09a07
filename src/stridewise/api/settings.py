"""`[tool.stridewise]` as commands, notebooks and tests take it: held against the rules that there are."""

from __future__ import annotations

from pathlib import Path

from stridewise.analysis.kernel_names import project_pattern
from stridewise.config import Config, load_config, project_file
from stridewise.errors import InputError, UsageError
from stridewise.report.codes import RECORDED, require_kept, require_known


def project_settings(start: Path | None = None) -> Config:
    """Read `[tool.stridewise]` of the nearest pyproject.toml, from `start` (else the current folder) upwards.

    Raises InputError, in one line with the file and the key, for what `config.load_config` refuses, a code that nothing
    which reads it can have, one that is forbidden and hidden, and a pattern of kernels that is none.
    """
    config = load_config(start)
    try:
        require_known("select", config.select)
        require_known("ignore", config.ignore)
        require_known("budget: forbid", config.budget.forbid, RECORDED)
        require_kept(config.budget.forbid, config.select, config.ignore)
        _require_patterns(config)
    except UsageError as error:
        raise InputError(f"{project_file(start)}: {error.in_one_line}") from None
    return config


def _require_patterns(config: Config) -> None:
    try:
        for pattern, cause in config.kernel_patterns.items():
            project_pattern(pattern, cause)
    except UsageError as error:
        raise UsageError(f"kernel-patterns: {error.given}", expected=error.expected) from None
