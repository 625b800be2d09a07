"""Which memory format a tensor of 4 or 5 dimensions is in, and no other: of 1x1 and depthwise weights several hold."""

from stridewise.layout import Layout, MemoryFormat, is_contiguous

CHANNELS_LAST: dict[int, MemoryFormat] = {4: "channels_last", 5: "channels_last_3d"}
"""By the number of dimensions."""


def format_of(given: Layout) -> MemoryFormat | None:
    """The one memory format that it is dense in; None if there is none, or more than one."""
    last = CHANNELS_LAST.get(given.ndim)
    if last is None:
        return None
    both: tuple[MemoryFormat, ...] = ("contiguous", last)
    held = [name for name in both if is_contiguous(given, name)]
    return held[0] if len(held) == 1 else None


CONVERT_EACH = (
    "for p in model.parameters(): p.data = p.data.contiguous(memory_format={4: torch.channels_last,"
    " 5: torch.channels_last_3d}.get(p.dim(), torch.contiguous_format))"
)
"""What to write where `Module.to` raises, because a model has weights of 4 and of 5 dimensions."""
