"""copy-at-origin: one copy where a stream starts, instead of one in every call behind it.

Several calls copy what one expression hands on in another memory order, or forward and backward of one call do. With
`.contiguous()` behind that expression they find the tensor in order. Where the expression gives several tensors, or
changes one in place, the names that hold them are assigned anew in a statement behind; what the model is given is
copied at the top of its `forward`. The last expression that all of those calls have in common is tried as well: a
copy may be smaller there.

It is proposed only where one copy moves fewer bytes than those that it replaces.
"""

from collections.abc import Iterator

from stridewise.analysis.case import is_channels_last
from stridewise.layout import is_contiguous
from stridewise.recording.model import LayoutRow
from stridewise.repair.candidate import Candidate
from stridewise.repair.context import Context
from stridewise.repair.reading.copying import Target, copies_at
from stridewise.repair.reading.streams import points
from stridewise.source.file import SourceFile

ANSWERS = (
    'An operator that copies a strided tensor: "put `.contiguous()` in front of it". In front of a single call that'
    " only moves the copy; it wins behind what starts the stream, where one copy serves several calls, or forward "
    "and backward."
)
EXAMPLES = (
    (
        """
import torch
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    y = x.permute(0, 2, 1)
    for _ in range(3):
        y = y + norm(y)
    return y
""",
        """
import torch
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    y = x.permute(0, 2, 1).contiguous()
    for _ in range(3):
        y = y + norm(y)
    return y
""",
    ),
    (
        """
import torch
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    norm(x.permute(0, 2, 1)).sum().backward()
""",
        """
import torch
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    norm(x.permute(0, 2, 1).contiguous()).sum().backward()
""",
    ),
    (
        """
import torch
x = torch.randn(2, 16, 192)
def program():
    q, k, v = x.chunk(3, -1)
    return q, torch.softmax(k, 0), torch.softmax(k, 1), v
""",
        """
import torch
x = torch.randn(2, 16, 192)
def program():
    q, k, v = x.chunk(3, -1)
    k = k.contiguous()
    return q, torch.softmax(k, 0), torch.softmax(k, 1), v
""",
    ),
    (
        """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
    def forward(self, x):
        \"\"\"Add a norm, twice.\"\"\"
        for _ in range(2):
            x = x + self.norm(x)
        return x
model = Model()
x = torch.randn(8, 64, 32).transpose(1, 2)
def program():
    return model(x)
""",
        """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)
    def forward(self, x):
        \"\"\"Add a norm, twice.\"\"\"
        x = x.contiguous()
        for _ in range(2):
            x = x + self.norm(x)
        return x
model = Model()
x = torch.randn(8, 64, 32).transpose(1, 2)
def program():
    return model(x)
""",
    ),
)
QUIET = (
    """
import torch
x = torch.randn(8, 64, 32)
norm = torch.nn.LayerNorm(64)
def program():
    return norm(x.permute(0, 2, 1))
""",
    """
import torch
x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
conv = torch.nn.Conv2d(8, 8, 3, padding=1).to(memory_format=torch.channels_last)
norm = torch.nn.InstanceNorm2d(8)
def program():
    y = conv(x)
    return norm(y), norm(y * 2)
""",
    """
import torch
x = torch.randn(2, 8, 16, 16)
norm = torch.nn.InstanceNorm2d(8)
def program():
    y = x.to(memory_format=torch.channels_last)
    return norm(y), norm(y * 2)
""",
)

_CODES = ("SW101", "SW102", "SW103", "SW110", "SW112")


def candidates(context: Context) -> Iterator[Candidate]:
    """The origins of hidden and gradient copies, and what their payers have in common."""

    def wanted(position: int) -> bool:
        case, stream = context.case, context.case.streams[position]
        on_purpose = case.is_channels_last_network and is_channels_last(case.operand_row(position))
        return stream is not None and not stream.goal.channels_last and not on_purpose

    def suffix(_: SourceFile, row: LayoutRow) -> str | None:
        on_purpose = context.case.is_channels_last_network and is_channels_last(row)
        return None if on_purpose else ".contiguous()"

    target = Target(
        kind="copy-at-origin",
        behind="copy once behind `{}`",
        on_entry="copy `{}` once, on entry to `{}`",
        suffix=suffix,
        is_met=_is_contiguous,
    )
    yield from copies_at(context, points(context, _CODES, wanted), target)


def _is_contiguous(row: LayoutRow) -> bool:
    return is_contiguous(row.layout)
