"""channels-last-model: run the whole model, or its convolutions, in channels_last.

A convolution runs in channels_last as soon as its input or its weight is in it, and what it returns is too. Three ways
are tried: the model and the images that it is called with; all its weights and no input, so that the first convolution
converts what it gets; and each child of the model that holds convolutions, if there are few.

Whether it wins nobody can tell beforehand. It spares conversions inside oneDNN on a CPU, and around the kernels for
tensor cores on a GPU; it loses where an operator behind the convolutions falls back to row-major. The conversion of
the inputs counts as a part of every step.

The edits go to `__init__` and `forward` of the model's own class, or to the function that builds an installed model.
For others nothing is written: the figures still say what channels_last does.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from stridewise.analysis.functions import CONVOLUTIONS, short_name
from stridewise.findings import Site
from stridewise.layout import Layout, suggested_format
from stridewise.recording.model import LayoutRow
from stridewise.repair.candidate import Candidate, Conversion
from stridewise.repair.context import Context
from stridewise.repair.reading.construction import Wish, plain, write
from stridewise.repair.reading.objects import inputs, layout

ANSWERS = (
    'A model with convolutions: "make it channels_last, that is faster". Whether it is depends on the machine, the '
    "sizes, and on what stands between the convolutions: one operator may lose the format, and another be slow in "
    "it. Only a measurement tells."
)
EXAMPLES = (
    (
        """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
    def forward(self, x, mask=None):
        return self.conv(x)
model = Model()
args = (torch.randn(2, 3, 16, 16),)
def program():
    return model(*args)
""",
        """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.to(memory_format=torch.channels_last)
    def forward(self, x, mask=None):
        x = x.to(memory_format=torch.channels_last)
        return self.conv(x)
model = Model()
args = (torch.randn(2, 3, 16, 16),)
def program():
    return model(*args)
""",
    ),
    (
        """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 4, stride=4))
        self.places = torch.nn.Parameter(torch.zeros(1, 8, 4, 4))
        self.head = torch.nn.Linear(8, 4)
    def forward(self, x):
        return self.head((self.stem(x) + self.places).flatten(2).transpose(1, 2))
model = Model()
args = (torch.randn(2, 3, 16, 16),)
def program():
    return model(*args)
""",
        """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 4, stride=4))
        self.places = torch.nn.Parameter(torch.zeros(1, 8, 4, 4))
        self.head = torch.nn.Linear(8, 4)
        self.stem.to(memory_format=torch.channels_last)
    def forward(self, x):
        return self.head((self.stem(x) + self.places).flatten(2).transpose(1, 2))
model = Model()
args = (torch.randn(2, 3, 16, 16),)
def program():
    return model(*args)
""",
    ),
    (
        """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv3d(2, 4, 3)
    def forward(self, *, volume=None):
        return self.conv(volume)
model = Model()
x = torch.randn(2, 2, 6, 6, 6)
def program():
    return model(volume=x)
""",
        """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv3d(2, 4, 3)
        self.to(memory_format=torch.channels_last_3d)
    def forward(self, *, volume=None):
        volume = volume if volume is None else volume.to(memory_format=torch.channels_last_3d)
        return self.conv(volume)
model = Model()
x = torch.randn(2, 2, 6, 6, 6)
def program():
    return model(volume=x)
""",
    ),
)
QUIET = (
    """
import torch
model = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
args = (torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last),)
def program():
    return model(*args)
""",
    """
import torch
model = torch.nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
args = (torch.randn(2, 3, 16, 16),)
def program():
    return model(*args)
""",
    """
import torch
model = torch.nn.Sequential(torch.nn.Conv1d(3, 8, 3), torch.nn.ReLU())
args = (torch.randn(2, 3, 16),)
def program():
    return model(*args)
""",
    """
import torch
model = torch.nn.InstanceNorm2d(8, affine=True)
args = (torch.randn(2, 8, 16, 16),)
def program():
    return model(*args)
""",
)

_KIND = "channels-last-model"
_CODES = ("SW105", "SW106", "SW107")
_MOST_PARTS = 4
"""A model with more children that hold convolutions is one convolutional network: single ones say nothing of it."""
_FORMATS = {4: "channels_last", 5: "channels_last_3d"}
_FLOATING = ("float16", "bfloat16", "float32", "float64")
_PARAMETER = re.compile(r"parameter `(.+)`")
_COMPILED = "_orig_mod."
"""What `torch.compile` puts before the names of parameters."""


def candidates(context: Context) -> Iterator[Candidate]:
    """The model with its inputs, its weights alone, and the weights of its convolutional parts."""
    convolutional = _convolutional(context)
    if not convolutional:
        return
    weights, images = _weights(context.live.model), _images(context)
    if not any(_is_row_major(weight.layout) for path, weight in weights.items() if _owner(path) in convolutional):
        return  # it runs in channels_last already: converting its input first would be the copy that it makes anyway
    children = [name for name, _ in plain(context.live.model).named_children()]
    parts = [name for name in children if any(_is_below(path, name) for path in convolutional)]
    found = [
        _candidate(context, "run the whole model in channels_last", "", weights, images),
        _candidate(context, "bring the model's weights into channels_last, not its inputs", "", weights, {}),
    ]
    for part in parts if len(parts) <= _MOST_PARTS else ():
        own = {path: weight for path, weight in weights.items() if _is_below(path.removeprefix(_COMPILED), part)}
        found.append(_candidate(context, f"bring the weights of `{part}` into channels_last", part, own, {}))
    seen: set[frozenset[Conversion]] = {frozenset()}
    for candidate in found:
        moving = frozenset(candidate.conversions)
        if moving not in seen:
            seen.add(moving)
            yield candidate


def _candidate(
    context: Context, what: str, part: str, weights: dict[str, "_Weight"], images: dict[str, Layout]
) -> Candidate:
    moving = [
        Conversion("parameter" if weight.is_parameter else "buffer", path, "channels_last")
        for path, weight in weights.items()
        if _is_row_major(weight.layout)
    ]
    inputs = tuple(path for path, shape in images.items() if _is_row_major(shape))
    given = inputs if context.live.args or context.live.kwargs else ("",) * bool(inputs)
    moving += [Conversion("inputs", path, "channels_last") for path in given]
    # `Module.to` refuses either format if any tensor has the other's rank; so does `to` of an input at another call.
    ranks = {len(shape.sizes) for shape in (*(weight.layout for weight in weights.values()), *images.values())}
    ranks |= _ranks_of_inputs(context, inputs)
    format = _FORMATS.get(ranks.pop()) if len(ranks) == 1 else None
    written = write(context, Wish(format, part, inputs)) if format is not None and moving else None
    kind = type(plain(context.live.model)).__name__
    return Candidate(
        kind=_KIND,
        what=what,
        site=written.site if written is not None else Site(module=part or None, expression=kind),
        findings=tuple(finding.fingerprint for finding, _ in context.findings(*_CODES)),
        edits=written.edits if written is not None else (),
        conversions=tuple(moving),
        removes_copies=False,
    )


class _Weight(Struct, frozen=True):
    """A parameter or a buffer that channels_last means something for."""

    is_parameter: bool
    layout: Layout


def _weights(model: Any) -> dict[str, _Weight]:
    found = {}
    for is_parameter, named in ((True, model.named_parameters()), (False, model.named_buffers())):
        for path, tensor in named:
            shape = layout(tensor)
            if shape is not None and len(shape.sizes) in _FORMATS:
                found[path] = _Weight(is_parameter, shape)
    return found


def _images(context: Context) -> dict[str, Layout]:
    """The images that the model is called with, by the paths of inputs: those at hand, else those of its first call."""
    live = context.live
    given = [
        (path, shape)
        for path, tensor, shape in inputs(live.args, live.kwargs)
        if tensor.is_floating_point() and len(shape.sizes) in _FORMATS
    ]
    if not live.args and not live.kwargs:
        given = [
            (path, row.layout)
            for path, row in reversed([*_calls_of_model(context)])
            if row.dtype in _FLOATING and len(row.sizes) in _FORMATS
        ]
    return dict(given)


def _ranks_of_inputs(context: Context, paths: tuple[str, ...]) -> set[int]:
    return {len(row.sizes) for path, row in _calls_of_model(context) if path in paths}


def _calls_of_model(context: Context) -> Iterator[tuple[str, LayoutRow]]:
    """What recorded calls of modules of the model's class were given, by path."""
    log, kind = context.case.log, type(plain(context.live.model)).__name__
    for call in log.module_calls:
        for path, ref in call.inputs if log.modules[call.module][1] == kind else ():
            row = context.case.flow.row(ref)
            if row is not None:
                yield path, row


def _convolutional(context: Context) -> set[str]:
    """The paths of the modules that hold convolutions of images or volumes."""
    model, log = plain(context.live.model), context.case.log
    if model is None:
        return set()
    found = {
        path
        for path, module in model.named_modules()
        if any(kind.__module__ == "torch.nn.modules.conv" for kind in type(module).__mro__)
        and len(getattr(module, "kernel_size", ())) in (2, 3)
    }
    for call in log.calls:  # those that call the function with a parameter of their own
        if short_name(log.functions[call.function]) in CONVOLUTIONS and len(call.inputs) > 1:
            row = context.case.flow.row(call.inputs[1])
            name = _PARAMETER.fullmatch(log.names.get(log.refs[call.inputs[1]].object, ""))
            if name is not None and row is not None and len(row.sizes) in _FORMATS:
                found.add(name[1].rpartition(".")[0])
    return found


def _owner(path: str) -> str:
    return path.rpartition(".")[0].removeprefix(_COMPILED)


def _is_row_major(shape: Layout) -> bool:
    """Whether `to` brings it into channels_last: strides of size-1 dimensions count, since kernels look at them."""
    return suggested_format(shape) == "contiguous"


def _is_below(path: str, part: str) -> bool:
    return path == part or path.startswith(f"{part}.")
