"""Test reports in the XML form of JUnit, which CI systems show: a suite for each file, a case for each finding.

What it holds is what Jenkins, GitLab and pytest agree on: `testsuites`, `testsuite`, `testcase`, `failure`, `error`.
https://docs.gitlab.com/ci/testing/unit_test_reports/
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal
from xml.etree import ElementTree

from msgspec import Struct

from stridewise.findings import Site
from stridewise.report.exchange import Exchange
from stridewise.report.source import character_region, excerpt
from stridewise.report.text import inert, one_line


class Case(Struct, frozen=True):
    """One test that passed or not."""

    suite: str
    name: str
    """It stays the same when lines move, so that CI can tell what is new."""
    outcome: Literal["passed", "failure", "error"]
    kind: str = ""
    """The code, if it did not."""
    message: str = ""
    """In one line."""
    text: str = ""
    file: str | None = None
    line: int | None = None


def dumps(result: Exchange) -> str:
    """Errors and warnings as failures, notes as cases that pass, files that were not read as errors."""
    return report(result.name, [*_unread(result), *_cases(result)], result.headline, result.notes)


def report(name: str, cases: Iterable[Case], headline: str, notes: Iterable[str] = ()) -> str:
    """The whole text in ASCII. A case that passes stands first and holds the sentence and the notes."""
    cases = (Case(name, name, "passed", text="\n".join((headline, *notes))), *cases)
    suites: dict[str, list[Case]] = {}
    for case in cases:
        suites.setdefault(case.suite, []).append(case)
    root = ElementTree.Element("testsuites", {"name": inert(name), **_counts(cases)})
    for suite, members in suites.items():
        branch = ElementTree.SubElement(root, "testsuite", {"name": one_line(suite), **_counts(members)})
        branch.extend(_elements(members))
    ElementTree.indent(root)
    # Characters beyond ASCII become references, which every stream can carry.
    text: bytes = ElementTree.tostring(root, "us-ascii", xml_declaration=True)
    return f"{text.decode()}\n"


def case_name(code: str, title: str, site: Site) -> str:
    """What a case is called: a code and an expression, without its line."""
    expression = f": `{site.expression}`" if site.expression else ""
    function = f" in {site.function}" if site.function else ""
    return f"{code} {title}{expression}{function}"


def _cases(result: Exchange) -> Iterator[Case]:
    for finding in result.findings:
        site = finding.site
        sentences = result.sentences(finding, whole=True)
        place = [_place(site)] if site.file else []
        source = [f"    {line.text.strip()}" for line in excerpt(site)]
        yield Case(
            suite=site.file or result.name,
            name=case_name(finding.code, finding.title, site),
            outcome="passed" if finding.severity == "note" else "failure",
            kind=finding.code,
            message=finding.message,
            text="\n".join((*place, *source, *sentences)),
            file=site.file,
            line=site.line,
        )


def _unread(result: Exchange) -> Iterator[Case]:
    for row in result.unread:
        yield Case(row.file, "can be read", "error", "unread", row.reason, row.reason, row.file, row.line)


def _place(site: Site) -> str:
    region = character_region(site)
    return f"{site.where}:{region[0]}" if region else site.where


def _counts(cases: Iterable[Case]) -> dict[str, str]:
    outcomes = Counter(case.outcome for case in cases)
    counts = {"tests": outcomes.total(), "failures": outcomes["failure"], "errors": outcomes["error"]}
    return {key: str(count) for key, count in counts.items()} | {"time": "0"}


def _elements(cases: Iterable[Case]) -> Iterator[ElementTree.Element]:
    seen: Counter[str] = Counter()
    for case in cases:
        seen[case.name] += 1
        number = f" ({seen[case.name]})" if seen[case.name] > 1 else ""
        place = {"file": case.file, "line": case.line}
        element = ElementTree.Element(
            "testcase",
            {
                "classname": one_line(case.suite),
                "name": one_line(case.name) + number,
                **{key: one_line(str(value)) for key, value in place.items() if value is not None},
                "time": "0",
            },
        )
        text = "\n".join(inert(line) for line in case.text.splitlines())
        if case.outcome == "passed":
            ElementTree.SubElement(element, "system-out").text = text
        else:
            attributes = {"message": one_line(case.message), "type": one_line(case.kind)}
            ElementTree.SubElement(element, case.outcome, attributes).text = text
        yield element
