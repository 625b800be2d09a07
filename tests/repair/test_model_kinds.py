"""Kinds that look at live objects: the model and its inputs, the loaders, and what a step returns."""

import random
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from stridewise.repair.candidate import Candidate, Kind
from stridewise.repair.context import Context
from stridewise.repair.kinds import channels_last_model, clone_slice, loader
from stridewise.repair.trial.batch import record_batch
from stridewise.repair.trial.convert import convert
from stridewise.source.files import Files

from .running import context_of, edited, load, proposals

CHANNELS_LAST = Kind.from_module(channels_last_model)
LOADER = Kind.from_module(loader)
CLONE = Kind.from_module(clone_slice)


def run(folder: Path, source: str, name: str = "example") -> tuple[ModuleType, Context]:
    module = load(folder, source, name)
    return module, context_of(module)


def with_target(context: Context, target: Any) -> Context:
    live = msgspec.structs.replace(context.live, target=target)
    return Context(context.report, context.case, live, Files(Path.cwd()).open)


def strides(module: ModuleType) -> dict[str, tuple[int, ...]]:
    return {name: tensor.stride() for name, tensor in module.model.named_parameters()}


# -- channels-last-model -------------------------------------------------------------------------------------------

CONV = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
    def forward(self, x):
        return self.conv(x)
model = Model()
args = (torch.randn(2, 3, 16, 16),)
def program():
    return model(*args)
"""


@pytest.mark.parametrize("before", [before for before, _ in CHANNELS_LAST.examples])
def test_the_edited_program_has_the_layouts_that_the_conversions_try(before: str, tmp_path: Path):
    module, context = run(tmp_path, before)
    live = context.live
    for number, candidate in enumerate(proposals(CHANNELS_LAST, context)):
        converted = convert(live.model, live.args, live.kwargs, candidate.conversions)
        converted.enter()
        tried = strides(module)
        result = module.program()
        converted.leave()
        written = load(tmp_path, edited(context, candidate), f"written{number}")
        assert strides(written) == tried
        torch.testing.assert_close(written.program(), result)


def test_the_ways_that_are_tried(tmp_path: Path):
    _, context = run(tmp_path, CONV)
    whole, weights = proposals(CHANNELS_LAST, context)
    assert [(entry.what, entry.path) for entry in whole.conversions] == [("parameter", "conv.weight"), ("inputs", "0")]
    assert weights.conversions == whole.conversions[:1]
    assert whole.site.function == "Model.__init__"
    assert not whole.removes_copies


def test_few_parts_are_tried_alone_and_many_are_not(tmp_path: Path):
    source = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = [torch.nn.Conv2d(8, 8, 1) for _ in range(PARTS)]
        for number, part in enumerate(self.parts):
            self.add_module(f"part{number}", part)
        del self.parts
    def forward(self, x):
        for part in self.children():
            x = part(x)
        return x
model = Model()
args = (torch.randn(2, 8, 4, 4),)
def program():
    return model(*args)
"""
    _, few = run(tmp_path, source.replace("PARTS", "3"))
    parts = [candidate.what for candidate in proposals(CHANNELS_LAST, few) if "`part" in candidate.what]
    assert parts == [f"bring the weights of `part{number}` into channels_last" for number in range(3)]
    assert all(candidate.edits for candidate in proposals(CHANNELS_LAST, few))
    _, many = run(tmp_path, source.replace("PARTS", "5"))
    assert len(proposals(CHANNELS_LAST, many)) == 2


def test_an_image_of_one_channel_counts_as_row_major(tmp_path: Path):
    source = CONV.replace("Conv2d(3,", "Conv2d(1,").replace("randn(2, 3,", "randn(2, 1,")
    module, context = run(tmp_path, source)
    whole, _ = proposals(CHANNELS_LAST, context)
    converted = convert(module.model, module.args, {}, whole.conversions)
    assert converted.args[0].stride() != module.args[0].stride()


def test_a_step_that_calls_its_model_itself_has_all_its_images_converted(tmp_path: Path):
    source = CONV.replace("args = ", "images = ").replace("*args", "images[0]")
    _, context = run(tmp_path, source)
    whole, _ = proposals(CHANNELS_LAST, context)
    assert ("inputs", "") in [(entry.what, entry.path) for entry in whole.conversions]
    assert "x = x.to(memory_format=torch.channels_last)" in edited(context, whole)


def test_a_convolution_by_its_function_counts(tmp_path: Path):
    source = CONV.replace(
        "self.conv = torch.nn.Conv2d(3, 8, 3)", "self.w = torch.nn.Parameter(torch.randn(8, 3, 3, 3))"
    )
    source = source.replace("self.conv(x)", "torch.nn.functional.conv2d(x, self.w)")
    _, context = run(tmp_path, source)
    assert proposals(CHANNELS_LAST, context)[0].conversions[0].path == "w"


def test_a_file_without_torch_gets_the_import(tmp_path: Path):
    source = CONV.replace("import torch\n", "from torch import nn, randn\n").replace("torch.nn", "nn")
    _, context = run(tmp_path, source.replace("torch.randn", "randn"))
    text = edited(context, proposals(CHANNELS_LAST, context)[0])
    assert "import torch\n" in text
    assert load(tmp_path, text, "written").model.conv.weight.stride()[1] == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Two ranks, of which either format fails: the conversion takes each as it is, the text can't.
        ("self.conv = ", "self.other = torch.nn.Conv3d(3, 8, 3)\n        self.conv = "),
        # What is loaded later has the strides of the file.
        ("    def forward", "    def from_pretrained(self):\n        pass\n    def forward"),
        # The constructor ends in two places.
        ("        self.conv = ", "        if not super():\n            return\n        self.conv = "),
        # The input has no name of its own.
        ("forward(self, x):", "forward(self, *given):\n        x = given[0]"),
        ("forward(self, x):", "forward(self, x): return self.conv(x)\n    def other(self, x):"),
        # Another call has no batch dimension, which `to` refuses.
        ("return model(*args)", "model(args[0][0])\n    return model(*args)"),
        # Its class is torch's.
        ("model = Model()", "model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3))"),
    ],
)
def test_without_a_clean_edit_the_conversions_still_answer(old: str, new: str, tmp_path: Path):
    module, context = run(tmp_path, CONV.replace(old, new, 1))
    whole = proposals(CHANNELS_LAST, context)[0]
    assert whole.conversions
    assert not whole.edits
    converted = convert(module.model, module.args, {}, whole.conversions)
    expected = module.program()
    converted.enter()
    torch.testing.assert_close(module.program(), expected)
    converted.leave()


TARGET = """
import torch
def build():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3))
    x = torch.randn(2, 3, 16, 16)
    RETURN
model = build()[0]
args, kwargs = ARGS
def program():
    return model(*args, **kwargs)
"""
SUFFIX = ".to(memory_format=torch.channels_last)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return model, (x,)", f"return model{SUFFIX}, (x{SUFFIX},)"),
        ("return model, [x]", f"return model{SUFFIX}, [x{SUFFIX}]"),
        ("return model, x", f"return model{SUFFIX}, x{SUFFIX}"),
        (
            "return model, torch.randn(2, 3, 16, 16)",
            f"return model{SUFFIX}, torch.randn(2, 3, 16, 16){SUFFIX}",
        ),
        ("return model.eval(), (x * 2,)", f"return model.eval(){SUFFIX}, ((x * 2){SUFFIX},)"),
    ],
)
def test_an_installed_model_is_converted_where_it_is_built(before: str, after: str, tmp_path: Path):
    source = TARGET.replace("RETURN", before).replace("ARGS", "(torch.randn(2, 3, 16, 16),), {}")
    module, context = run(tmp_path, source)
    candidate = proposals(CHANNELS_LAST, with_target(context, module.build))[0]
    assert edited(context, candidate) == source.replace(before, after)


def test_an_installed_model_with_named_inputs(tmp_path: Path):
    source = TARGET.replace("RETURN", "return model, {'input': x}").replace("ARGS", "(), {}")
    module = load(tmp_path, source.replace("model(*args, **kwargs)", "model(torch.randn(2, 3, 16, 16))"))
    context = context_of(module)
    live = msgspec.structs.replace(context.live, kwargs={"input": torch.randn(2, 3, 16, 16)})
    context = with_target(Context(context.report, context.case, live, Files(Path.cwd()).open), module.build)
    candidate = proposals(CHANNELS_LAST, context)[0]
    assert f"return model{SUFFIX}, {{'input': x{SUFFIX}}}" in edited(context, candidate)


@pytest.mark.parametrize(
    "end", ["return (model, (x,))[:2]", "made = model, (x,)\n    return made", "given = (x,)\n    return model, given"]
)
def test_a_target_that_says_no_more_gets_no_edit(end: str, tmp_path: Path):
    source = TARGET.replace("RETURN", end).replace("ARGS", "(torch.randn(2, 3, 16, 16),), {}")
    module, context = run(tmp_path, source)
    candidate = proposals(CHANNELS_LAST, with_target(context, module.build))[0]
    assert not candidate.edits
    assert candidate.conversions


def test_a_part_of_an_installed_model(tmp_path: Path):
    source = """
import torch
def build():
    model = torch.nn.Identity()
    model.stem = torch.nn.Conv2d(3, 8, 3)
    model.table = torch.nn.Parameter(torch.zeros(1, 8, 4, 4))
    return model, (torch.randn(2, 3, 16, 16),)
model = build()[0]
args = (torch.randn(2, 3, 16, 16),)
def program():
    return model.stem(*args)
"""
    module, context = run(tmp_path, source)
    part = proposals(CHANNELS_LAST, with_target(context, module.build))[-1]
    assert f"    model.stem{SUFFIX}\n    return model, (torch" in edited(context, part)


def test_module_to_refuses_either_format_for_the_other_rank():
    both = torch.nn.ModuleList([torch.nn.Conv2d(3, 8, 3), torch.nn.Conv3d(3, 8, 3)])
    for memory_format in (torch.channels_last, torch.channels_last_3d):
        with pytest.raises(RuntimeError, match="required rank"):
            both.to(memory_format=memory_format)


# -- loader --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), LOADER.examples)
def test_the_edited_loader_gives_what_the_conversion_tries(before: str, after: str, tmp_path: Path):
    _, context = run(tmp_path, before)
    (candidate,) = proposals(LOADER, context)
    live = context.live
    converted = convert(live.model, live.args, live.kwargs, candidate.conversions)
    tried = list(tensors_of(converted.args))
    assert any(now.stride() != then.stride() for now, then in zip(tried, tensors_of(live.args), strict=True))
    recorded = record_batch(load(tmp_path, after, "written").loaders[0])
    assert recorded is not None
    assert [tensor.stride() for tensor in tensors_of(recorded[0])] == [tensor.stride() for tensor in tried]
    assert candidate.removes_copies
    assert candidate.beside_step


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    entries = value.values() if isinstance(value, dict) else value
    return [tensor for entry in entries for tensor in tensors_of(entry)]


class Numbers(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.tensor([random.random(), np.random.rand(), torch.rand(()).item()])


def test_a_batch_that_is_looked_at_changes_no_random_state():
    generator = torch.Generator().manual_seed(3)
    indexed = DataLoader(list(range(8)), batch_size=2, shuffle=True, generator=generator, num_workers=1)
    endless = DataLoader(Numbers(), batch_size=2, num_workers=1)

    def states() -> list[Any]:
        kept = torch.get_rng_state(), generator.get_state()
        return [random.getstate(), np.random.get_state()[1].tolist(), *(state.tolist() for state in kept)]

    before = states()
    assert record_batch(indexed) is not None
    assert record_batch(endless) is not None
    assert states() == before


def test_a_dataset_that_gives_its_batches_once_is_not_touched():
    class Once(IterableDataset):
        def __init__(self):
            self.left = iter(range(8))

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.left)

    dataset = Once()
    assert record_batch(DataLoader(dataset, batch_size=2, num_workers=1)) is None
    assert next(dataset) == 0


@pytest.mark.parametrize("given", [DataLoader([], batch_size=1), [1, 2]])
def test_without_a_batch_there_is_nothing_to_look_at(given: Any):
    assert record_batch(given) is None


def test_a_batch_that_goes_on_in_channels_last_is_brought_there(tmp_path: Path):
    source = """
import torch
from torch.utils.data import DataLoader
def collate(samples):
    return torch.stack(samples)[:, :, ::2]
samples = [torch.randn(8, 16, 8) for _ in range(4)]
loaders = (DataLoader(samples, batch_size=4, num_workers=1, collate_fn=collate),)
args = (collate(samples),)
model = torch.nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last)
def program():
    return model(*args)
"""
    _, context = run(tmp_path, source)
    (candidate,) = proposals(LOADER, context)
    assert [entry.format for entry in candidate.conversions] == ["channels_last"]
    assert "[:, :, ::2].contiguous(memory_format=torch.channels_last)" in edited(context, candidate)


# -- clone-slice ---------------------------------------------------------------------------------------------------


def slices(returned: str, before: str = "") -> str:
    return f"""
import torch
from dataclasses import dataclass
@dataclass
class Output:
    state: object
x = torch.randn(4, 1000, 128)
def program():
    hidden = x * 2
    {before}
    return {returned}
"""


@pytest.mark.parametrize(
    ("source", "after"),
    [
        (slices("Output(hidden[:, 0])"), slices("Output(hidden[:, 0].clone())")),
        (slices("hidden[:, 0].detach()"), slices("hidden[:, 0].detach().clone()")),
        (slices("hidden[0, :8]"), slices("hidden[0, :8].clone()")),  # contiguous as it is
        (slices("y", "y = hidden[:, 0]; y.mul_(2)"), slices("y", "y = hidden[:, 0].clone(); y.mul_(2)")),
        (slices("hidden.mT[..., -1]"), slices("hidden.mT[..., -1].clone()")),
    ],
)
def test_the_slice_is_cloned(source: str, after: str, tmp_path: Path):
    module, context = run(tmp_path, source)
    (candidate,) = proposals(CLONE, context)
    assert edited(context, candidate) == after
    assert candidate.saves_memory
    assert not candidate.removes_copies
    assert "keeps 2 MB" in candidate.what
    written = load(tmp_path, after, "written")
    written.x = module.x
    result, expected = written.program(), module.program()
    result, expected = (getattr(output, "state", output) for output in (result, expected))
    assert torch.equal(result, expected)
    assert result.untyped_storage().nbytes() == result.numel() * 4


@pytest.mark.parametrize(
    "source",
    [
        slices("hidden.unbind(1)[0]"),  # no expression of its own gives it
        slices("hidden[:, 0], hidden"),
        slices("hidden[:, 0], hidden[:, 300:]"),  # most of the storage is wanted
        slices("[hidden[:, n] for n in range(400)]"),
        slices("torch.zeros(4, 128)"),
        slices("x[:, 0].clone()"),
        slices("None"),
    ],
)
def test_what_holds_nothing_else_is_left_alone(source: str, tmp_path: Path):
    _, context = run(tmp_path, source)
    assert proposals(CLONE, context) == []


def test_equal_layers_are_edited_once(tmp_path: Path):
    source = """
import torch
class Layer(torch.nn.Module):
    def forward(self, x):
        hidden = torch.relu(x)
        self.last = hidden[:, -1]
        return hidden.mean(1, keepdim=True) + x
model = torch.nn.Sequential(Layer(), Layer())
args = (torch.randn(4, 1000, 128),)
def program():
    return model(*args)
"""
    _, context = run(tmp_path, source)
    candidates: list[Candidate] = proposals(CLONE, context)
    assert len(candidates) == 1
    assert "self.last = hidden[:, -1].clone()" in edited(context, candidates[0])


def test_index_select_is_never_proposed(tmp_path: Path):
    for before, _ in CLONE.examples:
        _, context = run(tmp_path, before)
        for candidate in proposals(CLONE, context):
            assert all("index_select" not in edit.replacement for edit in candidate.edits)
