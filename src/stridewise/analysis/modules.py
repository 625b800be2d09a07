"""Per module, what layouts go in and what comes out: the article's hook done right."""

from collections import Counter

from stridewise.analysis.case import Case
from stridewise.layout import classes, name
from stridewise.recording.model import ModuleCallRow
from stridewise.results import ModuleRow


def module_rows(case: Case) -> tuple[ModuleRow, ...]:
    """One row a module, in order of first execution."""
    log = case.log
    calls = Counter(call.module for call in log.module_calls)
    rows: list[ModuleRow] = []
    seen: set[int] = set()
    first_change_found = False
    children = {call.parent for call in log.module_calls}
    for position, call in enumerate(log.module_calls):
        if call.module in seen:
            continue
        seen.add(call.module)
        path, kind = log.modules[call.module]
        changed = _changes(case, call)
        # a module that contains others is not to blame for what they do
        first = changed and not first_change_found and position not in children
        first_change_found |= first
        rows.append(
            ModuleRow(
                module=path or kind,
                type=kind,
                calls=calls[call.module],
                depth=path.count(".") + 1 if path else 0,
                inputs=_describe(case, call.inputs),
                outputs=_describe(case, call.outputs),
                changed=changed,
                first_change=first,
            )
        )
    return tuple(rows)


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
