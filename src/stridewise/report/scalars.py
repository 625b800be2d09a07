"""A report as a handful of numbers and one line, for what charts them: TensorBoard, W&B, MLflow, log files."""

from stridewise.report.headline import headline, share_of
from stridewise.results import Report, numbers

PREFIX = "stridewise/"


def scalars(report: Report) -> dict[str, float]:
    """The figures of a step by name, such as `stridewise/share`. What was not measured is left out.

    `share` is a fraction (0.02 is 2 %), `bytes_moved` in bytes, `duration_ms` and `step_ms` in milliseconds; `findings`
    counts those that are too small to list, too: whether one is, is a matter of time, which differs from step to step.
    """
    totals = report.totals
    kernels = totals.layout_kernels
    figures = {
        "share": totals.share,
        "copies": totals.copies,
        "bytes_moved": totals.bytes_moved,
        "duration_ms": _milliseconds(totals.duration_ns),
        "step_ms": _milliseconds(totals.step_ns),
        "layout_kernels_share": None if kernels is None else kernels.share,
        "findings": len(report.findings),
    }
    return {f"{PREFIX}{name}": float(value) for name, value in figures.items() if value is not None}


def line(report: Report, step: int) -> str:
    """What layout costs in a step of a long run, in one line."""
    totals = report.totals
    sentence = headline(report)
    if totals.share is None or not totals.copies or numbers.share(totals.share) in sentence:
        return f"step {step}: {sentence}"
    return f"step {step}: {sentence} It costs {numbers.share(totals.share)} of {share_of(report)}."


def _milliseconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
