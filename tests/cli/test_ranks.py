"""`stridewise run` on every rank of a real torchrun: two and four gloo ranks, one of which dies."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from stridewise.cli import ranks
from stridewise.errors import UsageError

TRAIN = """
import os, signal, sys, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, last = dist.get_rank(), dist.get_world_size() - 1
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Linear(8, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for number in range(1, 9):
    if os.environ.get("DIES_AT") == str(number):
        if rank == last:
            os.kill(os.getpid(), signal.SIGKILL)
        while "WAIT" in os.environ:  # else it runs into a collective with the dead rank
            time.sleep(0.1)
    x = torch.randn(16, 32) if rank == 1 and "ODD" in os.environ else torch.randn(32, 16).t()
    optimizer.zero_grad()
    model(x.reshape(-1, 64)).sum().backward()
    optimizer.step()
print(f"rank {rank} is done", flush=True)
dist.destroy_process_group()
sys.exit(int(os.environ.get("CODE", "0")))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def torchrun(script: Path, number: int, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    launch = ["torch.distributed.run", "--standalone", f"--nproc-per-node={number}", "-m", "stridewise"]
    return subprocess.run(
        [sys.executable, "-m", *launch, "run", "--min-share", "0", *options, script.name],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=110,
        env={**inherited, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **environ},
    )


def test_rank_0_reports_on_both(script, tmp_path):
    stale = tmp_path / "kept" / "rank7.json.gz"
    stale.parent.mkdir()
    stale.write_bytes(b"of an earlier run")
    other = tmp_path / "kept" / "notes.json"
    other.write_text("{}")
    ran = torchrun(script, 2, "--save", "kept", ODD="1")
    assert ran.returncode == 0, ran.stderr
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [
        "notes.json",
        "rank0.json.gz",
        "rank1.json.gz",
    ]
    assert ran.stdout.count("rank 0 is done") == ran.stdout.count("rank 1 is done") == 1
    assert ran.stdout.count("layout costs") == 1
    assert "1 of 2 ranks" in ran.stdout
    assert "requested-copy" in ran.stdout


def test_a_killed_rank_is_named_and_the_others_are_kept(script, tmp_path):
    ran = torchrun(script, 4, "--save", "kept/", "--format", "json", "--output", "all.json", DIES_AT="4", WAIT="1")
    assert ran.returncode == 1
    assert "stridewise: no recording of rank 3 of 4: it died" in ran.stderr
    assert f"stridewise trace {tmp_path / 'kept'}" in ran.stderr
    fleet = json.loads((tmp_path / "all.json").read_text())
    assert [failure["at"]["rank"] for failure in fleet["failures"]] == [3]
    assert [row["at"]["rank"] for row in fleet["rows"]] == [0, 1, 2]
    assert {row["steps"] for row in fleet["rows"]} == {1}  # the same one: the third, of which all made one copy
    assert {row["copies"] for row in fleet["rows"]} == {1}


def test_ranks_that_wait_for_the_killed_one_in_a_collective_are_kept(script, tmp_path):
    """A rank may wait there for rank 0 until that has ended: rank 0 says what it had not seen by then."""
    ran = torchrun(script, 4, "--save", "kept/", "--format", "json", "--output", "all.json", DIES_AT="4")
    assert ran.returncode == 1
    assert re.search(r"stridewise: no recording of rank (1, )?(2, )?3 of 4: it died", ran.stderr), ran.stderr
    fleet = json.loads((tmp_path / "all.json").read_text())
    assert [failure["at"]["rank"] for failure in fleet["failures"]][-1] == 3
    assert fleet["rows"][0]["at"]["rank"] == 0
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {f"rank{rank}.json.gz" for rank in range(3)}


@pytest.mark.parametrize("meanwhile", [{}, {"WAIT": "1"}], ids=["it fails, too", "it is ended by the launcher"])
def test_a_rank_that_is_alone_at_the_end_says_what_to_do(meanwhile, script, tmp_path):
    """The other rank died before it recorded anything."""
    ran = torchrun(script, 2, "--save", "kept", "--warmup", "1", DIES_AT="2", **meanwhile)
    assert ran.returncode == 1
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["rank0.json.gz"]
    assert "no recording of rank 1 of 2" in ran.stderr
    assert ran.stdout.count("Layout ") == 1


def test_a_budget_holds_for_each_rank(script):
    ran = torchrun(script, 2, "--save", "kept", "--budget", "copies=0", ODD="1")
    assert ran.returncode == 1
    assert "stridewise: rank 0: over budget: copies: 1 a step, the budget allows 0" in ran.stderr
    assert "rank 1: over budget" not in ran.stderr


def test_without_a_folder_rank_0_alone_reports_on_itself(script):
    ran = torchrun(script, 2, CODE="7")
    assert "exitcode  : 7" in ran.stderr
    assert ran.stdout.count("Layout costs") == 1
    assert "this is of rank 0 of 2; --save FOLDER/ brings all together" in ran.stderr


# -- where recordings go -----------------------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


def test_a_folder_without_ranks_gets_one_recording(alone, tmp_path):
    assert ranks.find_place(None).file is None
    assert ranks.find_place(str(tmp_path / "a.json")).file == tmp_path / "a.json"
    assert ranks.find_place(str(tmp_path)).file == tmp_path / "recording.json.gz"
    place = ranks.find_place(f"{tmp_path}/new/folder/")
    assert place.file == tmp_path / "new" / "folder" / "recording.json.gz"
    assert place.folder is None
    assert place.reports


def test_all_ranks_cannot_write_one_file(alone, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UsageError, match="is one file, and there are 2 ranks"):
        ranks.find_place(str(tmp_path / "all.json.gz"))
    monkeypatch.setenv("RANK", "1")  # it has been said
    with pytest.raises(typer.Exit):
        ranks.find_place(str(tmp_path / "all.json.gz"))
    place = ranks.find_place(str(tmp_path / "all"))
    assert place.file == tmp_path / "all" / "rank1.json.gz"
    assert not place.reports


def test_a_rank_removes_its_own_old_recording_and_rank_0_all_of_them(alone, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    names = ("rank0.json.gz", "rank1.json.gz", "rank5.json.gz", "rank1.json", "other.json.gz")
    for name in names:
        (tmp_path / name).write_text("")
    monkeypatch.setenv("RANK", "1")
    ranks.find_place(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {*names} - {"rank1.json.gz"}
    monkeypatch.setenv("RANK", "0")
    ranks.find_place(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"rank1.json", "other.json.gz"}


@pytest.mark.parametrize("options", [("--format", "sarif"), ("--copies",), ("--compiled",)], ids=str)
def test_what_a_report_on_all_ranks_cannot_show_is_refused_before_the_script_runs(options, alone, script, monkeypatch):
    environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "2"}
    ran = subprocess.run(
        [sys.executable, "-m", "stridewise", "run", "--save", "kept/", *options, script.name],
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=60,
        env=environ,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "here the report is of all ranks" in ran.stderr


def test_sigterm_ends_a_rank_as_it_would_and_keeps_what_was_recorded(alone, script, tmp_path):
    waits = tmp_path / "waits.py"
    waits.write_text(
        "import os, signal, torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "for number in range(3):\n"
        "    model(torch.randn(2, 4)).sum().backward()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "while True:\n"
        "    pass\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "stridewise", "run", "--save", "kept/", waits],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == -15
    assert (tmp_path / "kept" / "rank1.json.gz").is_file()
