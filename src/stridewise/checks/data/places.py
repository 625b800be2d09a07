"""Where the program makes samples and batches."""

from __future__ import annotations

import functools
import inspect
import linecache
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

from stridewise.checks.words import call_site, object_site
from stridewise.findings import Site
from stridewise.recorder.frames import is_foreign_to_program
from stridewise.recording.filenames import public_place


def sample_site(dataset: Any, path: str = "") -> Site:
    """The `__getitem__` or `__iter__` of the data set that gives a field; of torch's wrappers, what they wrap."""
    dataset = _innermost(dataset, path)
    kind = type(dataset)
    for name in ("__getitem__", "__iter__"):
        code = _code(getattr(kind, name, None))
        if code is not None and not is_foreign_to_program(code.co_filename):
            return _site(code)
    return object_site(f"data set `{kind.__qualname__}`")


def collate_site(collate: Callable[..., Any], dataset: Any, path: str = "") -> Site:
    """The collate of the program; where it is torch's, what makes the samples."""
    while isinstance(collate, functools.partial):
        collate = collate.func
    code = _code(collate) or _code(vars(type(collate)).get("__call__"))
    if code is not None and not is_foreign_to_program(code.co_filename):
        return _site(code)
    return sample_site(dataset, path)


def raising_site(error: BaseException) -> Site | None:
    """The innermost expression of the program that an error came through."""
    step: TracebackType | None = error.__traceback__
    found = None
    while step is not None:
        if not is_foreign_to_program(step.tb_frame.f_code.co_filename):
            found = step
        step = step.tb_next
    # The frame may have gone on since: only its place in the traceback tells the line.
    if found is None:
        return None
    site = call_site(found.tb_frame)
    return site if site.line == found.tb_lineno else _line_site(found)


def _line_site(step: TracebackType) -> Site:
    code = step.tb_frame.f_code
    text = linecache.getline(code.co_filename, step.tb_lineno).strip()
    file, line = public_place(code.co_filename, step.tb_lineno)
    return Site(file=file, line=line, function=code.co_qualname, expression=text or None, text=text or None)


def _innermost(dataset: Any, path: str) -> Any:
    """What a Subset, ConcatDataset or StackDataset reads from; of several the one with the field, or the first."""
    for _ in range(10):
        if not type(dataset).__module__.startswith("torch."):
            break
        inner = getattr(dataset, "dataset", None)
        several = getattr(dataset, "datasets", None)
        if inner is None and isinstance(several, dict):
            key = path.partition(".")[0].partition("[")[0]
            inner = several.get(key, next(iter(several.values()), None))
        elif inner is None and isinstance(several, (list, tuple)) and several:
            inner = several[_position(path, len(several))] if "Stack" in type(dataset).__name__ else several[0]
        if inner is None:
            break
        dataset = inner
    return dataset


def _position(path: str, count: int) -> int:
    digits = path.removeprefix("[").partition("]")[0]
    return min(int(digits), count - 1) if path.startswith("[") and digits.isdecimal() else 0


def _code(function: Any) -> CodeType | None:
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _site(code: CodeType) -> Site:
    text = linecache.getline(code.co_filename, code.co_firstlineno).strip() or None
    file, line = public_place(code.co_filename, code.co_firstlineno)
    return Site(file=file, line=line, function=code.co_qualname, expression=code.co_qualname, text=text)
