"""What people read of checks, held by snapshots; and what holds of every result: it fits, is plain, and is inert."""

import io
import json

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text

from stridewise.report import checks
from stridewise.report.checks_exchange import of_checks

from . import checked


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def rendered(result, out=None, **options):
    out = io.StringIO() if out is None else out
    checks.render(result, out, **options)
    return out.getvalue()


@pytest.mark.parametrize("name", checked.ALL)
def test_text(name, snapshot):
    assert rendered(checked.ALL[name], cases=True) == snapshot


@pytest.mark.parametrize("name", ["broken", "hazards"])
def test_colours(name, snapshot):
    assert rendered(checked.ALL[name], Tty()) == snapshot


@pytest.mark.parametrize("format", ["github", "junit"])
@pytest.mark.parametrize("name", ["broken", "hazards"])
def test_other_formats(name, format, snapshot):
    assert rendered(checked.ALL[name], format=format) == snapshot


@pytest.mark.parametrize("name", ["broken", "hazards", "loader"])
def test_code_scanning_gets_each_finding(name):
    (run,) = json.loads(rendered(checked.ALL[name], format="sarif"))["runs"]
    found = [(result["ruleId"], result["level"]) for result in run["results"]]
    assert found == [(finding.code, finding.severity) for finding in checked.ALL[name].findings]


@pytest.mark.parametrize("width", [100, 80])
@pytest.mark.parametrize("name", checked.ALL)
def test_lines_fit_and_are_plain_text(name, width):
    programs = {
        line.strip() for snippet in getattr(checked.ALL[name], "snippets", ()) for line in snippet.code.split("\n")
    }
    for line in rendered(checked.ALL[name], width=width, cases=True).split("\n"):
        assert cell_len(line) <= width or line.strip() in programs or "hostile" in name  # a program stays whole
        assert line.isprintable()
        assert line == line.rstrip()


@pytest.mark.parametrize("name", ["broken", "hazards", "loader"])
def test_colour_changes_no_word(name):
    plain = rendered(checked.ALL[name])
    coloured = rendered(checked.ALL[name], Tty())
    assert "\x1b[" in coloured
    assert "\x1b" not in plain
    assert Text.from_ansi(coloured).plain.split() == plain.split()


@pytest.mark.parametrize("format", ["text", "json", "sarif", "junit"])
@pytest.mark.parametrize("name", ["hostile", "hostile_op"])
def test_nobody_obeys_hostile_text(name, format):
    for out in (io.StringIO(), Tty()):
        text = rendered(checked.ALL[name], out, format=format, cases=True)
        assert "\x1b]" not in text
        assert "\x1b[31m[red]" not in text
        assert "\u202e" not in text
        assert not [line for line in text.splitlines() if line.strip().startswith("::") or "##[" in line]


@pytest.mark.parametrize("name", checked.ALL)
def test_json_is_the_result(name):
    result = checked.ALL[name]
    assert msgspec.json.decode(rendered(result, format="json"), type=type(result)) == result
    assert json.loads(rendered(result, format="json"))["schema_version"] == 1


def test_other_programs_get_what_was_compared():
    (first, _) = of_checks(checked.BROKEN).findings
    assert first.message.splitlines()[1:] == list(checked.WRONG.evidence)


@pytest.mark.parametrize(
    ("name", "ok"), [("broken", False), ("good", True), ("refuses", True), ("unclear", False), ("safe", True)]
)
def test_ok_is_without_errors_and_warnings(name, ok):
    assert checked.ALL[name].ok is ok
