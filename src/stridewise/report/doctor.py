"""What works on this machine, as text: a sentence, a row for each thing that was tried, and the extras."""

from collections.abc import Iterator
from typing import Literal, TextIO

from rich.cells import cell_len
from rich.text import Text

from stridewise.report import html, json
from stridewise.report.console import write
from stridewise.report.doctor_words import headline
from stridewise.report.prose import column, hang, quote
from stridewise.report.text import inert, one_line, shorten
from stridewise.results.doctor import Ability, Doctor, Extra, Health

DoctorFormat = Literal["text", "json", "html"]

_STYLES: dict[Health, str] = {"works": "green", "fails": "bold red", "absent": "yellow"}
_NAME = 16
_HEALTH = max(map(len, _STYLES))


def render(
    doctor: Doctor,
    out: TextIO,
    *,
    format: DoctorFormat = "text",
    color: bool | None = None,
    width: int | None = None,
) -> None:
    """Write it as text of at most 100 columns, as JSON, or as a page."""
    if format == "json":
        out.write(json.dumps(doctor))
    elif format == "html":
        html.render(doctor, out)
    else:
        write(lambda columns: _lines(doctor, columns), out, color=color, width=width)


def _lines(doctor: Doctor, width: int) -> Iterator[Text]:
    style = "bold green" if doctor.ok and all(row.health != "fails" for row in doctor.abilities) else "bold"
    yield from hang("", quote(headline(doctor), style), width)
    yield Text()
    yield Text(f"stridewise  {inert(doctor.stridewise)}")
    yield from hang("Python      ", Text(f"{inert(doctor.python)}, {inert(doctor.executable)}"), width)
    if doctor.torch is not None:
        build = f", built for {one_line(doctor.build)}" if doctor.build else ""
        yield from hang("torch       ", Text(f"{inert(doctor.torch)}{build}"), width)
    if doctor.abilities:
        yield Text()
        yield from _abilities(doctor.abilities, width)
    if doctor.extras:
        yield Text()
        yield from _extras(doctor.extras, width)
    for note in doctor.notes:
        yield Text()
        yield from hang("note: ", quote(note), width, "bold cyan")


def _abilities(rows: tuple[Ability, ...], width: int) -> Iterator[Text]:
    names = [shorten(one_line(row.name), _NAME) for row in rows]
    cells = max(map(cell_len, names))
    for row, name in zip(rows, names, strict=True):
        label = f"{row.health:<{_HEALTH}}  {column(name, cells)}  "
        first, *others = hang(label, quote(one_line(row.what)), width)
        first.stylize(_STYLES[row.health], 0, len(row.health))
        yield first
        yield from others
        if row.health == "fails":
            yield from hang(" " * len(label), Text(f"Needed for: {row.needed_for}."), width)
        if row.advice and row.health != "works":
            yield from hang(" " * len(label), Text.assemble(("fix ", "bold"), one_line(row.advice)), width)


def _extras(rows: tuple[Extra, ...], width: int) -> Iterator[Text]:
    cells = max(cell_len(row.name) for row in rows)
    yield Text("Extras", "bold")
    for row in rows:
        packages = [f"{name} {version}" for name, version in row.versions.items() if version is not None]
        said = ", ".join(packages) if row.installed else row.install
        if packages and not row.installed:
            said += f" (there: {', '.join(packages)})"
        yield from hang(f"  {column(row.name, cells)}  ", Text(inert(said), "" if row.installed else "dim"), width)
