"""What a terminal report says of a device's kernels: those that only change layout, and on request all of them."""

import re
from collections.abc import Iterator

from rich.text import Text

from stridewise.report.headline import period
from stridewise.report.prose import column, hang
from stridewise.report.text import one_line, shorten
from stridewise.results import Cause, Kernel, KernelTime, LayoutKernels, Report, numbers

_MOST = 40
_LABEL = "kernels: "
_CAUSES: dict[Cause, tuple[str, str]] = {
    "transpose": ("transpose of a library", "transposes of libraries"),
    "copy": ("copy", "copies"),
    "generated": ("generated", "generated"),
}
CAUSES: dict[str, str] = {
    "transpose": "transposes in a library",
    "copy": "copies",
    "generated": "generated for layout alone",
    "possible": "may only change layout",
}
"""What the causes mean, for the rows of a chart."""
_NOISE = re.compile(r"^void |at::native::|\(anonymous namespace\)::|c10::|at::")
"""What stands in the name of every kernel."""
_SHORT = {"transpose": "transpose", "copy": "copy", "generated": "generated", "possible": "possible", None: ""}


def summary(report: Report, width: int) -> Iterator[Text]:
    """Say in a paragraph what share such kernels have of the time of kernels and of the step, and on which streams."""
    found = report.totals.layout_kernels
    if found is None or not (found.count or found.possible.count):
        return
    yield from hang(_LABEL, Text(_sentence(found, report)), width, "bold cyan")
    if len(report.streams) > 1:
        for row in report.streams:
            name = f"device {_number(row.device)}, stream {_number(row.stream)}"
            share = "no layout kernel" if not row.layout.count else f"{_share(row.layout)} of it in layout kernels"
            text = f"{name}: {numbers.count(row.kernels, 'kernel')} in {numbers.duration(row.busy_ns)}, {share}"
            yield Text(shorten(" " * len(_LABEL) + text, width))


def table(report: Report, width: int) -> Iterator[Text]:
    """List the kernels of the whole recording, equal ones in one row: what they take, why, and who launched them."""
    if not report.kernels:
        yield Text("No kernel of a device was recorded.")
        return
    layout = [row for row in report.kernels if row.cause]
    kinds = numbers.count(len(report.kernels), "kind")
    first = f"; the first {len(layout)} change layout only, or may" if layout else ""
    yield from hang("", Text(f"{kinds} of kernels in the whole recording{first}", "bold"), width)
    rows = [*layout, *(row for row in report.kernels if not row.cause)]
    for row in rows[:_MOST]:
        yield from _row(row, width)
    if len(rows) > _MOST:
        yield Text(f"… {numbers.count(len(rows) - _MOST, 'more kind')}: all of them in --format json")


def plain_name(name: str) -> str:
    """A kernel's name without what stands in all of them."""
    return one_line(_NOISE.sub("", name))


def _row(row: Kernel, width: int) -> Iterator[Text]:
    share = numbers.share(row.share) if row.share is not None else ""
    figures = f"{row.count:>6}× {numbers.duration(row.duration_ns):>8} {share:>8}  {column(_SHORT[row.cause], 9)}  "
    yield Text.assemble((figures, "bold" if row.cause else ""), shorten(plain_name(row.name), width - len(figures)))
    place = [one_line(row.op)] if row.op else ["no operator was recorded for it"]
    place += [one_line(row.site.where)] if row.site and row.site.where != "unknown place" else []
    place += [f"under `{one_line(row.range)}`"] if row.range else []
    yield Text(shorten(" " * 9 + ", ".join(place), width), "dim")


def _sentence(found: LayoutKernels, report: Report) -> str:
    parts = []
    if found.count:
        causes = ", ".join(numbers.count(time.count, *_CAUSES[cause]) for cause, time in _causes(found))
        of_step = f" and {numbers.share(found.share_of_step)} of its time" if found.share_of_step is not None else ""
        whole = f"{period(report)}'s {found.share_of}"
        share = f", {numbers.share(found.share)} of {whole}" if found.share is not None else ""
        parts.append(
            f"{numbers.figure(found.count)} only change layout ({causes}): {numbers.duration(found.duration_ns)}"
            f"{share}{of_step}."
        )
    if found.possible.count:
        more = numbers.count(found.possible.count, "more" if found.count else "kernel", "more" if found.count else None)
        parts.append(
            f"{more} may do no more than that, which the trace does not tell:"
            f" {numbers.duration(found.possible.duration_ns)}, {_share(found.possible)}."
        )
    return " ".join(parts)


def _causes(found: LayoutKernels) -> list[tuple[Cause, KernelTime]]:
    return sorted(found.by_cause.items(), key=lambda item: -item[1].duration_ns)  # type: ignore[arg-type]


def _share(time: KernelTime) -> str:
    return numbers.share(time.share) if time.share is not None else "an unknown share"


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)
