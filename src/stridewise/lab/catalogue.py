"""Which experiments there are, and which of them somebody means."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Sequence
from functools import cache

from msgspec import structs

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

    Of one that a claim or a section names, only those claims are told. Raises UsageError for what is none of these.
    """
    if not isinstance(wanted, (list, tuple)) or not all(isinstance(name, str) for name in wanted):
        raise UsageError(f'The lab takes names in a list, such as ["C58", "copy-cost"]: not {wanted!r}.')
    if not wanted:
        return experiments()
    told: dict[str, set[str]] = {}
    for name in wanted:
        for experiment, claims in _named(name).items():
            told.setdefault(experiment, set()).update(claims)
    return tuple(structs.replace(each, told=frozenset(told[each.name])) for each in experiments() if each.name in told)


def _named(name: str) -> dict[str, set[str]]:
    """Experiments, and which of their claims are meant."""
    every = experiments()
    if not name.strip():
        raise UsageError("A name is empty.", advice="`stridewise lab --list` names all.")
    if re.fullmatch(r"[Cc]\d{1,9}", name, re.ASCII):
        number = f"C{int(name[1:])}"
        meant = {each.name: {number} & set(each.claims) for each in every}
    elif re.fullmatch(r"\d+(\.\d+)?", name, re.ASCII):
        meant = {
            each.name: {number for number, claim in each.claims.items() if _within(claim.section, name)}
            for each in every
        }
    else:
        meant = {each.name: set(each.claims) for each in every if each.name == name}
    found = {experiment: claims for experiment, claims in meant.items() if claims}
    if not found:
        known = [each.name for each in every]
        near = [each for each in known if name and name in each] or difflib.get_close_matches(name, known, 1)
        raise UsageError(
            f"The lab has no experiment, claim or section named {name}{f'; did you mean {near[0]}?' if near else '.'}",
            advice="`stridewise lab --list` names all.",
        )
    return found


def _within(section: str, part: str) -> bool:
    return section == part or section.startswith(f"{part}.")
