"""The page of `doctor`: what works on a machine, and what to install for the rest."""

from stridewise.report.content import Contents
from stridewise.report.doctor_words import headline
from stridewise.report.html.model import Figure, Page, Table
from stridewise.results import Ability, Doctor, Extra


def page(doctor: Doctor, contents: Contents) -> Page:
    """Everything is a row of a table: there are no findings."""
    failing = any(row.health == "fails" for row in doctor.abilities)
    return Page(
        command="stridewise doctor",
        verdict=headline(doctor),
        tone="wrong" if not doctor.ok else "look" if failing else "fine",
        figures=(
            Figure(doctor.stridewise, "stridewise"),
            Figure(doctor.torch or "none", "torch", f"built for {doctor.build}" if doctor.build else ""),
            Figure(doctor.python, "Python", doctor.executable),
        ),
        tables=tuple(table for table in (_abilities(doctor.abilities), _extras(doctor.extras)) if table.rows),
        notes=doctor.notes,
    )


def _abilities(rows: tuple[Ability, ...]) -> Table:
    heads = ("what", "", "seen", "needed for", "what to do")
    return Table(
        "What was tried",
        heads,
        tuple((row.name, row.health, row.what, row.needed_for, row.advice or "") for row in rows),
        leading=True,
    )


def _extras(rows: tuple[Extra, ...]) -> Table:
    def versions(row: Extra) -> str:
        return ", ".join(f"{name} {version or 'not installed'}" for name, version in row.versions.items())

    cells = tuple((row.name, versions(row), "" if row.installed else row.install) for row in rows)
    return Table("Extras", ("extra", "packages", "to install"), cells, code=(2,))
