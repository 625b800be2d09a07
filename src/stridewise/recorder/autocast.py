"""The regions of autocast that the program enters while it is recorded.

What a call ran in is seen at the regions' ends, not asked for at each call: the hot path only reads a number.
"""

import contextlib
import functools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from stridewise.recorder import private
from stridewise.recorder.calls import CallRecorder

_DEVICES = ("cpu", "cuda", "xpu", "mps", "hpu")
"""Where a region may be open when the recording begins."""

Row = tuple[int, int, int, str, str, bool, bool, bool]
"""As `AutocastRow`."""


class AutocastRecorder:
    """Numbers the regions, and tells the recorder of calls which one its thread is in."""

    def __init__(self, recorder: CallRecorder) -> None:
        self.recorder = recorder
        self.rows: list[Row] = []
        self.watched = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Log what the program enters and leaves in the body, and what this thread is in already."""
        kind: Any = torch.amp.autocast_mode.autocast
        enter, leave = kind.__enter__, kind.__exit__

        # TorchScript compiles the class, from the source that `wraps` leads it to.
        @functools.wraps(enter)
        def entering(region: Any) -> Any:
            result = enter(region)
            self._entered(region, sys._getframe(1))
            return result

        @functools.wraps(leave)
        def leaving(region: Any, *exception: Any) -> Any:
            self._left(region)
            return leave(region, *exception)

        with private.replaced(kind, "__enter__", entering), private.replaced(kind, "__exit__", leaving):
            self.watched = True
            for device in filter(_is_on, _DEVICES):
                self._open(None, device, None)
            yield

    def _entered(self, region: Any, frame: FrameType) -> None:
        recorder = self.recorder
        if recorder.on and not recorder.hidden and len(self.rows) < recorder.limit:
            try:
                self._open(region, region.device, frame)
            except Exception as error:
                recorder.failed(error)

    def _open(self, region: Any, device: str, frame: FrameType | None) -> None:
        recorder = self.recorder
        site, via = recorder.frames.find(frame)
        dtype = str(dtype_of(device)).removeprefix("torch.")
        enabled, cache = torch.is_autocast_enabled(device), torch.is_autocast_cache_enabled()
        row = (recorder.local.autocast, site, via, device, dtype, enabled, cache, frame is None)
        number = _append(self.rows, row)
        # The region's own address: one object may be entered again while it is open.
        self._stack().append((id(region) if region is not None else None, number))
        recorder.local.autocast = number

    def _left(self, region: Any) -> None:
        stack = self._stack()
        places = [place for place, (known, _) in enumerate(stack) if known == id(region)]
        # One that nobody saw being entered is what the recording began in.
        places = places or [place for place, (known, _) in enumerate(stack) if known is None]
        if places:
            del stack[places[-1]]
            self.recorder.local.autocast = stack[-1][1] if stack else -1

    def _stack(self) -> list[tuple[int | None, int]]:
        stack: list[tuple[int | None, int]] = self.recorder.local.__dict__.setdefault("regions", [])
        return stack


def _append(rows: list[Row], row: Row) -> int:
    """Where a row is put, whatever other threads append meanwhile."""
    rows.append(row)
    number = len(rows) - 1
    while rows[number] is not row:
        number -= 1
    return number


dtype_of = torch.get_autocast_dtype


def _is_on(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except RuntimeError:  # a device that this torch has no autocast for
        return False
