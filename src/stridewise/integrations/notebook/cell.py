"""Recording the rest of a cell: from where a magic stands until the cell ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stridewise import api
from stridewise.config import Config
from stridewise.errors import BudgetExceeded, StridewiseError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell


class _CellOverBudget(BudgetExceeded):
    """What makes the cell fail."""

    def _render_traceback_(self) -> list[str]:
        # IPython asks for it: there is no traceback that would tell anything.
        return [f"BudgetExceeded: {self}"]


_CellOverBudget.__name__ = _CellOverBudget.__qualname__ = BudgetExceeded.__name__  # as a kernel's clients are told


class Options(Struct, frozen=True):
    """What the magic was given."""

    config: Config
    save: Path | None = None
    name: str | None = None
    """Of the variable that the report is kept in."""


class CellRecording:
    """One recording in a shell. `begin` starts it; it ends with the cell, which it leaves to IPython."""

    def __init__(self, shell: InteractiveShell, options: Options) -> None:
        self._shell = shell
        self._options = options
        self._recorder = api.record(library_copies=options.config.library_copies, max_ops=options.config.max_ops)
        self._cells_inside = 0
        """Cells that run within this one, as `get_ipython().run_cell` runs them."""
        self._ended = self._failed = False
        self._lost: StridewiseError | None = None
        self._over: tuple[str, ...] = ()

    def begin(self) -> None:
        """Start. Raises NestedRecording inside another recording or profiler."""
        shell = self._shell
        self.recording = self._recorder.__enter__()
        shell.events.register("pre_execute", self._cell_begins)
        shell.events.register("post_execute", self._cell_ends)
        # An exception is shown before IPython says that the cell has ended, and our frames have to go before that.
        self._own_showtraceback = vars(shell).get("showtraceback")
        self._showtraceback = shell.showtraceback
        shell.showtraceback = self._show_traceback
        self._displayhook = sys.displayhook
        if shell.ast_node_interactivity != "all":  # else it is not the last expression only that is shown
            sys.displayhook = self._show_value

    def _show_value(self, value: Any) -> None:
        # What a tensor computes to show itself is none of the cell's.
        if not self._cells_inside:
            self._end(None)
        self._displayhook(value)

    def _show_traceback(self, *args: Any, **kwargs: Any) -> None:
        if not self._cells_inside:
            self._end(sys.exc_info()[1])
        self._showtraceback(*args, **kwargs)

    def _cell_begins(self) -> None:
        self._cells_inside += 1

    def _cell_ends(self) -> None:
        if self._cells_inside:
            self._cells_inside -= 1
            return
        self._shell.events.unregister("pre_execute", self._cell_begins)
        self._shell.events.unregister("post_execute", self._cell_ends)
        self._end(None)
        self._tell()

    def _end(self, error: BaseException | None) -> None:
        if self._ended:
            return
        self._ended, self._failed = True, error is not None
        if sys.displayhook == self._show_value:
            sys.displayhook = self._displayhook
        if vars(self._shell).get("showtraceback") == self._show_traceback:
            del self._shell.showtraceback
            if self._own_showtraceback is not None:
                self._shell.showtraceback = self._own_showtraceback
        try:
            self._recorder.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except StridewiseError as lost:
            self._lost = lost

    def _tell(self) -> None:
        """Show the report, below all that the cell has shown."""
        from IPython.display import display

        options, config = self._options, self._options.config
        try:
            if self._lost is not None:
                raise self._lost
            if options.save is not None:
                self.recording.save(options.save)
            report = api.analyze(
                self.recording,
                min_share=config.min_share,
                select=config.select or None,
                ignore=config.ignore or None,
                kernel_patterns=config.kernel_patterns,
            )
        except StridewiseError as error:
            print(f"stridewise: {error}", file=sys.stderr)  # noqa: T201 # it is a cell's output
            return
        if options.name is not None:
            self._shell.user_ns[options.name] = report
        display(report)
        self._over = config.budget.exceeded(report)
        if self._over and self._failed:
            print(f"stridewise: over budget: {'; '.join(self._over)}", file=sys.stderr)  # noqa: T201
        elif self._over:
            self._shell.events.register("post_run_cell", self._fail)

    def _fail(self, result: ExecutionResult | None) -> None:
        self._shell.events.unregister("post_run_cell", self._fail)
        error = _CellOverBudget(self._over)
        if result is not None:
            result.error_in_exec = error
        self._shell.showtraceback((_CellOverBudget, error, None))
