"""The program as people start it, in processes of its own."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "train.py"


def stridewise(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stridewise", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
    )


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The training example, run once: the folder with its report and recording, and what it printed."""
    folder = tmp_path_factory.mktemp("example")
    options = ["--format", "json", "--copies", "--modules", "--output", "report.json", "--save", "recording.json.gz"]
    return folder, stridewise("run", *options, EXAMPLE, "--steps", "7", cwd=folder)


def test_run_is_the_script_and_a_report(example: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, result = example
    assert result.returncode == 0, result.stderr
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [f"step {number}" for number in range(7)]
    assert result.stderr == ""
    report = json.loads((folder / "report.json").read_text())
    assert report["schema_version"] == 1
    totals = report["totals"]
    assert totals["steps"] == 3
    assert totals["steps_found"]
    assert totals["copies"] == 13
    assert totals["share_of"] == "step time"
    assert sum(cost["copies"] for cost in totals["by_kind"].values()) == 13
    assert sum(cost["copies"] for cost in totals["by_change"].values()) == 13
    (finding,) = report["findings"]
    assert finding["code"] == "SW101"
    assert finding["origin"]["expression"] == "sound.permute(0, 2, 1)"
    assert Path(finding["origin"]["file"]).name == "train.py"
    line = EXAMPLE.read_text().splitlines()[finding["site"]["line"] - 1]
    assert line.encode()[finding["site"]["column"] : finding["site"]["end_column"]] == b"sound.permute(0, 2, 1)"
    in_steps = [copy for copy in report["copies"] if copy["step"] is not None and copy["taxed"]]
    assert len(in_steps) == 3 * 13
    assert {copy["finding"] for copy in in_steps} == {finding["fingerprint"]}
    assert {row["module"] for row in report["modules"]} >= {"Tagger", "layers.0", "layers.5.feed_forward.2", "head"}


def test_a_saved_recording_says_the_same(example: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = example
    result = stridewise("trace", "recording.json.gz", "--format", "json", cwd=folder)
    assert result.returncode == 0, result.stderr
    first: dict[str, Any] = json.loads((folder / "report.json").read_text())
    again = json.loads(result.stdout)
    assert again["totals"] == first["totals"]
    assert again["findings"] == first["findings"]


@pytest.mark.parametrize(
    ("budget", "code", "message"),
    [
        ("copies=13", 0, ""),
        ("copies=0,bytes=1MB", 1, "over budget"),
        ("forbid=SW101", 1, "SW101"),
        ("forbid=SW103", 0, ""),
        ("copies=many", 2, "copies"),
        ("cpies=1", 2, "cpies"),
        ("forbid=SW999", 2, "SW999"),
    ],
)
def test_a_budget_decides_the_exit_code(
    example: tuple[Path, subprocess.CompletedProcess[str]], budget: str, code: int, message: str
) -> None:
    result = stridewise("trace", "recording.json.gz", "--budget", budget, cwd=example[0])
    assert result.returncode == code, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_demo_shows_a_true_finding(tmp_path: Path) -> None:
    result = stridewise("demo", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Layout costs ")
    assert "warning[SW101] strided-stream" in result.stdout
    assert "self.patches(images).flatten(2).transpose(1, 2)" in result.stdout
    assert all(len(line) <= 100 for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "none.py"],
        ["run", "."],
        ["run", "--steps", "0", "script.py"],
        ["run", "--steps", "three", "script.py"],
        ["run", "--format", "pdf", "script.py"],
        ["run", "--select", "nonsense", "script.py"],
        ["run", "--output", "none/report.txt", "script.py"],
        ["run", "--save", "none/recording.json", "script.py"],
        ["run", "--unknown", "script.py"],
        ["run"],
        ["trace", "none.json"],
        ["trace", "."],
        ["trace", "text.json"],
        ["trace", "cut.json.gz"],
        ["trace", "odd.json"],
        ["trace", "script.py"],
        ["explain", "(2,3)", "(1)"],
        ["explain", "two"],
        ["explain", "(-2,3)"],
        ["rule", "SW999"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_bad_input_is_one_clear_message_and_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "script.py").write_text("raise SystemExit('the script ran')\n")
    (tmp_path / "text.json").write_text("hello\n")
    (tmp_path / "odd.json").write_text('{"traceEvents": {"a": [1]}}')
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}' * 100, mtime=0)[:-12])
    before = sorted(tmp_path.iterdir())
    result = stridewise(*arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stdout + result.stderr
    assert 1 <= len(result.stderr.splitlines()) <= 3
    assert "Traceback" not in result.stderr
    assert "the script ran" not in result.stderr
    assert result.stdout == ""
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--steps", "1", "--output", "/dev/full", str(EXAMPLE)],
        ["run", "--steps", "1", "--save", "/dev/full", str(EXAMPLE)],
        ["trace", "--output", "/dev/full", "recording.json.gz"],
        ["trace", "--annotate", "/dev/full", "recording.json.gz"],
        ["trace", "--format", "html", "--output", "/dev/full", "recording.json.gz"],
        ["trace", "recording.json.gz", "recording.json.gz", "--workers", "1", "--output", "/dev/full"],
        ["diff", "recording.json.gz", "recording.json.gz", "--output", "/dev/full"],
        ["lint", "--no-cache", "--output", "/dev/full", str(EXAMPLE)],
    ],
)
def test_what_cannot_be_written_is_one_line_and_exit_code_2(
    example: tuple[Path, subprocess.CompletedProcess[str]], arguments: list[str]
) -> None:
    result = stridewise(*arguments, cwd=example[0])
    assert result.returncode == 2, result.stderr
    assert result.stderr == "stridewise: /dev/full cannot be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["run", "quiet.py"], ["trace", "recording.json.gz"], ["rule"], ["--help"]])
def test_a_standard_output_that_is_full_is_one_line_and_exit_code_2(
    example: tuple[Path, subprocess.CompletedProcess[str]], arguments: list[str]
) -> None:
    (example[0] / "quiet.py").write_text("import torch\n\ntorch.randn(4, 4).t().reshape(-1)\n")
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "stridewise", *arguments],
            cwd=example[0],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("stridewise: standard output cannot be written: ")
    assert len(result.stderr.splitlines()) == 1
