"""`stridewise diff`: what it takes, and what it exits with."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import stridewise
from stridewise.cli import main
from stridewise.errors import UsageError
from stridewise.report import render

from ..report import pairs


def call(*arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["diff", *map(str, arguments)])
    out, err = capsys.readouterr()
    return caught.value.code, out, err


@pytest.fixture(autouse=True)
def _in_a_folder_with_two_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, report in (("old.json", pairs.BEFORE), ("new.json", pairs.AFTER)):
        with open(name, "w", encoding="utf-8") as out:
            render(report, "json", out)


def trace(path, copies, steps, *, shapes=True):
    """A trace of torch.profiler with so many transposing copies in each of its steps."""
    events = []
    for step in range(steps):
        at = 1000.0 * step
        events.append(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{step}",
                "pid": 1,
                "tid": 1,
                "ts": at,
                "dur": 900,
            }
        )
        for number in range(copies):
            args = {"Input Dims": [[64, 32], [64, 32], []], "Input Strides": [[32, 1], [1, 64], []]}
            args |= {"Input type": ["float", "float", "Scalar"], "Concrete Inputs": ["", "", "False"]}
            events.append(
                {
                    **{"ph": "X", "cat": "cpu_op", "name": "aten::copy_", "pid": 1, "tid": 1},
                    **{"ts": at + 10 + 20 * number, "dur": 10, "args": args if shapes else {}},
                }
            )
    Path(path).write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))


def test_worse_is_code_1(capsys):
    code, out, err = call("old.json", "new.json", capsys=capsys)
    assert (code, err) == (1, "")
    assert out.startswith("Layout got worse: 2 copies more a step (14 → 16), and 6.1 MB more to move")


def test_better_and_same_are_code_0(capsys):
    assert call("new.json", "old.json", capsys=capsys)[0] == 0
    assert call("old.json", "old.json", capsys=capsys) == (
        0,
        "Nothing got worse: 14 copies and 35 MB a step, as before.\n",
        "",
    )


@pytest.mark.parametrize(("tolerance", "code"), [("0", 1), ("5%", 1), ("0.2", 0), ("20 %", 0)])
def test_tolerance(tolerance, code, capsys):
    assert call("--tolerance", tolerance, "old.json", "new.json", capsys=capsys)[0] == code


@pytest.mark.parametrize("tolerance", ["5", "-1", "nan", "5kB", ""])
def test_a_tolerance_that_is_none(tolerance, capsys):
    code, out, err = call(f"--tolerance={tolerance}", "old.json", "new.json", capsys=capsys)
    assert (code, out) == (2, "")
    assert err == f"stridewise: --tolerance `{tolerance}` is no share from 0 to 100 %: it reads 5% or 0.05\n"


def test_codes(capsys):
    assert call("--select", "SW103", "new.json", "old.json", capsys=capsys)[0] == 0
    code, out, _ = call("--ignore", "SW103", "--format", "json", "old.json", "new.json", capsys=capsys)
    assert (code, {row["code"] for row in json.loads(out)["findings"]}) == (1, {"SW101"})
    Path("pyproject.toml").write_text('[tool.stridewise]\nselect = ["SW103"]')
    assert "1 copy more a step (0 → 1)" in call("old.json", "new.json", capsys=capsys)[1]


def test_formats_and_output(capsys):
    code, out, _ = call("--format", "github", "old.json", "new.json", capsys=capsys)
    assert (code, out.count("::warning "), out.count("::error ")) == (1, 2, 1)
    assert call("--format", "json", "--output", "diff.json", "old.json", "new.json", capsys=capsys) == (1, "", "")
    assert json.loads(Path("diff.json").read_text())["worse"] == ["copies", "bytes_moved"]
    assert call("--format", "sarif", "old.json", "new.json", capsys=capsys)[0] == 2


def test_traces_of_different_length(capsys):
    trace("three.json.gz", 2, 3)
    trace("five.json.gz", 2, 5)
    trace("more.json.gz", 3, 4)
    assert call("three.json.gz", "five.json.gz", capsys=capsys) == (
        0,
        "Nothing got worse: 2 copies and 33 kB a step, as before.\n",
        "",
    )
    code, out, _ = call("three.json.gz", "more.json.gz", capsys=capsys)
    assert (code, out.startswith("Layout got worse: 1 copy more a step (2 → 3)")) == (1, True)


def test_a_trace_against_its_own_report(capsys):
    trace("trace.json.gz", 2, 3)
    with pytest.raises(SystemExit):
        main(["trace", "--format", "json", "--output", "report.json", "trace.json.gz"])
    for names in (("trace.json.gz", "report.json"), ("report.json", "trace.json.gz")):
        assert call(*names, capsys=capsys)[:2] == (0, "Nothing got worse: 2 copies and 33 kB a step, as before.\n")


def test_a_trace_without_shapes(capsys):
    trace("with.json", 2, 3)
    trace("without.json", 2, 3, shapes=False)
    code, out, _ = call("without.json", "with.json", capsys=capsys)
    assert code == 0
    assert out.startswith("Whether layout got worse cannot be told: OLD was recorded without strides.")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "bad.json does not exist."),
        ('{"findings": [], "schema_version": 7}', "bad.json is a report of schema version 7"),
        ('{"findings": [], "schema_version": 1}', "bad.json is no report that can be read"),
        ("not json", "bad.json"),
        ("", "bad.json"),
    ],
    ids=["missing", "newer", "not whole", "no json", "empty"],
)
def test_bad_input_is_code_2(content, message, capsys):
    if content is not None:
        Path("bad.json").write_text(content)
    for names in (("bad.json", "new.json"), ("new.json", "bad.json")):
        code, out, err = call(*names, capsys=capsys)
        assert (code, out) == (2, "")
        assert err.startswith(f"stridewise: {message}")
        assert len(err.splitlines()) == 1


def test_two_files_are_wanted(capsys):
    code, out, err = call("old.json", capsys=capsys)
    assert (code, out) == (2, "")
    assert "Missing argument 'NEW'" in err


def test_torch_is_not_imported():
    code = "import sys; from stridewise.cli import app; app._exit_code(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    trace("trace.json.gz", 2, 3)
    for name in ("new.json", "trace.json.gz"):
        subprocess.run([sys.executable, "-c", code, "diff", "old.json", name], check=True, capture_output=True)


# ------------------------------------------------------------------------------------------------------------- library


def test_the_library_takes_reports_recordings_and_files(tmp_path):
    trace("trace.json.gz", 2, 3)
    recording = stridewise.load("trace.json.gz")
    for source in (recording, "trace.json.gz", tmp_path / "trace.json.gz", stridewise.analyze(recording)):
        diff = stridewise.diff(source, "new.json", tolerance=0.1)
        assert (diff.ok, diff.worse) == (False, ("copies", "bytes_moved"))
        assert str(diff) == repr(diff)
        assert str(diff).startswith("Layout got worse: 14 copies more a step (2 → 16)")
        assert json.loads(diff.to_json())["totals"]["cost"]["copies"] == {"old": 2, "new": 16, "delta": 14}


@pytest.mark.parametrize(
    ("old", "tolerance"), [(3, 0.0), (None, 0.0), ("new.json", -0.1), ("new.json", float("nan"))], ids=repr
)
def test_what_the_library_does_not_take(old, tolerance):
    with pytest.raises(UsageError, match=r"^diff\(\) was given"):
        stridewise.diff(old, "new.json", tolerance=tolerance)
