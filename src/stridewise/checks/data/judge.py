"""Facts of a loader, handed to the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stridewise.checks.data.arrays import facts_of
from stridewise.checks.data.draw import collate_of, is_batched
from stridewise.checks.data.fields import Leaf
from stridewise.checks.data.measure import Copy, counted, time_stacking
from stridewise.checks.data.places import collate_site, sample_site
from stridewise.checks.data.seen import Seen, copies_of, general_path, sample_of
from stridewise.checks.rules import sw215, sw216, sw217, sw226
from stridewise.checks.rules.sw215 import Sent
from stridewise.checks.rules.sw216 import Stacked
from stridewise.checks.rules.sw226 import Copied, Pinned
from stridewise.findings import Finding, Site


def shipped(seen: Seen) -> Iterator[Finding]:
    """Views that bring a large storage from a worker, one finding for a field."""
    if seen.loader is None or not seen.loader.num_workers or not seen.batches:
        return
    views: dict[int, list[Leaf]] = {}
    for leaf in seen.batches[0]:
        if leaf.storage is not None and hasattr(leaf.value, "untyped_storage"):
            views.setdefault(leaf.storage[0], []).append(leaf)
    found: dict[str, list[list[Leaf]]] = {}
    for leaves in views.values():
        found.setdefault(general_path(leaves[0].path, seen), []).append(leaves)
    for path, storages in found.items():
        leaves = storages[0]
        sent = Sent(
            path=path,
            site=_made_at(leaves[0], seen),
            words=leaves[0].words,
            view_bytes=sum(leaf.view_bytes for leaf in leaves),
            storage_bytes=leaves[0].storage[1] if leaves[0].storage is not None else 0,
            workers=int(seen.loader.num_workers),
            count=len(storages),
        )
        finding = sw215.check(sent)
        if finding is not None:
            yield finding


def lost(seen: Seen) -> Iterator[Finding]:
    """Images whose memory order collate gave up."""
    import torch

    if seen.loader is None or not seen.batches or not is_batched(seen.loader):
        return
    for leaf in seen.batches[0]:
        sample = sample_of(leaf, seen)
        if sample is None or sample.layout is None or leaf.layout is None:
            continue
        site = collate_site(collate_of(seen.loader), seen.loader.dataset, leaf.path)
        is_default = collate_of(seen.loader) is torch.utils.data.default_collate
        stacked = Stacked(leaf.path, site, sample.layout, leaf.layout, leaf.view_bytes, is_default)
        if sw216.is_lost(stacked):
            yield sw216.judge(stacked, _timed(sample, seen))


def refused_arrays(seen: Seen) -> list[Finding]:
    """Arrays of samples that torch refuses."""
    if not seen.samples or seen.loader is None:
        return []
    found = []
    for leaf in seen.samples[0]:
        facts = None if hasattr(leaf.value, "untyped_storage") else facts_of(leaf.value, f"Field `{leaf.path}`")
        finding = None if facts is None else sw217.check(facts, sample_site(seen.loader.dataset, leaf.path))
        if finding is not None:
            found.append(finding)
    return found


def copies(seen: Seen) -> Iterator[Finding]:
    """What collate copies beyond its task, and what is pinned with gaps."""
    if seen.loader is None or not seen.batches:
        return
    told: set[Copy] = set()
    for leaf in seen.batches[0]:
        site = collate_site(collate_of(seen.loader), seen.loader.dataset, leaf.path)
        sample = sample_of(leaf, seen)
        made = () if sample is None else [copy for copy in copies_of(sample, seen) or () if copy not in told]
        yield from _copied(leaf.path, site, made, leaf.view_bytes)
        told.update(made)
        if seen.loader.pin_memory and leaf.layout is not None and hasattr(leaf.value, "untyped_storage"):
            finding = sw226.check_pinned(Pinned(leaf.path, site, leaf.layout, leaf.view_bytes))
            if finding is not None:
                yield finding
    rest = [copy for copy in seen.copies or () if copy not in told]
    site = collate_site(collate_of(seen.loader), seen.loader.dataset)
    yield from _copied(None, site, rest, sum(leaf.view_bytes for leaf in seen.batches[0]))


def _copied(path: str | None, site: Site, made: Sequence[Copy], batch_bytes: int) -> Iterator[Finding]:
    written = sum(copy.bytes_written for copy in made)
    finding = sw226.check_copies(Copied(path, site, counted(made), written, batch_bytes))
    if finding is not None:
        yield finding


def _made_at(leaf: Leaf, seen: Seen) -> Site:
    """Where a view came to be: in the data set if the sample is one already, else in collate."""
    sample = sample_of(leaf, seen)
    is_view = sample is not None and sample.storage is not None and sample.storage[1] > sample.view_bytes
    dataset = seen.loader.dataset
    return sample_site(dataset, leaf.path) if is_view else collate_site(collate_of(seen.loader), dataset, leaf.path)


def _timed(sample: Leaf, seen: Seen) -> sw216.Timed | None:
    """Both ways to stack a field's samples; None where they don't stack."""
    import torch

    alike = [leaf.value for leaves in seen.samples for leaf in leaves if leaf.path == sample.path]
    if len(alike) < 2 or len({_sizes_of(value) for value in alike}) > 1:
        return None
    return time_stacking([torch.as_tensor(value) for value in alike])


def _sizes_of(value: Any) -> tuple[int, ...]:
    return tuple(value.shape)


def is_refusal(error: BaseException) -> bool:
    """Whether torch said that an array runs backwards: its words are asked of itself."""
    import numpy as np
    import torch

    try:
        torch.from_numpy(np.arange(2)[::-1])
    except ValueError as said:
        return str(said) in str(error)
    return False
