import copy
import dataclasses
import random

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stridewise.checks.operators.case import Arrangement, Case, Described
from stridewise.checks.operators.grid import grid
from stridewise.checks.operators.judge import verdict_of
from stridewise.checks.operators.options import Options
from stridewise.checks.operators.plan import plan
from stridewise.checks.operators.probe import Probe
from stridewise.errors import UsageError

from . import kernels as K

PERMUTED = Arrangement("x.t()", order=(1, 0))
STEP = Arrangement("x[:, ::2]", steps=(1, 2), after=(0, 1))
SUM = Arrangement("expanded, as behind sum()", expanded=(-2, -1))


def probe(fn, *args, **options):
    return Probe(fn, args, {}, Options(**options), "op")


def matrix(rows=3, columns=4):
    return torch.linspace(-2, 3, rows * columns).reshape(rows, columns)


def bad(fn, *args, every=1, **options):
    """What goes wrong with it, over all that is planned."""
    found = probe(fn, *args, **options)
    described = found.describe()
    outcomes = [found.run(case) for case in plan(described, Options(**options))[::every]]
    verdicts = [(verdict_of(outcome, described), outcome) for outcome in outcomes]
    return [
        (verdict, outcome.case, outcome.faults, outcome.message)
        for verdict, outcome in verdicts
        if verdict not in ("honours strides", "not comparable", "not tried")
    ]


IMAGES = torch.linspace(-2, 2, 2 * 4 * 5 * 5).reshape(2, 4, 5, 5)
ROWS = torch.tensor([0, 2, 1, 2])
OPERATORS = {
    "matmul": (torch.matmul, matrix(3, 4), matrix(4, 5)),
    "conv2d": (F.conv2d, IMAGES * 50, torch.linspace(-1, 1, 72).reshape(2, 4, 3, 3)),
    "layer_norm": (lambda x, w: F.layer_norm(x, (4,), w), matrix(), torch.rand(4)),
    "softmax": (lambda x: x.softmax(-1), matrix()),
    "batch_norm, training": (
        lambda x, mean, var: F.batch_norm(x, mean, var, training=True),
        torch.randn(3, 2, 4),
        torch.zeros(2),
        torch.ones(2),
    ),
    "sort": (lambda x: x.sort(-1), matrix()),
    "max": (lambda x: x.max(0), matrix()),
    "scatter_": (lambda x, i, s: x.scatter_(0, i, s), matrix(), ROWS[None] % 3, matrix(1, 4)),
    "index_put_": (lambda x, i, v: x.index_put_((i,), v, accumulate=True), matrix(), ROWS, matrix(4, 4)),
    "embedding": (lambda w, i: F.embedding(i, w), matrix(), ROWS),
    "sparse gradients": (lambda w, i: F.embedding(i, w, sparse=True), matrix(), ROWS),
    "bmm, out": (
        lambda x, y, out: torch.bmm(x, y, out=out),
        torch.rand(2, 3, 4),
        torch.rand(2, 4, 3),
        torch.zeros(2, 3, 3),
    ),
    "add, out": (lambda x, out: torch.add(x, 1, out=out), matrix(), torch.zeros(3, 4)),
    "out that is resized": (lambda x, out: torch.mul(x, 2, out=out.resize_(0)), matrix(), torch.zeros(2)),
    "in place": (lambda x, w: x.mul_(w), matrix(), matrix()),
    "attention": (F.scaled_dot_product_attention, *(torch.randn(1, 2, 4, 8) for _ in range(3))),
    "inverse": (torch.linalg.inv, torch.eye(4) + 0.1 * matrix(4, 4)),
    "no tensor": (lambda x: (x.sum().item(), None, "text"), matrix()),
    "an alias": (lambda x: x.t(), matrix()),
    "bfloat16": (torch.matmul, matrix(3, 4).bfloat16(), matrix(4, 5).bfloat16()),
    "complex": (lambda x: x.conj() * 2, matrix().to(torch.complex64)),
    "nan": (lambda x: x.sqrt(), matrix()),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_right_operators_have_no_fault(name):
    torch.manual_seed(0)
    fn, *args = OPERATORS[name]
    promised = [entry for entry in bad(fn, *args, second_order=True, every=2) if entry[1].aspect != "fake"]
    assert promised == []


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_right_modules_have_no_fault(training):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)).train(
        training
    )
    assert [entry for entry in bad(net, IMAGES, every=5) if entry[1].aspect != "fake"] == []


def test_the_median_of_expanded_operands_is_torchs_fault():
    """CPU: it walks a dimension with stride 0 as if its stride were 1, past the end of the memory. Tell if it heals."""
    outcome = probe(lambda x: torch.median(x, 0).values, matrix()).run(
        Case({"x": Arrangement("x expanded over dimension 0", expanded=(0,))})
    )
    assert [(fault.verdict, fault.reads_past) for fault in outcome.faults] == [("wrong values", True)]


def test_recurrent_modules():
    torch.manual_seed(0)
    assert bad(nn.LSTM(4, 3, batch_first=True), torch.randn(2, 3, 4), fake=False, every=4) == []


# ------------------------------------------------------------------------------------------------ what it is


def test_a_description_survives_the_way_between_processes():
    described = probe(lambda x: torch.empty(3).fill_(random.SystemRandom().random()), matrix()).describe()
    assert msgspec.json.decode(msgspec.json.encode(described), type=Described) == described
    assert described.random


def test_operands_that_are_written_are_known_though_no_value_changes():
    described = probe(lambda x: x.clamp_(-10, 10), matrix()).describe()
    assert [operand.role for operand in described.operands] == ["in place"]
    described = probe(K.in_place_flat, *K.sample()).describe()
    assert [operand.role for operand in described.operands] == ["in place"]


def test_random_operators_are_judged_by_what_they_write_only():
    described = probe(lambda x: F.dropout(x, 0.5), matrix()).describe()
    assert described.random
    assert bad(lambda x: F.dropout(x, 0.5), matrix()) == []
    assert bad(lambda x: x.normal_(), matrix()) == []
    generator = torch.Generator()
    assert bad(lambda x, g: x.normal_(generator=g), matrix(), generator) == []


def test_an_operator_that_fails_for_contiguous_operands():
    with pytest.raises(UsageError, match="RuntimeError: mat1 and mat2"):
        probe(torch.mm, matrix(), matrix()).describe()


def test_gradients_of_some_operands_only():
    def op(x, w):
        if w.requires_grad:
            raise RuntimeError("there is no gradient of w")
        return x * w

    described = probe(op, matrix(), matrix()).describe()
    assert described.differentiable
    assert "gradient of x" in described.magnitudes
    assert "gradient of w" not in described.magnitudes


def test_a_backward_that_raises_is_told():
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no backward")

    described = probe(Raises, matrix()).describe()
    assert not described.differentiable
    assert "no backward" in described.notes[0]


def test_an_operator_without_fake_kernel_is_not_given_addresses_of_nothing():
    for address in (
        lambda x: x.data_ptr(),
        lambda x: x.untyped_storage().data_ptr(),
        lambda x: x.detach().data_ptr(),
        lambda x: torch.empty_like(x).data_ptr(),
    ):
        seen = []

        def op(x, address=address, seen=seen):
            seen.append(address(x))
            return x.clone()

        assert not probe(op, matrix()).describe().has_fake
        assert 0 not in seen


# ------------------------------------------------------------------------------------------------------ one case


def test_results_in_memory_that_an_operator_uses_again_are_compared():
    held = torch.zeros(3, 4)

    def op(x):
        held.view(-1).copy_(x.as_strided((x.numel(),), (1,)))
        return held

    found = probe(op, matrix(), fake=False)
    assert found.run(Case({"x": PERMUTED})).faults[0].verdict == "wrong values"


def test_reads_past_a_view_are_told_apart_from_wrong_order():
    found = probe(K.assumes_contiguous, *K.sample())
    (order,) = found.run(Case({"x": PERMUTED})).faults
    (past,) = found.run(Case({"x": STEP})).faults
    assert not order.reads_past
    assert past.reads_past


def test_writes_show_where_they_are():
    found = probe(K.into_flat_output, *K.sample(), torch.zeros(3, 4))
    described = {fault.verdict: fault for fault in found.run(Case({"out": STEP})).faults}
    assert described["writes outside"].what == "out"
    assert "between its own" in described["writes outside"].detail


def test_what_is_only_read_must_not_be_written():
    def op(x):
        if not x.is_contiguous():
            x.mul_(2)
        return x.sum()

    verdicts = [fault.verdict for fault in probe(op, matrix()).run(Case({"x": PERMUTED})).faults]
    assert "writes outside" in verdicts


def test_in_place_on_a_copy_does_nothing_and_is_told_once():
    found = probe(K.in_place_on_copy, *K.sample())
    assert [fault.verdict for fault in found.run(Case({"x": STEP})).faults] == ["does nothing"]
    assert found.run(Case()).faults == ()


def test_what_it_raises_is_kept():
    outcome = probe(K.refuses, *K.sample()).run(Case({"x": STEP}))
    assert outcome.status == "raised"
    assert outcome.message.startswith("ValueError: x must be contiguous")
    assert outcome.layouts["x"].strides == (8, 2)


def test_sizes_and_dtypes_count():
    sizes = probe(lambda x: x if x.is_contiguous() else x[:1], matrix()).run(Case({"x": STEP}))
    assert "sizes (1, 4), not (3, 4)" in sizes.faults[0].detail
    dtypes = probe(lambda x: x if x.is_contiguous() else x.double(), matrix()).run(Case({"x": STEP}))
    assert "float64" in dtypes.faults[0].detail


def test_indices_stay_in_range_of_what_they_index():
    def op(weight, index):
        assert not index.numel() or int(index.max()) < len(weight)
        return weight[index]

    found = probe(op, matrix(5, 4), torch.tensor([4, 0, 3]))
    assert found.run(Case(sizes={"weight": (2, 4)})).status == "ran"
    assert found.run(Case(sizes={"weight": (0, 4)})).status == "not applicable"


def test_what_rounding_amplifies_is_no_fault_and_a_wrong_value_of_that_size_is():
    constant = Arrangement("x expanded over dimension 0", expanded=(0,))
    x = torch.linspace(100, 300, 64).reshape(64, 1)
    assert probe(lambda x: F.batch_norm(x, None, None, training=True), x).run(Case({"x": constant})).faults == ()

    def wrong(x):
        return 2 * x if x.is_contiguous() else 2 * x + 1e-3 * (torch.arange(12.0).reshape(3, 4) == 0)

    assert probe(wrong, matrix()).run(Case({"x": STEP})).faults != ()


def test_which_of_equal_elements_is_taken_is_open():
    def last(x):
        return x.argmax(0) if x.is_contiguous() else len(x) - 1 - x.flip(0).argmax(0)

    expanded = Arrangement("x expanded over dimension 0", expanded=(0,))
    assert probe(last, matrix()).run(Case({"x": expanded})).faults == ()
    assert (
        probe(lambda x: x.argmax(0) if x.is_contiguous() else 0 * x.argmax(0), matrix()).run(Case({"x": STEP})).faults
    )


@pytest.mark.parametrize(
    ("fn", "gradient", "is_wrong"),
    [
        (K.RightBackward, SUM, False),
        (K.FlatBackward, SUM, True),
        (K.FlatBackward, Arrangement("transposed", order=(-1, -2)), True),
        (K.ExpandedBackward, SUM, True),
        (K.ExpandedBackward, Arrangement("transposed", order=(-1, -2)), False),
    ],
)
def test_gradients_that_come_in_strided(fn, gradient, is_wrong):
    outcome = probe(fn, *K.sample()).run(Case(gradient=gradient, aspect="gradient"))
    assert [fault.what for fault in outcome.faults] == (["gradient of x"] if is_wrong else [])


def test_the_second_backward_is_compared_too():
    class Cubed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, gradient):
            return CubedBackward.apply(ctx.saved_tensors[0], gradient)

    class CubedBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, gradient):
            ctx.save_for_backward(x, gradient)
            return 3 * x**2 * gradient

        @staticmethod
        def backward(ctx, second):
            x, gradient = ctx.saved_tensors
            return 6 * x * gradient * K.assumes_contiguous(second) / 2, 3 * x**2 * second

    found = probe(Cubed, matrix(), second_order=True)
    gradient = Arrangement("transposed", order=(-1, -2))
    assert found.run(Case(gradient=gradient, aspect="gradient")).faults == ()
    (fault,) = found.run(Case(gradient=gradient, aspect="second order")).faults
    assert fault.what == "second gradient of x"


@pytest.mark.parametrize(
    ("name", "fails"),
    [("right_fake", False), ("fake_like_input", True), ("fake_contiguous", True)],
)
def test_strides_that_are_promised(name, fails):
    found = probe(K.operators()[name], *K.sample())
    assert found.describe().has_fake
    assert found.run(Case(aspect="fake")).faults == ()
    outcomes = [found.run(Case({"x": arrangement}, aspect="fake")) for arrangement in grid((3, 4), read_only=True)]
    assert any(outcome.faults for outcome in outcomes) is fails


# ------------------------------------------------------------------------------------------- nothing is changed


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None


def test_nothing_of_the_program_is_changed():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).train()
    x = torch.randn(3, 8)[:, ::2].requires_grad_()
    net(x).sum().backward()
    before = copy.deepcopy(net.state_dict())
    identities = {name: (id(p), id(p.grad), p.stride()) for name, p in net.named_parameters()}
    gradients = [p.grad.clone() for p in net.parameters()]
    own = x.detach().clone(), x.grad.clone(), x.stride(), x._version
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()

    found = probe(net, x, second_order=True)
    for case in plan(found.describe(), Options(second_order=True))[::10]:
        found.run(case)

    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert {name: (id(p), id(p.grad), p.stride()) for name, p in net.named_parameters()} == identities
    assert all(torch.equal(p.grad, was) for p, was in zip(net.parameters(), gradients, strict=True))
    assert (x.stride(), x._version, x.requires_grad) == (own[2], own[3], True)
    assert torch.equal(x.detach(), own[0])
    assert torch.equal(x.grad, own[1])
    assert net.training


def test_outputs_of_many_kinds():
    def op(x):
        return Output(x + 1), {"more": [x * 2, None]}, torch.max(x, 0)

    described = probe(op, matrix()).describe()
    assert described.outputs == ("output[0].logits", "output[1].more[0]", "output[2][0]", "output[2][1]")
    assert bad(op, matrix()) == []


def test_tensors_of_inference_mode():
    with torch.inference_mode():
        x = matrix()
    assert bad(lambda x: x * 2, x) == []
