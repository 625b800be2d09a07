"""Recording in tests: the body of one, or the blocks of the `record_layout` fixture."""

from __future__ import annotations

import functools
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pytest

from stridewise.analysis.notes import INSIDE_COMPILED, NOTHING_RAN
from stridewise.api.settings import project_settings
from stridewise.config import Budget, Config
from stridewise.errors import NestedRecording, RecordingError, UsageError
from stridewise.integrations.pytest_support import budgets, messages
from stridewise.recording.build import LEFT_OUT
from stridewise.recording.handle import Recording
from stridewise.recording.model import MARK
from stridewise.report.codes import require_kept
from stridewise.results import Report

_TOLD = (INSIDE_COMPILED, LEFT_OUT)
_KEY = pytest.StashKey["RecordLayout"]()


@functools.cache
def project(root: Path) -> Config:
    """What `[tool.stridewise]` of the project under test says. Raises a StridewiseError for a mistake in it."""
    return project_settings(root)


def require_reported(budget: Budget, config: Config) -> None:
    """Raise UsageError for a code that a budget forbids and the project's settings hide."""
    require_kept(budget.forbid, config.select, config.ignore)


class Block:
    """One stretch of a test that is recorded: a context manager that yields the Recording.

    It is one step, unless the test says by `stridewise.step()` where its steps end; what comes after the last belongs
    to it. So nothing is left out of the figures, and they don't depend on what the test calls. Left out is what threads
    do that were at work on something else before. Raises NestedRecording where a profiler is running already.
    """

    def __init__(self, config: Config, budget: Budget | None) -> None:
        self.budget = budget
        self.ended = False
        self._config = config
        self._report: Report | None = None

    def __enter__(self) -> Recording:
        from stridewise.recorder.live import Recorder

        self._recorder = Recorder(
            library_copies=self._config.library_copies,
            max_ops=self._config.max_ops,
            begins_step=True,
            leaves_out_busy=True,
            boundary=_nothing,
        )
        return self._recorder.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        self._recorder.end_last_step()
        self.whole = not self._recorder.cut and not self._recorder.full
        self.by_limit = self._recorder.full
        self._recorder.__exit__(kind, value, traceback)
        self.ended = True

    @property
    def notes(self) -> tuple[str, ...]:
        """What of its report whoever reads the session's summary has to know; nothing where no report was made."""
        return () if self._report is None else tuple(note for note in self._report.notes if note.endswith(_TOLD))

    @property
    def report(self) -> Report:
        """What layout cost in it. Raises RecordingError where recording ended before the block did."""
        if self._report is None:
            if not self.whole:
                raise RecordingError(self._why_not_whole())
            from stridewise.api import analyze

            config = self._config
            report = analyze(
                self._recorder.recording,
                min_share=config.min_share,
                select=config.select or None,
                ignore=config.ignore or None,
                kernel_patterns=config.kernel_patterns,
                timeline=False,
            )
            self._report = _none_cost(report) if self._ran_nothing else report
        return self._report

    @property
    def _ran_nothing(self) -> bool:
        """No operator of torch ran in it, and a whole recording shows so: elsewhere that can be a mistake."""
        trace = self._recorder.recording.trace
        return trace.log is not None and not trace.library and all(name.startswith(MARK) for name in trace.ops.names)

    def _why_not_whole(self) -> str:
        if self.by_limit:
            return (
                f"Recording ended after about {self._config.max_ops:,} operators, before the test did: what it costs "
                "is not known. Record less of it with `record_layout`, or set max-ops in [tool.stridewise]."
            )
        return (
            "The test starts a profiler, or a recording, of its own, and there can be but one: what layout costs in it "
            "is not known."
        )


class RecordLayout:
    """What the `record_layout` fixture is: call it for a block to record, and ask it for the report afterwards."""

    def __init__(self, item: pytest.Item) -> None:
        self.blocks: list[Block] = []
        self._config = project(item.config.rootpath)
        self._budget = budgets.budget_of(item)

    def __call__(self, *budget: str | Budget, **limits: Any) -> _Checked:
        """A context manager that records its block and yields the Recording, whose `step()` says where steps end.

        A budget is written as with the marker `layout_budget`, and takes its place for this block; the test fails at
        the end of a block that costs more. Raises UsageError for a budget with a mistake.
        """
        __tracebackhide__ = True
        try:
            given = budgets.read(budget, limits) if budget or limits else self._budget
            if given is not None:
                require_reported(given, self._config)
            return _Checked(self, given)
        except UsageError as error:
            raise UsageError(f"record_layout: {error.given}", expected=error.expected) from None

    @property
    def report(self) -> Report:
        """The report of the last block that ended: `findings`, `totals`, `ok`. Raises UsageError without one."""
        __tracebackhide__ = True
        return self.reports[-1]

    @property
    def reports(self) -> tuple[Report, ...]:
        """Those of all blocks, in order."""
        __tracebackhide__ = True
        ended = [block for block in self.blocks if block.ended]
        if not ended:
            raise UsageError("record_layout has no report yet: record something with `with record_layout(): …` first")
        return tuple(block.report for block in ended)

    def begin(self, budget: Budget | None) -> Block:
        """A block that is among those of the test from now on."""
        block = Block(self._config, budget)
        self.blocks.append(block)
        return block


class _Checked:
    """A block that fails the test at its end if it is over budget."""

    def __init__(self, owner: RecordLayout, budget: Budget | None) -> None:
        self._owner = owner
        self._budget = budget

    def __enter__(self) -> Recording:
        __tracebackhide__ = True
        if any(not block.ended for block in self._owner.blocks):
            pytest.fail("record_layout: a block can't be inside another; end one before the next begins", pytrace=False)
        self._block = self._owner.begin(self._budget)
        try:
            return self._block.__enter__()
        except NestedRecording as error:
            self._owner.blocks.remove(self._block)
            raise pytest.fail.Exception(messages.nested(error), pytrace=False) from None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        self._block.__exit__(kind, value, traceback)
        if value is None:
            require_within(self._block)


def _nothing(*_: object) -> None:
    """Of what may tell steps apart nothing matters here; a recorder that is told gives way to a nested one."""


def _none_cost(report: Report) -> Report:
    totals = msgspec.structs.replace(report.totals, copies=0, bytes_moved=0, duration_ns=0, share=0)
    notes = tuple(note for note in report.notes if note != NOTHING_RAN)
    return msgspec.structs.replace(report, totals=totals, notes=notes)


def of_test(item: pytest.Item) -> RecordLayout:
    """What is recorded of a test; made on first use."""
    if _KEY not in item.stash:
        item.stash[_KEY] = RecordLayout(item)
    return item.stash[_KEY]


def notes_of(item: pytest.Item) -> list[str]:
    """What the session's summary has to say of what was recorded of a test."""
    handle = item.stash.get(_KEY, None)
    return [] if handle is None else [note for block in handle.blocks for note in block.notes]


def forget(item: pytest.Item) -> None:
    """Begin anew: a test may run again."""
    if _KEY in item.stash:
        del item.stash[_KEY]


def require_within(block: Block) -> None:
    """Fail the running test if a block is over its budget."""
    __tracebackhide__ = True
    if block.budget is None:
        return
    try:
        report = block.report
    except RecordingError as error:
        raise pytest.fail.Exception(f"layout budget: {error}", pytrace=False) from None
    exceeded = block.budget.exceeded(report)
    if exceeded:
        raise pytest.fail.Exception(messages.over_budget(block.budget, exceeded, report), pytrace=False)
