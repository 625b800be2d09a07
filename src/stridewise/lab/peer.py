"""Libraries that claims are about, and that the lab does without where they are not there."""

from __future__ import annotations

import importlib
from typing import Any


def imported(*names: str) -> list[Any] | str:
    """Modules of such libraries; or why there is none.

    Whatever one raises on import is such a reason: torchvision, built for another torch, raises RuntimeError.
    """
    found = []
    for name in names:
        library = name.partition(".")[0]
        try:
            found.append(importlib.import_module(name))
        except ModuleNotFoundError as error:  # the library itself, or what it needs
            return f"it takes {(error.name or library).partition('.')[0]}, which is not installed here"
        except Exception as error:
            return f"it takes {library}, which can't be imported beside this torch ({type(error).__name__})"
    return found
