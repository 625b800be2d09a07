"""What was seen of a loader, and which sample a field of a batch was made of."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from stridewise.checks.data.draw import is_batched
from stridewise.checks.data.fields import ROOT, Leaf
from stridewise.checks.data.measure import Copy

_FIRST = re.compile(r"\[\d+\](.*)", re.DOTALL)


class Seen(Struct, frozen=True):
    """What there is to judge."""

    loader: Any
    """The DataLoader; None for another iterable."""
    samples: tuple[tuple[Leaf, ...], ...]
    """Of the first batch, by sample; empty if they could not be had."""
    batches: tuple[tuple[Leaf, ...], ...]
    copies: tuple[Copy, ...] | None
    """None if collate was not run."""
    collate_error: Exception | None = None


def general_path(path: str, seen: Seen) -> str:
    """The path of a batch's field; of a batch that is a list of samples, that of each of them: `[*].image`."""
    match = _FIRST.fullmatch(path)
    return f"[*]{match[1]}" if match is not None and _is_list_of_samples(seen) else path


def sample_of(leaf: Leaf, seen: Seen) -> Leaf | None:
    """The first sample's tensor or array that became a field: by its path, else by its sizes if that is clear."""
    if not seen.samples:
        return None
    first = seen.samples[0]
    path = leaf.path
    if _is_list_of_samples(seen):
        match = _FIRST.fullmatch(path)
        path = (match[1] if match is not None else path).removeprefix(".") or ROOT
    for each in first:
        if each.path == path and (_fits(each, leaf) or _sizes(each) == _sizes(leaf) or path == leaf.path):
            return each
    alike = [each for each in first if _fits(each, leaf)]
    return alike[0] if len(alike) == 1 else None


def _fits(sample: Leaf, batch: Leaf) -> bool:
    """Whether a batch's sizes are a sample's, with one more in front."""
    sizes = _sizes(batch)
    return sizes is not None and len(sizes) > 1 and sizes[1:] == _sizes(sample)


def _sizes(leaf: Leaf) -> tuple[int, ...] | None:
    try:
        sizes = getattr(leaf.value, "shape", None)
    except RuntimeError:  # nested
        return None
    return None if sizes is None else tuple(sizes)


def _is_list_of_samples(seen: Seen) -> bool:
    """Whether collate handed the samples on, so that the batch's first index is theirs."""
    if seen.loader is None or not is_batched(seen.loader) or not seen.samples or not seen.batches:
        return False
    first = seen.samples[0]
    expected = [f"[{at}]{_step(leaf.path)}" for at, sample in enumerate(seen.samples) for leaf in sample]
    if [leaf.path for leaf in seen.batches[0]] != expected:
        return False
    return all(_sizes(a) == _sizes(b) for a, b in zip(first, seen.batches[0], strict=False))


def _step(path: str) -> str:
    return "" if path == ROOT else path if path.startswith("[") else f".{path}"


def copies_of(sample: Leaf, seen: Seen) -> tuple[Copy, ...] | None:
    """The copies that collate made of a field: of tensors with a sample's sizes, or with the number of samples more."""
    if seen.copies is None:
        return None
    sizes = _sizes(sample) or ()
    alike = tuple(sorted(sizes)), tuple(sorted((len(seen.samples), *sizes)))
    return tuple(copy for copy in seen.copies if copy.sizes in alike)
