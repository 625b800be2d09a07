"""The pages on the article's claims: made from results that are there, and from nothing else."""

import csv
import re
from pathlib import Path

import pytest
from tests.report.test_checks_page import script

import stridewise
from stridewise.lab import catalogue
from stridewise.results.lab import claim_order

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = sorted((DOCS / "results").glob("*.json"))
CLAIMS = DOCS / "explanation" / "claims.md"
BY_HAND = {row["claim"]: row for row in csv.DictReader((DOCS / "checked.tsv").read_text().splitlines(), delimiter="\t")}


def reference():
    return stridewise.read_lab(DOCS / "results" / f"{script('lab').REFERENCE}.json")


def test_the_pages_are_made_from_the_results():
    for path, text in script("lab").pages().items():
        assert text == path.read_text(encoding="utf-8"), "python docs/lab.py"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_results_are_whole_runs_of_the_experiments_that_there_are(path):
    found = stridewise.read_lab(path)
    assert found.whole
    assert [each.name for each in found.experiments if each.failed] == []
    known = {each.name: each for each in catalogue.experiments()}
    assert {each.name for each in found.experiments} == set(known)
    for each in found.experiments:
        told = {claim.number: (claim.text, claim.correct) for claim in each.claims}
        assert told == {number: (claim.text, claim.correct) for number, claim in known[each.name].claims.items()}
        assert each.title == known[each.name].title


def test_verdicts_are_those_of_the_check_by_hand_or_the_difference_is_explained():
    """Of claims that it measured; the explanation stands on the page, a claim a paragraph."""
    differ = {
        claim.number
        for claim in reference().claims()
        if BY_HAND[claim.number]["measured"] == "yes" and claim.verdict != BY_HAND[claim.number]["verdict"]
    }
    section = CLAIMS.read_text(encoding="utf-8").split("## Where this differs", 1)[1].split("<!-- from", 1)[0]
    explained = set(re.findall(r"^- \*\*(C\d+)\*\*", section, re.MULTILINE))
    assert sorted(explained, key=claim_order) == sorted(differ, key=claim_order)


def test_sections_have_titles():
    assert {row["section"] for row in BY_HAND.values()} == set(script("lab").SECTIONS)
