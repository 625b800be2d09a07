"""Claims are told only where what they speak of can be seen, and can turn out either way."""

from types import SimpleNamespace

import pytest
import torch
from tests.lab.conftest import HASTY

from stridewise.lab import catalogue, session
from stridewise.lab.bench import Bench, Effort
from stridewise.lab.compared import Compared
from stridewise.lab.devices import Processor
from stridewise.lab.experiments import (
    adaptive_pool_kernels,
    autograd_function,
    bmm_strides,
    collate,
    compile_costs,
    compile_names,
    compile_quotes,
    contiguity_condition,
    contiguous_costs,
    copy_once,
    hook,
    index_select,
    interpolate,
    narrow_and_crop,
    pin_memory,
    pointer_argument,
    view_errors,
)
from stridewise.results.lab import Prediction, Ratio

OF_A_GPU = {
    "batch-norm": {"C49"},
    "bmm-strides": {"C53", "C54", "C55", "C56"},
    "contiguous-costs": {"C36", "C37"},
    "copy-cost": {"C89"},
    "library-strides": {"C12", "C13"},
    "pin-memory": {"C127", "C129", "C130"},
    "raw-collectives": {"C108"},
}
"""Claims about what only a GPU, or a library for one, does."""


def told(bench: Bench, claim: str) -> list[bool | None]:
    return [made.came_true for name, made in bench.predictions if name == claim]


@pytest.mark.parametrize("name", OF_A_GPU)
def test_a_cpu_does_not_stand_for_a_gpu(bench, name):
    (experiment,) = catalogue.selected([name])
    found = session.run_one(experiment, bench)
    open_here = {claim.number for claim in found.claims if any(made.unclear for made in claim.predictions)}
    untested = {claim.number for claim in found.claims if claim.verdict == "cannot be tested here"} - open_here
    assert (found.failed, untested) == (None, OF_A_GPU[name])
    why = [made.measured for claim in found.claims if claim.number in untested for made in claim.predictions]
    assert all(why)


def test_what_times_leave_open_stays_open(bench, monkeypatch):
    left = Prediction("text", None, "open", unclear=True)
    monkeypatch.setattr(Compared, "faster", lambda *_, **__: left)
    index_select.run(bench, batch=1, rows=6, columns=4, kept=3)
    assert [made for name, made in bench.predictions if name == "C95"] == [left] * 3


def saved(once: tuple[float, ...], dense: tuple[float, ...]) -> Prediction:
    ratios = {copy_once._ONCE: Ratio(*once), copy_once._DENSE: Ratio(*dense)}
    return copy_once._saved(SimpleNamespace(ratio=lambda arm, over: ratios[arm], refusal=lambda arm: None), 10)


def test_what_is_saved_is_of_the_time_that_copies_take():
    assert saved((0.46, 0.45, 0.47), (0.4, 0.39, 0.41)).came_true is True
    half = saved((0.85, 0.84, 0.86), (0.7, 0.69, 0.71))
    assert (half.came_true, half.measured) == (False, "it saves 50% (45% to 55%)")
    assert saved((0.5, 0.4, 0.6), (0.4, 0.35, 0.45)).unclear
    assert saved((1.0, 0.9, 1.1), (0.9, 0.8, 1.0)).unclear, "copies that take no time"


def test_a_rule_about_all_of_nothing_is_not_tested(bench, monkeypatch):
    bench.expect_of_all("C11", "all are", [], "0 of 0", none="there is none")
    bench.expect_of_all("C11", "all are", [True, False], "1 of 2", none="there is none")
    assert [(made.came_true, made.measured) for _, made in bench.predictions] == [
        (None, "there is none"),
        (False, "1 of 2"),
    ]


def test_where_view_refuses_nothing_nothing_is_said_of_reshape_there(bench, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "view", torch.Tensor.reshape)
    view_errors.run(bench)
    assert told(bench, "C122") == [None]
    first = next(made for name, made in bench.predictions if name == "C120")
    assert (first.came_true, first.measured) == (False, "it raises for none")


def test_layouts_of_which_none_is_above_one_say_nothing_of_those(bench):
    contiguity_condition.run(bench, sizes=2, strides=2)
    assert told(bench, "C18") == [None, None]


def test_a_check_that_warns_of_nothing_and_a_hook_that_prints_nothing_are_not_judged(bench, monkeypatch):
    monkeypatch.setattr(collate, "_warns", lambda batch: False)
    collate.run(bench, batch=2, image=16)
    assert told(bench, "C80") == [False, None]
    monkeypatch.setattr(hook, "_warned", lambda net, x: ([], []))
    hook.run(bench, batch=1, channels=2, image=8)
    assert told(bench, "C78") == [None]


def test_a_copy_of_the_program_itself_is_not_one_that_it_is_given(ranks, monkeypatch):
    """Where all that is not contiguous is copied, and nothing else, the claim comes true."""
    numbers = iter((1, 1, 0, 1, 1, 0))
    monkeypatch.setattr(compile_costs, "can_compile", lambda *_: True)
    monkeypatch.setattr(compile_costs, "generated", lambda *_: SimpleNamespace(graphs=[], copies=next(numbers)))
    monkeypatch.setattr(compile_costs, "copies", lambda found: found.copies)
    monkeypatch.setattr(compile_costs, "launches", lambda _: [])
    monkeypatch.setattr(torch, "compile", lambda program: program)
    bench = Bench(Processor(), Effort(HASTY.rounds, HASTY.sample_ns, quick=False), ranks)
    compile_costs.run(bench, channels=2, side=4, batch=1)
    assert told(bench, "C74")[0] is True


def test_kernels_are_generated_with_cuda_graphs_and_without(bench, monkeypatch):
    from torch._inductor import config

    seen, generated = [], compile_names.generated

    def watched(*args):
        seen.append(config.triton.cudagraphs)
        return generated(*args)

    monkeypatch.setattr(compile_names, "generated", watched)
    monkeypatch.setattr(compile_names, "_kernels", lambda _: [str(seen[-1])])
    compile_names.run(bench, side=4, channels=2)
    assert seen[-2:] == [True, False]
    assert told(bench, "C115") == [False, True], "other kernels are told from the same"


@pytest.mark.parametrize("has", [False, True])
def test_whether_inductor_can_be_run_is_said_as_it_is(bench, tmp_path, monkeypatch, has):
    inductor = tmp_path / "_inductor"
    inductor.mkdir()
    (inductor / ("__main__.py" if has else "other.py")).touch()
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "__init__.py"))
    compile_quotes.run(bench)
    last = [made for name, made in bench.predictions if name == "C112"][-1]
    assert (last.came_true, last.measured) == (has, f"it has {'a' if has else 'no'} `__main__.py`")


def test_conv1d_of_a_view_is_timed_against_that_of_a_dense_input(bench):
    narrow_and_crop.run(bench, batch=2, channels=4, length=16)
    (text,) = (made.text for name, made in bench.predictions if name == "C33" and "slower" in made.text)
    assert text == "`conv(view)` is at least 1.4x slower than `conv(dense)`"


@pytest.mark.parametrize(
    ("experiment", "name", "claim"),
    [(interpolate, "cudnn_upsample", "C141"), (adaptive_pool_kernels, "cudnn_pool", "C50")],
)
def test_an_operator_of_cudnn_would_be_found(bench, monkeypatch, experiment, name, claim):
    sizes = experiment.EXPERIMENT.sizes("cpu", quick=True)
    experiment.run(bench, **sizes)
    monkeypatch.setattr(experiment, "operators", lambda: ["aten::cudnn_convolution", f"aten::{name}"])
    experiment.run(bench, **sizes)
    first, *_, other = (made for made in told(bench, claim) if made is not None)
    assert (first, other) == (False, True)


def test_what_comes_behind_a_resize_is_timed_too(bench):
    interpolate.run(bench, batch=1, height=8, width=8)
    (made,) = (made for name, made in bench.predictions if name == "C142")
    assert made.text.startswith("`conv(resize(view).contiguous())` is at least 2.3x faster")


def test_strides_that_a_function_is_given():
    x = torch.randn(3, 4, requires_grad=True)
    assert autograd_function._strides_of_a_function(x.t()) == [(1, 4), (0, 0)]


def test_loops_of_products_are_timed_as_arms(stand_in, ranks):
    bench = Bench(stand_in, HASTY, ranks)
    bmm_strides.run(bench, batch=4, rows=4, width=4)
    (loops,) = (each for each in bench.compared if each.title == "A product for each matrix")
    assert list(loops.records) == ["one after the other", "one after the other, waiting for each"]


def test_each_order_pins_what_it_says(stand_in, ranks, monkeypatch):
    pinned = []
    monkeypatch.setattr(pin_memory, "_pinned", lambda value: pinned.append(value.stride()) or value)
    pin_memory.run(Bench(stand_in, HASTY, ranks), rows=4, columns=4)
    rounds = HASTY.rounds
    assert pinned.count((4, 1)) > rounds, "made contiguous, and pinned then, in each call"
    assert pinned.count((32, 8)) > rounds, "pinned with its gaps in each call"


def test_memory_is_asked_of_the_gpu(stand_in, ranks, monkeypatch):
    taken = iter((1000, 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: next(taken))
    bench = Bench(stand_in, HASTY, ranks)
    contiguous_costs.run(bench, size=8)
    assert told(bench, "C37") == [True]
    assert [made.measured for name, made in bench.predictions if name == "C37"] == ["4 kB more"]


def test_kernels_are_operators_of_torch():
    value = torch.arange(6.0).view(2, 3).t()
    assert torch.equal(pointer_argument._registered(pointer_argument.strided)(value), 2 * value)
    assert torch.equal(torch.ops.stridewise_lab.strided(value), 2 * value)
