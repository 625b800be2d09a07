"""What people read, held by snapshots; and what holds for every report: it fits, is plain in a pipe, and is inert."""

import io
import re

import msgspec
import pytest
from rich.cells import cell_len

from stridewise.report import terminal
from stridewise.results import ModuleRow

from . import samples

NAMES = [
    "ON_A_DEVICE",
    "RICH",
    "HEALTHY",
    "NO_COPY",
    "UNMEASURED",
    "HOSTILE",
    "LONG",
    "EVERYTHING",
    "FOLDED",
    "IGNORED",
    "DEVICE",
    "WRONG",
    "NO_STRIDES",
]


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def render(name, out=None, **options):
    out = io.StringIO() if out is None else out
    tables = {"EVERYTHING": ("copies", "kernels", "modules"), "ON_A_DEVICE": ("kernels",)}.get(name, ())
    terminal.render(getattr(samples, name), out, tables=tables, **options)
    return out.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_snapshot(name, snapshot):
    assert render(name) == snapshot


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [100, 80])
def test_lines_fit_and_are_plain_text(name, width):
    for line in render(name, width=width).split("\n"):
        assert cell_len(line) <= width
        assert line.isprintable()
        assert line == line.rstrip()


def test_colour_is_for_terminals_that_want_it(monkeypatch):
    assert "\x1b[" in render("RICH", Tty())
    assert "\x1b" not in render("RICH")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in render("RICH")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in render("RICH", Tty())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in render("RICH", Tty())


def test_colour_changes_no_word():
    from rich.text import Text

    assert Text.from_ansi(render("RICH", Tty())).plain.split() == render("RICH").split()


def test_hostile_text_colours_nothing_and_obeys_nobody():
    shown = render("HOSTILE", Tty())
    assert "\x1b]" not in shown
    assert "\x1b[31m[red]" not in shown
    assert "[red]x[/red]" in shown
    lines = [line.strip() for line in render("HOSTILE").splitlines()]
    assert not [line for line in lines if line.startswith("::") or "##[" in line]


def test_a_stream_that_cannot_take_unicode_gets_ascii():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    terminal.render(samples.RICH, out)
    out.flush()
    text = raw.getvalue().decode("ascii")
    assert "42 | x = self.embed(mel).transpose(1, 2)" in text
    assert "`- ... 5 more" in text
    assert "gr\\xf6\\xdfer" in text


def test_a_healthy_report_is_one_sentence():
    assert render("HEALTHY") == "Layout is fine: it costs 0.03 % of a step (2 copies, 3.1 kB).\n"


def test_nothing_that_was_not_measured_is_shown_as_zero():
    text = render("UNMEASURED")
    assert "the time was not measured" in text
    assert "%" not in text
    assert not re.search(r"\b0 (ns|%|B|copies)", text)


# --------------------------------------------------------------------------------------------------------- tables


def table(report, name, width):
    out = io.StringIO()
    terminal.render(report, out, tables=[name], width=width)
    return [line.strip() for line in out.getvalue().splitlines()]


WHY = "a reason of many words, which say at some length why a copy such as this one is no fault of layout"


def copied(**other):
    first = msgspec.structs.replace(samples.EVERYTHING.copies[0], taxed=False, reason=WHY)
    return msgspec.structs.replace(samples.EVERYTHING, copies=(first, msgspec.structs.replace(first, **other)))


@pytest.mark.parametrize("width", [80, 100, 160, 220])
def test_the_reason_of_a_copy_is_never_cut(width):
    lines = table(copied(), "copies", width)
    assert f"; not counted: {WHY}" in " ".join(lines)
    assert all(cell_len(line) <= width for line in lines)
    assert any(line.endswith(WHY) for line in lines) == (width == 220)


def test_prose_stays_narrow_where_tables_are_wide():
    assert table(samples.EVERYTHING, "copies", 220)[:3] == table(samples.EVERYTHING, "copies", 100)[:3]


def test_copies_that_read_the_same_are_one_row():
    lines = table(copied(call="another.function", step=None), "copies", 220)
    assert [line.partition("×")[0] for line in lines if "not counted" in line] == ["2"]
    lines = table(copied(reason="outside the steps"), "copies", 220)
    assert [line.partition("×")[0] for line in lines if "not counted" in line] == ["1", "1"]


def test_modules_that_are_made_for_each_call_are_one_row():
    made = ModuleRow("net.<GELU>", "GELU", 1, 1, ("contiguous 2x3",), ("contiguous 2x3",), False, False)
    other = msgspec.structs.replace(made, inputs=("contiguous 4x3",))
    named = msgspec.structs.replace(made, module="net.act", calls=3)
    report = msgspec.structs.replace(samples.RICH, modules=(made, named, other, made, made, named))
    lines = table(report, "modules", 100)
    assert [line.split("  ")[0] for line in lines if line.startswith("net")] == [
        "net.<GELU>, 3 of them",
        "net.act ×3",
        "net.<GELU>",
        "net.act ×3",
    ]
    assert '"3 of them" were made while the model ran.' in " ".join(lines)


class Wide(io.StringIO):
    """A stream that is a descriptor, as a pipe is."""

    def fileno(self) -> int:
        return 0


@pytest.mark.parametrize(("asked", "is_whole"), [("220", True), ("80", False), ("0", False), ("wide", False)])
def test_columns_say_how_wide_a_table_is(asked, is_whole, monkeypatch):
    def none(stream):
        raise OSError("no terminal")

    monkeypatch.setattr("os.get_terminal_size", none)
    monkeypatch.setenv("COLUMNS", asked)
    out = Wide()
    terminal.render(copied(), out, tables=["copies"])
    assert any(line.endswith(WHY) for line in out.getvalue().splitlines()) == is_whole
