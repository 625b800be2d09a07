"""The lines of `--quiet`."""

import io
import re

import pytest

from stridewise.analysis.diff import compare
from stridewise.report.brief import render

from . import checked, fleets, lints, pairs, repairs, samples, test_artefacts, test_compiled


def lines(result):
    out = io.StringIO()
    render(result, out)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    "result",
    [samples.HEALTHY, samples.DEVICE, lints.CLEAN, lints.NOTES_ONLY, fleets.HEALTHY, checked.GOOD, checked.SAFE,
     repairs.NOTHING, repairs.NO_CANDIDATES, test_compiled.ALL["healthy"], compare(pairs.BEFORE, pairs.BEFORE)],
)  # fmt: skip
def test_nothing_to_act_on_is_nothing(result):
    assert lines(result) == []


def test_a_report():
    assert lines(samples.RICH) == [
        "model.py:42:13: SW101 `self.embed(mel).transpose(1, 2)` starts a stream of strided tensors,"
        " which later calls copy.",
        "input `mel`: SW101 Input `mel` comes in with its last two dimensions swapped, and nothing puts them in order.",
        "model.py:77:9: SW103 `y.reshape(-1, 512)` cannot be a view of a tensor with this layout,"
        " so it copies all of it.",
    ]


def test_columns_are_characters():
    found = [line for line in lines(lints.run(lints.view("windows.py"))) if line.startswith("windows.py")]
    (line,) = found
    row, column = map(int, re.match(r"windows\.py:(\d+):(\d+): SW314 ", line).groups())
    text = lints.WINDOWS.decode().splitlines()[row - 1]
    assert text[column - 1 :].startswith(lints.VIEW)


def test_a_repair_is_its_winners():
    found = lines(repairs.TWO)
    assert len(found) == len(repairs.TWO.won) > 0
    assert all(line.startswith("train.py:") and " faster" in line for line in found)


def test_a_diff_is_what_grew():
    worse = compare(pairs.BEFORE, pairs.AFTER)
    assert not worse.ok
    assert [line.split()[1] for line in lines(worse)] == [
        row.code for row in worse.listed if row.trend in ("appeared", "grew", "changed")
    ]
    assert lines(compare(pairs.AFTER, pairs.BEFORE)) == []


@pytest.mark.parametrize(
    "result",
    [samples.HOSTILE, samples.LONG, lints.HOSTILE, lints.ODD, fleets.HOSTILE, checked.HOSTILE, checked.HOSTILE_OP,
     repairs.HOSTILE, compare(pairs.HOSTILE, pairs.HOSTILE_LATER), *test_artefacts.ALL.values(),
     *test_compiled.ALL.values()],
)  # fmt: skip
def test_a_line_is_one_and_inert(result):
    for line in lines(result):
        assert line.isprintable()
        assert not line.startswith(("::", "##["))
