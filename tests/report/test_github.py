"""Annotations of GitHub Actions: each line is one command of ours, whatever the program is called."""

import io
import re

from stridewise.report import render

from . import samples

COMMAND = re.compile(r"::(error|warning|notice) ((?:[A-Za-z]+=[^,:\r\n]*,?)+)::([^\r\n]*)")


def rendered(report):
    out = io.StringIO()
    render(report, "github", out, tables=("copies", "modules", "paths"))
    return out.getvalue()


def decoded(text, *escapes):
    for code in (*escapes, "%0A", "%0D", "%25"):
        text = text.replace(code, chr(int(code[1:], 16)))
    return text


def commands(report):
    found = []
    for line in rendered(report).splitlines():
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
    assert lines[1] == "Cost: 24 copies, 31 MB, 1.2 ms, 3.2 % of step time"
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
