"""What works on this machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from typing import TextIO

import stridewise
from stridewise.api.shown import Shown, written
from stridewise.results import doctor as results


class Doctor(Shown, results.Doctor, frozen=True):
    """What works on this machine, and what to install for the rest; it shows itself."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import doctor as report

        report.render(self, out)

    def to_json(self) -> str:
        """The result as `stridewise doctor --format json` prints it."""
        from stridewise.report import doctor as report

        return written(lambda out: report.render(self, out, format="json"))


def doctor(*, quick: bool = False, progress: Callable[[str], None] | None = None) -> Doctor:
    """What works on this machine: each thing is tried in a process of its own, which takes some 15 seconds.

    `quick` leaves the compiler out, which takes most of that. `progress` is told the name of what is tried, in any
    thread. Needs no torch, of which it says that it is not there.
    """
    from stridewise.checks.machine.installed import extras, torch_version

    torch = torch_version()
    abilities: tuple[results.Ability, ...] = ()
    if torch is not None:
        from stridewise.checks.machine.examine import examine

        abilities = examine(quick=quick, progress=progress)
    seen = next((row for row in abilities if row.name == "torch" and row.health == "works"), None)
    optional = extras()
    notes = [] if optional else ["stridewise is not installed as a package: what its extras take is not known."]
    notes += ["The compiler was not tried: leave --quick out."] if quick and seen else []
    return Doctor(
        stridewise=stridewise.__version__,
        python=platform.python_version(),
        executable=sys.executable,
        torch=torch,
        build=seen.what if seen else None,
        abilities=tuple(row for row in abilities if row is not seen),
        extras=optional,
        notes=tuple(notes),
    )
