"""What a monitor's options may be: said when it is made, not hours later when one is first used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from stridewise.api.monitoring.files import FORMATS
from stridewise.config import Budget
from stridewise.errors import UsageError

Check = Callable[[Any], bool]


def _is_a(kind: type[Any], value: Any) -> bool:
    """Whether it is such a number; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool)


def _whole(least: int) -> Check:
    return lambda value: _is_a(Integral, value) and value >= least


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _above_zero(value: Any) -> bool:
    return _is_a(Real, value) and bool(value > 0)


def _share(value: Any) -> bool:
    return _is_a(Real, value) and bool(0 <= value <= 1)


def _formats(value: Any) -> bool:
    names = (value,) if isinstance(value, str) else value
    return isinstance(names, Iterable) and all(isinstance(name, str) and name in FORMATS for name in names)


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


_OPTIONS: Mapping[str, tuple[Check, str]] = {
    "loader": (
        _optional(lambda value: hasattr(value, "__iter__") or hasattr(value, "__getitem__")),
        "something to loop over, or none",
    ),
    "every": (_optional(_whole(2)), "2 steps or more, or None to record one only"),
    "warmup": (_whole(0), "a number of steps"),
    "max_overhead": (_optional(_above_zero), "a share such as 0.001, or None"),
    "budget": (lambda value: isinstance(value, (Budget, str)), "a budget such as 'copies=0,share=2%'"),
    "on_excess": (lambda value: value in ("warn", "raise"), "'warn' or 'raise'"),
    "on_report": (_optional(callable), "a function of a report and a step, or None"),
    "folder": (_optional(lambda value: isinstance(value, (str, os.PathLike))), "a path, or None"),
    "formats": (_formats, f"one or both of {' and '.join(FORMATS)}"),
    "recordings": (_optional(_flag), "True, False or None"),
    "keep": (_optional(_whole(1)), "a number of steps, or None for all"),
    "library_copies": (_flag, "True or False"),
    "max_ops": (_whole(1), "a number of operators"),
    "min_share": (_share, "a share from 0 to 1, such as 0.01"),
    # Of the trainers' callbacks.
    "at_step": (_optional(_whole(1)), "a step, counted from 1, or None"),
    "beside_checkpoints": (_flag, "True or False"),
}


def check_options(**given: object) -> None:
    """Raise UsageError for the first value that makes no sense."""
    for name, value in given.items():
        check, expected = _OPTIONS[name]
        if not check(value):
            raise UsageError(f"{name} is {value!r}.", expected=f"Expected: {expected}.")
