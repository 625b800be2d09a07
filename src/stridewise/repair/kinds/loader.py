"""loader: bring a batch into order in the DataLoader's worker, not in the step.

A batch comes out of the loader with its dimensions permuted or with gaps, and calls of the step copy it. Behind the
expression in the dataset or in `collate_fn` that makes it so, `.contiguous()` copies it once, in a worker, while the
step before it runs. To find that expression, one batch is made in this process.

It needs workers: without them the loader runs in the step's own process, and a copy there saves nothing that one in
front of the step does not. Nor is anything proposed where a batch can't be made a second time, or comes in order.
"""

from collections.abc import Iterator
from typing import Any

from stridewise.analysis.case import Case
from stridewise.analysis.functions import short_name
from stridewise.analysis.lineage import Stream
from stridewise.layout import Layout
from stridewise.recording.model import LayoutRow
from stridewise.repair.candidate import Candidate, Conversion, Format
from stridewise.repair.context import Context, Live
from stridewise.repair.reading.objects import inputs, is_row_of, tensors
from stridewise.repair.reading.places import SPLITS, expression_of
from stridewise.source import edits

ANSWERS = (
    'Batches that come out of order: "make them contiguous in `collate_fn`". `default_collate` stacks, and what it '
    "stacks is contiguous already, whatever the samples were. A collate function of one's own, or a dataset that gives "
    "whole batches, can hand on a view; the place to copy it is the worker."
)
EXAMPLES = (
    (
        """
import torch
from torch.utils.data import DataLoader
def collate(samples):
    return torch.stack(samples).transpose(1, 2)
samples = [torch.randn(32, 64) for _ in range(4)]
loaders = (DataLoader(samples, batch_size=4, num_workers=1, collate_fn=collate),)
args = (collate(samples),)
model = torch.nn.Sequential(torch.nn.LayerNorm(32))
def program():
    return model(*args)
""",
        """
import torch
from torch.utils.data import DataLoader
def collate(samples):
    return torch.stack(samples).transpose(1, 2).contiguous()
samples = [torch.randn(32, 64) for _ in range(4)]
loaders = (DataLoader(samples, batch_size=4, num_workers=1, collate_fn=collate),)
args = (collate(samples),)
model = torch.nn.Sequential(torch.nn.LayerNorm(32))
def program():
    return model(*args)
""",
    ),
    (
        """
import torch
from torch.utils.data import DataLoader, Dataset
class Batches(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        signal = torch.full((4, 16, 100), float(index))
        return {"signal": signal[:, :, ::2] * 1, "crop": signal[..., 10:60]}
loaders = (DataLoader(Batches(), batch_size=None, num_workers=1),)
args = (Batches()[0],)
class Model(torch.nn.Module):
    def forward(self, batch):
        return torch.softmax(batch["crop"], -1) + torch.softmax(batch["signal"], -1)
model = Model()
def program():
    return model(*args)
""",
        """
import torch
from torch.utils.data import DataLoader, Dataset
class Batches(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        signal = torch.full((4, 16, 100), float(index))
        return {"signal": signal[:, :, ::2] * 1, "crop": signal[..., 10:60].contiguous()}
loaders = (DataLoader(Batches(), batch_size=None, num_workers=1),)
args = (Batches()[0],)
class Model(torch.nn.Module):
    def forward(self, batch):
        return torch.softmax(batch["crop"], -1) + torch.softmax(batch["signal"], -1)
model = Model()
def program():
    return model(*args)
""",
    ),
)
QUIET = (
    """
import torch
from torch.utils.data import DataLoader
samples = [torch.randn(64, 32).t() for _ in range(4)]
loaders = (DataLoader(samples, batch_size=4, num_workers=1),)
args = (next(iter(DataLoader(samples, batch_size=4))),)
model = torch.nn.Sequential(torch.nn.LayerNorm(64))
def program():
    return model(*args)
""",
    """
import torch
from torch.utils.data import DataLoader
def collate(samples):
    return torch.stack(samples).transpose(1, 2)
samples = [torch.randn(32, 64) for _ in range(4)]
loaders = (DataLoader(samples, batch_size=4, collate_fn=collate),)
args = (collate(samples),)
model = torch.nn.Sequential(torch.nn.LayerNorm(32))
def program():
    return model(*args)
""",
    """
import torch
from torch.utils.data import DataLoader
def collate(samples):
    raise OSError("the disk is gone")
samples = [torch.randn(32, 64) for _ in range(4)]
loaders = (DataLoader(samples, batch_size=4, num_workers=1, collate_fn=collate),)
args = (torch.stack(samples).transpose(1, 2),)
model = torch.nn.Sequential(torch.nn.LayerNorm(32))
def program():
    return model(*args)
""",
    """
import torch
from torch.utils.data import DataLoader
samples = [torch.randn(32, 64) for _ in range(4)]
loaders = (DataLoader(samples, batch_size=4, num_workers=1),)
args = (torch.randn(4, 32, 64),)
model = torch.nn.Sequential(torch.nn.LayerNorm(32))
def program():
    return model(args[0].transpose(1, 2))
""",
)

_FORMATS = {4: "channels_last", 5: "channels_last_3d"}


def candidates(context: Context) -> Iterator[Candidate]:
    """The inputs that a step copies, where a loader of the program bears them."""
    loaders = [loader for loader in context.live.loaders if getattr(loader, "num_workers", 0) > 0]
    copied = _copied_inputs(context) if loaders else {}
    if not copied:
        return
    for loader in loaders:
        batch = _Batch.of(context, loader)
        if batch is None:
            continue
        for path, (shape, format, copies) in list(copied.items()):
            candidate = batch.candidate(path, shape, format, copies)
            if candidate is not None:
                del copied[path]
                yield candidate


def _copied_inputs(context: Context) -> dict[str, tuple[LayoutRow, Format, list[int]]]:
    """The inputs at hand that calls copy, by path: their layout, what all those copies make of them, and the copies."""
    found: dict[str, tuple[LayoutRow, list[int]]] = {}
    for position in context.case.taxed:
        stream = context.case.streams[position]
        row = _born_as(context, stream) if stream is not None else None
        path = _path(context, row) if row is not None else None
        if row is not None and path is not None:
            found.setdefault(path, (row, []))[1].append(position)
    return {path: (row, _format(context, copies), copies) for path, (row, copies) in found.items()}


def _born_as(context: Context, stream: Stream) -> LayoutRow | None:
    """The layout with which a stream came into the recorded calls, if none of them bore it."""
    origin, case = stream.origin, context.case
    if origin.kind not in ("input", "outside") or stream.operand is None:
        return None
    refs = (ref for ref in case.log.calls[origin.call].inputs if case.log.refs[ref].object == origin.object)
    rows = (case.flow.row(ref) for ref in refs)
    return next((row for row in rows if row is not None and not stream.goal.is_met_by(row)), None)


def _path(context: Context, row: LayoutRow) -> str | None:
    given = inputs(context.live.args, context.live.kwargs)
    return next((path for path, tensor, shape in given if is_row_of(row, tensor, shape)), None)


def _format(context: Context, copies: list[int]) -> Format:
    streams = [stream for position in copies if (stream := context.case.streams[position]) is not None]
    return "channels_last" if all(stream.goal.channels_last for stream in streams) else "contiguous"


class _Batch:
    """One batch of a loader, and the calls that made it."""

    def __init__(self, context: Context, made: Any, case: Case) -> None:
        self._program = context
        self._made = Context(context.report, case, Live(model=None), context.file)
        self._tensors: list[tuple[str, Any, Layout]] = list(tensors(made))

    @classmethod
    def of(cls, context: Context, loader: Any) -> "_Batch | None":
        """None if one can't be made here."""
        from stridewise.repair.trial.batch import record_batch

        recorded = record_batch(loader)
        if recorded is None:
            return None
        made, trace = recorded
        return cls(context, made, Case(trace))

    def candidate(self, path: str, row: LayoutRow, format: Format, copies: list[int]) -> Candidate | None:
        """Bring the tensor of the batch that has this layout into a format where the loader bears it."""
        if not any(is_row_of(row, tensor, shape) for _, tensor, shape in self._tensors):
            return None
        call = self._last_call_that_gives(row)
        found = expression_of(self._made, call) if call is not None else None
        if call is None or found is None:
            return None
        file, node = found
        charged = [self._program.report.copies[position].finding for position in copies]
        try:
            edit = edits.append(file, node, _suffix(edits.torch_name(file), format, len(row.sizes)))
        except ValueError:  # no place that such an edit may have
            return None
        return Candidate(
            kind="loader",
            what=f"copy `{' '.join(file.source(node).split())}` in the loader's worker",
            site=self._made.case.site(call),
            findings=tuple(dict.fromkeys(finding for finding in charged if finding is not None)),
            edits=(edit,),
            conversions=(Conversion("inputs", path, format),),
            beside_step=True,
        )

    def _last_call_that_gives(self, row: LayoutRow) -> int | None:
        """None also where that gives several tensors at once."""
        case = self._made.case
        for call in reversed(range(len(case.log.calls))):
            outputs = [case.flow.row(ref) for ref in case.log.calls[call].outputs]
            if any(out is not None and (out.layout, out.dtype) == (row.layout, row.dtype) for out in outputs):
                return call if len(outputs) == 1 and short_name(case.function(call)) not in SPLITS else None
        return None


def _suffix(torch: str | None, format: Format, rank: int) -> str:
    if format == "contiguous":
        return ".contiguous()"
    if torch is None:
        raise ValueError("torch has no name in this file")
    return f".contiguous(memory_format={torch}.{_FORMATS[rank]})"
