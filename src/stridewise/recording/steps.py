"""Where one step of the program ends and the next begins."""

from collections import Counter
from collections.abc import Sequence

from stridewise.recording.model import BEGIN_MARK, MODULE_MARK, OPTIMIZER_MARK, STEP_MARK, CallLog, Op, Step

Found = tuple[list[Step], bool, list[str]]


def find_steps(
    ops: Sequence[Op], log: CallLog | None, profiler_steps: Sequence[tuple[int, int]], start_ns: int, end_ns: int
) -> Found:
    """The steps of a recording, whether they were found, and what a reader should know of that.

    What the program said by `step()` counts first. Then a step runs from the end of one `step()` of the first
    optimizer seen to the end of the next, and without an optimizer from one outermost call of the root module that
    is called most to its next. Traces recorded elsewhere have `ProfilerStep#` annotations. Failing all of these,
    the whole recording is one step.
    """
    end_ns = max(end_ns, start_ns + 1)
    for steps in (
        _between(_marks(ops, STEP_MARK), _begin(ops)),
        _optimizer_steps(ops),
        _profiler_steps(profiler_steps),
        _root_module_steps(ops, log, end_ns),
    ):
        if steps:
            return _recorded(steps, log), True, []
    note = "Nothing in the recording tells steps apart: all of it counts as one step."
    return [Step(start_ns, end_ns)], False, [note]


def _marks(ops: Sequence[Op], name: str) -> list[int]:
    return sorted(op.start_ns for op in ops if op.name == name)


def _begin(ops: Sequence[Op]) -> list[int]:
    return _marks(ops, BEGIN_MARK)[:1]


def _between(ends: list[int], begin: list[int]) -> list[Step]:
    edges = begin + ends
    return [Step(start, end) for start, end in zip(edges, edges[1:], strict=False) if end > start]


def _optimizer_steps(ops: Sequence[Op]) -> list[Step]:
    marks = sorted((op.start_ns, op.name) for op in ops if op.name.startswith(OPTIMIZER_MARK))
    if not marks:
        return []
    first = marks[0][1]
    return _between([start for start, name in marks if name == first], _begin(ops))


def _profiler_steps(annotations: Sequence[tuple[int, int]]) -> list[Step]:
    return [Step(start, end) for start, end in sorted(annotations) if end > start]


def _root_module_steps(ops: Sequence[Op], log: CallLog | None, end_ns: int) -> list[Step]:
    if log is None:
        return []
    roots = [
        (op.start_ns, log.module_calls[op.module_call].module)
        for op in ops
        if op.name.startswith(MODULE_MARK)
        and op.module_call >= 0
        and op.node < 0
        and log.module_calls[op.module_call].parent < 0
    ]
    if not roots:
        return []
    module, _ = Counter(module for _, module in sorted(roots)).most_common(1)[0]
    starts = sorted(start for start, called in roots if called == module)
    return _between([*starts[1:], end_ns], starts[:1])


def _recorded(steps: list[Step], log: CallLog | None) -> list[Step]:
    """Without the steps that only warm the program up, unless there are no others."""
    if log is None:
        return steps
    kept = steps[log.warmup :] or steps[-1:]
    return kept[: log.limit] if log.limit else kept
