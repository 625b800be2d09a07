"""The experiments: every claim of the article is there, and each runs, here and on a stand-in for a GPU."""

import csv
import re
from pathlib import Path

import pytest
from tests.lab.conftest import HASTY
from tests.report.test_checks_page import script

import stridewise
from stridewise.errors import UsageError
from stridewise.lab import catalogue, session
from stridewise.lab.bench import Bench
from stridewise.lab.machine import machine
from stridewise.lab.settings import settings
from stridewise.results.lab import ExperimentResult, Lab, claim_order

DOCS = Path(__file__).parents[2] / "docs"
ALL = catalogue.experiments()
BY_HAND = {row["claim"]: row for row in csv.DictReader((DOCS / "checked.tsv").read_text().splitlines(), delimiter="\t")}
"""What a check by hand said of each claim, and whether it measured."""
ABOUT_TIME = re.compile(r"it takes \S+x its time")
every_experiment = pytest.mark.parametrize("experiment", ALL, ids=lambda each: each.name)


def test_every_claim_of_the_article_is_tested_in_its_section():
    tested = {number: claim.section for each in ALL for number, claim in each.claims.items()}
    assert sorted(tested, key=claim_order) == list(BY_HAND)
    assert tested == {number: row["section"] for number, row in BY_HAND.items()}


def test_experiments_are_named_after_their_files():
    assert sorted(each.name for each in ALL) == sorted(catalogue.names())


@every_experiment
def test_it_says_what_it_does(experiment):
    texts = [
        experiment.title,
        experiment.method,
        *(text for claim in experiment.claims.values() for text in (claim.text, claim.correct)),
    ]
    assert all(text.strip() == text and text for text in texts)
    assert all(claim.text.endswith((".", "?")) and claim.correct.endswith(".") for claim in experiment.claims.values())
    assert set(experiment.cuda) | set(experiment.quick) <= set(experiment.cpu), "a size that no CPU run has"


@pytest.fixture(scope="module")
def published() -> Lab:
    return stridewise.read_lab(DOCS / "results" / f"{script('lab').REFERENCE}.json")


@every_experiment
def test_it_runs_and_finds_what_is_published(experiment, bench, published):
    """Where sizes are those of the published run, and torch and the instructions of the processor are too."""
    with settings(1):
        found = session.run_one(experiment, bench)
    assert found.failed is None
    assert found.comparisons or found.counts
    assert all(claim.predictions for claim in found.claims)
    assert [arm.name for each in found.comparisons for arm in each.arms if arm.same == "different"] == []
    here, there = machine(bench.device), published.machine
    known = next(each for each in published.experiments if each.name == experiment.name)
    if (here.torch, here.details, found.sizes) == (there.torch, there.details, known.sizes):
        expected = outcomes(known)
        tested = {key: came_true for key, came_true in outcomes(found).items() if came_true is not None}
        assert {key: each for key, each in tested.items() if expected.get(key, "unknown") not in (None, each)} == {}


def outcomes(found: ExperimentResult) -> dict[tuple[str, str], bool | None]:
    """What came true of the predictions, but those about time."""
    return {
        (claim.number, made.text): made.came_true
        for claim in found.claims
        for made in claim.predictions
        if not ABOUT_TIME.match(made.measured)
    }


@every_experiment
def test_its_way_on_a_gpu_runs_with_a_stand_in(experiment, stand_in, ranks):
    """Tensors lie on the CPU and events end at once: what is tested is that the way can be gone, not what it finds."""
    found = session.run_one(experiment, Bench(stand_in, HASTY, ranks))
    assert found.failed is None


def test_selecting():
    assert catalogue.selected([]) == ALL
    assert [each.name for each in catalogue.selected(["bmm-transposed"])] == ["bmm-transposed"]
    assert {each.told for each in catalogue.selected(["c88"])} == {frozenset({"C88"})}
    told = {number for each in catalogue.selected(["3.2"]) for number in each.told}
    assert told == {number for number, row in BY_HAND.items() if row["section"] == "3.2"}
    assert len(catalogue.selected(["3"])) > len(catalogue.selected(["3.2"]))
    (both,) = catalogue.selected(["bmm-transposed", "C58"])
    assert both.told == set(both.claims)


@pytest.mark.parametrize("name", ["bmm-transpose", "C999", "9.9", "../x", "C", "C\u0665\u0668"])
def test_what_is_not_there(name):
    with pytest.raises(UsageError, match="no experiment, claim or section") as caught:
        catalogue.selected([name])
    assert caught.value.advice
