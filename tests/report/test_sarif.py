"""SARIF 2.1.0 as code scanning reads it."""

import io
import json

import pytest

from stridewise import __version__
from stridewise.analysis.rules import all_rules
from stridewise.findings import Site
from stridewise.report import render

from . import samples


def rendered(report):
    out = io.StringIO()
    render(report, "sarif", out, tables=("copies", "modules", "paths"))
    assert out.getvalue().isascii()
    document = json.loads(out.getvalue())
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    return run


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
