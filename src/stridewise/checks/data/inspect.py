"""A loader looked at: what it yields, field by field, and what its layout costs and loses."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from stridewise.checks.data import judge
from stridewise.checks.data.dlpack import checked_from_dlpack
from stridewise.checks.data.draw import (
    Drawn,
    collate_of,
    draw_batches,
    draw_samples,
    is_batched,
    require_loader,
    torch_loader,
)
from stridewise.checks.data.fields import Leaf, leaves_of
from stridewise.checks.data.kept import kept
from stridewise.checks.data.measure import collated
from stridewise.checks.data.places import raising_site
from stridewise.checks.data.seen import Seen, copies_of, general_path, sample_of
from stridewise.checks.rules import sw217
from stridewise.errors import ContractError, InputError
from stridewise.findings import Finding
from stridewise.results.checks import Field, LoaderReport

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def inspect_loader(loader: Iterable[Any], batches: int = 2) -> LoaderReport:
    """How the samples and batches of a loader lie in memory, field by field, and what that costs and loses.

    `loader` is a DataLoader or another iterable of batches. `batches` of them are drawn in a pass of its own, with the
    loader's workers, which are gone afterwards; then the samples of the first batch are read here, and collated once
    more to count copies. Random states and the attributes of loader, sampler and data set are as before.

    Raises UsageError for what can't be iterated, or only once, and InputError if the program's code raises.
    """
    require_loader(loader, batches)
    with kept(loader), checked_from_dlpack(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and of the program; they come again where it runs
        known = torch_loader(loader)
        drawn = draw_batches(loader, batches)
        if known is None:
            samples = Drawn(why_not="it is no DataLoader")
        elif drawn.error is not None and "exited unexpectedly" in str(drawn.error):
            samples = Drawn(why_not="a worker ended that read them")  # this process would end so, too
        else:
            samples = draw_samples(known)
        seen = _see(known, drawn, samples)
        return _report(seen, drawn, samples)


def _see(loader: DataLoader[Any] | None, drawn: Drawn, samples: Drawn) -> Seen:
    found = tuple(tuple(leaves_of(sample)) for sample in samples.values)
    copies, error = None, None
    if loader is not None and samples.values:
        try:
            given: Any = list(samples.values) if is_batched(loader) else samples.values[0]
            _, copies = collated(collate_of(loader), given)
        except Exception as raised:  # whatever the program's code raises
            error = raised
    return Seen(loader, found, tuple(tuple(leaves_of(batch)) for batch in drawn.values), copies, error)


def _report(seen: Seen, drawn: Drawn, samples: Drawn) -> LoaderReport:
    from stridewise.recorder.profiling import environment

    errors = [error for error in (samples.error, seen.collate_error, drawn.error) if error is not None]
    refused = [*judge.refused_arrays(seen), *_refusals(errors)]
    if drawn.error is not None and not refused:
        raise _input_error(errors[0]) from errors[0]
    findings = [*judge.shipped(seen), *judge.lost(seen), *(refused if errors else ()), *judge.copies(seen)]
    return LoaderReport(
        findings=tuple(findings),
        fields=_fields(seen),
        batches=len(drawn.values),
        workers=0 if seen.loader is None else int(seen.loader.num_workers),
        notes=tuple(_notes(seen, drawn, samples)),
        environment=environment(),
    )


def _fields(seen: Seen) -> tuple[Field, ...]:
    """The fields of the first batch, with the samples that they were made of."""
    if not seen.batches:
        return ()
    shown: dict[str, Field] = {}
    for leaf in seen.batches[0]:
        path = general_path(leaf.path, seen)
        if path in shown:
            continue
        sample = sample_of(leaf, seen)
        storage = None if sample is None else sample.storage
        made = copies_of(sample, seen) if sample is not None else None
        shown[path] = Field(
            path=path,
            sample=None if sample is None else sample.words,
            batch=leaf.words,
            view_bytes=None if sample is None else sample.view_bytes,
            storage_bytes=None if storage is None else storage[1],
            copies=None if made is None else len(made),
        )
    return tuple(shown.values())


def _notes(seen: Seen, drawn: Drawn, samples: Drawn) -> list[str]:
    notes = []
    if drawn.why_not is not None:
        notes.append(f"No batch was drawn: {drawn.why_not}.")
    elif drawn.error is not None:
        notes.append(f"Drawing a batch raised {_said(drawn.error)}.")
    elif not drawn.values:
        notes.append("The loader gave no batch.")
    if samples.why_not is not None:
        notes.append(f"Samples were not read: {samples.why_not}.")
    elif samples.error is not None and drawn.error is None:
        notes.append(f"Reading samples outside of a worker raised {_said(samples.error)}.")
    if seen.collate_error is not None and drawn.error is None:
        notes.append(f"Collating outside of a worker raised {_said(seen.collate_error)}.")
    notes.extend(_changes(seen.batches))
    if seen.loader is not None and seen.loader.pin_memory and not _can_pin():
        notes.append("Batches were not pinned: this machine has no accelerator.")
    return notes


def _changes(batches: Sequence[Sequence[Leaf]]) -> list[str]:
    """Fields whose layout class differs between batches."""
    first = {leaf.path: leaf for leaf in batches[0]} if batches else {}
    notes = {}
    for batch in batches[1:]:
        for leaf in batch:
            before = first.get(leaf.path)
            if before is not None and leaf.words.partition(",")[0] != before.words.partition(",")[0]:
                notes[leaf.path] = f"Field `{leaf.path}` is {before.words} in one batch and {leaf.words} in another."
    return list(notes.values())


def _refusals(errors: Sequence[Exception]) -> list[Finding]:
    """The program itself gave torch an array that it can't take, or broke a contract of its own."""
    for error in errors:
        if isinstance(error, ContractError) and error.finding is not None:
            return [error.finding]
        if judge.is_refusal(error):
            site = raising_site(error)
            if site is not None:
                return [sw217.refused(_said(error), site)]
    return []


def _input_error(error: Exception) -> InputError:
    site = raising_site(error)
    where = "" if site is None or site.file is None else f" at {site.where}"
    return InputError(f"the loader raised {_said(error)}{where}", expected="batches", advice="Run it by itself first.")


def _said(error: Exception) -> str:
    """`ValueError: bad image`: of what a worker sends, a whole traceback, the last line."""
    text = str(error)
    lines = [line for line in text.strip().splitlines() if line.strip()] or [""]
    if re.match(r"Caught \w+ in ", lines[0]):
        return lines[-1].strip().rstrip(".")
    return f"{type(error).__name__}: {lines[0]}".rstrip(". :")


def _can_pin() -> bool:
    import torch

    accelerator = getattr(torch, "accelerator", None)
    return bool(accelerator.is_available()) if accelerator is not None else torch.cuda.is_available()
