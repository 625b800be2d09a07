"""What layout does to models: conversions, calls, and files. Each fault happens in torch, is named, and is cured."""

import copy
import io
import warnings

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

import stridewise
from stridewise.linter.engine import check_text
from stridewise.linter.rules import all_rules

from .rows import hazard

LAST = torch.channels_last


def codes(**parts) -> set[str]:
    return {finding.code for finding in stridewise.preflight(**parts).findings}


@hazard(38, code="SW209")
def test_channels_last_raises_where_weights_have_5_dimensions():
    model = nn.ModuleList([nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3)])
    assert "SW209" in codes(model=model)
    with pytest.raises(RuntimeError, match="rank 4"):
        model.to(memory_format=LAST)
    for p in model.parameters():
        kinds = {4: LAST, 5: torch.channels_last_3d}
        p.data = p.data.contiguous(memory_format=kinds.get(p.dim(), torch.contiguous_format))
    assert model[0].weight.is_contiguous(memory_format=LAST)
    assert model[1].weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert "SW209" not in codes(model=model)


@hazard(39, code="SW211")
def test_functions_of_torch_raise_for_channels_last_parameters():
    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    assert "SW211" in codes(model=model)
    with pytest.raises(RuntimeError):
        nn.init.orthogonal_(model.weight)
    with pytest.raises(RuntimeError):
        nn.utils.parameters_to_vector(model.parameters())
    assert torch.cat([p.reshape(-1) for p in model.parameters()]).numel() == 4 * 3 * 9 + 4


@hazard(40, 88, code="SW212")
def test_safetensors_refuses_channels_last(tmp_path):
    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    assert "SW212" in codes(model=model)
    with pytest.raises(ValueError, match="non contiguous"):
        safetensors.torch.save_file(model.state_dict(), tmp_path / "a.safetensors")
    safetensors.torch.save_model(model, tmp_path / "b.safetensors")
    other = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    safetensors.torch.load_model(other, tmp_path / "b.safetensors")
    assert torch.equal(other.weight, model.weight)
    assert other.weight.is_contiguous(memory_format=LAST)


@hazard(41, code="SW212")
def test_a_transposed_parameter_can_not_be_saved(tmp_path):
    model = nn.Linear(4, 8)
    model.weight = nn.Parameter(torch.randn(4, 8).t())
    assert "SW212" in codes(model=model)
    with pytest.raises(ValueError, match="non contiguous"):
        safetensors.torch.save_file(model.state_dict(), tmp_path / "a.safetensors")
    copies = {n: t.clone(memory_format=torch.contiguous_format) for n, t in model.state_dict().items()}
    safetensors.torch.save_file(copies, tmp_path / "a.safetensors")
    loaded = safetensors.torch.load_file(tmp_path / "a.safetensors")
    assert torch.equal(loaded["weight"], model.weight)
    model.weight.data = model.weight.data.contiguous()
    assert codes(model=model) == set()
    safetensors.torch.save_file(model.state_dict(), tmp_path / "a.safetensors")


@hazard(47, code="SW223")
def test_contiguous_leaves_an_odd_last_stride():
    x = torch.arange(8).reshape(1, 1, 8).transpose(1, 2)[0]
    assert x.is_contiguous()
    assert x.contiguous().stride(-1) != 1
    assert "SW223" in codes(sample=(x,))
    with pytest.raises(RuntimeError, match=r"must be 1|stride"):
        x.contiguous().view(dtype=torch.int8)
    cured = x.clone(memory_format=torch.contiguous_format)
    assert cured.stride(-1) == 1
    assert cured.view(dtype=torch.int8).shape == (8, 8)
    assert "SW223" not in codes(sample=(cured,))


@hazard(51, code="SW218")
def test_a_batch_of_one_loses_channels_last_in_kernels():
    images = torch.randn(4, 3, 8, 8).to(memory_format=LAST)
    one = images[0][None]
    assert one.is_contiguous(memory_format=LAST)
    weight = torch.randn(5, 3, 3, 3)
    assert F.conv2d(one, weight).is_contiguous()  # NCHW
    assert one.contiguous(memory_format=LAST).stride() == one.stride()
    assert "SW218" in codes(sample=(one,))
    for cured in (one.clone(memory_format=LAST), one.to(memory_format=LAST), images[:1]):
        assert not F.conv2d(cured, weight).is_contiguous()
        assert "SW218" not in codes(sample=(cured,))


@hazard(63, code=None)
def test_weights_of_recurrent_layers_in_pieces_do_not_matter_on_the_cpu():
    """The warning is cuDNN's; without it no weights are one piece, and there is nothing to flatten."""
    model = copy.deepcopy(nn.LSTM(4, 8))
    assert len({p.untyped_storage().data_ptr() for p in model.parameters()}) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.randn(5, 2, 4))
    before = [p.data_ptr() for p in model.parameters()]
    model.flatten_parameters()
    assert [p.data_ptr() for p in model.parameters()] == before
    assert codes(model=model) == set()


@hazard(85, code="SW214")
def test_assign_takes_the_strides_of_the_file():
    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    saved = nn.Conv2d(3, 4, 3).state_dict()
    assert "SW214" in codes(model=model, state_dict=saved)
    model.load_state_dict(saved, assign=True)
    assert not model.weight.is_contiguous(memory_format=LAST)
    model.to(memory_format=LAST)
    assert model.weight.is_contiguous(memory_format=LAST)
    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    model.load_state_dict(nn.Conv2d(3, 4, 3).state_dict())
    assert model.weight.is_contiguous(memory_format=LAST)


@hazard(86, code="SW213")
def test_a_slice_saves_its_whole_storage():
    model = nn.Module()
    model.register_buffer("mask", torch.ones(1000, 1000)[:10])
    assert "SW213" in codes(model=model)
    whole, contiguous, cut = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(model.state_dict(), whole)
    torch.save({"mask": model.mask.contiguous()}, contiguous)
    assert min(whole.tell(), contiguous.tell()) > 4_000_000
    model.mask = model.mask.clone()
    torch.save(model.state_dict(), cut)
    assert cut.tell() < 100_000
    assert "SW213" not in codes(model=model)


@hazard(87, code="SW303")
def test_a_contiguous_format_that_changes_nothing():
    x = torch.randn(2, 3).t()
    assert not x.to(memory_format=torch.contiguous_format).is_contiguous()
    assert x.contiguous().is_contiguous()
    assert "SW303" in linted("import torch\n\ndef f(x):\n    return x.t().to(memory_format=torch.contiguous_format)\n")


@hazard(27, code="SW316")
def test_a_layout_that_decides_what_is_computed():
    """`is_contiguous()` as a flag for "already transposed" is taken at its word when the code is traced."""
    text = """
import torch

@torch.jit.script_if_tracing
def g(w):
    return w

def f(w):
    if w.is_contiguous():
        return w.t()
    return w

traced = torch.jit.trace(f, torch.randn(3, 3))
exported = torch.export.export
"""

    def f(w):
        return w.t() if w.is_contiguous() else w

    traced = torch.jit.trace(f, torch.randn(3, 3), check_trace=False)
    other = torch.randn(3, 3).t()
    assert not torch.equal(traced(other), f(other))
    assert "SW316" in linted(text)


@hazard(33, code="SW407")
def test_a_view_of_a_transposed_mask_raises():
    def accuracy(scores, labels):
        correct = scores.topk(3).indices.t().eq(labels)
        return correct[:2].view(-1)

    scores, labels = torch.randn(4, 5), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="view size"):
        accuracy(scores, labels)

    def flattened(correct):
        return correct.view(-1)

    found = stridewise.check_op(flattened, torch.ones(3, 4, dtype=torch.bool)).findings
    assert {finding.code for finding in found} == {"SW407"}
    assert stridewise.check_op(lambda correct: correct.reshape(-1), torch.ones(3, 4)).findings == ()


def linted(text: str) -> set[str]:
    return {finding.code for finding in check_text(text, all_rules())}


@hazard(85, code="SW214")
def test_assign_parts_tied_weights():
    """Two Parameters with one memory come of a state dict that was tied: an optimizer updates it twice (SW206)."""

    def tied():
        model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "head": nn.Linear(4, 8, bias=False)})
        model["head"].weight = model["embed"].weight
        return model

    model, saved = tied(), tied().state_dict()
    assert codes(model=model, state_dict=saved) == {"SW214"}
    model.load_state_dict(saved, assign=True)
    assert model["head"].weight is not model["embed"].weight
    assert codes(model=model) == {"SW206", "SW212"}
    model["head"].weight = model["embed"].weight
    assert codes(model=model) == set()


def test_ties_are_kept_by_the_advised_edits():
    model = nn.ModuleDict({"embed": nn.Embedding(8, 4), "head": nn.Linear(4, 8, bias=False)})
    wide = nn.Parameter(torch.randn(8, 8)[:, ::2])
    model["embed"].weight = model["head"].weight = wide
    assert "SW206" in codes(model=model)
    wide.data = wide.data.clone()
    assert model["embed"].weight is model["head"].weight
    assert codes(model=model) == set()


def test_two_parameters_with_one_memory_are_updated_twice():
    model = nn.ModuleDict({"one": nn.Linear(2, 2, bias=False), "other": nn.Linear(2, 2, bias=False)})
    model["other"].weight.data = model["one"].weight.data
    assert "SW206" in codes(model=model)
    before = model["one"].weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    torch.testing.assert_close(before - model["one"].weight, torch.full((2, 2), 2.0))
    model["other"].weight = model["one"].weight
    assert codes(model=model) == set()


def test_a_buffer_that_is_a_view_hands_on_its_order():
    model = nn.Module()
    model.register_buffer("table", torch.randn(8, 4).t())
    assert "SW221" in codes(model=model)
    x = torch.randn(4, 8)
    assert not (model.table + x).is_contiguous()
    assert (x + model.table).is_contiguous()
    model.table = model.table.contiguous()
    assert (model.table + x).is_contiguous()
    assert codes(model=model) == set()


@hazard(31, code=None)
def test_operators_that_are_healed():
    """bucketize, index_add, isin, the gradient of einsum on expanded operands, transposed convolutions, addmm."""
    edges, x = torch.tensor([1.0, 2, 3]), torch.rand(6, 8)[:, ::2] * 4
    assert torch.equal(torch.bucketize(x, edges), torch.bucketize(x.contiguous(), edges))
    assert torch.equal(torch.isin(x.t(), edges), torch.isin(x.t().contiguous(), edges))
    source = torch.randn(4, 6).t()
    index = torch.tensor([0, 2, 1, 3, 5, 4])
    assert torch.equal(
        torch.zeros(6, 4).index_add(0, index, source), torch.zeros(6, 4).index_add(0, index, source.contiguous())
    )
    a = torch.randn(1, 3).expand(2, 3).requires_grad_()
    torch.einsum("ij,ij->i", a, torch.ones(2, 3)).sum().backward()
    assert torch.equal(a.grad, torch.ones(2, 3))
    w = torch.ones(1, 2, 5, 5).to(memory_format=LAST)
    assert F.conv_transpose2d(torch.ones(1, 1, 2, 2).to(memory_format=LAST), w).sum() == 200


@hazard(32, code=None)
def test_layouts_that_only_pick_another_algorithm_are_not_named():
    x, w = torch.randn(4, 64, 28, 28) * 100, torch.randn(4, 64, 3, 3)
    assert not torch.equal(F.conv2d(x, w), F.conv2d(x.to(memory_format=LAST), w).contiguous())
    assert stridewise.check_op(F.conv2d, x, w).ok
