"""The pytest plugin: layout budgets for tests, a fixture that records a block, and a baseline of what is known.

pytest loads this module in every project where stridewise is installed, so it imports nothing but pytest. What a
session needs is imported, and its hooks are put in place, once there is something to record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stridewise.integrations.pytest_support.blocks import RecordLayout

_MARKER = (
    'layout_budget(copies=0, bytes="1MB", share="2%", time="3ms", forbid=["SW103"]): record the body of the test, '
    "and fail it if layout costs more than that (stridewise)"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the options; what they do is in `pytest_support.session`."""
    group = parser.getgroup("stridewise", "stridewise: what memory layout costs in tests")
    group.addoption(
        "--layout-baseline",
        choices=("check", "update"),
        help="Keep the layout findings of tests in a file (update), or fail tests that have others (check).",
    )
    group.addoption(
        "--layout-all",
        action="store_true",
        help="With --layout-baseline: record every test, not only those with layout_budget or record_layout.",
    )
    parser.addini(
        "layout_baseline_file",
        "The file of --layout-baseline, from the root folder on.",
        default=".stridewise-baseline.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Say what the marker is, and begin with a baseline where one was asked for."""
    config.addinivalue_line("markers", _MARKER)
    if config.option.layout_baseline:
        from stridewise.integrations.pytest_support.session import Baseline

        config.pluginmanager.register(Baseline(config), "stridewise-baseline")
    elif config.option.layout_all:
        raise pytest.UsageError("--layout-all goes with --layout-baseline=check or --layout-baseline=update")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Put the hooks that record in place if a test of this session wants them."""
    config = session.config
    if config.option.layout_baseline or any(item.get_closest_marker("layout_budget") for item in session.items):
        from stridewise.integrations.pytest_support.tests import Tests, require_budgets

        require_budgets(session)
        config.pluginmanager.register(Tests(config), "stridewise-tests")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the recordings of tests do not hold, of whichever process they are."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    told = [report.stridewise_notes for report in reports if hasattr(report, "stridewise_notes")]
    if told:
        from stridewise.integrations.pytest_support.told import tell

        tell(terminalreporter, told)


@pytest.fixture
def record_layout(request: pytest.FixtureRequest) -> RecordLayout:
    """Record a block: `with record_layout() as recording: …`; `record_layout.report` then says what layout cost.

    The call takes a budget, as the marker `layout_budget` does. A test that has this fixture and that marker holds each
    block to the marker's budget; what is outside blocks is not recorded.
    """
    from stridewise.integrations.pytest_support.blocks import of_test

    return of_test(request.node)
