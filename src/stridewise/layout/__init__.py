"""Stride algebra: what layout a tensor has, what an operation makes of it, and why. Units are elements; no torch."""

from stridewise.layout.allocation import (
    broadcast_sizes,
    clone,
    contiguous,
    elementwise,
    kernel_order,
    preserve_strides,
    to,
)
from stridewise.layout.classes import LayoutClass, classes, name
from stridewise.layout.copies import Change, bytes_moved, change, is_relayout
from stridewise.layout.dimensions import (
    broadcast_to,
    expand,
    movedim,
    mT,
    permute,
    squeeze,
    swapaxes,
    t,
    transpose,
    unsqueeze,
)
from stridewise.layout.elements import view_as_complex, view_as_real, view_dtype
from stridewise.layout.errors import LayoutError
from stridewise.layout.explain import explain, reason
from stridewise.layout.formats import (
    channels_last_strides,
    contiguous_strides,
    format_order,
    format_strides,
    is_contiguous,
    suggested_format,
)
from stridewise.layout.indexing import index
from stridewise.layout.memory import (
    is_expanded,
    is_gapped,
    is_non_overlapping_and_dense,
    memory_order,
    span,
    storage_needed,
    stored,
)
from stridewise.layout.model import Layout, MemoryFormat, Outcome, numel
from stridewise.layout.overlap import is_overlapping
from stridewise.layout.reshaping import flatten, joined, reshape, unflatten, view
from stridewise.layout.sharing import share_elements
from stridewise.layout.windows import (
    as_strided,
    chunk,
    diagonal,
    narrow,
    select,
    slice_dim,
    split,
    unbind,
    unfold,
)

__all__ = [
    "Change",
    "Layout",
    "LayoutClass",
    "LayoutError",
    "MemoryFormat",
    "Outcome",
    "as_strided",
    "broadcast_sizes",
    "broadcast_to",
    "bytes_moved",
    "change",
    "channels_last_strides",
    "chunk",
    "classes",
    "clone",
    "contiguous",
    "contiguous_strides",
    "diagonal",
    "elementwise",
    "expand",
    "explain",
    "flatten",
    "format_order",
    "format_strides",
    "index",
    "is_contiguous",
    "is_expanded",
    "is_gapped",
    "is_non_overlapping_and_dense",
    "is_overlapping",
    "is_relayout",
    "joined",
    "kernel_order",
    "mT",
    "memory_order",
    "movedim",
    "name",
    "narrow",
    "numel",
    "permute",
    "preserve_strides",
    "reason",
    "reshape",
    "select",
    "share_elements",
    "slice_dim",
    "span",
    "split",
    "squeeze",
    "storage_needed",
    "stored",
    "suggested_format",
    "swapaxes",
    "t",
    "to",
    "transpose",
    "unbind",
    "unflatten",
    "unfold",
    "unsqueeze",
    "view",
    "view_as_complex",
    "view_as_real",
    "view_dtype",
]
