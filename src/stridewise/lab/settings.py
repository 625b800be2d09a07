"""The settings of torch that experiments take for granted, whatever the program that calls has set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from stridewise.errors import RecordingError, UsageError

MOST_THREADS = 1024
"""torch itself has no bound, and crashes."""


@contextlib.contextmanager
def settings(threads: int | None) -> Iterator[list[str]]:
    """torch as it is by default, with so many threads; gives notes on what is set otherwise and can't be put right.

    Afterwards all is as before. Raises UsageError where no experiment could run: on another default device, or while
    something is recorded.
    """
    import torch

    if threads is not None and not 0 < threads <= MOST_THREADS:
        raise UsageError(f"{threads} threads: there have to be 1 to {MOST_THREADS}.")
    if torch.empty(0).device.type != "cpu":
        raise UsageError(f"torch's default device is {torch.empty(0).device}: the lab needs the CPU there.")
    _can_record()
    count, dtype = torch.get_num_threads(), torch.get_default_dtype()
    notes = [] if bool(torch.backends.mkldnn.enabled) else ["oneDNN is off: convolutions take other ways than usual."]
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_num_threads, count)
        stack.callback(torch.set_default_dtype, dtype)
        torch.set_num_threads(threads or count)
        torch.set_default_dtype(torch.float32)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield notes


def _can_record() -> None:
    from stridewise.lab.recorded import record_call

    try:
        record_call(lambda: None)  # the first takes the longest, too
    except RecordingError as error:
        raise UsageError(f"The lab records what it measures, which can't be done here: {error.given}") from None
