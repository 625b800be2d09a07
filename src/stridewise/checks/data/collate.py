"""A collate that keeps images as they lie: HWC samples become a channels_last batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stridewise.checks.rules.sw216 import channels_innermost
from stridewise.checks.words import layout_of

if TYPE_CHECKING:
    from torch import Tensor

_Map = Mapping[Any, Callable[..., Any]]


def collate(samples: Sequence[Any]) -> Any:
    """Make a batch of samples as torch's `default_collate` does, but keep channels_last.

    Images (C, H, W) that lie in memory as HWC, tensors or views of NumPy arrays, become a channels_last batch
    (N, C, H, W), and volumes (C, D, H, W) that lie as DHWC a channels_last_3d one: one copy that goes through memory
    in order. Values, dtypes and containers are `default_collate`'s, and so is everything that is no such image. For
    `DataLoader(collate_fn=stridewise.collate)`, with and without workers; where they send a batch, it is stacked in
    shared memory.
    """
    of_types, known = _torch_collate()
    return of_types(samples, collate_fn_map={**known, **_with_stack(known)})


def _with_stack(known: _Map) -> _Map:
    """torch's own way to make a batch of tensors, given views if they are images in HWC."""
    import torch

    stack = known[torch.Tensor]

    def keeping(batch: Sequence[Tensor], *, collate_fn_map: _Map | None = None) -> Any:
        if not _all_innermost(batch):
            return stack(batch, collate_fn_map=collate_fn_map)
        views = [image.movedim(0, -1) for image in batch]
        return stack(views, collate_fn_map=collate_fn_map).movedim(-1, 1)

    return {torch.Tensor: keeping}


def _all_innermost(batch: Sequence[Tensor]) -> bool:
    """Whether all are images with their channels innermost; one that can be read either way does not decide."""
    layouts = [layout_of(image) for image in batch]
    return all(given is not None and channels_innermost(given) for given in layouts)


@functools.cache
def _torch_collate() -> tuple[Callable[..., Any], _Map]:
    """torch's collate and what it does with each type; tried with torch 2.6 to 2.13.

    Both are private to `torch.utils.data` by their place, yet described in `default_collate`'s documentation.
    """
    from torch.utils.data._utils import collate as private

    return private.collate, private.default_collate_fn_map
