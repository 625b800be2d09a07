"""The functions that people call. They return values and print nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stridewise.analysis import analyze_trace
from stridewise.recording.handle import Recording
from stridewise.results import Report

if TYPE_CHECKING:
    from stridewise.recording.live import Recorder

MIN_SHARE = 0.001
"""Of a step: findings below it fold into one line."""


def record(*, library_copies: bool = False, max_ops: int = 200_000) -> Recorder:
    """Record what the body of a `with` block does with tensors; see `stridewise.recording.live.record`."""
    from stridewise.recording import live

    return live.record(library_copies=library_copies, max_ops=max_ops)


def step() -> None:
    """Say that a step of the program ends here. Does nothing while nothing is recorded."""
    from stridewise.recording import live

    live.step()


def load(path: str | os.PathLike[str]) -> Recording:
    """Read a recording or a trace from a file. Raises InputError if it can't be read as one."""
    return Recording.load(path)


def analyze(
    source: Recording | str | os.PathLike[str],
    *,
    min_share: float = MIN_SHARE,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
) -> Report:
    """What a recording, or the file of one, says. Needs no torch.

    `select` and `ignore` are codes or their beginnings. Raises InputError if a file can't be read as a recording.
    """
    recording = source if isinstance(source, Recording) else Recording.load(source)
    return analyze_trace(recording.trace, min_share=min_share, select=select, ignore=ignore)
