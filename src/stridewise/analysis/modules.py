"""Per module, what layouts go in and what comes out: the article's hook done right."""

from stridewise.analysis.case import Case
from stridewise.analysis.copies import step_of
from stridewise.layout import classes, name
from stridewise.recording.model import MODULE_MARK, ModuleCallRow
from stridewise.results import ModuleRow


def module_rows(case: Case) -> tuple[ModuleRow, ...]:
    """One row a module, in order of first execution."""
    log = case.log
    rows: list[ModuleRow] = []
    first_change_found = False
    children = {call.parent for call in log.module_calls}
    for position, calls in _in_first_step(case):
        call = log.module_calls[position]
        path, kind = log.modules[call.module]
        changed = _changes(case, call)
        # a module that contains others is not to blame for what they do
        first = changed and not first_change_found and position not in children
        first_change_found |= first
        rows.append(
            ModuleRow(
                module=path or kind,
                type=kind,
                calls=calls,
                depth=path.count(".") + 1 if path else 0,
                inputs=_describe(case, call.inputs),
                outputs=_describe(case, call.outputs),
                changed=changed,
                first_change=first,
            )
        )
    return tuple(rows)


def _in_first_step(case: Case) -> list[tuple[int, int]]:
    """Of each module, the first call in the first step in which it ran, and how many there are in that step.

    A module that ran in no step is shown by what was recorded outside of them: warm-up, or an evaluation.
    """
    log, trace = case.log, case.trace
    starts = [step.start_ns for step in trace.steps]
    began = {trace.ops.module_call[index]: trace.ops.start_ns[index] for index in trace.ops.starting(MODULE_MARK)}
    calls: dict[int, list[tuple[int, int]]] = {}
    for position, call in enumerate(log.module_calls):
        step = step_of(trace, starts, began.get(position))
        calls.setdefault(call.module, []).append((len(starts) if step is None else step, position))
    chosen = []
    for of_module in calls.values():
        step = min(of_module)[0]
        inside = [position for other, position in of_module if other == step]
        chosen.append((step, inside[0], len(inside)))
    return [(position, count) for _, position, count in sorted(chosen)]


def _describe(case: Case, tensors: list[tuple[str, int]]) -> tuple[str, ...]:
    words = []
    for path, ref in tensors:
        row = case.flow.row(ref)
        shape = "x".join(map(str, row.sizes)) or "scalar" if row is not None else ""
        label = f"{path}: " if path not in ("", "0") or len(tensors) > 1 else ""
        words.append(f"{label}{name(row.layout)} {shape}" if row is not None else f"{label}unknown layout")
    return tuple(words)


def _changes(case: Case, call: ModuleCallRow) -> bool:
    """The first output is in no layout class that the first input was in."""
    before = next(
        (row for _, ref in call.inputs if (row := case.flow.row(ref)) is not None and len(row.sizes) > 1), None
    )
    after = next(
        (row for _, ref in call.outputs if (row := case.flow.row(ref)) is not None and len(row.sizes) > 1), None
    )
    return before is not None and after is not None and not set(classes(before.layout)) & set(classes(after.layout))
