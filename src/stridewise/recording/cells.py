"""Which cell of a notebook, or of IPython in a terminal, code comes from, and where in it that stands."""

import ast
import linecache
import os
import re
import sys
from collections.abc import Iterator, Sequence
from types import CodeType
from typing import Any

from msgspec import Struct

_LABEL = re.compile(r"\w+ ?\[(\d+)\]")


class Cell(Struct, frozen=True):
    """Code that IPython ran, as its reader knows it."""

    name: str
    """`In [3]`; a name such as `<ipython-input-3-…>` for code of which no cell is known that holds it."""
    lines: tuple[int, ...] | None = None
    """For each line of the code its line in the cell, which holds more: the lines of cell magics, blank ones above."""

    def line(self, number: int) -> int:
        """The line of the cell that a line of the code is, both counted from 1."""
        return self.lines[number - 1] if self.lines is not None and 0 < number <= len(self.lines) else number

    def place(self, number: int | None) -> tuple[str, int | None]:
        """Its name, and the line of it that a line of the code is."""
        return self.name, None if number is None else self.line(number)

    def placed(self, code: list[str]) -> list[str]:
        """Lines of the code, each where it stands in the cell."""
        if self.lines is None:
            return code
        placed = ["\n"] * self.line(len(self.lines))
        for number, line in enumerate(code[: len(self.lines)], 1):
            placed[self.line(number) - 1] = line
        return placed


def cell_of(filename: str) -> Cell | None:
    """The cell whose code has this file name; None if IPython did not give it.

    ipykernel names files in a temporary folder that it never writes, IPython in a terminal `<ipython-input-3-…>`.
    """
    shell = _shell()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    if name_of is None:
        return None
    for name in (filename, os.path.basename(filename)):  # `<ipython-input-3-…>` may have been made absolute
        if (found := name_of(name)) is not None:
            number = _LABEL.fullmatch(str(found[1]))
            cell = _in_history(shell, name, int(number[1])) if number is not None else None
            return cell or Cell(_own_name(name))
    return None


def timed(code: CodeType) -> tuple[Cell, list[str]] | None:
    """The cell below whose `%%time` code stands, with the lines that it was compiled from; None if none is known.

    IPython names such code `<timed exec>`, wherever it stands, and keeps no source of it.
    """
    shell = _shell() if code.co_filename.startswith("<timed ") else None
    raws, parsed = _history(shell)
    for at in reversed(range(len(raws))):
        if "run_cell_magic('time'" not in parsed[at]:
            continue
        number = at + getattr(shell, "execution_count", 0) - len(raws)
        if getattr(shell, "user_ns", {}).get(f"_i{number}") != raws[at]:
            continue
        for depth, (text, lines) in enumerate(_codes(shell, raws[at].splitlines(), parsed[at], 0)):
            if depth and _holds("\n".join(text), code, getattr(getattr(shell, "compile", None), "flags", 0)):
                return Cell(f"In [{number}]", lines), [f"{line}\n" for line in text]
    return None


def _shell() -> Any:
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def _history(shell: Any) -> tuple[Sequence[str], Sequence[str]]:
    """The cells that ran, as they were written and as Python, from the first on. `%reset` empties both."""
    history = getattr(shell, "history_manager", None)
    raws, parsed = getattr(history, "input_hist_raw", ()), getattr(history, "input_hist_parsed", ())
    return (raws, parsed) if len(raws) == len(parsed) else ((), ())


def _holds(text: str, code: CodeType, flags: int) -> bool:
    """Whether `%%time` makes that very code of a text: of its last expression apart from what is before it."""
    try:
        body = ast.parse(text).body
        parts: list[ast.Module | ast.Expression] = [ast.Module(body, [])]
        if body and isinstance(body[-1], ast.Expr):
            parts = [ast.Module(body[:-1], []), ast.Expression(body[-1].value)]
        codes = [
            compile(part, "", "eval" if isinstance(part, ast.Expression) else "exec", flags, dont_inherit=True)
            for part in parts
        ]
    except (SyntaxError, ValueError, RecursionError):
        return False
    for known in codes:
        if known == code:
            return True
        codes += [value for value in known.co_consts if isinstance(value, CodeType)]
    return False


def _own_name(filename: str) -> str:
    if filename.startswith("<"):
        return filename
    return f"<ipython-input-{os.path.splitext(os.path.basename(filename))[0]}>"


def _in_history(shell: Any, filename: str, number: int) -> Cell | None:
    """The cell that was run as such, or that has a cell magic which ran the code, as `%%capture` does.

    IPython gives code that a cell runs the number of the next cell.
    """
    code = [line.rstrip("\n") for line in linecache.getlines(filename)]
    raws, parsed = _history(shell)
    count = len(raws) if code else 0
    # Where cells are counted; but `%reset` empties the history, and a cell `exit` is not in it.
    likely = [at for at in (number, number - 1) if 0 < at < count]
    for at in dict.fromkeys([*likely, *reversed(range(count))]):
        for depth, (text, lines) in enumerate(_codes(shell, raws[at].splitlines(), parsed[at], 0)):
            if _trimmed(text) == _trimmed(code):
                return Cell(f"In [{number - bool(depth)}]", lines)
    return None


def _codes(shell: Any, raw: list[str], parsed: str, above: int) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Each code that IPython makes of a text: all of it, and what its cell magics run; with the lines in the cell."""
    code = parsed.splitlines()
    lines = _lines(raw, code)
    yield code, tuple(above + line for line in lines)
    for at, body in _bodies(parsed):
        first = lines[at - 1] if at <= len(lines) else at
        try:
            inner = shell.input_transformer_manager.transform_cell(body)
        except Exception:  # it is no Python, but what that magic takes
            continue
        yield from _codes(shell, body.splitlines(), inner, above + first)


def _bodies(parsed: str) -> Iterator[tuple[int, str]]:
    """What cell magics were given, with the lines that those stand on."""
    if "run_cell_magic(" not in parsed:
        return
    try:
        body = ast.parse(parsed).body
    except (SyntaxError, ValueError, RecursionError):
        return
    for statement in body:
        match statement:
            case ast.Expr(
                ast.Call(ast.Attribute(attr="run_cell_magic"), [_, _, ast.Constant(str(text))]), lineno=lineno
            ):
                yield lineno, text


def _lines(raw: list[str], code: list[str]) -> list[int]:
    """For each line of the code its line in the text that IPython made it of.

    It leaves blank lines above out, and makes one line of a magic that backslashes break over several.
    """
    at = next((number for number, line in enumerate(raw) if line.strip()), 0)
    lines = []
    for line in code:
        lines.append(at + 1)
        while at < len(raw) and raw[at].endswith("\\") and not line.endswith("\\"):
            at += 1
        at += 1
    return lines


def _trimmed(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]
