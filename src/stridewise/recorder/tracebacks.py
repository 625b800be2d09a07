"""Show a program's uncaught exception as Python would have shown it without a recorder in between. No torch."""

import dis
import functools
import os
import sys
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MODULE = os.path.join("torch", "nn", "modules", "module.py")
_OVERRIDES = os.path.join("torch", "overrides.py")


def show(error: BaseException) -> int:
    """Hand an exception to `sys.excepthook`, as the interpreter does at the end; gives the exit code."""
    clean(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    hook = sys.excepthook
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit as leave:
        return exit_code(leave)
    except BaseException as failure:
        failure.__traceback__ = without_recorder(failure.__traceback__)
        failure.__context__ = None
        sys.stderr.write("Error in sys.excepthook:\n")
        traceback.print_exception(failure)
        sys.stderr.write("\nOriginal exception was:\n")
        traceback.print_exception(error)
    sys.stderr.flush()
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def clean(error: BaseException) -> None:
    """Give an exception, and all that led to it, the tracebacks of a run without recording."""
    for each in _chain(error):
        each.__traceback__ = without_recorder(each.__traceback__)


def exit_code(leave: SystemExit) -> int:
    """The exit code that a SystemExit means; one that is no number is written to stderr, as Python does."""
    if leave.code is None:
        return 0
    if isinstance(leave.code, int):
        return int(leave.code)
    sys.stderr.write(f"{leave.code}\n")
    sys.stderr.flush()
    return 1


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, its causes and contexts, and those in its groups."""
    todo, seen = [error], set()
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        todo += [linked for linked in (each.__cause__, each.__context__) if linked is not None]
        if isinstance(each, BaseExceptionGroup):
            todo += each.exceptions


def without_recorder(trace: TracebackType | None) -> TracebackType | None:
    """The traceback of the same exception in a run without recording.

    Our own frames go, and with them what torch does only because a function mode is on (a function hands itself to
    the mode, which calls it again) or because there are module hooks (`Module.__call__` takes its long way).
    """
    kept: list[tuple[FrameType, int, int]] = []
    entry = trace
    while entry is not None:
        frame, code = entry.tb_frame, entry.tb_frame.f_code
        if code.co_filename.startswith(_OURS):
            if kept and _is(kept[-1][0].f_code, "handle_torch_function", _OVERRIDES):
                del kept[-2:]
        elif kept or not code.co_filename.startswith("<frozen importlib"):
            if kept and _is(code, "inner", _MODULE) and (short := _without_hooks(kept[-1][0])) is not None:
                kept[-1] = (kept[-1][0], *short)
            else:
                kept.append((frame, entry.tb_lasti, entry.tb_lineno))
        entry = entry.tb_next
    rebuilt = None
    for frame, instruction, line in reversed(kept):
        rebuilt = TracebackType(rebuilt, frame, instruction, line)
    return rebuilt


def _is(code: CodeType, name: str, file: str) -> bool:
    return code.co_name == name and code.co_filename.endswith(file)


def _without_hooks(frame: FrameType) -> tuple[int, int] | None:
    """Where `Module._call_impl` calls forward if there are no hooks; None if the program has some of its own."""
    module = frame.f_locals.get("self")
    names = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
    if any(getattr(module, name, None) or frame.f_globals.get(f"_global{name}") for name in names):
        return None
    return _short_way(frame.f_code)


@functools.cache
def _short_way(code: CodeType) -> tuple[int, int] | None:
    """Offset and line of `return forward_call(*args, **kwargs)`: the first call of that in `Module._call_impl`."""
    function = None
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith("LOAD_"):
            function = instruction.argval if instruction.argval == "forward_call" else function
        elif instruction.opname == "CALL_FUNCTION_EX":
            line = instruction.positions.lineno if instruction.positions is not None else None
            return (instruction.offset, line) if function == "forward_call" and line is not None else None
    return None
