"""SARIF 2.1.0 as code scanning reads it."""

import io
import json

import pytest

from stridewise import __version__
from stridewise.analysis.rules import all_rules
from stridewise.findings import Edit, Site
from stridewise.report import lint, render, repair, sarif
from stridewise.report.content import Contents
from stridewise.report.exchange import Fix
from stridewise.results import Report
from stridewise.results.repair import Repair
from stridewise.source import edits as editing

from . import lints, repairs, samples, sarif_shape


def rendered(report):
    out = io.StringIO()
    render(report, "sarif", out, tables=("copies", "modules", "paths"))
    return parsed(out.getvalue())


def linted(run, read=lints.read):
    out = io.StringIO()
    lint.render(run, out, format="sarif", read=read)
    return parsed(out.getvalue())


def parsed(text):
    assert text.isascii()
    document = json.loads(text)
    sarif_shape.check(document)
    (run,) = document["runs"]
    assert all(
        result["ruleId"] == run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] for result in run["results"]
    )
    return run


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": "2.1.0", "runs": [{"results": []}]},
        {"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "x"}}, "results": [{"message": {}}], "x": 1}]},
        {"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "x", "rules": [{"id": 3}]}}}]},
        {"version": "2.0.0", "runs": []},
    ],
)
def test_the_schema_refuses_what_is_wrong(wrong):
    with pytest.raises(AssertionError):
        sarif_shape.check(wrong)


def test_rules_carry_their_documentation():
    run = rendered(samples.RICH)
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("stridewise", __version__)
    known = {rule.code: rule for rule in all_rules()}
    assert [rule["id"] for rule in driver["rules"]] == ["SW101", "SW103"]
    for rule in driver["rules"]:
        assert rule["help"]["text"] == known[rule["id"]].doc
        assert rule["shortDescription"]["text"] == known[rule["id"]].summary
    assert [result["ruleIndex"] for result in run["results"]] == [0, 0, 1]


def test_results():
    run = rendered(samples.RICH)
    result = run["results"][0]
    assert result["level"] == "warning"
    assert result["message"]["text"].splitlines() == [
        "`self.embed(mel).transpose(1, 2)` starts a stream of strided tensors, which later calls copy.",
        "Cost: 24 copies, 31 MB, 1.2 ms, 3.2 % of step time.",
        "Call `.contiguous()` once, right after the transpose: one copy then replaces 24.",
    ]
    assert result["partialFingerprints"] == {"stridewise/v1": "0123456789abcdef"}
    assert len(result["relatedLocations"]) == len(samples.STREAM.payers)
    assert result["relatedLocations"][0]["message"]["text"] == "pays 1 copy, 1.2 MB, 50 µs"
    assert result["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 51}
    notes = [note["message"]["text"] for note in run["invocations"][0]["toolExecutionNotifications"]]
    assert notes[1:] == list(samples.RICH.notes)


def test_columns_count_characters():
    run = rendered(samples.report([samples.finding(site=samples.site("größe = x.t()", "x.t()"))]))
    assert run["columnKind"] == "unicodeCodePoints"
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "model.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 42, "startColumn": 9, "endLine": 42, "endColumn": 14}


@pytest.mark.parametrize(
    ("site", "location"),
    [
        (
            Site("/a b/größe.py", 3),
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "file:///a%20b/gr%C3%B6%C3%9Fe.py"},
                    "region": {"startLine": 3},
                }
            },
        ),
        (Site("m.py"), {"physicalLocation": {"artifactLocation": {"uri": "m.py", "uriBaseId": "%SRCROOT%"}}}),
        (Site(expression="input `mel`"), {"logicalLocations": [{"fullyQualifiedName": "input `mel`"}]}),
        (Site(module="enc.0"), {"logicalLocations": [{"fullyQualifiedName": "enc.0", "kind": "module"}]}),
    ],
)
def test_locations(site, location):
    assert rendered(samples.report([samples.finding(site=site)]))["results"][0]["locations"] == [location]


def test_a_message_makes_no_link_and_no_control_character():
    finding = samples.finding(message="see [here](http://evil), x[0] and x[i](y) \x1b[31m")
    text = rendered(samples.report([finding]))["results"][0]["message"]["text"]
    assert text.splitlines()[0] == r"see \[here\](http://evil), x[0] and x\[i\](y) \x1b[31m"


def test_a_code_without_a_rule():
    run = rendered(samples.report([samples.finding("SW999", title="new")]))
    assert run["tool"]["driver"]["rules"] == [{"id": "SW999", "name": "new"}]


def test_a_healthy_report_has_no_result():
    run = rendered(samples.HEALTHY)
    assert (run["results"], run["tool"]["driver"]["rules"]) == ([], [])


@pytest.mark.parametrize("name", [name for name, value in vars(samples).items() if isinstance(value, Report)])
def test_every_report_is_as_the_specification_says(name):
    rendered(getattr(samples, name))


@pytest.mark.parametrize("name", [name for name, value in vars(repairs).items() if isinstance(value, Repair)])
def test_every_repair_is_as_the_specification_says(name):
    out = io.StringIO()
    repair.render(getattr(repairs, name), out, format="sarif")
    parsed(out.getvalue())


@pytest.mark.parametrize("name", lints.ALL)
def test_every_lint_run_is_as_the_specification_says(name):
    assert len(linted(lints.ALL[name])["results"]) == len(lints.ALL[name].findings)


# ---------------------------------------------------------------------------------------------------------------- lint


@pytest.mark.parametrize(
    ("finding", "encoding"),
    [
        (lints.DISCARDED, "utf-8"),
        (lints.GUARDED, "utf-8"),
        (lints.view("windows.py"), "utf-8"),
        (lints.CALL, "utf-8"),
        *zip(lints.ODD.findings, ("latin-1", "utf-8-sig", "utf-8", "utf-8", "utf-8"), strict=True),
    ],
    ids=lambda value: getattr(value, "fingerprint", value),
)
def test_a_fix_by_characters_is_the_edit_by_bytes(finding, encoding):
    (result,) = linted(lints.run(finding))["results"]
    (fix,) = result["fixes"]
    content = lints.read(finding.site.file)
    after = editing.apply(content, encoding, finding.edits).decode(encoding)
    assert sarif_shape.apply(content, encoding, fix) == after.replace("\r\n", "\n")
    assert after != content.decode(encoding)


def test_fixes_say_how_safe_they_are_and_those_that_are_only_shown_are_not_offered():
    results = linted(lints.SAFETIES)["results"]
    said = [[fix["description"]["text"] for fix in result.get("fixes", ())] for result in results]
    assert said == [
        ["`x = x.contiguous()` (safe, applied by --fix)"],
        ["`x = x.contiguous()` (unsafe, applied by --fix --unsafe-fixes)"],
        [],
        ["`return self.head(x.flatten(1))` (safe, applied by --fix)"],
    ]
    (origin,) = results[2]["relatedLocations"]
    assert origin["message"]["text"] == "comes from here"
    assert origin["physicalLocation"]["region"]["startLine"] == 6


@pytest.mark.parametrize("content", [None, b"\n" + lints.MODEL, b"# -*- coding: nothing -*-\n"])
def test_a_file_that_is_no_longer_what_was_linted_has_no_fix(content):
    (result,) = linted(lints.run(lints.DISCARDED), lambda _: content)["results"]
    assert "fixes" not in result


def test_files_that_were_not_read_are_errors_of_the_run():
    (invocation,) = linted(lints.UNREAD)["invocations"]
    *unread, sentence = invocation["toolExecutionNotifications"]
    assert [row["level"] for row in unread] == ["error", "error"]
    assert unread[0]["message"]["text"] == lints.UNREAD.unread[0].reason
    (place,) = unread[0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "setup.py"
    assert place["physicalLocation"]["region"] == {"startLine": 3}
    assert sentence["level"] == "note"


def test_a_cost_is_there_only_if_it_was_measured():
    measured, unmeasured = linted(lints.RECORDED)["results"]
    assert "Cost: 12 copies, 38 MB, 2.3 ms, 4.1 % of step time." in measured["message"]["text"]
    assert measured["properties"]["cost"]["copies"] == 12
    assert "Cost" not in unmeasured["message"]["text"]
    assert "properties" not in unmeasured


def test_source_rules_say_how_grave_they_are():
    (rule,) = linted(lints.run(lints.DISCARDED))["tool"]["driver"]["rules"]
    assert rule["defaultConfiguration"] == {"level": "error"}
    assert "stays as it is" in rule["help"]["text"] or "leave `x` as it is" in rule["help"]["text"]


@pytest.mark.parametrize(("separator", "uri"), [("/", "back%5Cslash.py"), ("\\", "back/slash.py")])
def test_a_backslash_is_a_separator_only_where_it_is_one(monkeypatch, separator, uri):
    monkeypatch.setattr("os.sep", separator)
    assert sarif._artifact("back\\slash.py")["uri"] == uri


def test_an_edit_that_cuts_a_character_has_no_fix():
    edit = Edit("a.py", (2, 3), "", "safe")
    assert sarif._changes(Fix("", (edit,), True), Contents(lambda _: "'é'\n".encode())) is None
