"""What the tests of the lab share."""

import pytest

from stridewise.lab.bench import Bench, Effort
from stridewise.lab.devices import Gpu, Processor
from stridewise.lab.ranks import Ranks

HASTY = Effort(rounds=6, sample_ns=1.0, quick=True)
"""One call a sample: what is timed means nothing, and takes no time."""


class FakeEvent:
    """An event of a stream that ends at once."""

    made = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        FakeEvent.made += 1
        self.recorded = False

    def record(self) -> None:
        self.recorded = True

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert self.recorded
        assert end.recorded
        return 0.5


class FakeCuda:
    """What the lab uses of torch.cuda."""

    Event = FakeEvent
    synchronized = 0

    def synchronize(self) -> None:
        FakeCuda.synchronized += 1


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
