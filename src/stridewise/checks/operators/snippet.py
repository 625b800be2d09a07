"""The smallest layout that shows a fault, as a program to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from stridewise.checks.operators import load
from stridewise.checks.operators.case import Described, Outcome
from stridewise.checks.operators.group import in_words
from stridewise.checks.operators.program import FAKE, Program, Values
from stridewise.errors import UsageError
from stridewise.results.checks import Snippet
from stridewise.source.target import split_target

if TYPE_CHECKING:
    from stridewise.checks.operators.operands import Bound
    from stridewise.checks.operators.sandbox import Executed

_MOST_TRIES = 12
_STYLES: tuple[Values, ...] = ("counted", "drawn", "sample")
_ONCE = "# It was seen once, and not again: whether it shows may change from run to run."
_UNSEEN = "# Tried once more it did not show: it may depend on values, or on what else is in memory."


def snippet(
    finding: str,
    outcome: Outcome,
    described: Described,
    bound: Bound,
    target: str | None,
    *,
    again: bool,
    execute: Callable[[str], Executed | None] | None = None,
) -> Snippet:
    """The program for an outcome: of those that may show it, the simplest that does, as `execute` tells.

    `again` is whether it was seen more than once.
    """
    start = imports(bound, target)
    programs = ((_text(start, lines), lines) for lines in _candidates(outcome, described, bound))
    tried = list(islice(programs, _MOST_TRIES))
    shows: str | None = None
    if execute is not None and again and outcome.status != "hung":
        shows = next((code for code, lines in tried if _shows(outcome, execute, code, lines)), None)
    notes = [] if again else [_ONCE]
    if shows is None and execute is not None and again and outcome.status != "hung":
        notes.append(_UNSEEN)
    code = shows or tried[0][0]
    return Snippet(finding, in_words(outcome), "".join(f"{note}\n" for note in notes) + code)


def shows(made: Snippet) -> bool:
    """Whether its program was run, and showed the fault."""
    return not made.code.startswith((_ONCE, _UNSEEN))


def imports(bound: Bound, target: str | None) -> list[str]:
    """The lines that import torch, and the operator as `op`."""
    known = _of_torch(bound.fn)
    if known is not None:
        return ["import torch", "", f"op = {known}"]
    parts = None if target is None else split_target(target)
    if target is None or parts is None:
        return ["import torch", "", "# op = …  has to be defined here: it is in no module that could be imported"]
    place, name = parts
    try:
        first, expression = load.in_source(target)
    except (UsageError, ImportError, AttributeError):  # it is not for this process to import
        first, expression = name.partition(".")[0], name + _made(bound)
    return imports_as("op", place, first, expression)


def imports_as(variable: str, place: str, first: str, expression: str) -> list[str]:
    """The lines that import torch, and `first` from a place, of which an expression is assigned to a variable."""
    folder, module = _where(place)
    renamed = f"import {first}" if expression != first else f"import {first} as {variable}"
    lines = [f"from {module} {renamed}"]
    if expression != first:
        lines += ["", f"{variable} = {expression}"]
    if folder is None:
        return ["import torch", *lines]
    return ["import sys", "", "import torch", "", f"sys.path.insert(0, {folder!r})", *lines]


def _made(bound: Bound) -> str:
    """What makes the operator of a class that a target names."""
    import torch

    if isinstance(bound.fn, type) and issubclass(bound.fn, torch.autograd.Function):
        return ".apply"
    return "" if bound.module is None or bound.fn is not bound.module else "()"


def _of_torch(fn: object) -> str | None:
    """How torch calls an operator of its own."""
    import torch

    if isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{fn}" if str(fn).startswith(("aten.", "prims.")) else None
    name = getattr(fn, "__name__", None)
    if isinstance(name, str) and getattr(torch, name, None) is fn:
        return f"torch.{name}"
    return f"torch.Tensor.{name}" if isinstance(name, str) and getattr(torch.Tensor, name, None) is fn else None


def _where(place: str) -> tuple[str | None, str]:
    """The folder that an interpreter does not look into by itself, if any, and the module's name there."""
    if not place.endswith(".py"):
        import sys

        if PathFinder.find_spec(place.partition(".")[0]) is not None:
            return None, place
        file = getattr(sys.modules.get(place), "__file__", None)
        if file is None or Path(file).stem != place.rpartition(".")[2]:
            return None, place
        place = file
    path = Path(place).absolute()
    folder = path.parent
    here = Path.cwd()
    return (str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder)), path.stem


def _text(start: list[str], lines: list[str]) -> str:
    after = start.index("import torch") + 1
    needed = [FAKE] if FAKE in lines else []
    return "\n".join((*start[:after], *needed, *start[after:], "", *(line for line in lines if line != FAKE))) + "\n"


def _candidates(outcome: Outcome, described: Described, bound: Bound) -> Iterator[list[str]]:
    """Programs that may show it, the simplest first."""
    return chain.from_iterable(Program(outcome, described, bound, style).candidates() for style in _STYLES)


def _shows(outcome: Outcome, execute: Callable[[str], Executed | None], code: str, lines: list[str]) -> bool:
    """Whether a program ends as one that shows an outcome does."""
    executed = execute(code)
    if executed is not None and executed.error in ("ImportError", "ModuleNotFoundError"):
        executed = execute(_text(["import torch"], lines))  # where it runs `op` is known
    if executed is None:
        return False
    if outcome.status == "raised":
        kind = (outcome.message or "").partition(":")[0]
        return executed.how == "raised" and executed.error == kind
    if outcome.status == "crashed":
        return executed.how == "crashed"
    return executed.how == "raised" and executed.error == "AssertionError"
