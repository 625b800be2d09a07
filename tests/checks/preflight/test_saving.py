"""SW212, SW213 and SW214: what files refuse, hold, and do to a model that they are loaded into."""

import copy
import io
import pickle

import pytest
import safetensors.torch
import torch
from torch import nn

from stridewise.checks.preflight import preflight
from stridewise.checks.rules.sw214 import check_state_dict

LAST = torch.channels_last


def named(model, code):
    return [finding for finding in preflight(model).findings if finding.code == code]


class Holder(nn.Module):
    def __init__(self, parameter=None, **buffers):
        super().__init__()
        if parameter is not None:
            self.parameter = nn.Parameter(parameter)
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)


base = torch.randn(8, 4)
SAVED = {
    "contiguous": lambda: Holder(base.clone()),
    "transposed": lambda: Holder(base.clone().t()),
    "columns": lambda: Holder(base.clone()[:, :2]),
    "rows": lambda: Holder(base.clone()[:2]),
    "expanded": lambda: Holder(base[:1].expand(3, 4)),
    "expanded over size 1": lambda: Holder(positions=torch.arange(4).expand(1, -1)),
    "size 1": lambda: Holder(torch.zeros(2, 1).as_strided((2, 1), (1, 2))),
    "channels_last": lambda: Holder(torch.randn(2, 3, 4, 5).to(memory_format=LAST)),
    "channels_last, 1x1": lambda: Holder(torch.randn(2, 3, 1, 1).to(memory_format=LAST)),
    "rows beside rows": lambda: (lambda whole: Holder(whole[:2], rest=whole[2:]))(base.clone()),
    "rows over rows": lambda: (lambda whole: Holder(whole[:4], rest=whole[2:]))(base.clone()),
    "one memory": lambda: (lambda whole: Holder(whole, same=whole))(base.clone()),
    "one memory, two types": lambda: (lambda whole: Holder(whole, bits=whole.view(torch.int32)))(base.clone()),
    "columns beside columns": lambda: (lambda whole: Holder(whole[:, :2], rest=whole[:, 2:]))(base.clone()),
    "two empty ones": lambda: Holder(torch.zeros(0), empty=torch.zeros(0)),
    "scalar": lambda: Holder(torch.zeros(())),
}


def refuses(tensors, tmp_path):
    try:
        safetensors.torch.save_file(tensors, tmp_path / "file")
    except (ValueError, RuntimeError) as error:
        # Of two strided views of one storage it does not get as far as to say which.
        assert any(words in str(error) for words in ("non contiguous", "share memory", "view size"))  # noqa: PT017
        return True
    return False


@pytest.mark.parametrize("name", SAVED)
def test_what_safetensors_refuses_is_told_and_copies_are_taken(name, tmp_path):
    model = SAVED[name]()
    found = named(model, "SW212")
    assert refuses(model.state_dict(), tmp_path) == bool(found)
    copies = {name: t.clone(memory_format=torch.contiguous_format) for name, t in model.state_dict().items()}
    assert not refuses(copies, tmp_path)
    if found:
        assert "t.clone(memory_format=torch.contiguous_format)" in found[0].advice


def test_buffers_that_are_not_saved_are_not_told():
    model = nn.Module()
    model.register_buffer("b", base.t(), persistent=False)
    assert named(model, "SW212") == []


def test_saved_copies_keep_the_strides_of_the_model(tmp_path):
    model = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    copies = {name: t.clone(memory_format=torch.contiguous_format) for name, t in model.state_dict().items()}
    safetensors.torch.save_file(copies, tmp_path / "file")
    other = nn.Conv2d(3, 4, 3).to(memory_format=LAST)
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "file"))
    assert torch.equal(other.weight, model.weight)
    assert other.weight.stride() == model.weight.stride()


def test_ties_are_left_to_what_saves_them(tmp_path):
    model = tied()
    assert refuses(model.state_dict(), tmp_path)
    safetensors.torch.save_model(model, tmp_path / "file")
    assert preflight(model).findings == ()


def bytes_of(thing, save=torch.save):
    file = io.BytesIO()
    save(thing, file)
    return file.tell()


def test_a_slice_saves_its_whole_storage_until_it_is_cloned():
    model = Holder(torch.randn(1000, 1000)[:1])
    (found,) = named(model, "SW213")
    assert found.message.startswith("Parameter `parameter` is 4 kB of a storage of 4 MB.")
    for save in (torch.save, pickle.dump):
        assert bytes_of(model, save) > 4_000_000
    model.parameter.data = model.parameter.data.contiguous()
    assert len(named(model, "SW213")) == 1
    model.parameter.data = model.parameter.data.clone()
    assert preflight(model).findings == ()
    for save in (torch.save, pickle.dump):
        assert bytes_of(model, save) < 10_000


def test_deepcopy_takes_the_storage_of_buffers_along():
    model = Holder(torch.randn(1000, 1000)[:1], mask=torch.randn(1000, 1000)[:1])
    assert len(named(model, "SW213")) == 2
    made = copy.deepcopy(model)
    assert made.parameter.untyped_storage().nbytes() == 4000
    assert made.mask.untyped_storage().nbytes() == 4_000_000


def test_views_that_use_their_storage_together_are_fine():
    whole = torch.randn(1000, 1000)
    assert named(Holder(whole[:300], rest=whole[300:900]), "SW213") == []
    (found,) = named(Holder(whole[:100], rest=whole[100:200]), "SW213")
    assert found.count == 2
    assert "800,000 of 4,000,000 bytes of the storage belong to parameters and buffers of the model" in found.evidence


def test_little_is_not_worth_a_word():
    assert named(Holder(torch.randn(100, 100)[:1]), "SW213") == []


def tied():
    model = nn.ModuleDict({"embed": nn.Embedding(4, 6), "head": nn.Linear(6, 4, bias=False)})
    model["head"].weight = model["embed"].weight
    return model


def conv(*, last):
    return nn.Conv2d(3, 4, 3).to(memory_format=LAST if last else torch.contiguous_format)


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("saved", [False, True], ids=["from contiguous", "from channels_last"])
def test_assign_takes_the_strides_of_what_is_loaded(last, saved):
    model, values = conv(last=last), conv(last=saved).state_dict()
    found = check_state_dict(model, values, assign=True)
    assert check_state_dict(model, values) == []
    before = model.weight.stride()
    model.load_state_dict(values)
    assert model.weight.stride() == before
    model.load_state_dict(values, assign=True)
    assert (model.weight.stride() != before) == bool(found) == (last != saved)
    if found:
        assert found[0].evidence[0].startswith("`weight`: ")
        model.to(memory_format=LAST if last else torch.contiguous_format)
        if last:
            assert model.weight.stride() == before


def reloaded(model):
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    return torch.load(file)


TIED = {
    "its own": lambda model: model.state_dict(),
    "a file": reloaded,
    "one tensor": lambda model: dict.fromkeys(model.state_dict(), torch.zeros(4, 6)),
    "one name": lambda model: {"embed.weight": torch.zeros(4, 6)},
    "the other name": lambda model: {"head.weight": torch.zeros(4, 6)},
    "its Parameters": lambda model: model.state_dict(keep_vars=True),
    "neither": lambda model: {},
}


@pytest.mark.parametrize("name", TIED)
def test_ties_are_lost_by_assign(name):
    model = tied()
    values = TIED[name](model)
    found = check_state_dict(model, values, assign=True)
    model.load_state_dict(values, assign=True, strict=False)
    assert (model["head"].weight is not model["embed"].weight) == bool(found)
    if found:
        held = next(key for key in ("embed.weight", "head.weight") if key in values)
        assert (
            found[0].advice == f"Tie them again after the load: assign the Parameter `{held}` itself to the other name."
        )
        names = ["embed", "head"] if held == "embed.weight" else ["head", "embed"]
        model[names[1]].weight = model[names[0]].weight
        assert preflight(model).findings == ()


def test_a_model_on_meta_is_looked_at_as_any_other():
    with torch.device("meta"):
        model = tied()
    assert [finding.code for finding in check_state_dict(model, tied().state_dict(), assign=True)] == ["SW214"]


def test_preflight_takes_the_state_dict_as_one_that_is_assigned():
    report = preflight(conv(last=False), state_dict=conv(last=True).state_dict())
    assert [finding.code for finding in report.findings] == ["SW214"]
