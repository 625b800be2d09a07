"""Objects go into another layout and come back as they were, to the bit; what can't is refused."""

import copy
from collections import UserDict, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from stridewise.layout import Layout, suggested_format
from stridewise.recorder.state import keep_state
from stridewise.repair.candidate import Conversion, Format
from stridewise.repair.refused import Refused
from stridewise.repair.trial.convert import convert, laid_out

CL = torch.channels_last


def images(*paths: str, what: str = "parameter") -> list[Conversion]:
    return [Conversion(what, path, "channels_last") for path in paths]  # type: ignore[arg-type]


def inputs(*paths: str, format: Format = "channels_last") -> list[Conversion]:
    return [Conversion("inputs", path, format) for path in paths]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.register_buffer("table", torch.randn(1, 8, 4, 4))
        self.register_buffer("nothing", None)
        self.frozen = nn.Parameter(torch.randn(1, 8, 4, 4), requires_grad=False)
        self.list = nn.ParameterList([torch.randn(1, 8, 4, 4)])
        self.dict = nn.ParameterDict({"a": torch.randn(1, 8, 4, 4)})
        self.cache = {"kept": [torch.randn(1, 8, 4, 4)]}

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x) + self.table + self.frozen + self.list[0] + self.dict["a"] + self.cache["kept"][0]
        return y


ALL = [
    *images("conv.weight", "frozen", "list.0", "dict.a"),
    *images("table", what="buffer"),
    *images("cache.kept.0", what="attribute"),
]


def of_net(net: Net) -> dict[str, Tensor]:
    return {**dict(net.named_parameters()), **dict(net.named_buffers()), "cache": net.cache["kept"][0]}


class Memory:
    """Where tensors lie and what is in them."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        self.places = [(t.data_ptr(), t.untyped_storage().data_ptr(), t.shape, t.stride()) for t in tensors]
        self.values = [t.detach().clone() for t in tensors]

    def assert_as_it_was(self) -> None:
        again = Memory(self.tensors)
        assert again.places == self.places
        assert all(torch.equal(now, then) for now, then in zip(again.values, self.values, strict=True))


def is_images(tensor: Tensor) -> bool:
    return suggested_format(Layout(tuple(tensor.shape), tensor.stride())) == "channels_last"


def step(net: nn.Module, optimizer: torch.optim.Optimizer, *, clear: bool = True) -> Tensor:
    optimizer.zero_grad(set_to_none=clear)
    loss = net(torch.ones(2, 3, 6, 6)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


OPTIMIZERS: list[Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]] = [
    lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9),
    lambda given: torch.optim.Adam(given, lr=0.1, amsgrad=True),
]


# -- there and back ------------------------------------------------------------------------------------------------


def test_everything_goes_into_the_format_and_comes_back_exactly():
    net = Net()
    before = Memory([*of_net(net).values()])
    objects = {path: id(tensor) for path, tensor in of_net(net).items()}
    converted = convert(net, (), {}, ALL)
    before.assert_as_it_was()
    for _ in range(2):
        converted.enter()
        assert all(is_images(tensor) for tensor in of_net(net).values())
        assert all(torch.equal(now, then) for now, then in zip(of_net(net).values(), before.values, strict=True))
        converted.leave()
        before.assert_as_it_was()
    assert {path: id(tensor) for path, tensor in of_net(net).items()} == objects
    assert not net.frozen.requires_grad


@pytest.mark.parametrize("make", OPTIMIZERS, ids=["sgd", "adam"])
def test_gradients_and_optimizer_states_follow_and_come_back_exactly(make: Any):
    net = Net()
    optimizer = make(net.parameters())
    step(net, optimizer)
    weight = net.conv.weight
    followers = [weight.grad, *(value for value in optimizer.state[weight].values() if value.shape == weight.shape)]
    before = Memory([*of_net(net).values(), *followers])
    assert len(followers) >= 2
    converted = convert(net, (), {}, ALL, [optimizer])
    for _ in range(2):
        converted.enter()
        assert all(is_images(follower) for follower in followers)
        step(net, optimizer, clear=False)
        converted.leave()
        before.assert_as_it_was()


@pytest.mark.parametrize("make", OPTIMIZERS, ids=["sgd", "adam"])
@pytest.mark.parametrize("clear", [True, False])
def test_what_the_program_made_of_values_is_kept_when_asked_for(make: Any, clear: bool):
    net, twin = Net(), Net()
    optimizer, other = make(net.parameters()), make(twin.parameters())
    converted = convert(net, (), {}, ALL, [optimizer])
    place = Memory([*of_net(net).values()]).places
    for number in range(4):  # the first step makes the states, in the new layout
        if number % 2 == 0:
            converted.enter()
        step(net, optimizer, clear=clear)
        if number % 2 == 0:
            converted.leave(keep=True)
        step(twin, other, clear=clear)
    assert Memory([*of_net(net).values()]).places == place
    for (path, mine), theirs in zip(of_net(net).items(), of_net(twin).values(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=path)
    weight = net.conv.weight
    assert weight.grad is not None
    assert weight.grad.stride() == weight.stride()
    for value in optimizer.state[weight].values():
        assert value.dim() == 0 or value.stride() == weight.stride()


def test_a_write_through_data_is_kept_too():
    net = Net()
    converted = convert(net, (), {}, ALL)
    net.table.data.fill_(6)
    for value in (6, 7):
        converted.enter()
        assert net.table.eq(value).all()
        converted.leave(keep=True)
        net.table.data.fill_(7)
    converted.enter()
    net.table.data.fill_(5)
    converted.leave(keep=True)
    assert net.table.eq(5).all()
    converted.enter()
    net.table.data.fill_(7)
    converted.leave(keep=True)
    assert net.table.eq(7).all()
    assert not is_images(net.table)


def test_without_keep_values_are_those_of_before_however_they_were_written():
    net = Net()
    before = Memory([*of_net(net).values()])
    converted = convert(net, (), {}, ALL)
    converted.enter()
    with torch.no_grad():
        net.conv.weight.add_(1)
    converted.leave()
    before.assert_as_it_was()
    converted.enter()
    assert torch.equal(net.conv.weight, before.values[list(of_net(net)).index("conv.weight")])
    converted.leave()


def test_values_that_changed_outside_are_taken_along():
    net = Net()
    converted = convert(net, (), {}, ALL)
    with torch.no_grad():
        net.conv.weight.fill_(3)
    converted.enter()
    assert net.conv.weight.eq(3).all()
    converted.leave()
    net.conv.weight.data.fill_(4)  # no version counter tells of this
    converted.enter(refresh=True)
    assert net.conv.weight.eq(4).all()
    converted.leave()
    assert net.conv.weight.eq(4).all()


def test_entering_again_repairs_what_a_restored_state_undid():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    step(net, optimizer)
    before = Memory([*of_net(net).values()])
    state = keep_state([("", net), ("", optimizer)])
    converted = convert(net, (), {}, ALL, [optimizer])
    for _ in range(3):
        state.restore()
        converted.enter()
        assert is_images(net.conv.weight)
        assert torch.equal(net.conv.weight, before.values[list(of_net(net)).index("conv.weight")])
        step(net, optimizer)
    converted.leave()
    state.restore()
    before.assert_as_it_was()


def test_memory_that_the_program_gives_a_tensor_meanwhile_stays_its_own():
    net = Net()
    converted = convert(net, (), {}, ALL)
    converted.enter()
    given = torch.zeros(1, 8, 4, 4)
    net.table.data = given
    converted.leave(keep=True)
    assert net.table.data_ptr() == given.data_ptr()
    converted.enter()
    assert is_images(net.table)
    assert net.table.eq(0).all()
    converted.leave()
    assert net.table.data_ptr() == given.data_ptr()


def test_nothing_moves_for_one_that_never_entered():
    net = Net()
    net.conv.weight.grad = torch.randn(8, 3, 3, 3).to(memory_format=CL)
    before = Memory([*of_net(net).values(), net.conv.weight.grad])
    convert(net, (), {}, ALL).leave(keep=True)
    before.assert_as_it_was()


def test_results_agree_to_rounding():
    net, x = Net(), torch.randn(2, 3, 6, 6)
    expected = net(x)
    converted = convert(net, (x,), {}, [*ALL, *inputs("")])
    converted.enter()
    args, _ = converted.inputs((x,), {})
    output = net(*args)
    converted.leave()
    assert is_images(output)
    torch.testing.assert_close(output, expected)


def test_a_tied_parameter_is_converted_once():
    net = nn.Module()
    net.a, net.b = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3)
    net.b.weight = net.a.weight
    converted = convert(net, (), {}, images("a.weight", "b.weight"))
    before = Memory([net.a.weight])
    converted.enter()
    assert net.b.weight is net.a.weight
    assert is_images(net.b.weight)
    converted.leave()
    before.assert_as_it_was()


def test_a_compiled_module_is_converted_under_its_own_names():
    net = torch.compile(Net(), backend="eager")
    x = torch.randn(2, 3, 6, 6)
    expected = net(x)
    names = [path for path, tensor in net.named_parameters() if tensor.dim() == 4]
    assert "_orig_mod.conv.weight" in names
    converted = convert(net, (), {}, images(*names))
    converted.enter()
    torch.testing.assert_close(net(x), expected)
    assert is_images(net(x))
    converted.leave()
    assert torch.equal(net(x), expected)


def test_a_parametrization_is_converted_at_its_original():
    conv = parametrizations.weight_norm(nn.Conv2d(3, 8, 3))
    with pytest.raises(Refused, match="computed anew at each use"):
        convert(conv, (), {}, images("weight"))
    converted = convert(conv, (), {}, images("parametrizations.weight.original1"))
    converted.enter()
    assert is_images(conv.parametrizations.weight.original1)
    converted.leave()
    assert not is_images(conv.parametrizations.weight.original1)


@st.composite
def strided(draw: st.DrawFn) -> Tensor:
    """A tensor of four dimensions in any order, perhaps with gaps, an offset, or expanded."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=4, max_size=4))
    step = draw(st.integers(1, 2))
    offset = draw(st.integers(0, 2))
    base = torch.arange(4 * 4 * 4 * 4 * 16 + offset).float()[offset:]
    dense = base[: sizes[0] * sizes[1] * sizes[2] * sizes[3] * step].view(*sizes[:3], sizes[3] * step)[..., ::step]
    tensor = dense.permute(*draw(st.permutations(range(4))))
    dim = draw(st.integers(0, 3))
    return tensor.narrow(dim, 0, 1).expand(tensor.shape) if draw(st.booleans()) else tensor


@given(strided(), st.sampled_from(["contiguous", "channels_last"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_any_layout_comes_back(tensor: Tensor, format: Format, keep: bool):
    net = nn.Module()
    net.register_buffer("table", tensor)
    before = Memory([tensor])
    conversions = [Conversion("buffer", "table", format)]
    expected = laid_out(tensor, format).stride()
    if expected == tensor.stride():
        with pytest.raises(Refused, match="already"):
            convert(net, (), {}, conversions)
        return
    converted = convert(net, (), {}, conversions)
    converted.enter()
    assert tensor.stride() == expected
    assert torch.equal(tensor, before.values[0])
    converted.leave(keep=keep)
    before.assert_as_it_was()


# -- inputs --------------------------------------------------------------------------------------------------------


@dataclass
class Sample:
    pixels: Tensor
    name: str = "a"


Pair = namedtuple("Pair", "first second")


def test_inputs_of_any_nest_are_converted_and_nothing_else():
    x, mask = torch.randn(2, 3, 4, 4), torch.ones(2, 3, 4, 4, dtype=torch.long)
    args = (x, [mask, {"x": x}], Pair(x, 3), Sample(x))
    kwargs = {"more": UserDict(x=x), "flag": True, "same": [mask]}
    converted = convert(None, args, kwargs, inputs(""))
    for new_args, new_kwargs in ((converted.args, converted.kwargs), converted.inputs(args, kwargs)):
        found = [new_args[0], new_args[1][1]["x"], new_args[2].first, new_args[3].pixels, new_kwargs["more"]["x"]]
        assert all(is_images(tensor) for tensor in found)
        assert len({id(tensor) for tensor in found}) == 1
        assert new_args[1][0] is mask  # labels and masks are no images
        assert new_kwargs["same"] is kwargs["same"]
        assert type(new_args[2]) is Pair
        assert type(new_kwargs["more"]) is UserDict
    assert args[3].pixels is x
    assert kwargs["more"]["x"] is x
    assert not is_images(x)


def test_one_input_by_its_path():
    x, y = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    converted = convert(None, (x, {"y": y}), {"z": y[:]}, inputs("1.y"))
    assert converted.args[0] is x
    assert is_images(converted.args[1]["y"])
    assert not is_images(converted.kwargs["z"])
    assert converted.converts_inputs
    other = convert(None, (), {"z": x}, inputs("z"))
    assert is_images(other.kwargs["z"])


def test_gradients_of_inputs_reach_what_was_given():
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    converted = convert(None, (x,), {}, inputs("0"))
    (inside,), _ = converted.inputs((x,), {})
    inside.square().sum().backward()
    assert x.grad is not None
    (outside,) = converted.args
    assert outside.is_leaf
    outside.square().sum().backward()
    torch.testing.assert_close(outside.grad, x.grad)


def test_each_use_converts_anew_and_the_worker_did_once():
    x = torch.randn(2, 3, 4).transpose(1, 2)
    converted = convert(None, (x,), {}, inputs("0", format="contiguous"))
    (first,), _ = converted.inputs((x,), {})
    (second,), _ = converted.inputs((x,), {})
    assert first.data_ptr() != second.data_ptr()
    assert converted.args[0] is converted.args[0]
    assert converted.args[0].is_contiguous()


def test_inputs_of_a_step_are_seen_when_it_calls_the_model():
    converted = convert(Net(), (), {}, inputs(""))
    (new,), _ = converted.inputs((torch.randn(2, 3, 4, 4),), {})
    assert is_images(new)


# -- what is refused -----------------------------------------------------------------------------------------------


def module(**tensors: Any) -> nn.Module:
    net = nn.Module()
    for name, tensor in tensors.items():
        if isinstance(tensor, nn.Parameter):
            net.register_parameter(name, tensor)
        else:
            net.register_buffer(name, tensor)
    return net


def shared() -> nn.Module:
    flat = torch.randn(2, 3, 4, 5)
    return module(a=nn.Parameter(flat[:1]), b=nn.Parameter(flat[1:]))


def transposed() -> nn.Module:
    weight = nn.Parameter(torch.randn(2, 3, 4, 5))
    return module(weight=weight, a=weight.detach().permute(3, 2, 1, 0))


def inference() -> nn.Module:
    with torch.inference_mode():
        return module(a=torch.randn(2, 3, 4, 5))


def computed() -> nn.Module:
    net = nn.Module()
    net.a = torch.randn(2, 3, 4, 5, requires_grad=True) * 2
    return net


def across_processes() -> nn.Module:
    return module(a=nn.Parameter(torch.randn(2, 3, 4, 5).share_memory_()))


def in_ddp() -> nn.Module:
    wrapped = nn.parallel.DistributedDataParallel.__new__(nn.parallel.DistributedDataParallel)
    nn.Module.__init__(wrapped)
    wrapped.register_parameter("a", nn.Parameter(torch.randn(2, 3, 4, 5)))
    return wrapped


def viewed_by_an_attribute() -> nn.Module:
    net = module(a=nn.Parameter(torch.randn(2, 3, 4, 5)))
    net.rows = [net.a.detach()[0]]
    return net


def flat_gradient() -> nn.Module:
    flat = torch.randn(2, 2, 3, 4, 5)
    net = module(a=nn.Parameter(torch.randn(2, 3, 4, 5)), b=nn.Parameter(torch.randn(2, 3, 4, 5)))
    net.a.grad, net.b.grad = flat[0], flat[1]
    return net


def quantized() -> nn.Module:
    return module(a=torch._empty_affine_quantized((2, 3, 4, 5), scale=1.0, zero_point=0, dtype=torch.qint8))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (shared, "`a` shares its memory with `b`"),
        (transposed, "shares its memory"),
        (inference, "`a` was made in inference mode"),
        (computed, "`a` is the result of a computation that a backward goes through"),
        (across_processes, "`a` lies in memory that other processes share"),
        (in_ddp, "DistributedDataParallel keeps the strides that parameters had when it was made"),
        (viewed_by_an_attribute, "`a` shares its memory with `rows"),
        (flat_gradient, "the gradient or an optimizer's state of `a` shares its memory"),
        (quantized, "`a` is quantized"),
        (lambda: module(a=torch.randn(2, 3, 4, 5, device="meta")), "`a` is on the meta device"),
        (lambda: module(a=torch.randn(2, 3, 4, 5).to_sparse()), "`a` is not strided"),
        (lambda: module(a=nn.UninitializedParameter()), "`a` has no shape before the first call"),
        (lambda: module(a=torch.randn(2, 3, 4)), "`a` has 3 dimensions, and channels_last needs 4 or 5"),
        (lambda: module(a=torch.randn(2, 3, 4, 5).to(memory_format=CL)), "everything is in that layout already"),
        (lambda: module(b=torch.randn(2, 3, 4, 5)), "the model has no tensor `a`"),
        (lambda: module(a=None), "the model has no tensor `a`"),
        (lambda: None, "the program has no model"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*quantiz.*")
def test_it_is_refused(make: Any, reason: str):
    net = make()
    kind = "parameter" if isinstance(getattr(net, "a", None), nn.Parameter) else "buffer"
    with pytest.raises(Refused, match=reason):
        convert(net, (), {}, images("a", what=kind))


@pytest.mark.parametrize(
    ("given", "path", "reason"),
    [
        (torch.randn(2, 3, 4), "0", "the input `0` has 3 dimensions"),
        (torch.randn(2, 3, 4, 5), "1", "there is no input `1`"),
        (torch.randn(2, 3, 4, 5).to_sparse(), "0", "the input `0` has no strides"),
        (torch.randn(2, 3, 4, 5).to(memory_format=CL), "0", "everything is in that layout already"),
        (torch.randn(2, 3), "", "everything is in that layout already"),
    ],
)
def test_an_input_is_refused(given: Tensor, path: str, reason: str):
    with pytest.raises(Refused, match=reason):
        convert(None, (given,), {}, inputs(path))


def test_a_refusal_leaves_everything_alone():
    net = Net()
    before = Memory([*of_net(net).values()])
    with pytest.raises(Refused):
        convert(net, (), {}, [*ALL, *images("conv.missing")])
    before.assert_as_it_was()


# -- facts of torch that this relies on ------------------------------------------------------------------------------


def test_only_to_makes_an_image_of_one_channel_channels_last_for_convolutions():
    image, weight = torch.randn(4, 1, 6, 6), torch.randn(8, 1, 3, 3)
    assert is_images(nn.functional.conv2d(laid_out(image, "channels_last"), weight))
    assert not is_images(nn.functional.conv2d(image.contiguous(memory_format=CL), weight))


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_channels_last_weight_alone_makes_the_output_channels_last(kernel: int):
    weight = laid_out(torch.randn(8, 3, kernel, kernel), "channels_last")
    assert is_images(nn.functional.conv2d(torch.randn(2, 3, 6, 6), weight))


def test_a_deep_copy_of_what_was_converted_has_its_layout():
    net = Net()
    converted = convert(net, (), {}, ALL)
    converted.enter()
    again = copy.deepcopy(net)
    converted.leave()
    assert is_images(again.conv.weight)


def test_it_is_cheap_while_values_stay():
    net = Net()
    converted = convert(net, (), {}, ALL)
    converted.enter()
    place = Memory([*of_net(net).values()]).places
    converted.leave()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        converted.enter()
    assert Memory([*of_net(net).values()]).places == place
    assert not any(event.name == "aten::copy_" for event in profile.events())
    converted.leave()
