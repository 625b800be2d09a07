"""The hooks that record tests: there only in sessions that have a test to record."""

from __future__ import annotations

import functools
import unittest
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from stridewise.config import Budget
from stridewise.errors import NestedRecording, StridewiseError
from stridewise.integrations.pytest_support import blocks, budgets, messages

if TYPE_CHECKING:
    from stridewise.integrations.pytest_support.session import Baseline

_MISTAKE = pytest.StashKey[str]()
_MOST_MISTAKES = 5


def require_budgets(session: pytest.Session) -> None:
    """Raise UsageError for mistakes in markers and in `[tool.stridewise]`, a line each."""
    mistakes: dict[str, str] = {}
    project = None
    try:
        project = blocks.project(session.config.rootpath)
    except StridewiseError as error:
        mistakes["stridewise"] = " ".join(str(error).split())
    for item in session.items:
        try:
            budget = budgets.budget_of(item)
            if budget is not None and project is not None:
                blocks.require_reported(budget, project)
        except StridewiseError as error:
            mistakes[item.nodeid] = item.stash[_MISTAKE] = f"{budgets.MARKER}: {error.given}"
    # A worker of pytest-xdist has no way to say so: there the tests themselves fail with it.
    if mistakes and not hasattr(session.config, "workerinput"):
        lines = [f"{name}: {text}" for name, text in mistakes.items()]
        more = [f"and {len(lines) - _MOST_MISTAKES} more of these"] if len(lines) > _MOST_MISTAKES else []
        raise pytest.UsageError(*lines[:_MOST_MISTAKES], *more)


class Tests:
    """Records the bodies of tests, and holds what they cost against budgets and the baseline."""

    def __init__(self, config: pytest.Config) -> None:
        found = config.pluginmanager.get_plugin("stridewise-baseline")
        self._baseline = cast("Baseline | None", found)

    def is_recorded(self, item: pytest.Item) -> bool:
        """Whether a test is."""
        if not isinstance(item, pytest.Function):
            return False
        return item.get_closest_marker(budgets.MARKER) is not None or (
            self._baseline is not None and (self._baseline.all_tests or budgets.has_fixture(item))
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin with nothing recorded: a test may run again."""
        blocks.forget(item)
        if self._baseline is not None:
            self._baseline.forget(item)
        if (mistake := item.stash.get(_MISTAKE, None)) is not None:
            pytest.fail(mistake, pytrace=False)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        """Record a function's body: its fixtures are there already, and go later."""
        __tracebackhide__ = True
        if not self.is_recorded(pyfuncitem):
            return (yield)
        with self._judged(pyfuncitem):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record the method of a `unittest.TestCase`, which unittest calls between its setUp and tearDown."""
        __tracebackhide__ = True
        if isinstance(item, pytest.Function) and _is_unittest(item) and self.is_recorded(item):
            item.obj = self._recorded(item, item.obj)
        return (yield)

    def _recorded(self, item: pytest.Function, method: Callable[[], Any]) -> Callable[[], Any]:
        @functools.wraps(method)
        def recorded() -> Any:
            __tracebackhide__ = True
            with self._judged(item):
                return method()

        return recorded

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Send what the summary has to say along with the test's report: it goes from workers to the controller."""
        report = yield
        if call.when == "call" and (notes := blocks.notes_of(item)):
            report.stridewise_notes = notes
        return report

    @contextmanager
    def _judged(self, item: pytest.Function) -> Iterator[None]:
        """Record what is inside, then fail the test if it costs too much. What it raises itself comes first."""
        __tracebackhide__ = True
        handle = blocks.of_test(item)
        budget = budgets.budget_of(item)
        if budgets.has_fixture(item):
            yield
            if budget is not None and not handle.blocks:
                pytest.fail("layout_budget: the test has record_layout, and no block is recorded by it", pytrace=False)
        else:
            block = self._begun(item, handle, budget)
            if block is None:
                yield
                return
            with block:
                yield
        # The entry first: update keeps it also of a test that is over budget.
        problem = None if self._baseline is None else self._baseline.problem(item, handle.blocks, asked=_asked(item))
        for block in handle.blocks:
            blocks.require_within(block)
        if problem is not None:
            pytest.fail(problem, pytrace=False)

    def _begun(self, item: pytest.Function, handle: blocks.RecordLayout, budget: Budget | None) -> blocks.Block | None:
        """A block whose recording can start; None, with --layout-all, where none can."""
        from stridewise.recorder.private import profiler_is_on

        if not profiler_is_on():
            return handle.begin(budget)
        error = NestedRecording("Another profiler is running, and a second one would crash the process.")
        if not _asked(item):
            assert self._baseline is not None
            self._baseline.unrecorded(item)
            return None
        raise pytest.fail.Exception(messages.nested(error), pytrace=False)


def _asked(item: pytest.Item) -> bool:
    return budgets.has_fixture(item) or item.get_closest_marker(budgets.MARKER) is not None


def _is_unittest(item: pytest.Function) -> bool:
    return item.cls is not None and issubclass(item.cls, unittest.TestCase)
