"""The pages on the article's claims: made from results that are there, and from nothing else."""

import csv
import re
from collections import Counter
from pathlib import Path

import pytest
from tests.report.test_checks_page import script

import stridewise
from stridewise.lab import catalogue
from stridewise.results.lab import ClaimResult, Counts, ExperimentResult, Prediction, claim_order

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


def test_the_page_tells_what_was_left_open_from_what_was_not_tested():
    made = (Prediction("it is fast", None, "1.0x", unclear=True), Prediction("it is on a GPU", None, "there is none"))
    claim = ClaimResult("C1", "1", "It is so.", "It is not.", "cannot be tested here", made)
    counts = Counts("Kernels of a call", "kernels", {"one": 1})
    experiment = ExperimentResult("made-up", "Made up", "Nothing is done.", {}, (claim,), (), (counts,), 0.0)
    lines = list(script("lab")._measured(experiment))
    assert "| C1 | it is fast | ? | 1.0x |" in lines
    assert "| C1 | it is on a GPU | – | there is none |" in lines
    assert "| one | 1 kernel |" in lines


def test_what_could_not_be_tested_is_judged_by_hand():
    (told, _) = script("lab")._not_tested(reference().claims())
    left = {claim.number for claim in reference().claims() if claim.verdict == "cannot be tested here"}
    assert set(re.findall(r"C\d+", told)) == left
    assert {BY_HAND[number]["verdict"] for number in re.findall(r"C\d+", told.partition("left open")[2])} == {
        "cannot be tested here"
    }


def test_sections_have_titles():
    assert {row["section"] for row in BY_HAND.values()} == set(script("lab").SECTIONS)


def test_the_readme_counts_as_the_page_does():
    number = Counter(claim.verdict for claim in reference().claims())
    tested = sum(number.values()) - number["cannot be tested here"]
    told = f"{number['holds']} of {tested} hold, {number['holds in part']} in part, {number['does not hold']} do not"
    assert told in (DOCS.parent / "README.md").read_text(encoding="utf-8")
