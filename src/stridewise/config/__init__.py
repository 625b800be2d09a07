"""What a project and its users ask for: `[tool.stridewise]` in pyproject.toml, budgets, codes."""

from stridewise.config.budget import Budget, parse_budget
from stridewise.config.lint import LintConfig, parse_ignores, parse_patterns
from stridewise.config.project import Config, load_config, project_file, project_root, read_lint_config
from stridewise.config.reading import MOST, codes_of, is_wanted, parse_codes, parse_share

__all__ = [
    "MOST",
    "Budget",
    "Config",
    "LintConfig",
    "codes_of",
    "is_wanted",
    "load_config",
    "parse_budget",
    "parse_codes",
    "parse_ignores",
    "parse_patterns",
    "parse_share",
    "project_file",
    "project_root",
    "read_lint_config",
]
