"""`stridewise trace` with many files: what it says, where, and what it exits with."""

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stridewise.cli import main

from ..fleet import traces

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["trace", *map(str, arguments)])
        code = caught.value.code
        assert isinstance(code, int)
        return code, *capsys.readouterr()

    return run


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    traces.fleet(tmp_path / "runs", 4, odd=2)
    return [f"runs/rank{rank}.json" for rank in range(4)]


@pytest.mark.parametrize(
    "names",
    [
        ["runs"],
        ["runs/rank*.json"],
        ["runs/rank0.json", "runs/rank[0-3].json"],
        [f"runs/rank{r}.json" for r in range(4)],
    ],
)
def test_many_files_are_one_report(names: list[str], call: Call) -> None:
    code, out, err = call(*names)
    assert (code, err) == (0, "")
    assert out.startswith("On all 4 ranks layout costs")
    assert "1 of 4 ranks unlike the others:\n  rank 2: " in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    "names", [["runs/rank0.json"], ["runs/rank[0].json"], ["runs/rank0.json", "./runs/rank0.json"]]
)
def test_one_file_is_reported_on_as_ever(names: list[str], call: Call) -> None:
    code, out, err = call(*names)
    assert (code, err) == (0, "")
    assert out == call("runs/rank0.json")[1]
    assert out.startswith("Layout costs ")
    assert json.loads(call("--format", "json", *names)[1])["totals"]["copies"] == 2


def test_json(call: Call) -> None:
    code, out, err = call("--format", "json", "runs")
    fleet = json.loads(out)
    assert (code, err) == (0, "")
    assert [row["at"]["rank"] for row in fleet["rows"]] == [0, 1, 2, 3]
    assert (fleet["schema_version"], fleet["outliers"][0]["at"]["file"]) == (1, "runs/rank2.json")


def test_github(call: Call) -> None:
    code, out, err = call("--format", "github", "runs")
    assert (code, err) == (0, "")
    assert out.count("::warning ") == 1
    assert "On all 4 ranks." in out


def test_a_bad_file_is_in_the_report(call: Call) -> None:
    Path("runs/rank9.json").write_text("nonsense")
    code, out, err = call("runs", "runs/rank5.json")
    assert (code, err) == (0, "")
    assert "2 of 6 files could not be read:" in out
    assert "  runs/rank5.json does not exist." in out
    assert call("--format", "github", "runs")[1].count("::warning title=stridewise::runs/rank9.json could not") == 1


def test_only_bad_files_are_code_2(call: Call) -> None:
    assert call("a.json", "b.json") == (
        2,
        "",
        "stridewise: None of 2 files could be read.\nThe first: a.json does not exist.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs/*.pt"], "no file matches runs/*.pt"),
        (["empty"], "empty is a folder without a .json, .json.gz or .sqlite file"),
        (["--format", "sarif", "runs"], "--format sarif takes one FILE, and 4 are given: call once for each"),
        (["--copies", "runs"], "--copies takes one FILE, and 4 are given: call once for each"),
        (
            ["--workers", "2", "--cluster", "h:1", "runs"],
            "--workers is for this machine, and --cluster has its own: give one of them",
        ),
        (["--cluster", "http://h/", "runs"], "`http://h/` is no address of a Dask scheduler, such as tcp://HOST:8786"),
    ],
)
def test_mistakes_are_one_line_and_code_2(arguments: list[str], message: str, call: Call) -> None:
    Path("empty").mkdir()
    assert call(*arguments) == (2, "", f"stridewise: {message}\n")


def test_a_cluster_that_is_not_there(call: Call) -> None:
    before = time.monotonic()
    code, out, err = call("--cluster", "tcp://127.0.0.1:1", "runs")
    assert (code, out) == (2, "")
    assert err.startswith("stridewise: the cluster at tcp://127.0.0.1:1 can't be reached")
    assert len(err.splitlines()) == 1
    assert time.monotonic() - before < 30


def test_a_budget_is_for_each_file(call: Call) -> None:
    code, out, err = call("--budget", "copies=5", "runs")
    assert code == 1
    assert out.startswith("On all 4 ranks")
    assert err == "stridewise: over budget: runs/rank2.json: copies: 9 a step, the budget allows 5\n"
    assert call("--budget", "copies=9", "runs")[0] == 0


def test_many_that_exceed_it_are_not_all_listed(tmp_path: Path, call: Call) -> None:
    traces.fleet(tmp_path / "runs", 30)
    lines = call("--budget", "copies=1", "runs")[2].splitlines()
    assert len(lines) == 11
    assert lines[-1] == "stridewise: over budget: 20 more lines such as these"


def test_nobody_knows_whether_an_unread_file_keeps_it(call: Call) -> None:
    code, _, err = call("--budget", "copies=99", "runs", "gone.json")
    assert (code, err) == (1, "stridewise: over budget: gone.json: it could not be read\n")


def test_output(tmp_path: Path, call: Call) -> None:
    assert call("--output", "report.json", "--format", "json", "runs") == (0, "", "")
    assert len(json.loads((tmp_path / "report.json").read_text())["rows"]) == 4


def program(*arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "stridewise", "trace", *arguments]
    return subprocess.run(command, text=True, timeout=120, **options)


def test_a_pipe_gets_the_report_and_nothing_else(call: Call) -> None:
    done = program("runs", "--workers", "2", capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == call("runs")[1]


def test_a_terminal_gets_a_bar() -> None:
    controller, terminal = pty.openpty()
    done = program("runs", stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    shown = os.read(controller, 100_000).decode()
    os.close(controller)
    assert done.returncode == 0
    assert "Reading 4 files" in shown
    assert "4/4" in shown
    assert done.stdout.startswith("On all 4 ranks")
