"""channels-last-at-origin: images brought into channels_last once, where their stream starts.

Convolutions, poolings and norms that run in channels_last convert what reaches them in another format, each time. With
`.contiguous(memory_format=torch.channels_last)` behind the expression that starts the stream, or the last one that
all of them have in common, they find it converted. Images that arrive in neither format are brought into this one
where they are first seen, if convolutions, poolings or norms copy them.

It is proposed only where one copy moves fewer bytes than those that it replaces.
"""

from collections.abc import Iterator

from stridewise.analysis.functions import CONVOLUTIONS, short_name
from stridewise.layout import is_contiguous
from stridewise.recording.model import LayoutRow
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.copying import Target, copies_at
from stridewise.repair.reading.streams import points
from stridewise.source.edits import torch_name
from stridewise.source.file import SourceFile

ANSWERS = (
    'Images that are copied before each convolution, pooling or norm: "put `.contiguous()` in front". Row-major is '
    "the wrong order for what runs in channels_last: it would convert the tensor back. One conversion to "
    "channels_last where the stream starts serves all calls behind it."
)
EXAMPLES = (
    (
        """
import torch
x = torch.randn(2, 16, 16, 8)
convs = [torch.nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last) for _ in range(3)]
def program():
    y = x.permute(0, 3, 2, 1)
    return [conv(y) for conv in convs]
""",
        """
import torch
x = torch.randn(2, 16, 16, 8)
convs = [torch.nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last) for _ in range(3)]
def program():
    y = x.permute(0, 3, 2, 1).contiguous(memory_format=torch.channels_last)
    return [conv(y) for conv in convs]
""",
    ),
    (
        """
import torch as t
class Model(t.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = t.nn.Conv3d(4, 4, 3)
        self.second = t.nn.Conv3d(4, 4, 3)
    def forward(self, x):
        return self.first(x) + self.second(x)
model = Model().to(memory_format=t.channels_last_3d)
x = t.randn(2, 4, 8, 8, 8)
def program():
    return model(x)
""",
        """
import torch as t
class Model(t.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = t.nn.Conv3d(4, 4, 3)
        self.second = t.nn.Conv3d(4, 4, 3)
    def forward(self, x):
        x = x.contiguous(memory_format=t.channels_last_3d)
        return self.first(x) + self.second(x)
model = Model().to(memory_format=t.channels_last_3d)
x = t.randn(2, 4, 8, 8, 8)
def program():
    return model(x)
""",
    ),
)
QUIET = (
    """
import torch
x = torch.randn(2, 16, 16, 8)
conv = torch.nn.Conv2d(8, 8, 3).to(memory_format=torch.channels_last)
def program():
    return conv(x.permute(0, 3, 2, 1))
""",
    """
import torch
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    y = x.permute(0, 2, 1)
    return norm(y), norm(y * 2)
""",
)

_CODES = ("SW101", "SW102", "SW103", "SW105", "SW110", "SW112")
_FORMATS = {4: "channels_last", 5: "channels_last_3d"}


def candidates(context: Context) -> Iterator[Candidate]:
    """The origins of images that are converted to channels_last, or copied by what can run in it."""

    def wanted(position: int) -> bool:
        stream = context.case.streams[position]
        return stream is not None and (stream.goal.channels_last or _copies_image(context, position))

    target = Target(
        kind="channels-last-at-origin",
        behind="bring into channels_last once, behind `{}`",
        on_entry="bring `{}` into channels_last once, on entry to `{}`",
        suffix=_suffix,
        is_met=_is_met,
    )
    yield from copies_at(context, points(context, _CODES, wanted), target)


def _copies_image(context: Context, position: int) -> bool:
    copy = context.case.copies[position]
    function = short_name(context.case.function(copy.call))
    takes_images = function in CONVOLUTIONS or "pool" in function or function in ("batch_norm", "group_norm")
    return takes_images and len(copy.sizes or ()) in _FORMATS


def _suffix(file: SourceFile, row: LayoutRow) -> str | None:
    name = torch_name(file)
    if name is None or len(row.sizes) not in _FORMATS:
        return None
    return f".contiguous(memory_format={name}.{_FORMATS[len(row.sizes)]})"


def _is_met(row: LayoutRow) -> bool:
    return len(row.sizes) in _FORMATS and is_contiguous(
        row.layout, "channels_last" if len(row.sizes) == 4 else "channels_last_3d"
    )
