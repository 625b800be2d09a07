"""What autocast did in a recording: what ran in which dtype, and what was cast for it."""

from msgspec import Struct

from stridewise.findings import Site


class CastCost(Struct, frozen=True):
    """Casts together, per step."""

    count: float
    bytes_moved: float | None
    """Read and written; None where sizes or dtypes were not recorded."""
    duration_ns: float


class AutocastOperator(Struct, frozen=True):
    """One operator at one place, in which dtypes it was called and in which it ran."""

    op: str
    """`aten::linear`"""
    site: Site | None
    given: tuple[str, ...]
    """Dtypes of its floating-point operands, in order; of those in lists only where autocast cast them."""
    ran: str
    """The dtype in which it worked; several, joined by commas, if autocast left them so. Empty: not recorded."""
    cast: bool
    """Autocast took it up: it gave it operands of another dtype than the program did."""
    count: float
    """Per step."""
    casts: float
    """Per step; the other operands had the dtype already, or came from the cache."""
    cache_hits: float
    """Operands per step that autocast had cast before and kept."""


class AutocastRegion(Struct, frozen=True):
    """Entries of one region, from one place and in one state."""

    site: Site | None
    """Where it is entered; None if that was before the recording began, or was not recorded."""
    within: int | None
    """The region that it is entered in, by its position in `AutocastUse.regions`."""
    device: str | None
    """None, as `dtype`, `enabled` and `cache`, where regions were not recorded."""
    dtype: str | None
    """What autocast casts to on this device."""
    enabled: bool | None
    cache: bool | None
    """Casts of weights are kept until the outermost region ends."""
    entered: float | None
    """Per step."""
    operators: tuple[AutocastOperator, ...]
    """Those that autocast took up, and the convolutions, products and attentions that it did not."""
    casts: CastCost
    """By autocast, for the region's operators."""
    backward: CastCost
    """Of gradients, back to the dtype of what those casts read."""
    weights: float
    """How many of `casts` read a parameter."""
    cache_hits: float


class AutocastCast(Struct, frozen=True):
    """Casts that autocast made for operators at one place, of one tensor or of those that equal layers have there."""

    region: int
    """Position in `AutocastUse.regions`."""
    tensor: str | None
    """``parameter `fc.weight` ``, or what made it; None: not known."""
    parameter: bool
    op: str
    """The operator that autocast cast for."""
    site: Site | None
    sizes: tuple[int, ...] | None
    """None if they differ, or were not recorded."""
    source_dtype: str | None
    dtype: str | None
    cost: CastCost


class RepeatedCast(Struct, frozen=True):
    """A tensor, unchanged meanwhile, that autocast casts to one dtype more than once in a step."""

    tensor: str | None
    sizes: tuple[int, ...]
    source_dtype: str
    dtype: str
    count: float
    """All its casts, per step."""
    again: CastCost
    """Those after the first."""
    reason: str
    """Why the first one was not used again."""
    sites: tuple[Site, ...]


class CastAndCopy(Struct, frozen=True):
    """A tensor that is cast and then copied to another memory order, or in the same pass."""

    tensor: str | None
    op: str
    site: Site | None
    sizes: tuple[int, ...]
    source_strides: tuple[int, ...]
    """Before the cast."""
    strides: tuple[int, ...]
    """After the copy, whose sizes may be those of a view."""
    source_dtype: str | None
    dtype: str | None
    one_pass: bool
    """The cast itself writes the other order."""
    cost: CastCost
    """`count` of pairs; the bytes and the time are those of the cast and the copy together."""


class AutocastUse(Struct, frozen=True):
    """What autocast did. Figures are per step, as in `Totals`."""

    recorded: bool
    """False where regions were not recorded: then one stands for all, and only what it cast is known."""
    regions: tuple[AutocastRegion, ...]
    casts: tuple[AutocastCast, ...]
    """The most bytes first."""
    repeated: tuple[RepeatedCast, ...]
    with_copies: tuple[CastAndCopy, ...]
    cost: CastCost
    """All casts that autocast made in forward."""
    backward: CastCost
    cache_hits: float
    unidentified: float
    """Casts whose tensor is not known: it can't be told whether they were made before."""
