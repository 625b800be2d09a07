"""Results of two steps are compared by value, with a stated tolerance, and by layout."""

import enum
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from stridewise.repair.refused import Refused
from stridewise.repair.trial import parts
from stridewise.repair.trial.observe import TOLERANCES, Comparison, Observation, Seen, compare, in_words, observe
from stridewise.repair.trial.parts import checksum
from stridewise.repair.trial.sharing import place_of
from stridewise.repair.trial.workload import of_model, of_step


class Out:
    """Holds what a step returns where it is no part of the program's state."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def results_of(output: object) -> Observation:
    out = Out(output)
    with of_step(lambda: out.value) as workload:
        return observe(workload)


def difference(before: object, after: object, tolerance: float | None = None) -> float:
    return compare(results_of(before), results_of(after), tolerance).difference


def test_equal_bits_differ_by_nothing():
    assert difference({"a": torch.ones(3)}, {"a": torch.ones(3)}) == 0


def test_a_difference_is_a_share_of_the_largest_magnitude():
    assert difference(torch.tensor([0.0, 100.0]), torch.tensor([1e-4, 100.0])) == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_more_than_is_tolerated_is_refused(dtype):
    one = torch.ones(4, dtype=dtype)
    step = max(2 * TOLERANCES[dtype], 2 * torch.finfo(dtype).eps)
    with pytest.raises(Refused, match="changes results: output differs by"):
        difference(one, one + step)


def test_the_tolerance_can_be_set():
    assert difference(torch.ones(2), torch.ones(2) + 0.01, 0.1) > 0
    with pytest.raises(Refused):
        difference(torch.ones(2), torch.ones(2) + 1e-6, 0.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2), torch.tensor([1.0, float("nan")])),
        (torch.tensor([float("inf")]), torch.tensor([-float("inf")])),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([True]), torch.tensor([False])),
        ({"a": torch.ones(1)}, {"b": torch.ones(1)}),
        (torch.zeros(2), torch.full((2,), 1e-30)),
        ((torch.ones(1), 2.0), (torch.ones(1), 2.1)),
    ],
    ids=["shape", "dtype", "nan", "infinity", "integers", "booleans", "names", "beside zero", "a number"],
)
def test_other_results_are_refused(before, after):
    with pytest.raises(Refused, match="it changes"):
        difference(before, after)


@pytest.mark.parametrize(
    "output",
    [
        torch.tensor([1.0, float("nan"), float("inf")]),
        torch.empty(0),
        torch.zeros(3),
        torch.eye(3).to_sparse(),
        torch.ones(2, dtype=torch.complex64),
        None,
    ],
    ids=["nan", "empty", "zeros", "sparse", "complex", "nothing"],
)
def test_odd_results_are_equal_to_themselves(output):
    assert difference(output, output) == 0


def test_another_layout_of_what_leaves_the_program_is_told():
    image = torch.randn(2, 3, 4, 5)
    found = compare(results_of(image), results_of(image.to(memory_format=torch.channels_last)))
    assert found.difference == 0
    assert found.layouts == ("output: contiguous becomes channels_last",)


def test_gradients_and_what_a_step_changes_are_results():
    model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), torch.randn(8, 3)
    with of_model(model, (x,), {}, train=True, loss=None) as workload:
        names = set(observe(workload).tensors)
    assert {"output", "gradient of parameter `0.weight`", "buffer `1.running_mean` after the step"} <= names


def test_a_gradient_that_is_nothing_but_rounding_errors_may_be_another():
    def gradients(of: float) -> Observation:
        tensors = {
            "gradient of large": Seen(torch.ones(2), None),
            "gradient of small": Seen(torch.full((2,), of), None),
        }
        return Observation(tensors, {})

    assert compare(gradients(1e-9), gradients(-1e-9)).difference < 1e-6
    with pytest.raises(Refused, match="gradient of small differs"):
        compare(gradients(1e-3), gradients(1.1e-3))


def test_a_tensor_that_is_written_through_a_view_is_a_result():
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = torch.zeros(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.kept.t()[0] = x
            return x * 2

    model = Cache()
    with of_model(model, (torch.ones(4),), {}, train=False, loss=None) as workload:
        assert "kept after the step" in observe(workload).tensors
    assert torch.equal(model.kept, torch.zeros(4, 3))


def test_a_write_that_no_longer_reaches_a_tensor_is_refused_whatever_its_value():
    one = {"output": Seen(torch.ones(1), None)}
    with pytest.raises(Refused, match="kept is no longer written to"):
        compare(Observation(one, {}, frozenset({"kept"})), Observation(one, {}))


def test_the_tolerance_in_words():
    assert "2e-05 (float32)" in in_words(None)
    assert in_words(1e-3) == "results within 0.001 of the largest magnitude, gradients within 0.01"


# -- memory that is shared ---------------------------------------------------------------------------------------------


class Model(nn.Module):
    """A model whose forward is given, as an edit would change it."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.arange(12.0).reshape(3, 4))
        self.register_buffer("b", torch.arange(12.0).reshape(3, 4))
        self.hist: list[Tensor] = []
        self.last: Tensor | None = None
        self.body = Out(None)

    def forward(self, x: Tensor) -> object:
        body: Any = self.body.value
        return body(self, x)


Body = Callable[[Model, Tensor], object]


def edited(before: Body, after: Body, x: Tensor | None = None) -> Comparison:
    """A program, and what an edit makes of it."""
    model = Model()
    model.body.value = before
    with of_model(model, (torch.ones(3, 4) if x is None else x,), {}, train=False, loss=None) as workload:
        results = observe(workload)
        assert compare(results, observe(workload)).difference == 0
        model.body.value = after
        return compare(results, observe(workload))


def keep(model: Model, value: Tensor) -> None:
    model.last = value


ALIASES: dict[str, tuple[Body, Body, str]] = {
    "of a parameter": (
        lambda model, x: (x * 2, model.w.detach().t().contiguous()),
        lambda model, x: (x * 2, model.w.detach().t()),
        "output 1 would share memory with parameter `w`: whoever writes to one changes the other",
    ),
    "of a buffer": (
        lambda model, x: {"snapshot": model.b.t().contiguous()},
        lambda model, x: {"snapshot": model.b.t()},
        "output snapshot would share memory with buffer `b`",
    ),
    "of an input": (lambda model, x: x.t().contiguous(), lambda model, x: x.t(), "output would share memory with 0"),
    "of another result": (
        lambda model, x: [y := x * 2, y.t().contiguous()],
        lambda model, x: [y := x * 2, y.t()],
        "output 0 would share memory with output 1",
    ),
    "in a list": (
        lambda model, x: model.hist.append(model.b.t().contiguous()),
        lambda model, x: model.hist.append(model.b.t()),
        "entry 1 of a list that the program keeps after the step would share memory with buffer `b`",
    ),
    "through numpy": (
        lambda model, x: model.w.detach().numpy().copy(),
        lambda model, x: model.w.detach().numpy(),
        "output would share memory with parameter `w`",
    ),
    "of sparse values": (
        lambda model, x: torch.sparse_coo_tensor(
            [[0, 1, 2]], model.b[:, 0].clone(), (3,), is_coalesced=True, check_invariants=False
        ),
        lambda model, x: torch.sparse_coo_tensor(
            [[0, 1, 2]], model.b[:, 0], (3,), is_coalesced=True, check_invariants=False
        ),
        "output: values would share memory with buffer `b`",
    ),
}


@pytest.mark.parametrize("name", ALIASES)
def test_a_result_that_becomes_a_view_of_something_else_is_refused(name):
    before, after, reason = ALIASES[name]
    with pytest.raises(Refused) as refused:
        edited(before, after)
    assert reason in str(refused.value)


def test_an_attribute_that_becomes_a_view_is_refused():
    with pytest.raises(Refused, match=r"`last` after the step would share memory with buffer `b`"):
        edited(
            lambda model, x: keep(model, model.b.t().contiguous()),
            lambda model, x: keep(model, model.b.t()),
        )


def test_a_view_of_what_the_program_keeps_stays_one():
    with pytest.raises(Refused, match="output would no longer share memory with buffer `b`"):
        edited(lambda model, x: model.b.t(), lambda model, x: model.b.t().contiguous())


def test_a_view_of_an_input_may_become_a_copy():
    assert edited(lambda model, x: x.t(), lambda model, x: x.t().contiguous()).difference == 0


def test_slices_between_each_others_rows_share_nothing():
    def halves(model: Model, x: Tensor) -> object:
        return [half.contiguous() for half in (x * 2).chunk(2, -1)]

    assert edited(halves, lambda model, x: (x * 2).chunk(2, -1) and list((x * 2).chunk(2, -1))).difference == 0
    with pytest.raises(Refused, match="output 0 would share memory with output 1"):
        edited(halves, lambda model, x: [(y := x * 2)[:, :2], y[:, :3][:, 1:]])


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), max_size=3),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), max_size=3),
    st.integers(0, 20),
)
def test_places_overlap_where_they_have_an_element_in_common(one, other, offset):
    memory = torch.arange(100)
    first = memory.as_strided([size for size, _ in one], [stride for _, stride in one], 10)
    second = memory.as_strided([size for size, _ in other], [stride for _, stride in other], offset)
    common = set(first.reshape(-1).tolist()) & set(second.reshape(-1).tolist())
    places = place_of(first), place_of(second)
    assert places[0] is not None
    assert places[1] is not None
    assert places[0].overlaps(places[1]) == places[1].overlaps(places[0]) == bool(common)


def test_an_array_with_negative_strides_lies_where_it_is_read():
    memory = np.arange(10.0)
    backwards, tail = place_of(memory[4::-1]), place_of(memory[5:])
    assert backwards is not None
    assert tail is not None
    assert not backwards.overlaps(tail)
    assert backwards.start == memory.__array_interface__["data"][0]


# -- writes that torch does not count ----------------------------------------------------------------------------------


def scaled(model: Model, x: Tensor) -> Tensor:
    model.w.detach().numpy()[0] *= 1.01
    return x * 2


def filled(model: Model, x: Tensor) -> Tensor:
    torch.utils.dlpack.from_dlpack(model.w.detach()).data[1, 1] += 1
    return x * 2


def swapped(model: Model, x: Tensor) -> Tensor:
    values = model.w.detach().numpy()
    values[[0, 1]] = values[[1, 0]]
    return x * 2


def stored(model: Model, x: Tensor) -> Tensor:
    model.w.untyped_storage().fill_(1)
    return x * 2


@pytest.mark.parametrize("write", [scaled, filled, swapped, stored])
def test_a_write_that_torch_does_not_count_is_refused(write):
    with pytest.raises(Refused, match="parameter `w`"):
        edited(lambda model, x: x * 2, write)


DTYPES = [
    torch.bool, torch.uint8, torch.int16, torch.uint32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 4, 6)], ids=str)
def test_a_checksum_is_of_values_and_not_of_layout(dtype, shape):
    bits = torch.randint(0, 2, shape)
    tensor = bits.to(torch.float32).to(dtype)
    same = torch.empty(tuple(reversed(shape)), dtype=dtype).permute(tuple(reversed(range(len(shape)))))
    same.copy_(tensor)
    shifted = torch.zeros(tensor.numel() + 1, dtype=dtype)[1:].view(shape).copy_(tensor)
    assert checksum(tensor) == checksum(same) == checksum(shifted)
    for at in range(tensor.numel()):
        other = bits.clone()
        other.view(-1)[at] ^= 1
        assert checksum(other.to(torch.float32).to(dtype)) != checksum(tensor)


def test_checksums_of_odd_memory(monkeypatch):
    tensor = torch.randn(1, 4)
    assert checksum(tensor.expand(10**12, 4)) == checksum(tensor)
    assert checksum(torch.randn(1000).unfold(0, 500, 1)) is not None
    assert checksum(torch.randn(3, dtype=torch.complex64).conj()) is not None
    whole = checksum(torch.arange(40.0))
    monkeypatch.setattr(parts, "CHUNK", 8)
    moved = torch.arange(40.0).roll(16)
    assert checksum(moved) != checksum(torch.arange(40.0))
    assert isinstance(whole, int)


# -- results of every kind ---------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Plain:
    def __init__(self, value: object) -> None:
        self.value = value

    @property
    def lazily(self) -> object:
        raise AssertionError("code of the program was run")

    def __getattribute__(self, name: str) -> object:
        raise AssertionError("code of the program was run")


class Slots:
    __slots__ = ("unset", "value")

    def __init__(self, value: object) -> None:
        self.value = value


class Pair(NamedTuple):
    a: object
    b: object


class Sub(dict):
    def items(self) -> object:
        raise AssertionError("code of the program was run")


@dataclass
class Outputs(OrderedDict):  # type: ignore[type-arg]
    """As `ModelOutput` of transformers: its fields are its entries too."""

    last: object = None

    def __post_init__(self) -> None:
        self["last"] = self.last

    def __iter__(self) -> Iterator[object]:
        raise AssertionError("code of the program was run")

    items = keys = values = __iter__  # type: ignore[assignment]


def wrapped(value: object, times: int) -> object:
    return value if times == 0 else [wrapped(value, times - 1)]


INSIDE = {
    "an object": Plain,
    "slots": Slots,
    "a named tuple": lambda value: Pair(1, value),
    "a dict with odd keys": lambda value: {(1, "a"): value, None: 1, Colour.RED: 2, object: 3},
    "a deque": lambda value: deque([value]),
    "a dict of a class": lambda value: Sub(a=value),
    "a dict that is a dataclass": lambda value: Outputs(last=value),
    "a nest": lambda value: wrapped(value, 7),
}


@pytest.mark.parametrize("name", INSIDE)
def test_results_inside_others_are_compared(name):
    inside = INSIDE[name]
    assert difference(inside(torch.ones(2)), inside(torch.ones(2))) == 0
    with pytest.raises(Refused):
        difference(inside(torch.ones(2)), inside(torch.zeros(2)))
    with pytest.raises(Refused):
        difference(inside(1), inside(2))


def test_distributions_are_looked_into():
    def normal(mean: float) -> object:
        return torch.distributions.Normal(torch.tensor([mean]), torch.ones(1))

    assert difference(normal(0.0), normal(0.0)) == 0
    with pytest.raises(Refused, match=r"output loc differs|output loc is another"):
        difference(normal(1.0), normal(2.0))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a", "b"),
        (b"a", b"b"),
        (bytearray(b"a"), bytearray(b"b")),
        ("1", b"1"),
        (None, 1),
        (None, []),
        (True, False),
        (True, 1),
        (1, 1.0),
        (10**400, 10**400 + 1),
        (2**60, 2**60 + 1),
        (Colour.RED, Colour.BLUE),
        ({1, 2}, {1, 3}),
        (frozenset({"a"}), {"a"}),
        ([1], (1,)),
        ([1], [1, 2]),
        (torch.float32, torch.float64),
        (math.inf, -math.inf),
        (math.nan, 1.0),
        (1.0, math.nan),
        (complex(1, math.inf), complex(1, -math.inf)),
        (np.ones(3), np.zeros(3)),
        (np.ones(3), np.ones(4)),
        (np.ones(3), np.ones(3, dtype=np.float32)),
        (np.ones(3), torch.ones(3, dtype=torch.float64)),
        (np.array(["a"]), np.array(["b"])),
        (np.array([1, None]), np.array([2, None])),
        (np.float32(1), np.float32(2)),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({1: 1}, {"1": 1}),
    ],
    ids=repr,
)
def test_other_values_are_refused(before, after):
    with pytest.raises(Refused, match="it changes"):
        difference(before, after)
    assert difference(before, before) == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, complex(math.nan, 1), 10**400, -0.0], ids=repr)
def test_odd_numbers_are_equal_to_themselves(value):
    assert difference(value, type(value)(value)) == 0


def test_floats_are_within_tolerance():
    assert 0 < difference(1.0, 1.0 + 1e-6) < 2e-6
    assert difference(np.ones(2), np.ones(2) + 1e-10) > 0


def test_what_can_not_be_compared_is_told():
    found = compare(*[results_of([(n for n in ()), lambda: 0, object, torch.ones(1), nn.ReLU()]) for _ in range(2)])
    assert found.unseen == ("output 0 (generator)", "output 1 (function)", "output 4 (ReLU)")
    assert found.compared == 2
    nothing = compare(results_of(iter([])), results_of(iter([])))
    assert (nothing.compared, nothing.unseen) == (0, ("output (list_iterator)",))
    many = compare(*[results_of([iter([]) for _ in range(8)]) for _ in range(2)])
    assert many.unseen[-1] == "3 more"
    assert len(many.unseen) == 6
    assert compare(results_of(None), results_of(None)).compared == 0


@pytest.mark.parametrize("made", [OrderedDict(last=torch.ones(2)), Outputs(torch.ones(2))], ids=["plain", "dataclass"])
def test_an_ordered_dict_is_compared_whole(made):
    found = compare(results_of(made), results_of(made))
    assert (found.compared, found.unseen) == (1, ())


def test_a_result_that_can_not_be_compared_has_to_stay_of_its_class():
    with pytest.raises(Refused, match="output was generator and becomes list"):
        difference((n for n in ()), [1])


def test_too_deep_or_too_many_results_are_told():
    assert compare(results_of(wrapped(1, 12)), results_of(wrapped(1, 12))).unseen == (
        "output 0[0][0][0][0][0][0][0] (list)",
    )
    long = list(range(20_000))
    assert compare(results_of(long), results_of(long)).unseen == ("output (more than 10,000 values)",)


def test_cycles_end():
    def cycle() -> object:
        thing: list[object] = [torch.ones(1)]
        thing.append({"back": thing, "object": Plain(thing)})
        return thing

    assert difference(cycle(), cycle()) == 0


# -- odd tensors -------------------------------------------------------------------------------------------------------


class Dispatched(Tensor):
    """Its code must not run."""

    @staticmethod
    def __new__(cls) -> "Dispatched":
        return Tensor._make_wrapper_subclass(cls, (2,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("code of the program was run")


class Functions(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("code of the program was run")


def inference() -> Tensor:
    with torch.inference_mode():
        return torch.ones(3) * 2


def jagged(value: float = 1.0, first: int = 2) -> Tensor:
    sizes = (first, 3 - first)
    return torch.nested.nested_tensor([torch.full((n, 3), value) for n in sizes], layout=torch.jagged)


def quantized(scale: float) -> Tensor:
    return torch._empty_affine_quantized([3], scale=scale, zero_point=0, dtype=torch.qint8).fill_(0)


ODD: dict[str, tuple[Callable[[], Tensor], Callable[[], Tensor]]] = {
    "half of complex": (
        lambda: torch.ones(3, dtype=torch.complex32),
        lambda: torch.full((3,), 2, dtype=torch.complex32),
    ),
    "conjugate": (
        lambda: torch.full((2,), 1 + 1j).conj(),
        lambda: torch.full((2,), 1 + 1j),
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)]),
    ),
    "nested, other parts": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.nested.nested_tensor([torch.ones(3), torch.ones(2)]),
    ),
    "jagged": (jagged, lambda: jagged(2.0)),
    "jagged, other offsets": (jagged, lambda: jagged(first=1)),
    "coo": (lambda: torch.eye(3).to_sparse(), lambda: (torch.eye(3) * 2).to_sparse()),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), lambda: torch.eye(3).flip(0).to_sparse_csr()),
    "another sparse layout": (lambda: torch.eye(3).to_sparse_csr(), lambda: torch.eye(3).to_sparse_csc()),
    "eight bits": (
        lambda: torch.ones(3).to(torch.float8_e4m3fn),
        lambda: torch.full((3,), 2.0).to(torch.float8_e4m3fn),
    ),
    "four bits": (
        lambda: torch.zeros(3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        lambda: torch.ones(3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    ),
    "large unsigned": (
        lambda: torch.tensor([2**63], dtype=torch.uint64),
        lambda: torch.tensor([2**63 + 1], dtype=torch.uint64),
    ),
    "inference": (inference, lambda: inference() * 2),
    "meta": (lambda: torch.ones(3, device="meta"), lambda: torch.ones(4, device="meta")),
    "meta, real": (lambda: torch.ones(3, device="meta"), lambda: torch.ones(3)),
    "quantized": (lambda: quantized(1.0), lambda: quantized(0.5)),
    "functions of its own": (
        lambda: torch.ones(2).as_subclass(Functions),
        lambda: torch.zeros(2).as_subclass(Functions),
    ),
    "infinite and complex": (
        lambda: torch.tensor([complex(1, math.inf)]),
        lambda: torch.tensor([complex(1, -math.inf)]),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch warns of ComplexHalf, nested and sparse prototypes
@pytest.mark.parametrize("name", [name for name in ODD if name != "four bits" or hasattr(torch, "float4_e2m1fn_x2")])
def test_odd_tensors_are_compared(name):
    before, after = ODD[name]
    assert difference(before(), before()) == 0
    with pytest.raises(Refused, match="it changes"):
        difference(before(), after())


def test_only_the_form_of_a_meta_tensor_is_compared():
    tensor = torch.ones(2, 3, device="meta")
    found = compare(results_of(tensor), results_of(tensor.t().contiguous().t()))
    assert found.compared == 0
    assert found.layouts == ("output: contiguous becomes permuted",)


def test_code_of_tensor_subclasses_does_not_run():
    assert compare(results_of(Dispatched()), results_of(Dispatched())).unseen == ("output (Dispatched)",)
