"""How a repair reads: held by snapshots; and it fits, is plain in a pipe, is inert, and says what was measured."""

import hashlib
import io
import json
import re

import msgspec
import pytest
from rich.cells import cell_len

from stridewise.repair.kinds import all_kinds
from stridewise.report import repair as repair_report
from stridewise.report import repair_figures as figures
from stridewise.results.repair import EditedFile, Repair
from stridewise.source.patch import Written

from . import repairs, samples

NAMES = list(repairs.REPAIRS)
CALL = "stridewise fix --write train.py:make"
WRITTEN = (
    Written("train.py", "written", "/home/somebody/train.py", None),
    Written("lib/attention.py", "patch file", "lib-attention.patch", "it is not the project's own"),
    Written("late.py", "skipped", None, "it was edited since the trials ran"),
)


def rendered(repair, **options):
    out = io.StringIO()
    repair_report.render(repair, out, **options)
    return out.getvalue()


def sentence(repair):
    return " ".join(rendered(repair).partition("\n\n")[0].split())


@pytest.mark.parametrize("name", NAMES)
def test_text(name, snapshot):
    assert rendered(repairs.REPAIRS[name], call=CALL) == snapshot


def test_text_after_writing(snapshot):
    assert rendered(repairs.TWO, call=CALL, written=WRITTEN).rpartition("Findings that stay")[2] == snapshot


@pytest.mark.parametrize("name", ["won two", "nothing to win", "hostile"])
def test_github(name, snapshot):
    assert rendered(repairs.REPAIRS[name], format="github") == snapshot


def without_diff(repair, **options):
    """The text as lines, less those of the diff, which stay as long as they are."""
    whole = rendered(repair, **options)
    shown = rendered(repairs.repair(*repair.won, diff=repair.diff), **options) if repair.diff else ""
    diff = re.search(r"^--- .*?(?=\n\n|\Z)", shown, re.DOTALL | re.MULTILINE)
    assert bool(diff) is bool(repair.diff)
    return whole.replace(diff[0], "") if diff else whole


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [100, 80])
def test_lines_fit_and_are_plain_text(name, width):
    for line in without_diff(repairs.REPAIRS[name], width=width, call=CALL).split("\n"):
        assert cell_len(line) <= width
        assert line.isprintable()
        assert line == line.rstrip()


@pytest.mark.parametrize("name", NAMES)
def test_colour_changes_nothing_but_colour(name):
    coloured = rendered(repairs.REPAIRS[name], call=CALL, color=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == rendered(repairs.REPAIRS[name], call=CALL)


def test_the_diff_is_whole_and_in_colour(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert repairs.DIFF in rendered(repairs.TWO)
    coloured = rendered(repairs.TWO, color=True)
    assert "\x1b[32m+        mask = " in coloured
    assert "\x1b[31m-            x = layer" in coloured
    long = f"+{'x' * 300}\n"
    assert long in rendered(repairs.repair(repairs.WINNER, diff=f"--- a\n+++ b\n@@ -1 +1 @@\n{long}"), width=80)


@pytest.mark.parametrize("name", NAMES)
def test_json_is_the_struct(name):
    repair = repairs.REPAIRS[name]
    text = rendered(repair, format="json")
    assert msgspec.json.decode(text, type=Repair) == repair
    assert text.isascii()
    assert json.loads(text)["schema_version"] == 1


def test_json_of_one_trial_has_the_ratio_of_times():
    first = json.loads(rendered(repairs.TWO, format="json"))["trials"][0]
    assert (first["ratio"], first["low"], first["high"]) == (0.781, 0.762, 0.803)
    assert (first["candidate"], first["verdict"], first["equal"]) == ("copy-at-origin", "won", True)


def test_nobody_obeys_hostile_text():
    for options in ({}, {"color": True}, {"format": "sarif"}):
        text = rendered(repairs.HOSTILE, **options)
        assert "\x1b]" not in text
        assert "\x1b[31m[red]" not in text
        lines = [line.strip() for line in text.splitlines()]
        assert not [line for line in lines if line.startswith("::error") or "##[" in line]
    lines = rendered(repairs.HOSTILE, format="github").splitlines()
    assert all(line.startswith(("::notice ", "::warning ")) for line in lines)


# --------------------------------------------------------------------------------------------------------- what it says


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"ratio": 0.763, "low": 0.741, "high": 0.787}, "1.31x faster (1.27 to 1.35)"),
        ({"ratio": 0.0769, "low": 0.07, "high": 0.08}, "13x faster (12 to 14)"),
        ({"ratio": 0.985, "low": 0.981, "high": 0.989}, "1.015x faster (1.011 to 1.019)"),
        ({"ratio": 0.972, "low": 0.961, "high": 0.984}, "1.03x faster (1.02 to 1.04)"),
        (
            {"ratio": 0.342, "low": 0.127, "high": 0.935},
            "at least 1.07x faster (the machine was busy: interval 1.07 to 7.87)",
        ),
        (
            {"ratio": 1.7, "low": 1.09, "high": 7.2},
            "at most 0.92x as fast (the machine was busy: interval 0.14 to 0.92)",
        ),
        ({"ratio": 1.1, "low": 0.8, "high": 1.4}, "0.91x (0.71 to 1.25)"),
        ({"ratio": 1.093, "low": 1.071, "high": 1.112}, "0.91x as fast (0.90 to 0.93)"),
        ({"ratio": 1.004, "low": 0.991, "high": 1.016}, "0.996x (0.984 to 1.009)"),
        ({"ratio": 0.5, "low": None, "high": None}, "2.00x"),
        ({"ratio": None, "low": None, "high": None}, None),
    ],
)
def test_speed(fields, shown):
    assert figures.faster(repairs.together(**fields)) == shown


@pytest.mark.parametrize(
    ("step_ns", "ratio", "shown"),
    [
        (9.96e6, 0.855, "9.96 ms → 8.52 ms"),
        (9.1e6, 0.763, "9.10 ms → 6.94 ms"),
        (1.02e6, 0.9, "1.02 ms → 0.918 ms"),
        (123.4e6, 0.081, "123 ms → 10.0 ms"),
        (2.5e9, 0.5, "2.50 s → 1.25 s"),
        (640.0, 0.5, "640 ns → 320 ns"),
    ],
)
def test_times_have_the_ratio_that_stands_beside_them(step_ns, ratio, shown):
    measured = repairs.together(ratio=ratio, low=ratio, high=ratio, copies_after=16.0, peak_after=81 * repairs.MB)
    assert figures.gains(measured, step_ns) == shown


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ((16.0, 38), (2.0, 4.1), "16 → 2 a step, moving 38 MB → 4.1 MB"),
        ((16.0, 38), (0.0, 0), "16 → 0 a step, which moved 38 MB"),
        ((0.0, 0), (3.0, 6.4), "0 → 3 a step, moving 6.4 MB"),
        ((4.0, 8), (4.0, 8), "4 a step, as before"),
        ((0.0, 0), (0.0, 0), "none, as before"),
    ],
)
def test_copies(before, after, shown):
    measured = repairs.together(
        copies_before=before[0],
        copies_after=after[0],
        tax_before=repairs.tax(*before, 1),
        tax_after=repairs.tax(*after, 1),
    )
    assert figures.copies(measured) == shown


@pytest.mark.parametrize(
    ("equal", "difference", "shown"),
    [
        (True, 0.0, "are the same, bit for bit"),
        (True, 3.1e-7, "agree within 3.1e-7 of their largest magnitude"),
        (True, 0.004, "agree within 0.004 of their largest magnitude"),
        (True, None, "agree within the tolerance"),
        (False, 0.31, "differ by 0.31 of their largest magnitude"),
        (False, None, "differ"),
        (None, None, None),
    ],
)
def test_results(equal, difference, shown):
    assert figures.results(repairs.together(equal=equal, difference=difference)) == shown


@pytest.mark.parametrize(
    ("equal", "difference", "shown"),
    [
        (True, 0.0, "are the same; not compared: a, b, c and 1 more"),
        (
            True,
            3.1e-7,
            "agree within 3.1e-7 of their largest magnitude; not compared: a, b, c and 1 more",
        ),
        (False, 0.31, "differ by 0.31 of their largest magnitude; not compared: a, b, c and 1 more"),
        (None, None, "were not compared: nothing that a step returns can be"),
    ],
)
def test_results_that_could_not_be_compared(equal, difference, shown):
    measured = repairs.together(equal=equal, difference=difference, unseen=("a", "b", "c", "d"))
    assert figures.results(measured) == shown


@pytest.mark.parametrize("repair", [repairs.PARTLY_COMPARED, repairs.NOT_COMPARED])
@pytest.mark.parametrize("format", ["text", "sarif", "github"])
def test_what_was_not_compared_is_not_called_the_same(repair, format):
    text = rendered(repair, format=format)
    assert "bit for bit" not in text
    assert "not compared" in text or "as far as they could be compared" in text


def test_a_wide_interval_has_no_times_and_no_single_figure():
    for text in (sentence(repairs.BUSY), rendered(repairs.BUSY, format="github")):
        assert "at least 1.07x faster (the machine was busy: 95" in text
        assert "ms →" not in text
        assert "2.92x" not in text
    alone = repairs.trial(**repairs.WIDE)
    assert "won alone      ≥1.07x  copy once" in rendered(repairs.repair(alone))
    assert "lost           ≤0.92x  copy `mask" in rendered(repairs.BUSY)
    two = repairs.repair(repairs.trial(**repairs.WIDE, kept=True), repairs.HOISTED, interrupted=True)
    assert "the best of them at least 1.07x" in sentence(two)


@pytest.mark.parametrize("width", [100, 80])
@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_advice_never_stands_without_its_correction(kind, width):
    trial = repairs.trial(kept=True, answers=kind.answers)
    text = rendered(repairs.repair(trial, together=repairs.together()), width=width)
    said = text.partition("  Often said: ")[2].partition("\n\n")[0]
    if width == 80 and not said:
        return
    assert said.count("\n") < 3
    words = " ".join(said.split())
    assert kind.answers.startswith(words)
    assert words.endswith(".")
    assert len(re.findall(r"[.!?](?= [A-Z`])", words)) >= 1


def test_advice_that_is_longer_than_three_lines_is_cut_or_left_out():
    advice, correction, more = "A view: copy it.", "It costs what it costs.", f"{'More ' * 80}of it."
    said = rendered(repairs.repair(repairs.trial(kept=True, answers=f"{advice} {correction} {more}")))
    assert f"  Often said: {advice} {correction}\n" in said
    for answers in (f"{advice} {more}", more, ""):
        assert "Often said" not in rendered(repairs.repair(repairs.trial(kept=True, answers=answers)))


def test_what_counts_as_equal_is_one_sentence():
    words = " ".join(rendered(repairs.BY_HAND).split())
    assert words.endswith(
        "Counts as equal: results within a share of the largest magnitude that goes by dtype (docs/reference/fix.md)."
    )


def test_a_note_names_the_option_of_fix():
    assert "`--library-copies` does" in rendered(repairs.BY_HAND)


def test_what_was_not_measured_is_not_shown():
    text = rendered(repairs.UNMEASURED)
    assert not re.search(r"^  (copies|memory)", text, re.MULTILINE)
    assert "None" not in text


def test_several_winners_that_were_not_tried_together():
    assert sentence(repairs.repair(repairs.WINNER, repairs.HOISTED, interrupted=True)) == (
        "Interrupted. 2 edits make a step faster (the best of them 1.28x), each by itself; all at once they were not"
        " tried."
    )


def test_winners_that_did_not_hold_are_told():
    alone = msgspec.structs.replace(repairs.WINNER, kept=False)
    text = rendered(repairs.repair(alone))
    assert text.startswith("Nothing to win: what won by itself did not hold when all of it was tried at once.\n")
    assert "won alone       1.28x  copy once behind" in text


def test_nothing_tried_because_there_was_no_time():
    assert sentence(repairs.repair(untried=repairs.WAITING)) == "None of 2 edits was tried."
    assert sentence(repairs.repair(untried=repairs.WAITING, interrupted=True)).startswith(
        "Interrupted. None of 2 edits"
    )
    assert sentence(repairs.repair(interrupted=True)) == "Interrupted. Nothing was tried."


def test_refused_for_one_reason_is_one_row():
    text = " ".join(rendered(repairs.TWO).split())
    assert text.count("it only moves copies elsewhere") == 1
    assert "make `self.block0(x)` channels_last, and 4 more like it" in text


def test_many_trials_are_cut_in_text_only():
    repair = repairs.repair(*(repairs.level(what=f"drop `c{number}`") for number in range(60)))
    assert rendered(repair).count("no difference") == 24
    assert "… 36 more edits: all of them in --format json" in rendered(repair)
    assert len(json.loads(rendered(repair, format="json"))["trials"]) == 60


def test_a_winner_that_is_no_edit_of_a_file():
    text = rendered(repairs.repair(repairs.trial(kept=True, edits=()), together=repairs.together()), call=CALL)
    assert "  edit    none: make this change where the program builds these objects" in text
    assert "Next:" not in text
    words = " ".join(rendered(repairs.BY_HAND).split())
    assert "call `.to(memory_format=torch.channels_last)` on it where it is built" in words


def test_findings_that_the_edits_remove_are_not_said_to_stay():
    text = rendered(repairs.TWO)
    assert "Findings that stay: 1\n  SW109" in text
    assert "SW107" not in text  # it was there, and no edit was to mend it: only a recording tells that it is gone
    unknown = msgspec.structs.replace(repairs.TWO, left=None)
    assert "Findings" not in rendered(unknown)
    asked = msgspec.structs.replace(repairs.HELPS, left=(repairs.SLOW,))
    assert "Findings" not in rendered(asked)  # one question was asked, and this is no part of it


def test_a_note_that_stays_is_not_listed():
    note = msgspec.structs.replace(repairs.SLOW, severity="note")
    assert "Findings" not in rendered(msgspec.structs.replace(repairs.TWO, left=(note,)))


def test_without_a_winner_the_findings_are_those_of_the_unchanged_program():
    nothing = msgspec.structs.replace(repairs.NOTHING, findings=(repairs.SLOW, repairs.REORDER))
    assert "Findings of the unchanged program: 2\n  SW109" in rendered(nothing)


def test_where_a_changed_model_would_lose_channels_last_is_no_finding_of_the_unchanged_one():
    hurts = msgspec.structs.replace(repairs.HURTS, only=(), findings=(repairs.REORDER,))
    assert hurts.format_lost
    assert "SW106" not in rendered(hurts)
    assert "Findings of the unchanged program: 1\n  SW107" in rendered(hurts)


@pytest.mark.parametrize("only", [("channels_last",), ("channels-last-model", "channels-last-at-origin")])
def test_the_question_about_channels_last(only):
    asked = msgspec.structs.replace(repairs.HURTS, only=only)
    assert rendered(asked).startswith("Would channels_last help? No: with it a step is 0.91x as fast")
    assert "Where channels_last is lost: 1 place" in rendered(asked)


def test_other_questions():
    assert sentence(repairs.repair(only=("hoist",))).startswith("Would hoist help? It has no place in this program")
    both = repairs.repair(repairs.LEVEL, only=("hoist", "drop-copy"))
    assert sentence(both) == "Nothing to win: 1 edit was tried, and it makes no step faster."
    assert sentence(repairs.repair(untried=repairs.WAITING, only=("hoist",))) == "Would hoist help? It was not tried."


def test_without_a_command_the_method_is_named():
    assert "Next: `.write()` writes this into train.py." in rendered(repairs.TWO)


# --------------------------------------------------------------------------------------------------------------- SARIF


def sarif(repair):
    (run,) = json.loads(rendered(repair, format="sarif"))["runs"]
    return run


@pytest.fixture
def _source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_bytes(repairs.SOURCE)


def with_hash(content, *, installed=False):
    hashed = EditedFile("train.py", hashlib.sha256(content).hexdigest(), installed)
    return msgspec.structs.replace(repairs.TWO, files=(hashed,))


@pytest.mark.usefixtures("_source")
def test_sarif_has_the_winners_as_fixes():
    results = {
        result["partialFingerprints"]["stridewise/v1"]: result for result in sarif(with_hash(repairs.SOURCE))["results"]
    }
    assert {name for name, result in results.items() if "fixes" in result} == {"stream", "mask"}
    (fix,) = results["mask"]["fixes"]
    assert fix["description"]["text"].startswith("take `self.mask.expand(8, -1).contiguous()` out of the loop: 1.03x")
    (change,) = fix["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "train.py", "uriBaseId": "%SRCROOT%"}
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 8, "startColumn": 26, "endLine": 8, "endColumn": 62},
            "insertedContent": {"text": "mask"},
        }
    ]


@pytest.mark.usefixtures("_source")
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_regions_count_characters_of_lines(newline):
    content = repairs.SOURCE.replace(b"\n", newline).replace(b"x = layer", "größe = layer".encode())
    start = content.index(b"self.mask")
    edit = msgspec.structs.replace(repairs.HOISTED.edits[0], span=(start, start + len(repairs.MASK)))
    with open("train.py", "wb") as out:
        out.write(content)
    trial = msgspec.structs.replace(repairs.HOISTED, edits=(edit,))
    repair = msgspec.structs.replace(with_hash(content), trials=(trial,))
    fixes = [fix for result in sarif(repair)["results"] for fix in result.get("fixes", ())]
    region = fixes[0]["artifactChanges"][0]["replacements"][0]["deletedRegion"]
    assert region == {"startLine": 8, "startColumn": 30, "endLine": 8, "endColumn": 66}


@pytest.mark.usefixtures("_source")
@pytest.mark.parametrize(
    "repair",
    [with_hash(b"another content"), with_hash(repairs.SOURCE, installed=True)],
    ids=["edited meanwhile", "installed"],
)
def test_no_fix_for_a_file_that_is_not_what_it_was_or_not_ours(repair):
    assert [result for result in sarif(repair)["results"] if "fixes" in result] == []
    assert len(sarif(repair)["results"]) == 3


def codes(repair):
    return [result["ruleId"] for result in sarif(repair)["results"]]


@pytest.mark.usefixtures("_source")
def test_sarif_lists_what_is_mended_and_what_stays():
    repair = with_hash(repairs.SOURCE)
    assert codes(repair) == ["SW101", "SW102", "SW109"]
    assert codes(msgspec.structs.replace(repair, left=None)) == ["SW101", "SW102", "SW109", "SW107"]
    staying = msgspec.structs.replace(repair, left=(repairs.STREAM_FINDING, repairs.SLOW))
    assert codes(staying) == ["SW101", "SW102", "SW109"]
    assert codes(msgspec.structs.replace(repairs.NOTHING, findings=repair.findings)) == codes(
        msgspec.structs.replace(repair, left=None)
    )


@pytest.mark.usefixtures("_source")
def test_what_only_a_trial_could_tell_is_mended_by_its_edit():
    needless = samples.finding("SW104", title="needless-copy", edits=repairs.WINNER.edits, fingerprint="needless")
    other = msgspec.structs.replace(needless, edits=())
    found = {
        finding.edits: repairs.repair(repairs.WINNER, findings=(finding,), left=()) for finding in (needless, other)
    }
    assert codes(found[needless.edits]) == ["SW104"]
    assert codes(found[()]) == []


def test_sarif_without_findings_has_the_sentence():
    run = sarif(repairs.NOTHING)
    assert run["results"] == []
    (note,) = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"].startswith("Nothing to win: 9 edits were tried")


def test_a_forecast_is_held_against_what_was_measured():
    planned = repairs.trial(candidate="step-plan", kept=True, forecast=0.8)
    text = rendered(repairs.repair(planned, together=repairs.together()))
    assert "  plan    forecast 1.25x\n" in text
    off = msgspec.structs.replace(planned, kept=False, verdict="no difference", forecast_off="measured 1.02x")
    assert "the forecast was 1.25x, measured 1.02x" in " ".join(rendered(repairs.repair(off)).split())


def test_a_cell_of_a_notebook_is_changed_there():
    cell = msgspec.structs.replace(repairs.OWN, file="<ipython-input-1>", is_cell=True)
    text = rendered(msgspec.structs.replace(repairs.TWO, files=(cell,)), call=CALL)
    assert "Next: change <ipython-input-1> in the notebook." in text


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.877, 0.9905, "1.01 to 1.14"),  # no win: 1.0096x
        (0.877, 0.9899, "1.0102 to 1.1403"),  # a win by a hair
        (0.877, 0.98, "1.02 to 1.14"),
        (1.0102, 1.2, "0.8333 to 0.9899"),  # lost by a hair
        (1.01, 1.2, "0.8333 to 0.9901"),  # not lost: 0.9901x
    ],
)
def test_an_interval_shows_on_which_side_of_a_bound_it_lies(low, high, shown):
    assert figures.interval(repairs.together(ratio=(low * high) ** 0.5, low=low, high=high)) == shown


def test_all_figures_of_a_table_have_as_many_decimals():
    won = repairs.trial(ratio=0.93, low=0.877, high=0.9899)
    unclear = repairs.level(ratio=0.94, low=0.893, high=0.9905)
    text = rendered(repairs.repair(won, unclear, repairs.LEVEL))
    assert "wins if the interval lies above 1.0101x" in " ".join(text.split())
    assert "won alone      1.0753x" in text
    assert "unclear        1.0638x" in text
    assert "no difference  0.9980x" in text
    assert "interval 1.0102 to 1.1403" in text
    assert "interval 1.0096 to 1.1198" in text
