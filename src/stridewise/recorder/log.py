"""The call log as it is written, from the tables that were filled while the program ran. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stridewise.recorder.sources import Sources
from stridewise.recording.model import AutocastRow, CallLog, CallRow, LayoutRow, ModuleCallRow, SiteRow, TensorRef
from stridewise.results import numbers

if TYPE_CHECKING:
    from stridewise.recorder.autocast import AutocastRecorder
    from stridewise.recorder.calls import CallRecorder
    from stridewise.recorder.modules import ModuleRecorder

_UNKNOWN = (-1, -1, -1, -1)


def build_log(
    calls: CallRecorder, modules: ModuleRecorder, names: dict[int, str], regions: AutocastRecorder | None = None
) -> CallLog:
    """Rows that refer to each other by position, in the order in which the calls began.

    Threads of the program may still be writing: a row is copied before the tables that it refers to.
    """
    call_rows = sorted(calls.calls)
    module_rows = sorted(modules.calls)
    module_calls = {row[0]: position for position, row in enumerate(module_rows)}

    tensor_rows = dict(calls.tensors.rows)
    refs = [tensor_rows.get(number, _UNKNOWN) for number in range(max(tensor_rows, default=-1) + 1)]
    layouts = sorted(calls.tensors.layouts.copy().items(), key=lambda entry: entry[1])
    layout_positions = {number: position for position, (_, number) in enumerate(layouts)}
    sources = Sources()
    log = CallLog(
        sites=[_cleaned(sources.site(code, at)) for code, at in list(calls.frames.site_codes)],
        functions=[_clean(name) for name in list(calls.function_names)],
        modules=[(_clean(path), _clean(kind)) for path, kind in modules.paths()],
        layouts=[
            LayoutRow(tuple(sizes), strides, offset, str(dtype).removeprefix("torch."), str(device))
            for (sizes, strides, offset, dtype, device), _ in layouts
        ],
        refs=[
            TensorRef(thing, layout_positions.get(layout, -1), storage, version)
            for thing, layout, storage, version in refs
        ],
        names={number: _clean(name) for number, name in names.items()},
        calls=[
            CallRow(number, site, via, function, module_calls.get(module, -1), list(inputs), list(outputs), autocast)
            for number, site, via, function, module, inputs, outputs, autocast in call_rows
        ],
        module_calls=[
            ModuleCallRow(number, module, module_calls.get(parent, -1), _clean_paths(inputs), _clean_paths(outputs))
            for number, module, parent, inputs, outputs in module_rows
        ],
        autocast=[AutocastRow(*row) for row in list(regions.rows)] if regions is not None and regions.watched else None,
        library_ranges=list(calls.library_ranges),
        weightless=sorted(modules.weightless),
        of_torch=sorted(modules.of_torch),
    )
    if not sources.exact:
        log.notes.append("Python runs without column positions (-X no_debug_ranges): sites are whole lines.")
    if calls.failures:
        failed = numbers.count(calls.failures, "call")
        log.notes.append(f"{failed} could not be logged, the first for: {_clean(calls.failure or '')}.")
    return log


def _clean(text: str) -> str:
    """Without lone surrogates, which stand for bytes of file names and can't be written as UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _clean_paths(tensors: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
    return [(_clean(path), ref) for path, ref in tensors]


def _cleaned(row: SiteRow) -> SiteRow:
    return SiteRow(
        file=_clean(row.file),
        function=_clean(row.function),
        line=row.line,
        end_line=row.end_line,
        column=row.column,
        end_column=row.end_column,
        expression=None if row.expression is None else _clean(row.expression),
        text=None if row.text is None else _clean(row.text),
    )
