"""Copies inside oneDNN, from the verbose lines that a recording can hold."""

from stridewise.analysis.copies import TracedCopy, step_of
from stridewise.recording.model import Trace


def library_copies(trace: Trace) -> list[TracedCopy]:
    """The reorders that oneDNN logged, as copies of kind `library`."""
    if trace.log is None or not trace.log.library_log:
        return []
    raise NotImplementedError
