"""Edits of transformers models: tried on each, refused or kept by the rules, and gone again afterwards.

Times are simulated (`tests/repair/simulated.py`); what edits do to results and copies is real.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import stridewise
from stridewise.recorder.tensors import tensors_in
from stridewise.repair.trial import bench
from stridewise.repair.trial import session as sessions

from . import models

sys.path.insert(0, str(Path(__file__).parents[1] / "repair"))
from simulated import SimulatedTimer

CASES = [
    ("whisper", False), ("whisper", True), ("swin", False), ("segformer", False),
    ("bert", True), ("vit", False), ("wav2vec2", False), ("mamba", False), ("convnext", True), ("gpt2", True),
    ("llama", False), ("resnet", False), ("resnet_channels_last", False),
]  # fmt: skip


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "Timer", SimulatedTimer)
    monkeypatch.setattr(sessions, "REPLAYED", 0.0)


def outputs(model: Any, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    with torch.no_grad():
        return [tensor.clone() for _, tensor in tensors_in(model(**inputs))]


@pytest.mark.parametrize(("name", "train"), CASES, ids=lambda value: str(value))
def test_trials(name: str, train: bool) -> None:
    torch.manual_seed(0)
    model, inputs = models.MODELS[name]()
    model.eval()
    before = outputs(model, inputs)
    repair = stridewise.fix(model, train=train, time_limit=1000, **inputs)
    assert all(map(torch.equal, before, outputs(model, inputs)))
    assert not repair.untried
    for trial in repair.trials:
        assert (trial.reason is not None) or trial.verdict != "refused"
        assert trial.verdict != "won" or trial.equal
    if not repair.won:
        assert repair.diff == ""
        return
    assert repair.together is not None
    assert repair.together.verdict == "won"
    assert all(row.installed for row in repair.files)
    if not any(conversion for trial in repair.won for conversion in [trial.candidate == "channels-last-model"]):
        repair.apply()
        after = stridewise.diagnose(model, train=train, **inputs)
        assert after.totals.copies == repair.together.copies_after
