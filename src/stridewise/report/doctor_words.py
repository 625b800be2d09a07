"""What works on a machine, in a sentence."""

from stridewise.report.text import one_line
from stridewise.results.doctor import Doctor

_NO_TORCH = (
    "torch is not installed: install it as https://pytorch.org/get-started says. Without it, lint, explain and"
    " rule work, and traces and reports can be read."
)


def headline(doctor: Doctor) -> str:
    """Say in one sentence what works."""
    if doctor.torch is None:
        return _NO_TORCH
    failing = [one_line(row.name) for row in doctor.abilities if row.health == "fails"]
    if not doctor.ok:
        return f"Nothing can be recorded here: {_listed(failing)} {_verb(failing)}."
    if failing:
        return f"Recording works; {_listed(failing)} {_verb(failing)}."
    return "All works that this machine has."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(names: list[str]) -> str:
    return "does not work" if len(names) == 1 else "do not work"
