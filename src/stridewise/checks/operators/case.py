"""The data of conformance: how operands are laid out in a run, and what came of it. No torch."""

from typing import Literal

from msgspec import Struct, field

from stridewise.layout import Layout
from stridewise.results.checks import Aspect, OpVerdict, Role


class Arrangement(Struct, frozen=True):
    """How the elements of a tensor lie in memory, whatever its sizes: a recipe that any sizes can follow.

    Of dimensions whose place is not in `order` (a tensor with more) memory order is that of the indices.
    """

    name: str
    """As it is shown: `x.transpose(0, 1)`, `channels_last`, `x[:, ::2]`, `x.expand over dimension 1`."""
    order: tuple[int, ...] | None = None
    """Memory order of the dimensions, outermost first; None for the order of the indices."""
    steps: tuple[int, ...] | None = None
    """By dimension: only every so many positions of the memory belong to the tensor; None for all."""
    before: tuple[int, ...] | None = None
    after: tuple[int, ...] | None = None
    """By dimension: positions of the memory in front of the tensor's and behind them, as a slice leaves them."""
    expanded: tuple[int, ...] = ()
    """Dimensions with stride 0. Values are those of the first position."""
    windows: int | None = None
    """A dimension whose positions overlap: its stride is half of what it would be (at least 1). Only read."""
    odd_ones: bool = False
    """Dimensions of size 1 have strides that no allocation would give them."""
    offset: int = 0
    """Elements in front of the tensor, so that its address is not aligned."""
    strides: tuple[int, ...] | None = None
    """Just these, whatever else is said here, of a tensor with as many dimensions."""
    shares: bool = False
    """With these strides indices share elements."""

    @property
    def writable(self) -> bool:
        """Whether each element has memory of its own."""
        return not self.expanded and self.windows is None and not self.shares


class Operand(Struct, frozen=True):
    """A tensor of the sample."""

    name: str
    role: Role
    sizes: tuple[int, ...]
    dtype: str
    is_float: bool
    """Floating point or complex."""
    requires_grad: bool
    home: Arrangement | None = None
    """The layout that the callable was made for; None for contiguous."""


class Case(Struct, frozen=True):
    """One run. Operands that are not named lie contiguous, or as the callable was made for."""

    arrangements: dict[str, Arrangement] = field(default_factory=dict)
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of operands that are cut to their first positions; the others have the sample's."""
    gradient: Arrangement | None = None
    """Of what comes into the backward; None to run none."""
    aspect: Aspect = "values"


Status = Literal["ran", "not applicable", "raised", "crashed", "hung"]
"""`not applicable`: it can't be built, or the operator raises or is not comparable even for contiguous operands."""


class Fault(Struct, frozen=True):
    """What was wrong with a run."""

    verdict: OpVerdict
    what: str
    """`output 0`, `gradient of x`, `x`."""
    detail: str
    """In words, with figures: `12 of 24 elements differ, by up to 3.1`, `2 elements in front of it were written`."""
    difference: float | None = None
    reads_past: bool = False
    """What lies around an operand changed it."""


class Beside(Struct, frozen=True):
    """What another callable, which should do the same, did in the same layouts."""

    raised: str | None = None
    faults: tuple[Fault, ...] = ()
    """How the results that are checked differ from its own."""


class Outcome(Struct, frozen=True):
    """What came of one case."""

    case: Case
    status: Status
    faults: tuple[Fault, ...] = ()
    message: str | None = None
    """Of the exception (its type in front), or how the process ended."""
    layouts: dict[str, Layout] = field(default_factory=dict)
    """Of all operands as they were given, by name."""
    reference: str | None = None
    """Why a case is not applicable, in words."""
    beside: Beside | None = None
    """None if it was held against nothing else."""


class Described(Struct, frozen=True):
    """What the first, contiguous run tells of the operator."""

    op: str
    operands: tuple[Operand, ...]
    outputs: tuple[str, ...]
    """`output`, `output 0`, `out.logits`: the tensors that it gives, in order."""
    differentiable: bool
    """Some output has a gradient with respect to some operand."""
    random: bool
    """Values change with the seed, and so may change with the layout."""
    noise: float
    """How far runs on equal contiguous operands differ from each other, as a share of the largest magnitude."""
    tolerance: float
    """The largest share that counts as equal."""
    tolerance_words: str
    magnitudes: dict[str, float]
    """The largest magnitude of each result of the sample, gradients included."""
    has_fake: bool
    """It runs on tensors that have no data."""
    notes: tuple[str, ...] = ()
