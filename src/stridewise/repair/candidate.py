"""A candidate: an edit that may make the program faster. Nobody has tried it yet."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from stridewise.findings import Edit, Site
from stridewise.repair.plan.costs import Plan

if TYPE_CHECKING:
    from stridewise.repair.context import Context

Format = Literal["contiguous", "channels_last"]


class Conversion(Struct, frozen=True):
    """A change of live objects that stands for what the edits do when the program starts afresh."""

    what: Literal["parameter", "buffer", "attribute", "inputs"]
    path: str
    """Dotted path of the tensor from the workload's model, `conv.weight`; for `inputs` the path of one tensor among
    the arguments (`0`, `1.pixel_values`), or empty for all."""
    format: Format


class Candidate(Struct, frozen=True):
    """Edits of source that belong together, and the conversions of live objects that go with them.

    A trial swaps the code of the edited functions. What an edit changes that has already run, such as `__init__`, it
    can't try that way: that is what conversions are for.
    """

    kind: str
    what: str
    """Begins with a verb: ``copy once behind `x.permute(0, 2, 1)` ``."""
    site: Site
    findings: tuple[str, ...] = ()
    """Fingerprints of the findings that it is to mend."""
    edits: tuple[Edit, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    removes_copies: bool = True
    """It is to make the layout tax smaller: if it only moves copies elsewhere, it is not even timed."""
    saves_memory: bool = False
    """It wins if a step holds less memory and takes no longer."""
    keeps_values: bool = True
    """No result changes but in rounding: such an edit may be tried while a script goes on."""
    beside_step: bool = False
    """Its conversion of inputs is done by others while a step runs, as a loader's workers do."""
    needless: bool = False
    """It takes out a copy that the program asks for: if it wins, that copy was needless (SW104)."""
    plan: Plan | None = None
    """What it was forecast to gain, if it comes from measured costs."""


class Kind(Struct, frozen=True):
    """One kind of candidate, as its file under `kinds/` defines it."""

    name: str
    summary: str
    doc: str
    answers: str
    """The advice that people are often given for this case, and what is right about it."""
    candidates: "Callable[[Context], Iterator[Candidate]]"
    examples: tuple[tuple[str, str], ...]
    """Modules with a `program()`, and what the edits make of them."""
    quiet: tuple[str, ...]
    """Modules for which it must propose nothing."""

    @classmethod
    def from_module(cls, module: ModuleType) -> "Kind":
        """The kind that a file is."""
        doc = inspect.cleandoc(module.__doc__ or "")
        heading, _, body = doc.partition("\n")
        name, _, summary = heading.partition(": ")
        return cls(
            name, summary, body.strip(), module.ANSWERS, module.candidates, tuple(module.EXAMPLES), tuple(module.QUIET)
        )
