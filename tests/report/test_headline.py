"""The sentence that a report is in: what is not known is not called fine."""

import msgspec
import pytest

from stridewise.report.headline import FINE, headline
from stridewise.results import Report

from . import samples

PART = "What layout costs is not known: the recording ended before its step was over. In what was recorded "


def part(report: Report) -> Report:
    return msgspec.structs.replace(report, totals=msgspec.structs.replace(report.totals, whole=False))


@pytest.mark.parametrize(
    ("fields", "fine", "said"),
    [
        ({}, True, "no tensor is copied because of it."),
        ({"share": None, "duration_ns": None}, True, "no tensor is copied because of it."),
        (
            {"copies": 1.0, "bytes_moved": 9600.0, "share": 0.001},
            True,
            "it costs 0.1 % of a step: 1 copy moves 9.6 kB.",
        ),
        (
            {"copies": 3.0, "bytes_moved": 9600.0, "share": 0.2},
            False,
            "it costs 20 % of a step: 3 copies move 9.6 kB.",
        ),
    ],
)
def test_a_part_of_a_step_is_not_called_fine(fields: dict[str, float | None], fine: bool, said: str) -> None:
    report = samples.report(**fields)
    assert headline(report).startswith(FINE) is fine
    assert headline(part(report)) == PART + said


def test_what_a_part_shows_to_be_wrong_is_said_as_of_a_whole() -> None:
    report = samples.report([samples.STREAM], copies=24.0, bytes_moved=31e6, share=0.03)
    assert headline(part(report)) == headline(report)
    assert not headline(report).startswith(FINE)
