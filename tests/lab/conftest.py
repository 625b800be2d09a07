"""What the tests of the lab share."""

import pytest
import torch

from stridewise.lab.bench import Bench, Effort
from stridewise.lab.devices import Gpu, Processor
from stridewise.lab.ranks import Ranks

HASTY = Effort(rounds=6, sample_ns=1.0, quick=True)
"""One call a sample: what is timed means nothing, and takes no time."""


class FakeEvent:
    """An event of a stream that ends at once."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def record(self) -> None:
        self.calls.append("record")

    def elapsed_time(self, end: "FakeEvent") -> float:
        self.calls.append("elapsed")
        return 0.5


class FakeCuda:
    """What the lab uses of torch.cuda, and in which order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def Event(self, enable_timing: bool) -> FakeEvent:
        assert enable_timing
        return FakeEvent(self.calls)

    def synchronize(self) -> None:
        self.calls.append("synchronize")


@pytest.fixture(scope="session")
def ranks():
    with Ranks() as found:
        yield found


@pytest.fixture
def bench(ranks: Ranks) -> Bench:
    return Bench(Processor(), HASTY, ranks)


@pytest.fixture
def stand_in() -> Gpu:
    """A GPU whose tensors lie on the CPU."""
    return Gpu(FakeCuda(), place="cpu")


@pytest.fixture(autouse=True)
def flags_can_be_set(monkeypatch):
    """As in a program: torch's own tests, of which others here use a part, rule it out for the whole process."""
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
