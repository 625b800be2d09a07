"""What stridewise says about a program: one shape of finding, one of site, one of cost, one of edit.

Everything here is a frozen value that encodes to JSON as it stands.
"""

import hashlib
from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning", "note"]
Safety = Literal["safe", "unsafe", "display"]


class Site(Struct, frozen=True, omit_defaults=False):
    """A place in a program: an expression in a source file, or, where no source is known, what it belongs to.

    `line` and `end_line` count from 1. `column` and `end_column` are UTF-8 byte offsets from 0, as `ast` has them.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None
    function: str | None = None
    module: str | None = None
    """Dotted path of the `nn.Module` that was running, such as `encoder.layers.3.fc1`."""
    expression: str | None = None
    """The source text of the expression; for a stream without a call, what bore it (``input `x` ``)."""
    via: str | None = None
    """The nearest frame inside torch when the call was made there, such as `torch/nn/modules/transformer.py:938`."""
    text: str | None = None
    """The source line as it read when it was recorded."""
    cell: int | None = None
    """Of a notebook's file: the cell in which lines count, among all of its cells, from 1."""

    @property
    def where(self) -> str:
        """`file:line`, in a notebook `file:cell 3:line`, or the best name that there is."""
        if self.file is not None:
            place = self.file if self.cell is None else f"{self.file}:cell {self.cell}"
            return place if self.line is None else f"{place}:{self.line}"
        return self.expression or self.module or "unknown place"


class Cost(Struct, frozen=True):
    """What something costs in one step. A figure that was not measured is None."""

    copies: float | None = 0
    """Of the recordings' reports always measured; None for what was only read in source."""
    bytes_moved: float | None = 0
    """Elements read x source item size + elements written x destination item size."""
    duration_ns: float | None = None
    share: float | None = None
    """Of step time on the CPU, of kernel-busy time on a device: 0.02 is 2 %."""


NOT_MEASURED = Cost(copies=None, bytes_moved=None)


class Edit(Struct, frozen=True):
    """A replacement of a span of a file."""

    file: str
    span: tuple[int, int]
    """Byte offsets, half open; with `cell`, in the code of that cell as UTF-8."""
    replacement: str
    safety: Safety
    cell: int | None = None
    """Of a notebook's file: the number of the cell, as sites have it."""


class Payer(Struct, frozen=True):
    """A call that holds a copy."""

    site: Site
    op: str
    """The function that the program called, such as `torch.nn.functional.layer_norm`."""
    operand: str | None
    """Which input it copied, such as `input 0, (2, 80, 3000) with strides (240000, 1, 80)`."""
    cost: Cost


class Carrier(Struct, frozen=True):
    """A call that a strided stream passes through between its origin and its payers."""

    site: Site
    op: str
    count: int


class Finding(Struct, frozen=True):
    """One thing that the layout of some tensor does to the program."""

    code: str
    title: str
    severity: Severity
    message: str
    count: int
    """How many equal occurrences (loops, equal layers) this finding stands for, in one step."""
    site: Site
    """Where the edit goes."""
    origin: Site | None
    carriers: tuple[Carrier, ...]
    payers: tuple[Payer, ...]
    cost: Cost
    evidence: tuple[str, ...] = ()
    advice: str | None = None
    """What to do about it, in a sentence."""
    edits: tuple[Edit, ...] = ()
    inferred: bool = False
    """True when a link in the chain of reasoning was not recorded but concluded."""
    fingerprint: str = ""


def fingerprint(code: str, site: Site, *details: str) -> str:
    """A name for a finding that survives edits elsewhere in the file: no line number goes into it."""
    expression = " ".join((site.expression or "").split())
    parts = (code, site.file or "", site.function or "", expression, *details)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
