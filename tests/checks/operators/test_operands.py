import dataclasses
from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn

from stridewise.checks.operators.operands import Bound
from stridewise.errors import UsageError

X, Y, Z = torch.arange(3.0), torch.ones(2), torch.zeros(1)
Pair = namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass(frozen=True)
class State:
    weight: torch.Tensor
    rest: tuple = ()
    half: float = dataclasses.field(init=False, default=0.5)


def names(fn, *args, **kwargs):
    return list(Bound(fn, args, kwargs).tensors)


def anything(*args, **kwargs):
    return args, kwargs


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return self.linear(x)

    def twice(self, x, *, scale=None):
        return 2 * self.linear(x)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient, None


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "wanted"),
    [
        (lambda x, y: x, (X, Y), {}, ["x", "y"]),
        (lambda hidden, out=None: hidden, ([X, Y],), {"out": Z}, ["hidden[0]", "hidden[1]", "out"]),
        (anything, (X,), {"mask": Y}, ["args[0]", "mask"]),
        (lambda batch: batch, ({"image": X, "size": 3, "more": (Y,)},), {}, ["batch.image", "batch.more[0]"]),
        (lambda p, s: p, (Pair(X, 1), State(Y, (Z,))), {}, ["p.first", "s.weight", "s.rest[0]"]),
        (torch.matmul, (X, X.clone()), {}, ["input", "other"]),
        (torch.ops.aten.mm, (X[None], X[:, None]), {}, ["self", "mat2"]),
        (torch.ops.aten.mm.default, (X[None], X[:, None]), {}, ["self", "mat2"]),
        (Twice, (X, Y), {}, ["x", "y"]),
        (Net(), (X,), {}, ["x", "linear.weight", "linear.bias", "seen"]),
        (Net().twice, (X,), {}, ["x", "linear.weight", "linear.bias", "seen"]),
    ],
    ids=["names", "list", "star", "dict", "fields", "built in", "packet", "overload", "function", "module", "method"],
)
def test_names_are_those_of_the_signature(fn, args, kwargs, wanted):
    assert names(fn, *args, **kwargs) == wanted


def test_roles():
    bound = Bound(Net(), (X,), {})
    assert [operand.role for operand in bound.operands] == ["input", "parameter", "parameter", "buffer"]
    bound = Bound(torch.add, (X, X), {"out": torch.empty(3)})
    assert [(operand.name, operand.role) for operand in bound.operands] == [("input", "input"), ("out", "out")]


def test_a_tensor_given_twice_is_one_operand_in_both_places():
    bound = Bound(lambda x, rest: (x, rest[0]), (X, [X]), {})
    other = torch.ones(3)
    assert list(bound.tensors) == ["x"]
    one, two = bound.call({"x": other})
    assert one is other is two


def test_others_take_the_places_and_containers_keep_their_types():
    given = OrderedDict(image=X, more=[Y, 3])
    args = given, Pair(X, "text"), State(Y, (Z, 4)), [1, 2]
    bound = Bound(lambda *args: args, args, {})
    new = {name: tensor + 10 for name, tensor in bound.tensors.items()}
    batch, pair, state, numbers = bound.call(new)
    assert type(batch) is OrderedDict
    assert batch["image"] is new["args[0].image"] is pair.first
    assert batch["more"][1] == 3
    assert pair.second == "text"
    assert state.weight is new["args[0].more[0]"]
    assert state.rest[0] is new["args[2].rest[0]"]
    assert (state.rest[1], state.half) == (4, 0.5)
    assert numbers == [1, 2]
    assert numbers is not args[3]
    assert given["image"] is X
    assert args[2].weight is Y


@pytest.mark.parametrize("method", [False, True])
def test_a_module_runs_with_others_and_stays_as_it_is(method):
    net = Net()
    before = {name: (id(value), value.clone()) for name, value in net.state_dict(keep_vars=True).items()}
    bound = Bound(net.twice if method else net, (X,), {})
    new = {name: torch.ones_like(tensor) for name, tensor in bound.tensors.items()}
    assert torch.equal(bound.call(new), torch.full((2,), 8.0 if method else 4.0))
    for name, (identity, value) in before.items():
        now = net.state_dict(keep_vars=True)[name]
        assert id(now) == identity
        assert torch.equal(now, value)


def test_buffers_of_the_program_are_not_written():
    net = Net()
    bound = Bound(net, (X,), {})
    bound.call({"x": torch.ones(3)})
    assert net.seen == 0


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.eye(2).to_sparse(), "sparse_coo"),
        (torch.eye(2, device="meta"), "meta"),
        (nn.UninitializedParameter(), "UninitializedParameter"),
        (torch.eye(2).as_subclass(type("Image", (torch.Tensor,), {})), "a Image"),
        (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged), "NestedTensor"),
    ],
    ids=["sparse", "meta", "uninitialized", "subclass", "nested"],
)
def test_tensors_without_layouts_are_left_alone(tensor, reason):
    bound = Bound(lambda x, other: (x, other), (X, tensor), {})
    assert list(bound.tensors) == ["x"]
    assert reason in bound.notes[0]
    assert bound.call({"x": torch.ones(3)})[1] is tensor


def test_a_sample_without_operands_is_a_mistake():
    with pytest.raises(UsageError, match="no strided tensor"):
        Bound(lambda n: n, (3,), {})


def test_what_a_schema_says_is_written():
    x = torch.ones(3)
    assert Bound(torch.ops.aten.relu_.default, (x,), {}).written == {"self"}
    assert Bound(torch.ops.aten.add.out, (x, X), {"out": torch.ones(3)}).written == {"out"}
    assert Bound(torch.relu_, (x,), {}).written == frozenset()


def test_generators_start_from_the_seed_and_go_on_where_they_were():
    generator = torch.Generator().manual_seed(7)
    before = generator.get_state()
    bound = Bound(lambda x, generator: torch.rand(3, generator=generator), (X, generator), {})
    one, two, other = (bound.call({}, seed) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(generator.get_state(), before)


def test_most_operands_of_a_large_module():
    net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(30)))
    bound = Bound(net, (torch.ones(2),), {})
    assert len(bound.tensors) == 24
    assert "24 operands vary" in bound.notes[0]
