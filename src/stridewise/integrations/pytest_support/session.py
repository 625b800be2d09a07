"""A session with a baseline: it reads the file, gathers what tests are found to do, and writes it at the end."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from stridewise.errors import InputError, RecordingError
from stridewise.integrations.pytest_support import budgets, file, messages
from stridewise.integrations.pytest_support.blocks import Block
from stridewise.integrations.pytest_support.collected import Collected, function_of, scope
from stridewise.integrations.pytest_support.known import Known, compare, grouped, known
from stridewise.report.text import one_line
from stridewise.results import numbers

_FOUND = pytest.StashKey[str]()
_MOST_LINES = 20
_UPDATE = "pytest --layout-baseline=update"


class Baseline:
    """Checks tests against the file, or brings the file up to date.

    With pytest-xdist the controller alone reads and writes it: workers are handed its text, and hand back what they
    found with the reports of tests.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.update = config.option.layout_baseline == "update"
        self.all_tests: bool = config.option.layout_all
        self.path = config.rootpath / config.getini("layout_baseline_file")
        self.name = _name(self.path, config.rootpath)
        self.found: file.Tests = {}
        self.collected = Collected()
        self._config = config
        self._failure: str | None = None
        self._worker = hasattr(config, "workerinput")
        self._text = self._read(config)
        self.before: file.Tests = {}
        if self._text is not None:
            self.before = self._usage(file.loads, self._text, self.name)
        elif not self.update:
            raise pytest.UsageError(f"there is no {self.name} to check against: run {_UPDATE}")

    def _read(self, config: pytest.Config) -> str | None:
        found = config.workerinput["stridewise_baseline"] if self._worker else self._usage(file.read, self.path)  # type: ignore[attr-defined]
        return cast("str | None", found)

    def _usage(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except InputError as error:
            raise pytest.UsageError(" ".join(str(error).split())) from None

    # -- one test --------------------------------------------------------------------------------------------------

    def problem(self, item: pytest.Item, blocks: Sequence[Block], *, asked: bool) -> str | None:
        """Keep what was found in a test that passed; say what is worse than what is known, if it is to be checked."""
        try:
            groups = grouped([block.report for block in blocks], self._config.rootpath)
        except RecordingError as error:
            if asked:
                return f"layout baseline: {error}"
            self.unrecorded(item)
            return None
        now = known(groups)
        item.stash[_FOUND] = msgspec.json.encode(now).decode()
        if self.update:
            return None
        name = test_id(item)
        if name not in self.before:
            return f"{self.name} does not have this test: run {_UPDATE}, and review what it adds"
        change = compare(self.before[name], now)
        if not change.new and not change.grown:
            return None
        return messages.worse(self.name, change, groups, self.before[name], _UPDATE)

    def forget(self, item: pytest.Item) -> None:
        """Begin anew with a test."""
        if _FOUND in item.stash:
            del item.stash[_FOUND]

    def unrecorded(self, item: pytest.Item) -> None:
        """A test, recorded only because all are, profiles itself."""
        self.collected.profiled.append(test_id(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        """Send what was found along with the test's report: it goes from workers to the controller."""
        report = yield
        if call.when == "call" and _FOUND in item.stash:
            report.stridewise_layout = [test_id(item), item.stash[_FOUND]]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather it."""
        found = getattr(report, "stridewise_layout", None)
        if found is not None:
            name, text = found
            self.found[name] = msgspec.json.decode(text, type=tuple[Known, ...])

    # -- what there is to run --------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, object, object]:
        """See whether all tests are to run, as only then tests that are not seen are gone."""
        before = len(items)
        result = yield
        self.collected.narrowed |= len(items) < before
        return result

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note which tests are recorded."""
        self.collected.tests += [
            test_id(item)
            for item in session.items
            if isinstance(item, pytest.Function)
            and (self.all_tests or budgets.has_fixture(item) or item.get_closest_marker(budgets.MARKER))
        ]
        self.collected.functions += dict.fromkeys(function_of(test_id(item)) for item in session.items)
        self.collected.complete = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note what could not be collected: its tests are not gone."""
        if not report.passed:
            self.collected.unseen.append(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand the file to a worker of pytest-xdist."""
        node.workerinput["stridewise_baseline"] = self._text

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker collected; one that crashed says nothing."""
        text = getattr(node, "workeroutput", {}).get("stridewise_collected")
        if text is None:
            self.collected.narrowed = True
        else:
            self.collected.add(msgspec.json.decode(text, type=Collected))

    # -- the end ---------------------------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file, once; a worker hands over what it knows."""
        if self._worker:
            text = msgspec.json.encode(self.collected).decode()
            session.config.workeroutput["stridewise_collected"] = text  # type: ignore[attr-defined]
            return
        self.gone, self.passed_over = self._gone()
        if self.update and not session.config.option.collectonly:
            after = {test: rows for test, rows in self.before.items() if test not in self.gone} | self.found
            text = file.dumps(after)
            if text != self._text and (after or self._text is not None):
                try:
                    file.write(self.path, text)
                except InputError as error:
                    self._failure = " ".join(str(error).split())
                    if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                        session.exitstatus = pytest.ExitCode.USAGE_ERROR
                    return
            self.after = after

    def _gone(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tests of the file that are no more, or are recorded no more; known only where all tests were collected.

        And those that were passed over, though they stand in their files.
        """
        folders, root = scope(self._config), self._config.rootpath
        lacking = [test for test in self.before if self.collected.lacks(test, root, folders)]
        passed_over = self.collected.passed_over(lacking, root)
        return tuple(test for test in lacking if test not in passed_over), passed_over

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was written, or what of the file is no longer needed."""
        if not hasattr(self, "gone"):
            return
        lines = [*(self._written() if self.update else self._removable())]
        if self._failure is not None:
            lines.insert(0, f"not written: {self._failure}")
        lines += [f"not recorded, as it profiles itself: {one_line(test)}" for test in self.collected.profiled]
        if lines:
            terminalreporter.section("layout baseline")
        for line in lines[:_MOST_LINES]:
            terminalreporter.write_line(line)
        if len(lines) > _MOST_LINES:
            terminalreporter.write_line(f"and {len(lines) - _MOST_LINES} more lines such as these")

    def _written(self) -> list[str]:
        if not hasattr(self, "after"):
            return []
        if not self.after:
            return ["no test is recorded: mark some with layout_budget, or use record_layout"]
        findings = numbers.count(sum(map(len, self.after.values())), "finding")
        changes = [compare(self.before.get(test, ()), rows) for test, rows in self.found.items()]
        more = sum(len(change.new) + len(change.grown) for change in changes)
        fewer = sum(len(change.gone) for change in changes) + sum(len(self.before[test]) for test in self.gone)
        differs = f": {more} new or larger, {fewer} gone or smaller" if more or fewer else ", as before"
        kept = [test for test in self.collected.tests if test in self.before and test not in self.found]
        lines = [f"{self.name} has {findings} of {numbers.count(len(self.after), 'test')}{differs}"]
        lines += [f"gone: {one_line(test)}" for test in self.gone]
        lines += [f"was not collected, its entry stays: {one_line(test)}" for test in self.passed_over]
        lines += [f"did not pass or run, its entry stays: {one_line(test)}" for test in kept]
        return lines

    def _removable(self) -> list[str]:
        lines = [f"{one_line(test)}: the test is not there or not recorded" for test in self.gone]
        for test, rows in sorted(self.found.items()):
            lines += [
                f"{one_line(test)}: {one_line(str(row))}" for row in compare(self.before.get(test, ()), rows).gone
            ]
        if lines:
            lines.insert(0, f"better than {self.name} says; these can be removed or lowered: run {_UPDATE}")
        return lines


def test_id(item: pytest.Item) -> str:
    """A test's node id, without the group that pytest-xdist appends to it."""
    if not getattr(item.config.option, "loadgroup", False):
        return item.nodeid
    names = {str(mark.args[0] if mark.args else mark.kwargs.get("name", "default")) for mark in _groups(item)}
    return item.nodeid.removesuffix(f"@{'_'.join(sorted(names))}") if names else item.nodeid


def _groups(item: pytest.Item) -> list[pytest.Mark]:
    return list(item.iter_markers("xdist_group"))


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
