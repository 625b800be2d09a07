"""What an experiment measures with."""

import pytest
import torch
from tests.lab.conftest import HASTY

from stridewise.errors import UsageError
from stridewise.lab.bench import Bench
from stridewise.lab.devices import Processor, device
from stridewise.results.lab import Copied, Prediction


def test_copies_are_counted_by_who_asked_for_them(bench):
    x = torch.randn(8, 16, 4).transpose(1, 2)
    found = bench.compare(
        "softmax",
        {
            "dense": lambda: torch.softmax(x.contiguous(), -1),
            "view": lambda: torch.softmax(x, -1),
            "twice": lambda: torch.softmax(x, -1) + x.contiguous(),
        },
    )
    dense, view, twice = found.comparison().arms
    assert (dense.hidden, {kind: each.copies for kind, each in dense.copies.items()}) == (0, {"explicit": 1})
    assert (view.hidden, view.bytes_moved) == (1, 2 * 4 * x.numel())
    assert (twice.hidden, twice.bytes_moved) == (1, 4 * 4 * x.numel())
    assert found.copies("view").came_true
    assert found.copies_nothing("dense").came_true
    assert not found.copies_nothing("view").came_true
    assert not found.copies("view", least=2).came_true


def test_a_copy_in_front_of_a_module_and_one_behind_it_are_counted(bench):
    layer, x = torch.nn.Linear(8, 8), torch.randn(8, 4).t()
    found = bench.compare(
        "linear",
        {
            "layer(x)": lambda: layer(x),
            "layer(x.contiguous())": lambda: layer(x.contiguous()),
            "layer(x).t().contiguous()": lambda: layer(x).t().contiguous(),
        },
        timed=False,
    )
    explicit = [record.by_kind.get("explicit") for record in found.records.values()]
    assert explicit == [None, Copied(1, 2 * x.nbytes), Copied(1, 2 * x.nbytes)]


def test_results_are_compared_with_those_of_the_first_arm(bench):
    x = torch.randn(64, 64)
    found = bench.compare(
        "sums",
        {
            "first": lambda: (x, x.sum(0)),
            "equal": lambda: (x.clone(), x.sum(0)),
            "close": lambda: (x, x.sum(0) * (1 + 1e-6)),
            "other": lambda: (x + 1, x.sum(0)),
            "other shape": lambda: (x, x.sum()),
            "nothing": lambda: None,
        },
    )
    assert [arm.same for arm in found.comparison().arms] == [
        None, "bit by bit", "within rounding", "different", "different", None,
    ]  # fmt: skip
    assert found.agree("equal", bits=True).came_true
    assert found.agree("close").came_true
    assert not found.agree("close", bits=True).came_true
    assert not found.agree("other").came_true
    assert not found.agree("nothing").came_true


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (None, None, None),
        (torch.ones(2), None, None),
        (True, False, None),
        ([torch.ones(2), 3], [torch.ones(2), 4], "different"),
        ([torch.ones(2)], [torch.ones(2), torch.ones(2)], "different"),
        ((torch.ones(2), 3), [torch.ones(2), 3], "bit by bit"),
        (torch.tensor([float("inf"), 1.0]), torch.tensor([float("inf"), 999.0]), "different"),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([float("nan"), 1.0]), "within rounding"),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([1.0, 1.0]), "different"),
        (torch.empty(0), torch.empty(0), "bit by bit"),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2) * 1.01, "within rounding"),
    ],
)
def test_sameness(bench, one, other, same):
    found = bench.compare("results", {"one": lambda: one, "other": lambda: other}, timed=False)
    assert found.same["other"] == same


@pytest.mark.parametrize(
    ("on_gpu", "off", "options", "same"),
    [
        (False, 1e-3, {}, "different"),
        (True, 1e-3, {}, "within rounding"),  # of the products of 10 bits that cuDNN makes
        (True, 1e-2, {}, "different"),
        (False, 1e-3, {"tolerance": 1e-2}, "within rounding"),
        (True, 1e-3, {"tolerance": 1e-5}, "different"),
    ],
)
def test_what_rounding_may_change(bench, stand_in, ranks, on_gpu, off, options, same):
    bench = Bench(stand_in, HASTY, ranks) if on_gpu else bench
    one = torch.tensor([1.0, 0.5])
    found = bench.compare("results", {"one": lambda: one, "other": lambda: one + off}, timed=False, **options)
    assert found.same["other"] == same


def test_time_predictions_need_the_whole_interval(bench):
    from stridewise.lab.compared import Compared
    from stridewise.measure.rounds import Rounds

    record = bench.record(lambda: None)
    one = tuple(1e6 for _ in range(8))
    samples = Rounds((one, tuple(2e6 + at for at in range(8)), tuple(1e6 * (0.5, 3.0)[at % 2] for at in range(8))))
    found = Compared("arms", dict.fromkeys(("one", "two", "noisy"), record), {}, samples)
    assert found.slower("two", than="one", by=1.9).came_true is True
    assert found.slower("two", than="one", by=2.1).came_true is False
    assert found.faster("one", than="two", by=1.9).came_true is True
    assert found.faster("two", than="one").came_true is False
    assert found.no_slower("two", than="one").came_true is False
    assert found.no_slower("two", than="one", by=2.1).came_true is True
    assert found.slower("two", than="one").measured == "it takes 2.00x its time (2.00 to 2.00)"
    assert found.faster("one", than="two").measured == "it takes 0.50x its time (0.50 to 0.50)"
    for made in (
        found.slower("noisy", than="one"),
        found.faster("noisy", than="one"),
        found.no_slower("noisy", than="one"),
    ):
        assert (made.came_true, made.unclear) == (None, True)
        assert made.measured.endswith("which leaves it open")


def test_arms_run_without_gradients_unless_asked(bench):
    weight = torch.randn(4, 4, requires_grad=True)
    seen = []
    bench.compare("off", {"mm": lambda: seen.append((weight @ weight).requires_grad)}, timed=False)
    bench.compare("on", {"mm": lambda: seen.append((weight @ weight).requires_grad)}, timed=False, grad=True)
    assert seen[0] is False
    assert seen[-1] is True


def test_what_is_not_timed_is_no_comparison_of_the_report(bench):
    found = bench.compare("counted", {"a": lambda: None}, timed=False)
    assert bench.compared == []
    with pytest.raises(ValueError, match="not timed"):
        found.slower("a", than="a")


def test_a_gpu_is_timed_by_events(stand_in, ranks):
    bench = Bench(stand_in, HASTY, ranks)
    x = bench.randn(4, 4)
    found = bench.compare("adds", {"x + x": lambda: x + x, "x * 2": lambda: x * 2}).comparison()
    assert bench.on_gpu
    assert {arm.median_ns for arm in found.arms} == {0.5e6}


def test_events_of_a_gpu_lie_around_all_calls_and_are_read_when_they_are_over(stand_in):
    calls = stand_in.cuda.calls
    assert stand_in.time(lambda: calls.append("run"), 2) == 0.5e6
    assert calls == ["synchronize", "record", "run", "run", "record", "synchronize", "elapsed"]


def test_a_gpu_is_waited_for(stand_in):
    Bench(stand_in, HASTY, ranks=None).record(lambda: stand_in.cuda.calls.append("run"))
    assert stand_in.cuda.calls == ["run", "synchronize"]


def test_a_processor_counts_all_calls():
    calls = []
    assert Processor().time(lambda: calls.append(1), 5) > 0
    assert len(calls) == 5


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there():
    with pytest.raises(UsageError, match="no GPU"):
        device("cuda")


def test_predictions_keep_what_was_seen(bench):
    bench.expect("C1", "three are seen", 3 == 3, 3)
    bench.untested("C1", "faster on a GPU", "there is none")
    assert bench.predictions == [
        ("C1", Prediction("three are seen", True, "3")),
        ("C1", Prediction("faster on a GPU", None, "there is none")),
    ]
