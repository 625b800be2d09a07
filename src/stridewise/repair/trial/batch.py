"""One batch of a DataLoader, made in this process under a recording."""

from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from stridewise.recorder.live import record
from stridewise.recorder.state import keep_state
from stridewise.recording.trace import Trace


def record_batch(loader: Any) -> tuple[Any, Trace] | None:
    """A batch, and the recording of how it was made; None where that raises, or would take the batch from the program.

    It is made without workers, from the loader's own dataset, sampler and `collate_fn`. The states of random generators
    are as before afterwards.
    """
    again = _without_workers(loader)
    if again is None:
        return None
    generators = [found for part in (loader, loader.sampler) if (found := getattr(part, "generator", None)) is not None]
    states = [generator.get_state() for generator in generators]
    kept = keep_state([])
    try:
        with record() as recording:
            batch = next(iter(again))
        return batch, recording.trace
    except Exception:  # the program's own code, in another process than it may be written for: then there is no batch
        return None
    finally:
        kept.restore()
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _without_workers(loader: Any) -> DataLoader[Any] | None:
    """A loader of the same batches that works in this process."""
    if not isinstance(loader, DataLoader):
        return None
    dataset: Any = loader.dataset
    if hasattr(dataset, "__next__") or loader.sampler is dataset:  # what it gives it gives once
        return None
    if isinstance(dataset, IterableDataset):
        return DataLoader(
            dataset, batch_size=loader.batch_size, drop_last=loader.drop_last, collate_fn=loader.collate_fn
        )
    if loader.batch_sampler is None:
        return DataLoader(dataset, batch_size=None, sampler=loader.sampler, collate_fn=loader.collate_fn)
    return DataLoader(dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn)
