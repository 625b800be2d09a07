"""SW226 copies-per-batch: collate copies what it copies anyway, or pinned memory keeps gaps.

What it means
    To make one batch, collate copies the samples once more than it must: a `clone()`, a `contiguous()` or another copy
    before it stacks them, or of the whole batch afterwards. Or a batch that the loader pins is a view with gaps: the
    pinned copy has the same gaps, and a copy from it to a device is no longer one transfer.

Why it happens
    `stack` and `cat` take tensors of any layout and copy them once, into the batch. A copy before them was put there
    for a layout that they do not need. A view of the batch, such as `batch[:, :-1]`, is pinned with its strides.

How to fix it
    Leave the copy out, or write straight into the batch. Make a pinned batch contiguous before the loader pins it: in
    collate, `batch[:, :-1].contiguous()`.

When to ignore it
    When workers have time to spare. Casts are not counted, and copies below 64 kB a batch are not told.
"""

from collections.abc import Mapping

from msgspec import Struct

from stridewise import layout
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import described
from stridewise.findings import Finding, Severity, Site
from stridewise.layout import Layout
from stridewise.results.numbers import byte_count

SEVERITY: Severity = "note"
WAY = "loader"

_START = """
import torch
from torch.utils.data import DataLoader

def samples():
    return [torch.zeros(3, 64, 64) for _ in range(4)]
"""
FIRES = (
    _START
    + """
def collate(samples):
    return torch.stack([sample.clone() for sample in samples])

def subject():
    return DataLoader(samples(), batch_size=4, collate_fn=collate)
""",
    _START
    + """
def collate(samples):
    return torch.stack(samples).transpose(1, 3).contiguous()

def subject():
    return DataLoader(samples(), batch_size=4, collate_fn=collate)
""",
    _START
    + """
def collate(samples):
    batch = torch.stack(samples)
    return batch[:, :, :-1], batch[:, :, 1:]

def subject():
    return DataLoader(samples(), batch_size=4, collate_fn=collate, pin_memory=True)
""",
)
QUIET = (
    _START
    + """
def subject():
    return DataLoader(samples(), batch_size=4, pin_memory=True)
""",
    _START
    + """
def collate(samples):
    return torch.stack([sample.half() for sample in samples])

def subject():
    return DataLoader(samples(), batch_size=4, collate_fn=collate)
""",
    _START
    + """
def collate(samples):
    batch = torch.stack(samples)
    return batch[:, :, :-1], batch[:, :, 1:]

def subject():
    return DataLoader(samples(), batch_size=4, collate_fn=collate)
""",
)

_LEAST_BYTES = 64_000


class Copied(Struct, frozen=True):
    """The copies that collate made of one field, beside those into the batch."""

    path: str | None
    """None for tensors that are no field's."""
    site: Site
    operators: Mapping[str, int]
    """How often each was called."""
    bytes_written: int
    batch_bytes: int


class Pinned(Struct, frozen=True):
    """A batch that the loader pins, as collate gave it."""

    path: str
    site: Site
    batch: Layout
    batch_bytes: int


def check_copies(copied: Copied) -> Finding | None:
    """Whether as much as the batch was copied needlessly, or half of it."""
    if copied.bytes_written < max(_LEAST_BYTES, copied.batch_bytes // 2):
        return None
    calls = ", ".join(f"{count}x {name}" for name, count in copied.operators.items())
    what = "tensors that are no field's" if copied.path is None else f"field `{copied.path}`"
    return finding(
        __name__,
        Problem(
            copied.site,
            f"Collate copies {byte_count(copied.bytes_written)} of {what} a batch, beside the copy into the batch "
            f"of {byte_count(copied.batch_bytes)}.",
            advice="Leave that copy out: `stack` and `cat` take tensors of any layout, in their order.",
            evidence=(f"operators that copied: {calls}",),
            details=("copies", copied.path or ""),
        ),
    )


def check_pinned(pinned: Pinned) -> Finding | None:
    """Whether pinned memory keeps gaps."""
    if layout.is_non_overlapping_and_dense(pinned.batch) or pinned.batch_bytes < _LEAST_BYTES:
        return None
    return finding(
        __name__,
        Problem(
            pinned.site,
            f"Field `{pinned.path}` is {described(pinned.batch)} when the loader pins it: it stays so, and a copy to a "
            "device has to gather it first.",
            advice="Make it `contiguous()` in collate.",
            evidence=("judged by the layout that collate gave; no transfer was measured",),
            details=("pinned", pinned.path),
        ),
    )
