"""Two processes that answer together."""

import importlib

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
