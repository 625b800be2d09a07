"""The text of a guard for an exported program, and the guard itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from stridewise.checks.artefacts import guarded
from stridewise.checks.artefacts.facts import Input
from stridewise.errors import UsageError
from stridewise.results.artefacts import Artefact

Mode = Literal["convert", "raise"]
MadeFor = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
_SCOPE: dict[str, Any] = {"__name__": "stridewise_guard"}


def guard_artefact(
    program: Callable[..., Any], made_for: Artefact | str, *, mode: Mode = "convert"
) -> Callable[..., Any]:
    """See `stridewise.api.guard_artefact`."""
    if mode not in ("convert", "raise"):
        raise UsageError(f"A mode of {mode!r} was given.", expected='Expected: "convert" or "raise".')
    text = made_for if isinstance(made_for, str) else made_for.guard
    if text is None:
        return program  # every layout was right
    scope = dict(_SCOPE)
    exec(compile(text, "<guard>", "exec"), scope)
    call = program.module() if hasattr(program, "module") and hasattr(program, "graph_signature") else program
    guard: Callable[..., Any] = scope["guard"](call, mode)
    return guard


def text_of(inputs: Collection[Input], written: Collection[str], name: str, parameters: Sequence[str] = ()) -> str:
    """A module that guards the program of these inputs; `parameters` are the names of its positional arguments."""
    table = "".join(f"    {one.path!r}: ({one.sizes}, {one.strides}),{_comment(one)}\n" for one in inputs)
    changed = tuple(one.path for one in inputs if one.name in written)
    known = f", {changed!r}" if changed or parameters else ""
    known += f", {tuple(parameters)!r}" if parameters else ""
    source = re.sub(r"\n# This file is also.*\n", "", inspect.getsource(guarded))
    return f'''{source}

MADE_FOR = {{
{table}}}
"""Sizes and strides, in elements, that {name} was made for."""


def guard(program: Any, mode: str = "convert") -> Any:
    """The program, with its inputs laid out as it was made for; with "raise", others are refused.

    Others are copied: a view of an input that it returns shares memory with the copy, not with the argument.
    """
    return guarded(program, MADE_FOR, mode{known})
'''


def _comment(one: Input) -> str:
    return "" if one.name == one.path else f"  # {one.name}"
