"""Batches and samples of a loader, drawn so that the loader is as before."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stridewise.errors import UsageError

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


class Drawn(Struct, frozen=True):
    """What could be had."""

    values: tuple[Any, ...] = ()
    error: Exception | None = None
    why_not: str | None = None
    """Why nothing was drawn, if that is no error."""


def torch_loader(loader: Any) -> DataLoader[Any] | None:
    """The loader if it is torch's, else None."""
    from torch.utils.data import DataLoader

    return loader if isinstance(loader, DataLoader) else None


def is_used_up(loader: Any) -> bool:
    """Whether reading from it would take from the program what it reads later."""
    return hasattr(type(loader), "__next__")


def draw_batches(loader: Iterable[Any], count: int) -> Drawn:
    """The first batches of a pass of its own, and its workers are gone afterwards.

    A DataLoader's pass is made by a copy of it, which has at most as many workers as batches are wanted.
    """
    known = torch_loader(loader)
    if known is not None:
        dataset = known.dataset
        if is_used_up(dataset) and not known.num_workers:
            return Drawn(why_not="its data set is an iterator, and reading would use it up")
        loader = _twin(known, count)
    found: list[Any] = []
    iterator: Iterator[Any] | None = None
    try:
        iterator = iter(loader)
        found.extend(itertools.islice(iterator, count))
    except Exception as error:  # whatever the program's code raises
        return Drawn(tuple(found), error)
    finally:
        _shut_down(iterator)
    return Drawn(tuple(found))


def draw_samples(loader: DataLoader[Any]) -> Drawn:
    """The samples of its first batch, read here; without automatic batching the one that is handed on."""
    from torch.utils.data import IterableDataset

    dataset: Any = loader.dataset
    try:
        if isinstance(dataset, IterableDataset):
            if is_used_up(dataset):
                return Drawn(why_not="its data set is an iterator, and reading would use it up")
            return Drawn(tuple(itertools.islice(iter(dataset), _batch_size(loader))))
        index_sampler: Any = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        if is_used_up(index_sampler):
            return Drawn(why_not="its sampler is an iterator, and reading would use it up")
        indices = next(iter(index_sampler), None)
        if indices is None:
            return Drawn()
        if loader.batch_sampler is None:
            return Drawn((dataset[indices],))
        together = getattr(dataset, "__getitems__", None)
        return Drawn(tuple(together(indices) if together else [dataset[index] for index in indices]))
    except Exception as error:  # whatever the program's code raises
        return Drawn(error=error)


def is_batched(loader: DataLoader[Any]) -> bool:
    """Whether its collate is given a list of samples, and not one sample."""
    return loader.batch_sampler is not None


def collate_of(loader: DataLoader[Any]) -> Callable[[Any], Any]:
    """What it makes batches with."""
    collate: Callable[[Any], Any] = loader.collate_fn
    return collate


def require_loader(loader: Any, batches: int) -> None:
    """Raise UsageError unless it can be iterated and something is to be drawn."""
    if not hasattr(type(loader), "__iter__") and not hasattr(type(loader), "__getitem__"):
        raise UsageError(
            f"a loader of type {type(loader).__name__}", expected="a DataLoader, or an iterable of batches"
        )
    if is_used_up(loader):
        raise UsageError(
            f"an iterator, {type(loader).__name__}, which reading would use up", advice="Hand over what makes it."
        )
    if batches < 1:
        raise UsageError(f"batches={batches!r}", expected="a number from 1 on")


def _batch_size(loader: DataLoader[Any]) -> int:
    size = getattr(loader.batch_sampler, "batch_size", None)
    return 1 if size is None else int(size)


def _twin(loader: DataLoader[Any], count: int) -> DataLoader[Any]:
    """A copy with an iterator and workers of its own; the setter would refuse, so the dictionary is written to."""
    twin = copy.copy(loader)
    workers = min(loader.num_workers, count)
    changed: dict[str, Any] = {"_iterator": None, "persistent_workers": False, "num_workers": workers}
    if workers:
        changed["prefetch_factor"] = 1
    vars(twin).update(changed)
    return twin


def _shut_down(iterator: Any) -> None:
    """End the workers now: torch does it when the iterator is collected, which an exception puts off."""
    end = getattr(iterator, "_shutdown_workers", None)
    if callable(end):
        end()
