"""The magics."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError as CellUsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, needs_local_scope
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from stridewise.config import MOST
from stridewise.errors import StridewiseError, UsageError

if TYPE_CHECKING:
    from argparse import Namespace

    from stridewise.integrations.notebook.cell import Options

_NUMBERS = r"(?:torch\.Size)?(?:\(\[[\d\s,]*\]\)|\([\d\s,]*\)|\[[\d\s,]*\])|\d+(?:[,x×]\d+)*,?"
_SIZES = re.compile(rf"(?P<sizes>{_NUMBERS})(?:\s+(?P<strides>{_NUMBERS}))?(?:\s+--offset[ =](?P<offset>\d+))?")


@magics_class
class StridewiseMagics(Magics):  # type: ignore[misc] # IPython may be absent
    """`%%stridewise`, `%stridewise` and `%stridewise_explain`."""

    @magic_arguments()
    @argument(
        "--budget", metavar="LIMITS", help="Fail if a step costs more: copies=0,bytes=1MB,share=2%%,forbid=SW103."
    )
    @argument("--name", metavar="NAME", help="Keep the report in this variable.")
    @argument("--save", metavar="FILE", help="Keep the recording: a trace that `stridewise trace` and Perfetto open.")
    @argument("--library-copies", action="store_true", default=None, help="Record oneDNN's inner reorders too.")
    @argument("--max-ops", type=int, metavar="N", help="Stop recording after so many operators (200000 unless set).")
    @argument("--min-share", metavar="SHARE", help="Fold findings below this share of a step (0.1%% unless set).")
    @argument("--select", action="append", metavar="CODES", help="Report these codes only, such as SW101,SW103.")
    @argument("--ignore", action="append", metavar="CODES", help="Leave these codes out.")
    @line_cell_magic
    def stridewise(self, line: str, cell: str | None = None) -> None:
        """Record what the cell does with tensors, and show the report below what it shows.

        As `%stridewise` on a line of its own: record the rest of the cell.
        """
        if cell is not None:  # called by a program: IPython itself makes a line magic of it
            self.shell.run_cell(f"%%stridewise {line}\n{cell}").raise_error()
            return
        from stridewise.integrations.notebook.cell import CellRecording

        try:
            CellRecording(self.shell, _options(_parsed(self.stridewise, line))).begin()
        except StridewiseError as error:
            raise _said(error) from None

    @line_magic
    @needs_local_scope
    def stridewise_explain(self, line: str, local_ns: dict[str, Any] | None = None) -> None:
        """Say what layout a tensor has, and why; or what sizes and strides would have.

        `%stridewise_explain x[:, ::2]`, `%stridewise_explain 2,3,4 1,8,2` or `(2, 3, 4) (1, 8, 2) --offset 4`.
        """
        try:
            said = _explained(line.strip(), {**self.shell.user_ns, **(local_ns or {})})
        except StridewiseError as error:
            raise _said(error) from None
        print(fill(said, 100))  # noqa: T201 # it is a cell's output


def _said(error: StridewiseError) -> CellUsageError:
    """The same as IPython shows it: in one line, without a traceback."""
    return CellUsageError(" ".join(str(error).splitlines()))


def _parsed(magic: Any, line: str) -> Namespace:
    try:
        given: Namespace = parse_argstring(magic, line)
    except ValueError as error:  # a quote that is not closed
        raise UsageError(f"{error}: {line}") from None
    return given


def _options(given: Namespace) -> Options:
    """What the line says, with `[tool.stridewise]` for what it does not say. Raises UsageError."""
    from stridewise.cli.options import configured, with_budget
    from stridewise.cli.output import writable
    from stridewise.integrations.notebook.cell import Options

    name = given.name
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise UsageError(f"--name {name}: no variable can be called that.")
    if given.max_ops is not None and not 1 <= given.max_ops <= MOST:
        raise UsageError(f"--max-ops {given.max_ops}: expected a number of operators from 1 to {MOST:_}.")
    config = configured(
        select=given.select,
        ignore=given.ignore,
        min_share=given.min_share,
        budget=given.budget,
        library_copies=given.library_copies,
        max_ops=given.max_ops,
    )
    save = None if given.save is None else Path(given.save.strip("\"'")).expanduser()
    return Options(with_budget(config, given.budget), writable(save), name)


def _explained(line: str, namespace: dict[str, Any]) -> str:
    from stridewise import api
    from stridewise.cli.explain import parse_numbers

    if not line:
        raise UsageError("stridewise_explain needs a tensor, or sizes and strides such as 2,3,4 1,8,2.")
    numbers = _SIZES.fullmatch(line)
    if numbers is not None:
        strides = numbers["strides"]
        return api.explain_layout(
            parse_numbers(numbers["sizes"], "sizes"),
            None if strides is None else parse_numbers(strides, "strides"),
            int(numbers["offset"] or 0),
        )
    try:
        value = eval(line, namespace)
    except Exception as error:  # the expression's own, of which its kind and text tell enough
        raise UsageError(f"{line}: {type(error).__name__}: {error}") from None
    import torch

    if isinstance(value, torch.Tensor):
        return api.explain(value)
    if isinstance(value, (tuple, list)) and all(type(size) is int for size in value):
        return api.explain(tuple(value))
    raise UsageError(f"{line} is a {type(value).__name__}.", expected="Expected: a tensor, or sizes and strides.")
