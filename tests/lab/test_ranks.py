"""Two processes that answer together."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from stridewise.lab.ranks import Ranks

FUNCTIONS = """
import os
import torch
import torch.distributed as dist

def summed(rank):
    value = torch.tensor([rank + 1.0])
    dist.all_reduce(value)
    print("what a rank prints is no answer")
    return value.item()

def broken(rank):
    if rank == 1:
        raise ValueError("no")

def killed(rank):
    if rank == 1:
        os._exit(3)
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """A module that the ranks can import too."""
    (tmp_path / "functions_for_ranks.py").write_text(FUNCTIONS)
    (tmp_path / "sitecustomize.py").write_text("print('what a start prints is no answer')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return importlib.import_module("functions_for_ranks")


def test_they_reduce_together_stay_for_the_next_question_and_start_again_after_a_failure(functions):
    with Ranks() as ranks:
        assert ranks.call(functions.summed) == [3.0, 3.0]
        first = [rank.process for rank in ranks._ranks]
        assert ranks.call(functions.summed) == [3.0, 3.0]
        assert [rank.process for rank in ranks._ranks] == first
        with pytest.raises(RuntimeError, match="rank 1: ValueError: no"):
            ranks.call(functions.broken)
        assert all(process.poll() is not None for process in first)
        assert ranks.call(functions.summed) == [3.0, 3.0]
        with pytest.raises(RuntimeError, match="rank 1 died"):
            ranks.call(functions.killed)
        assert ranks.call(functions.summed) == [3.0, 3.0]
        last = [rank.process for rank in ranks._ranks]
    assert all(process.poll() is not None for process in last)


def listening(process: psutil.Process) -> set[str]:
    """The addresses that a process and its children listen on."""
    every = (process, *process.children(recursive=True))
    return {each.laddr.ip for one in every for each in one.net_connections() if each.status == psutil.CONN_LISTEN}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_nothing_listens_beyond_loopback_and_nothing_stays(functions, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, open_before = listening(psutil.Process()), os.listdir("/proc/self/fd")
    with Ranks() as ranks:
        ranks.call(functions.summed)
        assert listening(psutil.Process()) - before <= {"127.0.0.1", "::1"}
        assert [folder.stat().st_mode & 0o077 for folder in tmp_path.glob("stridewise-lab-*")] == [0]
    assert os.listdir("/proc/self/fd") == open_before
    assert list(tmp_path.glob("stridewise-lab-*")) == []


KILLED = """
import os, signal
from functions_for_ranks import summed
from stridewise.lab.ranks import Ranks
with Ranks() as ranks:
    ranks.call(summed)
    print(*(rank.process.pid for rank in ranks._ranks), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ranks_of_a_process_that_was_killed_end_and_leave_nothing(functions, tmp_path):
    folder = tmp_path / "tmp"
    folder.mkdir()
    environ = {**os.environ, "TMPDIR": str(folder)}
    run = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, env=environ, timeout=120)
    ranks = set(map(int, run.stdout.split()[-2:]))
    _, left = psutil.wait_procs([process for process in psutil.process_iter() if process.pid in ranks], timeout=60)
    assert left == []
    assert list(folder.glob("stridewise-lab-*")) == []
