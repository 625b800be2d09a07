"""Whose line a warning is shown at."""

from __future__ import annotations

import sys
from collections.abc import Collection


def level_outside(packages: Collection[str]) -> int:
    """The `stacklevel` at which the caller warns of the innermost line that is in none of some packages.

    Of the outermost line where all of them are.
    """
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in packages:
        frame, level = frame.f_back, level + 1
    return level
