"""SW216 layout-lost-in-collate: samples lie in memory as HWC, and the batch as NCHW.

What it means
    Images that were decoded as HWC and permuted to CHW, a view that costs nothing, are stacked. `torch.stack` and
    `default_collate` give a batch that is contiguous as NCHW: channels_last is lost, and each element was fetched with
    a stride to get there, which is several times slower than copying the images as they lie.

Why it happens
    A sample has three dimensions, and memory formats exist for four and five. So `stack` does not see that its inputs
    would make a channels_last batch, and takes the order of the indices.

How to fix it
    Hand `collate_fn=stridewise.collate` to the loader. It is `default_collate`, but stacks the HWC views of such images
    and permutes the batch back: the same values at the same indices, in channels_last. In a collate of your own:
    `torch.stack([x.permute(1, 2, 0) for x in images]).permute(0, 3, 1, 2)`.

When to ignore it
    When the model runs as NCHW on purpose, and loading is not what it waits for: the elements have to be reordered once
    anyway. Small images are only a note.
"""

from msgspec import Struct

from stridewise import layout
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import strided
from stridewise.findings import Finding, Severity, Site
from stridewise.layout import Layout, MemoryFormat
from stridewise.results.numbers import byte_count, duration, figure

SEVERITY: Severity = "warning"
WAY = "loader"

_START = """
import numpy as np
import stridewise
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        image = torch.from_numpy(np.full((32, 32, 3), index, dtype=np.uint8)).permute(2, 0, 1)
"""
FIRES = (
    _START
    + """
        return image.float() / 255, index

def subject():
    return DataLoader(Images(), batch_size=2)
""",
    _START
    + """
        return image

def stacked(samples):
    return {"pixels": torch.stack(samples).float()}

def subject():
    return DataLoader(Images(), batch_size=2, collate_fn=stacked)
""",
)
QUIET = (
    _START
    + """
        return image.float() / 255, index

def subject():
    return DataLoader(Images(), batch_size=2, collate_fn=stridewise.collate)
""",
    _START
    + """
        return image.contiguous(), image[:1], torch.zeros(3, 4, 5)

def subject():
    return DataLoader(Images(), batch_size=2)
""",
    _START
    + """
        return image

def stacked(samples):
    return torch.stack([x.permute(1, 2, 0) for x in samples]).permute(0, 3, 1, 2)

def subject():
    return DataLoader(Images(), batch_size=2, collate_fn=stacked)
""",
)

_LEAST_BYTES = 1_000_000


class Timed(Struct, frozen=True):
    """Two ways to make the batch, measured in turn in one run."""

    stack_ns: float
    views_ns: float
    """Stacking the HWC views and permuting the batch back."""
    runs: int


class Stacked(Struct, frozen=True):
    """A field of samples, and what it is in the batch."""

    path: str
    site: Site
    sample: Layout
    batch: Layout
    batch_bytes: int
    is_default: bool
    """Whether torch's own collate made it."""


def channels_innermost(sample: Layout) -> bool:
    """Whether an image (C, H, W) lies in memory as HWC, or a volume (C, D, H, W) as DHWC; gaps are allowed."""
    if sample.ndim not in (3, 4) or sample.is_empty:
        return False
    order = layout.memory_order(sample)
    wanted = tuple(dim for dim in (*range(1, sample.ndim), 0) if dim in order)
    return len(order) > 1 and order[-1] == 0 and order == wanted and not layout.is_overlapping(sample)


def is_lost(stacked: Stacked) -> bool:
    """Whether the samples' order is not the batch's."""
    memory_format: MemoryFormat = "channels_last" if stacked.batch.ndim == 4 else "channels_last_3d"
    return (
        channels_innermost(stacked.sample)
        and stacked.batch.sizes[1:] == stacked.sample.sizes
        and stacked.batch.sizes[0] > 1
        and not layout.is_contiguous(stacked.batch, memory_format)
        and layout.is_contiguous(stacked.batch)
    )


def judge(stacked: Stacked, timed: Timed | None) -> Finding:
    """What the loss is worth; `is_lost` has said that there is one."""
    last = "channels_last" if stacked.batch.ndim == 4 else "channels_last_3d"
    evidence = [f"sample: {strided(stacked.sample)}", f"batch: {strided(stacked.batch)}"]
    if timed is not None:
        evidence.append(
            f"stacking this batch took {duration(timed.stack_ns)}, stacking the channels-last views and permuting "
            f"back {duration(timed.views_ns)}: {figure(timed.stack_ns / timed.views_ns)}x (medians of "
            f"{timed.runs}, in turn)"
        )
    ours = "Hand `collate_fn=stridewise.collate` to the loader."
    own = "Stack the channels-last views and permute back, as `stridewise.collate` does."
    return finding(
        __name__,
        Problem(
            stacked.site,
            f"Samples of field `{stacked.path}` have their channels innermost in memory, and collate makes a batch of "
            f"{byte_count(stacked.batch_bytes)} that is contiguous: {last} is lost, in a copy that reorders each "
            "element.",
            advice=ours if stacked.is_default else own,
            evidence=tuple(evidence),
            severity=SEVERITY if stacked.batch_bytes >= _LEAST_BYTES else "note",
            details=(stacked.path,),
        ),
    )
