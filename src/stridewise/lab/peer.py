"""Libraries that claims are about, and that the lab does without where they are not there."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stridewise.lab.bench import Bench


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


def needed(bench: Bench, predictions: Iterable[tuple[str, str]], *names: str) -> list[Any] | None:
    """The modules that predictions, each a claim and a text, take; None, and they are untested, if one is missing."""
    found = imported(*names)
    if isinstance(found, str):
        for claim, text in predictions:
            bench.untested(claim, text, found)
        return None
    return found
