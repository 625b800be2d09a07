"""The check of an operator as a whole: what it reports, what ends it early, and that nothing of the caller changes."""

import ctypes
import os
import random
import re

import pytest
import torch
from torch import nn

from stridewise.checks.operators import check
from stridewise.checks.operators.check import check_op, site_of
from stridewise.checks.operators.pytest_help import assert_honours_layout
from stridewise.errors import UsageError

from . import kernels as K

SAMPLE = torch.arange(12.0).reshape(3, 4)


def flat(x):
    y = torch.empty(x.shape)
    ctypes.memmove(y.data_ptr(), x.data_ptr(), 4 * x.numel())
    return y


def refuses(x):
    return x.view(-1)


def test_a_right_operator():
    found = check_op(torch.mul, SAMPLE, SAMPLE + 1)
    assert found.ok
    assert found.op == "mul"
    assert found.findings == found.snippets == ()
    assert [(operand.verdict, operand.failed) for operand in found.operands] == [("honours strides", 0)] * 3
    assert {case.aspect for case in found.cases} == {"values", "gradient", "fake"}
    assert found.environment["torch"] == torch.__version__
    assert (found.left, found.interrupted) == (0, False)


def test_a_wrong_one_names_operand_layout_figures_and_line():
    found = check_op(flat, SAMPLE)
    (finding,) = found.findings
    assert not found.ok
    assert finding.code == "SW401"
    assert finding.count == sum(bool(case.operands) and case.verdict == "wrong values" for case in found.cases) - 2
    assert finding.site.text == "def flat(x):"
    assert finding.site.file.endswith("test_check.py")
    assert re.search(
        r"`x\.t\(\)`, \(3, 4\) with strides \(1, 3\): output: \d+ of 12 elements differ", finding.evidence[0]
    )
    (snippet,) = found.snippets
    assert snippet.finding == finding.fingerprint


def test_the_program_of_a_finding_fails_and_that_of_a_right_operator_does_not():
    (snippet,) = check_op(flat, SAMPLE).snippets
    with pytest.raises(AssertionError, match="not close"):
        exec(snippet.code, {})
    exec(re.sub(r"(?m)^from .* import flat.*$", "op = flat = torch.clone", snippet.code), {})


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, 5))
        self.drop = nn.Dropout(0.5)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.drop(flat(x) * self.weight)


def test_nothing_of_the_caller_is_changed():
    module, x = Scaled(), SAMPLE.clone().requires_grad_()
    torch.manual_seed(3)
    random.seed(3)
    storage, attributes = x.untyped_storage().data_ptr(), dict(vars(module))
    state, python_state, threads = torch.get_rng_state(), random.getstate(), torch.get_num_threads()
    weight = module.weight
    before = x.detach().clone(), weight.detach().clone()
    found = check_op(module, x)
    assert found.op == "Scaled"
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python_state
    assert torch.get_num_threads() == threads
    assert vars(module) == attributes
    assert module.training
    assert module.weight is weight
    assert torch.equal(x, before[0])
    assert torch.equal(weight, before[1])
    assert x.grad is None is weight.grad
    assert x.untyped_storage().data_ptr() == storage
    assert torch.is_grad_enabled()


def test_no_child_stays():
    check_op(flat, SAMPLE)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_time_that_is_over_leaves_runs_and_says_how_many():
    found = check_op(flat, SAMPLE, time_limit=1e-6)
    assert found.left > 0
    assert not found.interrupted
    assert f"{found.left} of {found.left + len(found.cases)} runs were not made: its time was over." in found.notes


def test_an_interrupt_gives_what_there_is():
    def stop(done, _):
        if done == 5:
            raise KeyboardInterrupt

    found = check_op(flat, SAMPLE, progress=stop)
    assert found.interrupted
    assert len(found.cases) == 5
    assert found.left > 0
    assert [finding.code for finding in found.findings] == ["SW401"]


def test_progress_counts_to_the_end():
    seen = []
    check_op(flat, SAMPLE, progress=lambda done, of: seen.append((done, of)))
    total = seen[0][1]
    assert seen == [(done, total) for done in range(total + 1)]


def test_it_tells_crash_from_hang():
    def crash(x):
        return x + 1 if x.is_contiguous() else ctypes.string_at(0)

    def hang(x):
        while not x.is_contiguous():
            pass
        return x + 1

    (finding,) = check_op(crash, torch.arange(2.0)).findings
    assert finding.code == "SW406"
    assert "SIGSEGV" in finding.message
    (finding,) = check_op(hang, torch.arange(2.0), timeout=0.2, time_limit=1.5).findings
    assert finding.code == "SW406"
    assert "does not come back" in finding.message


def test_without_containment_it_runs_here():
    calls = []

    def op(x):
        calls.append(x.stride())
        return x * 2

    found = check_op(op, SAMPLE, contain=False)
    assert found.contained == "in this process"
    assert (1, 3) in calls


def test_second_order_is_run_if_asked():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            return Slope.apply(*ctx.saved_tensors, grad)

    class Slope(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, grad):
            ctx.save_for_backward(x, grad)
            return 3 * x**2 * grad

        @staticmethod
        def backward(ctx, grad):
            x, first = ctx.saved_tensors
            return 6 * x * flat(first) * grad, 3 * x**2 * grad

    assert check_op(Cube, SAMPLE).findings == ()
    found = check_op(Cube, SAMPLE, second_order=True)
    assert [finding.code for finding in found.findings] == ["SW404"]


def test_random_values_are_said_to_be_not_comparable():
    found = check_op(torch.bernoulli, torch.full((3, 4), 0.5))
    assert found.findings == ()
    assert found.operands[0].verdict == "not comparable"
    assert any("change with the seed" in note for note in found.notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "A timeout of 0"),
        ({"time_limit": float("nan")}, "A time limit of nan"),
        ({"tolerance": 2}, "A tolerance of 2"),
    ],
)
def test_mistakes_in_the_call(options, message):
    with pytest.raises(UsageError, match=message):
        check_op(flat, SAMPLE, **options)


def test_an_operator_that_fails_for_contiguous_operands():
    with pytest.raises(UsageError, match=r"`refuses` fails for contiguous operands: TypeError"):
        check_op(refuses, SAMPLE, 3)


def test_sites():
    assert site_of(flat, "flat").text == "def flat(x):"
    assert site_of(Scaled(), "Scaled").text == "class Scaled(nn.Module):"
    assert site_of(K.FlatBackward, "FlatBackward").text == "class _FlatBackward(_Twice):"
    assert site_of(torch.add, "add").expression == "`add`"


# ---------------------------------------------------------------------------------------------------- as an assertion


def test_the_assertion_passes_what_is_right_and_clear_refusals():
    assert_honours_layout(torch.mul, SAMPLE, SAMPLE)
    assert_honours_layout(refuses, SAMPLE)


def test_the_assertion_tells_operand_layouts_and_a_program():
    with pytest.raises(AssertionError) as caught:
        assert_honours_layout(flat, SAMPLE, fake=False)
    text = str(caught.value)
    assert "SW401 wrong-values: `flat` gives wrong values for `x` whenever it is not contiguous" in text
    assert "`x.t()`, (3, 4) with strides (1, 3)" in text
    assert "The smallest layout, `x.t()`, (2, 2) with strides (1, 2):" in text
    assert "torch.testing.assert_close" in text
    assert "x = x.contiguous()" in text


def test_the_assertion_may_forbid_refusals():
    with pytest.raises(AssertionError, match="SW407 refuses-layout"):
        assert_honours_layout(refuses, SAMPLE, refusals=False)


def test_the_assertion_fails_where_not_all_was_run():
    with pytest.raises(AssertionError, match="runs were not made"):
        assert_honours_layout(torch.mul, SAMPLE, SAMPLE, time_limit=1e-6)


@pytest.mark.parametrize("fn", [lambda x: None, lambda x: "text", torch.rand_like])
def test_the_assertion_fails_where_nothing_can_be_compared(fn):
    with pytest.raises(AssertionError, match="Nothing was compared"):
        assert_honours_layout(fn, SAMPLE)


def test_the_assertion_compares_what_is_written_in_place():
    def negate(x):
        x.neg_()

    assert_honours_layout(negate, SAMPLE)


def test_it_shrinks_no_longer_than_it_may(monkeypatch):
    monkeypatch.setattr(check, "_SHRINK_S", 0.0)
    (snippet,) = check_op(flat, SAMPLE).snippets
    assert "(3, 4) with strides" in snippet.layout
