"""What the experiment about NVIDIA's profilers finds where one is installed, and where kernels run."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from stridewise.lab import session
from stridewise.lab.bench import Bench
from stridewise.lab.experiments import nsight
from stridewise.results.lab import ExperimentResult


def verdicts(bench: Bench) -> dict[str, str]:
    found: ExperimentResult = session.run_one(nsight.EXPERIMENT, bench)
    assert found.failed is None
    return {claim.number: claim.verdict for claim in found.claims}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a program named nsys on the path, and nothing else."""

    def write(script: str) -> None:
        program = tmp_path / "nsys"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    return write


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("echo; echo NVIDIA Nsight Systems version 2024.1", "does not hold"),
        ("echo NVIDIA Nsight Compute version 2024.1", "holds"),
        ("exit 1", "cannot be tested here"),
        ("echo unknown option", "cannot be tested here"),
    ],
)
def test_nsys_says_what_it_is(bench, install, script, verdict):
    install(script)
    assert verdicts(bench)["C84"] == verdict


def test_without_nsys_and_without_a_gpu_nothing_is_tested(bench, install):
    assert set(verdicts(bench).values()) == {"cannot be tested here"}


def test_kernels_do_not_say_what_a_window_lists(bench, monkeypatch):
    monkeypatch.setattr(bench, "record", lambda _: SimpleNamespace(copies=[], kernels=["nchwToNhwcKernel<float>"]))
    assert verdicts(bench)["C85"] == "cannot be tested here"
