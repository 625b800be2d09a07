"""Annotations of GitHub Actions: each line is one command of ours, whatever the program is called."""

import io
import re

import pytest

from stridewise.findings import Site
from stridewise.report import github, lint, render

from . import lints, samples

COMMAND = re.compile(r"::(error|warning|notice) ((?:[A-Za-z]+=[^,:\r\n]*,?)+)::([^\r\n]*)")


def rendered(report):
    out = io.StringIO()
    render(report, "github", out, tables=("copies", "modules", "paths"))
    return out.getvalue()


def decoded(text, *escapes):
    for code in (*escapes, "%0A", "%0D", "%25"):
        text = text.replace(code, chr(int(code[1:], 16)))
    return text


def linted(run):
    out = io.StringIO()
    lint.render(run, out, format="github", read=lints.read)
    return out.getvalue()


def commands(text):
    found = []
    for line in (text if isinstance(text, str) else rendered(text)).splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        properties = dict(part.split("=", 1) for part in match[2].split(","))
        values = {key: decoded(value, "%3A", "%2C") for key, value in properties.items()}
        found.append((match[1], values, decoded(match[3])))
    return found


def test_a_finding_is_an_annotation():
    command, properties, message = commands(samples.RICH)[0]
    assert command == "warning"
    assert properties == {
        "file": "model.py",
        "line": "42",
        "endLine": "42",
        "col": "13",
        "endColumn": "44",
        "title": "SW101 strided-stream",
    }
    lines = message.splitlines()
    assert lines[0] == samples.STREAM.message
    assert lines[1] == "Cost: 24 copies, 31 MB, 1.2 ms, 3.2 % of step time."
    assert lines[-1] == samples.STREAM.advice


def test_a_site_without_a_file_has_no_place():
    assert commands(samples.RICH)[1][1] == {"title": "SW101 strided-stream"}


def test_the_sentence_and_the_notes_come_last():
    *_, sentence, note = commands(samples.RICH)
    assert sentence[2].startswith("Layout costs 4.1 % of a step")
    assert note == ("notice", {"title": "stridewise"}, samples.RICH.notes[0])


def test_severities():
    findings = [samples.finding(severity=severity) for severity in ("error", "warning", "note")]
    assert [command for command, *_ in commands(samples.report(findings))][:3] == ["error", "warning", "notice"]


def test_hostile_text_stays_inside_its_command():
    text = rendered(samples.HOSTILE)
    assert len(text.splitlines()) == 3
    assert text.replace("\n", "").isprintable()
    assert commands(samples.HOSTILE)
    assert "%250A" in text


def test_lint():
    found = commands(linted(lints.SAFETIES))
    assert [command for command, *_ in found] == ["warning", "error", "notice", "warning", "notice"]
    _, properties, message = found[1]
    assert properties == {
        "file": "model.py",
        "line": "7",
        "endLine": "7",
        "col": "9",
        "endColumn": "23",
        "title": "SW301 discarded-result",
    }
    assert message.splitlines() == [
        lints.DISCARDED.message,
        "Bind the result, or delete the statement.",
        "Fix: `x = x.contiguous()` (unsafe, applied by --fix --unsafe-fixes)",
    ]
    assert found[2][2].splitlines()[-1] == "Fix: `return self.head(x.flatten(1))` (shown only)"
    assert found[-1][2].startswith("4 findings in 2 of 120 files (33,204 lines): ")


def test_files_that_were_not_read_are_errors_of_the_file():
    first, second, sentence = commands(linted(lints.UNREAD))
    assert first == (
        "error",
        {"file": "setup.py", "line": "3", "title": "stridewise lint"},
        lints.UNREAD.unread[0].reason,
    )
    assert second[1] == {"file": "secret.py", "title": "stridewise lint"}
    assert sentence[0] == "notice"


def test_hostile_sources_stay_inside_their_commands():
    text = linted(lints.HOSTILE)
    assert text.replace("\n", "").isprintable()
    assert len(commands(text)) == 4


@pytest.mark.parametrize(("separator", "name"), [("/", "back\\slash.py"), ("\\", "back/slash.py")])
def test_a_backslash_is_a_separator_only_where_it_is_one(monkeypatch, separator, name):
    monkeypatch.setattr("os.sep", separator)
    text = github.annotation("error", "t", "m", Site("back\\slash.py", 1))
    assert text == f"::error file={name},line=1,title=t::m\n"
