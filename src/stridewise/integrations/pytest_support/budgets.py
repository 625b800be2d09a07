"""What `layout_budget` and `record_layout` take: one grammar, that of the command line and of pyproject.toml."""

from collections.abc import Mapping
from typing import Any

import pytest

from stridewise.config import Budget, parse_budget
from stridewise.config.budget import read_budget
from stridewise.errors import UsageError
from stridewise.report.codes import require_known

MARKER = "layout_budget"
_EXAMPLE = 'such as copies=0, bytes="1MB", share="2%", or one text: "copies=0,bytes=1MB"'


def has_fixture(item: pytest.Item) -> bool:
    """Whether a test records blocks of its own."""
    return "record_layout" in getattr(item, "fixturenames", ())


def budget_of(item: pytest.Item) -> Budget | None:
    """The budget of a test by the marker nearest to it, None without one. Raises UsageError for one with a mistake."""
    mark = item.get_closest_marker(MARKER)
    return None if mark is None else read(mark.args, mark.kwargs)


def read(args: tuple[Any, ...], limits: Mapping[str, Any]) -> Budget:
    """Read what a call of either was given. Raises UsageError: nothing, both forms, or a limit that is none."""
    if len(args) > 1 or (args and (limits or not isinstance(args[0], str | Budget))):
        raise UsageError(f"it takes limits by name, {_EXAMPLE}")
    if args:
        budget = args[0] if isinstance(args[0], Budget) else parse_budget(args[0])
    else:
        given = {key: list(value) if isinstance(value, tuple | set) else value for key, value in limits.items()}
        budget = read_budget(given)
    if budget == Budget():
        raise UsageError(f"it has no limit: give it some, {_EXAMPLE}")
    require_known("forbid", budget.forbid, ("recordings",))
    return budget
