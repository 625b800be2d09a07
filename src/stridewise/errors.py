"""What stridewise raises.

StridewiseError
├── UsageError             a mistake in the call: an unknown option, a target that is not there
├── InputError             a file or a value that cannot be read as what it should be
├── ContractError          a tensor whose layout breaks a contract that asked for an error
├── BudgetExceeded         layout costs more than a budget allows: in a step of a watched loop, in a notebook's cell
└── RecordingError         a recording that cannot start, or cannot be kept
    └── NestedRecording    a profiler is running already, and a second one would crash the process

The command line turns the first two into one message and exit code 2. An exception that is not in this tree
is a defect of stridewise and keeps its traceback.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stridewise.findings import Finding
    from stridewise.results import Report


class StridewiseError(Exception):
    """Root of the tree; its text has at most three lines: what was given, what was expected, what to do."""

    def __init__(self, given: str, *, expected: str | None = None, advice: str | None = None) -> None:
        super().__init__(given)
        self.given = given
        self.expected = expected
        self.advice = advice

    @property
    def in_one_line(self) -> str:
        """What was given and what was expected, for a message that has to fit a line."""
        return _one_line(": ".join(part.rstrip(".") for part in (self.given, self.expected) if part))

    def __str__(self) -> str:
        return "\n".join(_one_line(part) for part in (self.given, self.expected, self.advice) if part)


class UsageError(StridewiseError):
    """A mistake in the call."""


class InputError(StridewiseError):
    """A file or a value that cannot be read as what it should be."""


class ContractError(StridewiseError):
    """A tensor whose layout breaks a contract that asked for an error; raised before it does harm."""

    def __init__(
        self,
        given: str,
        *,
        expected: str | None = None,
        advice: str | None = None,
        finding: "Finding | None" = None,
    ) -> None:
        super().__init__(given, expected=expected, advice=advice)
        self.finding = finding
        """What is wrong, with its evidence."""


class LayoutWarning(UserWarning):
    """The same where a contract or a guard was asked to warn, and goes on."""


class BudgetExceeded(StridewiseError):
    """Layout costs more than a budget allows: in a step of a watched loop, or in a cell of a notebook."""

    def __init__(self, lines: "Sequence[str]", *, step: int | None = None, report: "Report | None" = None) -> None:
        at = "" if step is None else f"Over budget at step {step}: "
        super().__init__(f"{at}{'; '.join(lines)}")
        self.lines = tuple(lines)
        """What is exceeded: one line a limit."""
        self.step = step
        self.report = report


class RecordingError(StridewiseError):
    """A recording that cannot start, or cannot be kept."""


class NestedRecording(RecordingError):
    """A recording was asked for while a profiler is running; two at once crash the process."""


def _one_line(text: str) -> str:
    # The parts quote programs and files: a line break would forge a line, an escape sequence would reach the terminal.
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(text.split()))
