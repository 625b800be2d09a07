"""Which experiments there are, and which of them somebody means."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Sequence
from functools import cache

from stridewise.errors import UsageError
from stridewise.lab import experiments as package
from stridewise.lab.experiment import Experiment
from stridewise.results.lab import claim_order


def names() -> list[str]:
    """Of all experiments, which are those of their files: none is imported."""
    return [module.name.replace("_", "-") for module in pkgutil.iter_modules(package.__path__)]


@cache
def experiments() -> tuple[Experiment, ...]:
    """All of them, in the article's order."""
    found: list[Experiment] = [
        importlib.import_module(f"{package.__name__}.{name.replace('-', '_')}").EXPERIMENT for name in names()
    ]
    return tuple(sorted(found, key=lambda each: (min(map(claim_order, each.claims)), each.name)))


def selected(wanted: Sequence[str]) -> tuple[Experiment, ...]:
    """Those with these names, claims (`C58`) or sections (`3`, `3.2`); all of them if none is named.

    Raises UsageError for what is none of these.
    """
    found = {each.name for name in wanted for each in _named(name)}
    return tuple(each for each in experiments() if not wanted or each.name in found)


def _named(name: str) -> list[Experiment]:
    every = experiments()
    if re.fullmatch(r"[Cc]\d+", name):
        found = [each for each in every if name.upper() in each.claims]
    elif re.fullmatch(r"\d+(\.\d+)?", name):
        found = [each for each in every if any(_within(claim.section, name) for claim in each.claims.values())]
    else:
        found = [each for each in every if each.name == name]
    if not found:
        near = difflib.get_close_matches(name, [each.name for each in every], 1)
        raise UsageError(
            f"The lab has no experiment, claim or section named {name}{f'; did you mean {near[0]}?' if near else '.'}",
            advice="`stridewise lab --list` names all.",
        )
    return found


def _within(section: str, part: str) -> bool:
    return section == part or section.startswith(f"{part}.")
