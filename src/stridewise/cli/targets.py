"""Targets that fail: what a program of the user's raises is shown as its own, and is a mistake in the call."""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from stridewise.errors import StridewiseError, UsageError

_MOST_CELLS = 200
_OURS = Path(__file__).parents[1]


@contextlib.contextmanager
def targets_own(callers: Collection[str]) -> Iterator[None]:
    """Show what a target raises, with its traceback, and raise UsageError in its place.

    `callers` are the files of ours that import targets and call them, below the package's folder.
    """
    from stridewise.recorder import tracebacks
    from stridewise.report.text import one_line, shorten

    try:
        yield
    except StridewiseError:
        raise
    except SystemExit as leave:
        code = "" if leave.code is None else shorten(one_line(repr(leave.code)), _MOST_CELLS)
        raise UsageError(f"the target ended the process (sys.exit({code}))") from None
    except Exception as error:
        if not _is_targets(error, callers):
            raise
        tracebacks.show(error)
        text = shorten(one_line(str(error)), _MOST_CELLS)
        said = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise UsageError(f"the target failed: {said}") from None


def _is_targets(error: Exception, callers: Collection[str]) -> bool:
    """Whether the target raised it: a frame that is not ours was entered from where targets are imported and called.

    Else it is a defect of ours, and has to show where it is.
    """
    caller, entry = "", error.__traceback__
    while entry is not None:
        file = Path(entry.tb_frame.f_code.co_filename)
        if file.is_relative_to(_OURS):
            caller = file.relative_to(_OURS).as_posix()
        elif caller in callers and str(file) != contextlib.__file__:
            return True
        entry = entry.tb_next
    return False
