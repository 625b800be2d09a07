"""Which tensor a call saw, and what it was like at that moment."""

import gc

import pytest
import torch
from torch import Tensor, nn

import stridewise
from stridewise.recording.handle import Recording

from .both import recorded


def seen(recording: Recording) -> list[tuple[int, int, int, tuple[int, ...], tuple[int, ...], int, str]]:
    """Object, storage, version, sizes, strides, offset and dtype of each input of each `relu`, in order."""
    log = recording.trace.log
    log.check()
    rows = []
    for call in log.calls:
        if log.functions[call.function] == "torch.relu":
            for number in call.inputs:
                ref = log.refs[number]
                at = log.layouts[ref.layout]
                rows.append((ref.object, ref.storage, ref.version, at.sizes, at.strides, at.offset, at.dtype))
    return rows


def look(x: Tensor) -> None:
    torch.relu(x)


def layouts(recording: Recording) -> list[tuple[tuple[int, ...], tuple[int, ...], int]]:
    return [row[3:6] for row in seen(recording)]


CHANGES = {
    "t_": (lambda x: x.t_(), ((3, 2), (1, 3), 0)),
    "transpose_": (lambda x: x.transpose_(0, 1), ((3, 2), (1, 3), 0)),
    "unsqueeze_": (lambda x: x.unsqueeze_(0), ((1, 2, 3), (6, 3, 1), 0)),
    "squeeze_": (lambda x: x.unsqueeze_(1).squeeze_(), ((2, 3), (3, 1), 0)),
    "resize_": (lambda x: x.resize_(2, 2), ((2, 2), (2, 1), 0)),
    "set_": (lambda x: x.set_(torch.ones(4, 5).t()), ((5, 4), (1, 5), 0)),
    "as_strided_": (lambda x: x.as_strided_((2, 2), (3, 1), 1), ((2, 2), (3, 1), 1)),
    "data": (lambda x: setattr(x, "data", torch.ones(3, 4).t()), ((4, 3), (1, 4), 0)),
    "swapaxes_": (lambda x: x.swapaxes_(0, 1), ((3, 2), (1, 3), 0)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", [Tensor, nn.Parameter], ids=["tensor", "parameter"])
def test_a_layout_is_read_at_each_use(change, kind):
    apply, expected = CHANGES[change]

    def program():
        x = torch.ones(2, 3)
        if kind is nn.Parameter:
            x = nn.Parameter(x, requires_grad=False)
        look(x)
        apply(x)
        look(x)

    _, recording = recorded(program)
    assert layouts(recording) == [((2, 3), (3, 1), 0), expected]
    before, after = seen(recording)
    assert before[0] == after[0], "it is the same object"
    assert (before[1] == after[1]) == (change not in ("set_", "data")), "it has the storage that it has"


def test_a_module_that_is_moved_has_new_storages_and_layouts():
    model = nn.Conv2d(3, 4, 3)

    def program():
        look(model.weight)
        model.to(memory_format=torch.channels_last)
        look(model.weight)
        model.to(torch.float64)
        look(model.weight)

    _, recording = recorded(program)
    first, second, third = seen(recording)
    assert [row[4] for row in (first, second, third)] == [(27, 9, 3, 1), (27, 1, 9, 3), (27, 1, 9, 3)]
    assert [row[6] for row in (first, second, third)] == ["float32", "float32", "float64"]
    assert first[0] == second[0] == third[0]
    assert len({first[1], second[1], third[1]}) == 3


def test_views_share_a_storage_and_copies_do_not():
    def program():
        x = torch.ones(4, 6)
        for y in (x, x.t(), x[1:, ::2], x.detach(), x.clone(), x.contiguous(), x.reshape(-1), x.t().reshape(-1)):
            look(y)

    _, recording = recorded(program)
    storages = [row[1] for row in seen(recording)]
    assert [storage == storages[0] for storage in storages] == [True] * 4 + [False, True, True, False]


def test_versions_count_writes():
    def program():
        x = torch.ones(3)
        look(x)
        x.add_(1)
        look(x)
        look(x[1:])

    _, recording = recorded(program)
    assert [row[2] for row in seen(recording)] == [0, 1, 1]


def test_an_address_that_is_used_again_is_another_tensor_and_another_storage():
    def program():
        addresses = set()
        for _ in range(20):
            x = torch.ones(3)
            addresses.add(id(x))
            look(x)
            del x
        return addresses

    addresses, recording = recorded(program)
    assert len(addresses) < 20, "no address was used again: this tells nothing"
    rows = seen(recording)
    assert len({row[0] for row in rows}) == 20
    assert len({row[1] for row in rows}) == 20


def test_data_that_is_replaced_over_and_over_is_another_storage_each_time():
    """The new storage may lie where the old one lay, with the same sizes and version."""

    def program():
        x = torch.ones(3)
        for _ in range(20):
            x.data = torch.empty(0)
            gc.collect(0)
            x.data = torch.ones(3)
            look(x)

    _, recording = recorded(program)
    assert len({row[1] for row in seen(recording)}) == 20


def test_an_unchanged_tensor_is_one_row():
    def program():
        x = torch.ones(3)
        for _ in range(5):
            look(x)

    _, recording = recorded(program)
    assert len({call.inputs[0] for call in recording.trace.log.calls[1:]}) == 1


def test_a_tensor_whose_python_object_dies_and_comes_back():
    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            look(x)
            return g

    def program():
        leaf = torch.ones(3, requires_grad=True)
        x = leaf + 1
        look(x)
        y = Keep.apply(x)
        del x
        y.sum().backward()

    _, recording = recorded(program)
    first, second = seen(recording)
    assert first[1] == second[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, 3).to_sparse(),
        lambda: torch.ones(3, 3).to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        lambda: torch.ones(3, 3).to_mkldnn(),
    ],
    ids=["coo", "csr", "nested", "jagged", "opaque"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_without_strides_has_an_unknown_layout(make):
    _, recording = recorded(lambda: look(make()))
    log = recording.trace.log
    log.check()
    (call,) = [call for call in log.calls if log.functions[call.function] == "torch.relu"]
    ref = log.refs[call.inputs[0]]
    assert (ref.layout, ref.storage, ref.version) == (-1, -1, -1)
    assert ref.object >= 0


def test_under_vmap_the_layout_is_unknown():
    _, recording = recorded(lambda: torch.vmap(torch.relu)(torch.ones(2, 3)))
    log = recording.trace.log
    (call,) = [call for call in log.calls if log.functions[call.function] == "torch.relu"]
    assert log.refs[call.inputs[0]].layout == -1


@pytest.mark.parametrize("kind", [torch.Tensor, nn.Parameter, nn.Buffer])
def test_inference_tensors_have_layouts_and_no_version(kind):
    def program():
        with torch.inference_mode():
            x = torch.ones(3, 2).t()
            x = x if kind is torch.Tensor else kind(x)
            look(x)
            look(x)

    _, recording = recorded(program)
    first, second = seen(recording)
    assert first[2:6] == (-1, (2, 3), (1, 2), 0)
    assert first == second


def test_a_subclass_without_a_dispatch_of_its_own_has_a_layout():
    class Mine(Tensor):
        pass

    def program():
        x = torch.ones(3, 2).t().as_subclass(Mine)
        look(x)
        x.t_()
        look(x)

    _, recording = recorded(program)
    assert layouts(recording) == [((2, 3), (1, 2), 0), ((3, 2), (2, 1), 0)]


def test_inputs_and_outputs_are_found_wherever_they_stand():
    def program():
        x, out = torch.ones(2, 3), torch.empty(4, 3)
        torch.cat([x, x], dim=0, out=out)
        torch.split(x, 1)
        torch.where(condition=x > 0, input=x, other=x + 1)
        torch.tensor([1.0] * 1000)

    _, recording = recorded(program)
    log = recording.trace.log
    rows = {log.functions[call.function]: (len(call.inputs), len(call.outputs)) for call in log.calls}
    assert rows["torch.cat"] == (2, 2)
    assert (
        rows["torch.functional.split"] == (1, 2) if "torch.functional.split" in rows else rows["torch.split"] == (1, 2)
    )
    assert rows["torch.where"] == (3, 1)
    assert rows["torch.tensor"] == (0, 1)


def test_tensors_of_a_module_are_found_in_what_it_takes_and_gives():
    class Key:
        def __str__(self) -> str:
            raise AssertionError("the program's code must not run")

    class Model(nn.Module):
        def forward(self, x, pair, *, scale, **rest):
            return {"y": x + scale, "rest": [pair[1]], Key(): x}

    x = torch.ones(2)
    _, recording = recorded(lambda: Model()(x, (1, x), scale=x, wide=list(range(10_000))))
    (call,) = recording.trace.log.module_calls
    assert [path for path, _ in call.inputs] == ["0", "1[1]", "scale"]
    assert [path for path, _ in call.outputs] == ["y", "rest[0]", "<Key>"]


def test_names_of_parameters_and_buffers():
    model = nn.Sequential(nn.BatchNorm1d(2))
    with stridewise.record() as recording:
        model(torch.randn(3, 2))
    names = recording.trace.log.names
    assert sorted(names.values()) == [
        "buffer `0.num_batches_tracked`",
        "buffer `0.running_mean`",
        "buffer `0.running_var`",
        "parameter `0.bias`",
        "parameter `0.weight`",
    ]
