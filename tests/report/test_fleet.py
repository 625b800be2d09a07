"""A fleet as people and programs read it."""

import io
import json
import re
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from stridewise.report.fleet import render
from stridewise.report.fleet_words import headline
from stridewise.results import Fleet

from . import fleets

SHOWN = [
    "ALIKE",
    "ODD",
    "LARGE",
    "HEALTHY",
    "NO_COPY",
    "UNMEASURED",
    "NO_FIGURES",
    "WRONG",
    "UNNUMBERED",
    "DEVICES",
    "HOSTILE",
]


def text(fleet: Fleet, **options: Any) -> str:
    out = io.StringIO()
    render(fleet, out, **options)
    return out.getvalue()


@pytest.mark.parametrize("name", SHOWN)
def test_text(name: str, snapshot: SnapshotAssertion) -> None:
    assert text(getattr(fleets, name)) == snapshot


@pytest.mark.parametrize("width", [60, 80])
def test_narrow(width: int, snapshot: SnapshotAssertion) -> None:
    assert text(fleets.ODD, width=width) == snapshot


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("width", [60, 73, 100])
def test_lines_fit(name: str, width: int) -> None:
    assert max(map(cell_len, text(getattr(fleets, name), width=width).splitlines())) <= width


@pytest.mark.parametrize("name", ["ODD", "HOSTILE"])
def test_github(name: str, snapshot: SnapshotAssertion) -> None:
    assert text(getattr(fleets, name), format="github") == snapshot


def test_json_has_everything_and_reads_back() -> None:
    shown = text(fleets.LARGE, format="json")
    assert msgspec.json.decode(shown, type=Fleet) == fleets.LARGE
    fields = json.loads(shown)
    assert fields["schema_version"] == 1
    assert len(fields["rows"]) == 64
    assert shown.isascii()


@pytest.mark.parametrize("format", ["text", "github"])
def test_what_files_hold_is_never_interpreted(format: Any) -> None:
    shown = text(fleets.HOSTILE, format=format)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert not re.search(r"^(?!::(error|warning|notice) (title|file)=)\s*::", shown, re.MULTILINE)


def test_colour_is_for_terminals() -> None:
    assert "\x1b[" in text(fleets.ODD, color=True)
    assert "\x1b" not in text(fleets.ODD)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ALIKE", "On all 4 ranks layout costs 4.1 % of a step."),
        ("ODD", "On all 9 ranks layout costs 4.1 % to 8 % of a step, the most on rank 5."),
        ("HEALTHY", "Layout is fine on all 8 ranks: it costs 0.03 % to 0.031 % of a step, the most on rank 7."),
        ("NO_COPY", "Layout is fine on both ranks: no tensor is copied because of it."),
        ("UNMEASURED", "Layout costs 24 to 26 copies a step on all 3 ranks, the most on rank 2."),
        ("NO_FIGURES", "What layout costs is not known of all 3 ranks."),
        ("WRONG", "Layout makes results wrong on 1 of 3 ranks."),
        ("UNNUMBERED", "On all 3 files layout costs 4.1 % of a step."),
    ],
)
def test_headlines(name: str, sentence: str) -> None:
    assert headline(getattr(fleets, name)) == sentence


def test_a_rank_that_tells_nothing_is_not_called_fine() -> None:
    fleet = fleets.fleet(3, lambda rank: {"findings": (), "copies": None if rank else 0.0, "share": None})
    assert headline(fleet) == (
        "Layout is fine on 1 rank: no tensor is copied because of it. Nothing is known of 2 ranks."
    )


def test_costs_too_high_to_be_called_fine() -> None:
    fleet = fleets.fleet(3, lambda rank: {"findings": (), "share": 0.02, "copies": 9.0})
    assert fleet.ok
    assert headline(fleet) == "On all 3 ranks layout costs 2 % of a step."
