"""Calls with strided operands are noted as they were, and measured on data that lies in memory as theirs did."""

import itertools
import math
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from torch.nn import functional as F

from stridewise.repair.plan.slow import Slow
from stridewise.repair.trial.capture import Signature, TensorSpec, capture
from stridewise.repair.trial.replay import Arm, Timer, _filled, event_timer, replay

x = torch.arange(4.0 * 6 * 8).reshape(4, 6, 8)
images = torch.arange(2.0 * 4 * 6 * 8).reshape(2, 4, 6, 8)


def functions(step: Callable[[], object]) -> list[str]:
    return [signature.call.function.__name__ for signature in capture(step)]


def costs(recorded: float, contiguous: float, with_copy: float, **channels_last: float) -> Timer:
    """A timer that runs nothing."""

    def timer(arm: Arm, times: int) -> float:
        if arm.format is None:
            return times * recorded
        if arm.format == "channels_last":
            return times * channels_last["with_copy_cl" if arm.copies else "channels_last"]
        return times * (with_copy if arm.copies else contiguous)

    return timer


def measured(step: Callable[[], object], timer: Timer, **options: Any) -> tuple[Slow, ...]:
    return replay(capture(step), deadline=1, clock=lambda: 0, timer=timer, **options)


def run_each(arm: Arm, times: int) -> float:
    arm()
    return float(times)


def spied(signature: Signature, seen: list[Any], look: Callable[[torch.Tensor], Any]) -> Signature:
    """The same signature of a function that looks at its first argument."""

    def spy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append(look(tensor))
        return tensor * 2

    return msgspec.structs.replace(signature, call=msgspec.structs.replace(signature.call, function=spy))


# ------------------------------------------------------------------------------------------------------------- capture


def test_a_call_is_noted_with_layouts_place_and_count() -> None:
    def step() -> None:
        for _ in range(3):
            x.transpose(1, 2).sum(0)

    (signature,) = capture(step)
    (operand,) = signature.call.tensors
    assert (operand.sizes, operand.strides, operand.path) == ((4, 8, 6), (48, 1, 8), (0,))
    assert signature.call.function is torch.Tensor.sum
    ((site, count),) = signature.sites
    assert (site.expression, count, site.via) == ("x.transpose(1, 2).sum(0)", 3, None)


def test_equal_calls_of_two_places_are_measured_once() -> None:
    def step() -> None:
        x.mT.exp()
        (x + 1).mT.exp()

    (signature,) = capture(step)
    assert [site.expression for site, _ in signature.sites] == ["x.mT.exp()", "(x + 1).mT.exp()"]


def test_arguments_that_only_compare_equal_are_told_apart() -> None:
    def step() -> None:
        for value in (1, 1.0, True):
            torch.mul(x.mT, value)

    assert len(capture(step)) == 3


@pytest.mark.parametrize(
    "step",
    [
        lambda: x.exp(),
        lambda: x.mT[..., 1:].unsqueeze(0),
        lambda: x.mT.contiguous(),
        lambda: x.mT.reshape(-1),
        lambda: x.clone().mT.add_(1),
        lambda: F.relu(x.clone().mT, inplace=True),
        lambda: torch.exp(x.mT, out=torch.empty(4, 8, 6)),
        lambda: x.mT.size(),
        lambda: x.mT.is_contiguous(),
        lambda: torch.equal(x.mT, x.mT),
        lambda: torch.bernoulli(x.mT / 1e9, generator=torch.Generator()),
        lambda: x.mT.to_sparse().sum(),
        lambda: torch.vmap(torch.Tensor.exp)(x.mT),
    ],
)
def test_what_is_left_out(step: Callable[[], object]) -> None:
    assert set(functions(step)) <= {"div", "to_sparse"}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("max_pool2d", lambda: F.max_pool2d(images.mT, 2)),
        ("__rsub__", lambda: 1 - x.mT),
        ("__getitem__", lambda: x.mT[:, torch.tensor([0, 2])]),
        ("cat", lambda: torch.cat([x, x.transpose(1, 2).mT, x[..., ::2]], 2)),
        ("dropout", lambda: F.dropout(x.mT)),
    ],
)
def test_what_is_noted(name: str, step: Callable[[], object]) -> None:
    assert name in functions(step)


def test_a_site_inside_torch_is_the_programs_own() -> None:
    norm = torch.nn.BatchNorm2d(4).eval()
    (signature,) = capture(lambda: norm(images.mT))
    ((site, _),) = signature.sites
    assert site.expression == "norm(images.mT)"
    assert site.via is not None
    assert "batchnorm" in site.via


def test_nothing_is_kept_alive() -> None:
    alive: list[weakref.ref[torch.Tensor]] = []

    def step() -> None:
        operand = torch.zeros(4, 6, dtype=torch.int64).t()
        alive.append(weakref.ref(operand))
        torch.add(operand, 1)

    signatures = capture(step)
    assert len(signatures) == 1
    assert alive[0]() is None


def test_a_module_keeps_its_fast_path() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    tokens = torch.randn(2, 5, 8)
    results: list[torch.Tensor] = []

    def step() -> None:
        with torch.no_grad():
            results.append(layer(tokens))

    step()
    assert capture(step) == ()
    assert torch.equal(*results)


def test_compiled_code_is_left_out_and_not_compiled_again() -> None:
    compiled = torch.compile(lambda tensor: tensor.mT.exp() + 1, backend="eager")
    compiled(x)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert functions(lambda: (compiled(x), x.mT.exp())) == ["exp"]


def test_the_mode_is_gone_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError):
        capture(lambda: 1 / 0)
    assert torch._C._len_torch_function_stack() == 0


# -------------------------------------------------------------------------------------------------------------- replay


def test_operands_lie_in_memory_as_those_of_the_step() -> None:
    (signature,) = capture(lambda: images[:, :2].expand(2, 2, 6, 8)[..., ::2].sum())
    seen: list[tuple[int, ...]] = []

    def timer(arm: Arm, times: int) -> float:
        arm()
        kinds.setdefault((arm.format, arm.copies), set()).add(seen[-1])
        return 1.0

    kinds: dict[Any, set[Any]] = {}
    replay([spied(signature, seen, torch.Tensor.stride)], deadline=1, clock=lambda: 0, timer=timer)
    assert kinds == {
        (None, False): {signature.call.tensors[0].strides},
        ("contiguous", False): {(48, 24, 4, 1)},
        ("contiguous", True): {(48, 24, 4, 1)},
        ("channels_last", False): {(48, 1, 8, 2)},
        ("channels_last", True): {(48, 1, 8, 2)},
    }


@pytest.mark.parametrize(
    ("sizes", "strides"), [((2, 3), (3, 1)), ((3, 2), (1, 3)), ((3, 4), (0, 2)), ((3, 3), (1, 1)), ((0, 2), (2, 1))]
)
def test_integers_are_replayed_with_their_values(sizes: tuple[int, ...], strides: tuple[int, ...]) -> None:
    operand = torch.arange(20).as_strided(sizes, strides)
    spec = TensorSpec(0, 0, (0,), sizes, strides, torch.int64, torch.device("cpu"), False)
    made = _filled(spec, operand.contiguous().numpy().tobytes())
    assert torch.equal(made, operand)
    assert made.stride() == operand.stride()


def test_indices_stay_valid() -> None:
    tokens = torch.tensor([[0, 9], [3, 9]]).t()
    table = torch.randn(10, 4)
    notes: list[str] = []
    replay(capture(lambda: F.embedding(tokens, table)), deadline=1, clock=lambda: 0, timer=run_each, note=notes.append)
    assert notes == []


def test_the_same_tensor_given_twice_is_one_tensor() -> None:
    seen: list[bool] = []
    operand = x.mT
    (signature,) = capture(lambda: torch.add(operand, operand))

    def spy(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        seen.append(one is other)
        return one * 2

    call = msgspec.structs.replace(signature.call, function=spy)
    replay([msgspec.structs.replace(signature, call=call)], deadline=1, clock=lambda: 0, timer=run_each)
    assert set(seen) == {True}


def test_a_call_with_a_backward_is_measured_with_it() -> None:
    weight = torch.nn.Parameter(torch.randn(6, 8))
    ran: list[bool] = []

    def timer(arm: Arm, times: int) -> float:
        arm()
        ran.append(arm.has_backward)
        return times * (100.0 if arm.format is None else 10.0)

    (slow,) = measured(lambda: F.gelu(weight.t()), timer)
    assert set(ran) == {True}
    assert slow.backward
    with torch.no_grad():
        (slow,) = measured(lambda: F.gelu(weight.t()), lambda arm, times: times * (9.0 if arm.format is None else 1))
    assert not slow.backward


def test_autocast_and_random_numbers_are_those_of_the_step() -> None:
    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            F.dropout(x.mT)

    (signature,) = capture(step)
    seen: list[torch.dtype | None] = []

    def look(tensor: torch.Tensor) -> torch.dtype | None:
        torch.rand(3)
        return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

    state = torch.get_rng_state()
    replay([spied(signature, seen, look)], deadline=1, clock=lambda: 0, timer=run_each)
    assert set(seen) == {torch.bfloat16}
    assert torch.equal(torch.get_rng_state(), state)


# ------------------------------------------------------------------------------------------------------------ verdicts


def test_a_kernel_that_is_slow_on_strides_and_pays_for_a_copy() -> None:
    def step() -> None:
        for _ in range(2):
            x.mT.sum(0)

    (slow,) = measured(step, costs(100, 10, 40))
    assert (slow.function, slow.format, slow.count) == ("torch.Tensor.sum", "contiguous", 2)
    assert slow.pays_for_copy
    assert (slow.recorded_ns, slow.op_ns, slow.with_copy_ns) == pytest.approx((100, 10, 40))
    assert slow.loss_ns == pytest.approx(180)


def test_a_kernel_that_is_slow_on_strides_and_does_not_pay_for_a_copy() -> None:
    (slow,) = measured(lambda: x.mT.sum(0), costs(100, 50, 98))
    assert not slow.pays_for_copy


@pytest.mark.parametrize("contiguous", [85, 100, 300])
def test_a_kernel_that_takes_strides_is_none(contiguous: float) -> None:
    assert measured(lambda: x.mT.sum(0), costs(100, contiguous, 300)) == ()


def test_noise_is_no_slow_kernel() -> None:
    times = iter([100.0, 50.0, 150.0, 100.0, 160.0, 100.0, 300.0, 50.0, 70.0] * 100)
    assert measured(lambda: x.mT.sum(0), lambda arm, repeats: repeats * next(times)) == ()


@pytest.mark.parametrize(
    ("channels_last", "with_copy", "format"), [(5, 30, "channels_last"), (5, 70, "contiguous"), (90, 95, "contiguous")]
)
def test_the_format_that_gains_most(channels_last: float, with_copy: float, format: str) -> None:
    timer = costs(100, 10, 40, channels_last=channels_last, with_copy_cl=with_copy)
    (slow,) = measured(lambda: F.max_pool2d(images.mT, 2), timer)
    assert slow.format == format


def test_channels_last_operands_are_compared_with_contiguous_ones_only() -> None:
    batch = images.to(memory_format=torch.channels_last)
    assert measured(lambda: F.max_pool2d(batch, 2), costs(10, 60, 90)) == ()


def test_the_heaviest_come_first_until_time_is_up() -> None:
    def step() -> None:
        x[:1].mT.exp()
        x.mT.exp()
        x[:2].mT.exp()

    seconds = iter([0.0] * 30 + [9.0] * 100)  # enough for one of them
    notes: list[str] = []
    done: list[tuple[int, int]] = []
    found = replay(
        capture(step),
        deadline=5,
        clock=lambda: next(seconds),
        timer=costs(100, 10, 40),
        progress=lambda *how_far: done.append(how_far),
        note=notes.append,
    )
    assert [slow.operands[0].sizes[0] for slow in found] == [4]
    assert done == [(1, 3)]
    assert notes == ["2 of 3 calls with strided operands were not measured: time ran out."]


def test_a_function_that_random_data_does_not_suit_is_said() -> None:
    notes: list[str] = []
    positive = torch.eye(6).expand(3, 6, 6)
    signatures = capture(lambda: (torch.linalg.cholesky(positive), x.mT.sum(0)))
    replay(signatures, deadline=1, clock=lambda: 0, timer=run_each, note=notes.append)
    (note,) = notes
    assert "cholesky` could not be run on random data: " in note
    assert len(note.splitlines()) == 1


def test_on_a_device_events_measure() -> None:
    """Stands in for `torch.cuda.Event`: time passes while an arm runs, and the clock of the host is not asked."""
    log: list[str] = []

    class Event:
        def record(self) -> None:
            self.at = len(log)
            log.append("record")

        def synchronize(self) -> None:
            log.append("synchronize")

        def elapsed_time(self, end_event: "Event") -> float:
            return float(end_event.at - self.at - 1)

    (signature,) = capture(lambda: x.mT.sum(0))
    arm = Arm(signature.call, {0: x.mT})
    arm.__class__ = type("Logged", (Arm,), {"__call__": lambda self: log.append("run")})
    assert event_timer(Event)(arm, 3) == 3e6
    assert log == ["record", "run", "run", "run", "record", "synchronize"]


def test_with_the_clock_of_the_machine_every_call_is_made() -> None:
    notes: list[str] = []

    def step() -> None:
        x.mT.sum(0)
        F.gelu(x[..., ::2])
        images.mT.amax(-1)
        F.batch_norm(images[:, :, 1:-1], torch.zeros(4), torch.ones(4), training=True)
        torch.where(x.mT > 3, x.mT, 0.0)
        x.mT[:, torch.tensor([1, 0])]

    signatures = capture(step)
    done: list[tuple[int, int]] = []
    replay(
        signatures,
        deadline=math.inf,
        clock=itertools.count().__next__,  # a second a look: no more rounds than must be
        progress=lambda *how_far: done.append(how_far),
        note=notes.append,
    )
    assert done[-1] == (7, 7)
    assert notes == []
