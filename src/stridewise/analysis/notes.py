"""What a reader must know of a recording: what it lacks, and what its figures are of."""

from collections import Counter
from collections.abc import Iterator, Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.copies import TracedCopy
from stridewise.analysis.kernel_names import implementation
from stridewise.analysis.kernels import KERNEL
from stridewise.recording.build import LOG_LOST
from stridewise.recording.model import COMPILED
from stridewise.recording.trace import Trace
from stridewise.results import numbers

_ALIGNED = 16
"""Bytes that tensor cores are fed in one piece, if rows begin at multiples of them."""
_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "tf32": 4}
_WORTH_A_NOTE = 0.05
_WORKERS = "enumerate(DataLoader)#_MultiProcessing"
"""How torch's annotations of batches begin that come from other processes."""

NOTHING_RAN = "Nothing was recorded: no operator ran."
INSIDE_COMPILED = "what generated code does inside is not looked into."
"""Which is not so where the compiler is watched too."""


def notes(case: Case) -> tuple[str, ...]:
    """The notes of a report, those that came with the recording first."""
    return (*case.trace.notes, *_on_what_it_lacks(case), *_on_its_figures(case))


def _on_what_it_lacks(case: Case) -> Iterator[str]:
    trace = case.trace
    if case.blind and trace.format == "profiler":
        are = "was" if case.blind == 1 else "were"
        yield (
            f"{_of(case.blind, case.copying)} {are} recorded without strides, so whether a layout is changed there"
            " is unknown: record with `record_shapes=True` (torch 2.4 or later), or with `stridewise run`."
        )
    if case.is_empty and not trace.device_events:
        yield NOTHING_RAN
    compiled = sum(case.function(call) == COMPILED for call in range(len(case.log.calls)))
    if compiled:
        yield f"{numbers.count(compiled, 'call')} of compiled regions: {INSIDE_COMPILED}"
    scripted = sum(case.scripted(call) is not None for call in range(len(case.log.calls)))
    if scripted:
        calls = numbers.count(scripted, "call")
        yield f"{calls} of TorchScript: what runs inside has no lines, so its copies stand at the call."
    if any(name.startswith(_WORKERS) for name in trace.ranges.names):
        yield "A DataLoader had workers: what they copy is not in the recording. With `num_workers=0` it is."
    if "library" in case.unseen:
        yield "Convolutions ran in oneDNN, whose own copies no profiler sees: `stridewise run --library-copies` does."
    knows_no_lines = trace.log is None and LOG_LOST not in trace.notes and trace.format == "profiler"
    if knows_no_lines and case.copies and len(trace.ops):
        yield (
            "This trace names functions, by the line on which each begins: `stridewise run` records expressions."
            if len(trace.frames)
            else "This trace names no source lines: record it `with_stack=True`, or with `stridewise run`."
        )


def _on_its_figures(case: Case) -> Iterator[str]:
    trace = case.trace
    threads = len({trace.ops.thread[copy.op] for copy in case.copies if copy.op >= 0 and not copy.on_device})
    if threads > 1:
        yield f"Copies ran on {threads} threads: their times add up, so that shares of step time can exceed 100 %."
    yield from _behind_the_steps(case)
    yield from _unknown_sizes(case.copies)
    yield from _unaligned_products(trace)
    early = sum(event.launched_ns is None and event.category == KERNEL for event in trace.device_events)
    if early:
        were, of = ("kernel was", "it is") if early == 1 else ("kernels were", "they are")
        yield f"{early:,} {were} launched before the recording, or by calls that it lacks: {of} of no step."
    unsized = sum(copy.bytes_moved is None and copy.sizes is not None for copy in case.copies)
    if unsized:
        are, their = ("copy is", "its") if unsized == 1 else ("copies are", "their")
        yield f"{unsized:,} {are} of a dtype whose size is not known: {their} bytes are not counted."


def _behind_the_steps(case: Case) -> Iterator[str]:
    """What came after the last mark: of the program's end, or of a step that nothing ended."""
    ended_ns = max((step.end_ns for step in case.trace.steps), default=None)
    if ended_ns is None:
        return
    late = sum(
        reason is None and copy.op >= 0 and case.trace.ops.start_ns[copy.op] >= ended_ns
        for copy, reason in zip(case.copies, case.reasons, strict=True)
    )
    if late:
        they = "it is" if late == 1 else "they are"
        yield (
            f"{numbers.count(late, 'layout copy', 'layout copies')} came after the last step, so {they} in no figure:"
            " where that was a step, end it with `stridewise.step()`."
        )


def _unaligned_products(trace: Trace) -> Iterator[str]:
    """Products on kernels for rows that are not aligned: `--paths` says which, nothing else does."""
    times: Counter[str] = Counter()
    for event in trace.device_events:
        if event.category == KERNEL:
            times[event.name] += event.duration_ns
    slow = 0
    for kernel, duration_ns in times.items():
        known = implementation(kernel)
        if known is not None and known.alignment is not None and known.dtype in _BYTES:
            slow += duration_ns if known.alignment * _BYTES[known.dtype] < _ALIGNED else 0
    share = slow / (sum(times.values()) or 1)
    if share >= _WORTH_A_NOTE:
        yield (
            f"{100 * share:.0f} % of the time of kernels went into products whose rows do not begin at multiples of"
            f" {_ALIGNED} bytes, for which there are slower kernels: --paths says which."
        )


def _unknown_sizes(copies: Sequence[TracedCopy]) -> Iterator[str]:
    """A kernel's name tells that a library converted a tensor, and not which."""
    found = Counter((copy.library or "").split(" ")[0] for copy in copies if copy.sizes is None)
    for vendor, count in sorted(found.items()):
        are, their = ("is of a tensor", "its") if count == 1 else ("are of tensors", "their")
        yield (
            f"{numbers.count(count, 'conversion')} inside {vendor}, in the whole recording, {are} that no trace names:"
            f" {their} bytes are not counted."
        )


def _of(some: int, whole: int) -> str:
    """How many copying operators of how many: all of them, or the only one."""
    if some < whole:
        return f"{some:,} of {numbers.count(whole, 'copying operator')}"
    return "The only copying operator" if whole == 1 else f"All {numbers.count(whole, 'copying operator')}"
