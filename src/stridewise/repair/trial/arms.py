"""A version of the program: as it is, or with some candidates in place."""

from collections.abc import Callable, Sequence

from stridewise.findings import Edit
from stridewise.repair.candidate import Candidate, Conversion
from stridewise.repair.code.swap import Swap, plan_all
from stridewise.repair.refused import Refused
from stridewise.repair.trial.convert import Converted, convert
from stridewise.repair.trial.workload import Workload
from stridewise.source.file import SourceFile
from stridewise.source.patch import changes

OpenSource = Callable[[str], SourceFile | None]


class Arms:
    """The versions of one workload, one of which is in place at a time. Leaves the original in place."""

    def __init__(self, workload: Workload, open_source: OpenSource) -> None:
        self.workload = workload
        self._open = open_source
        self._current: Arm | None = None

    def arm(self, candidates: Sequence[Candidate]) -> "Arm":
        """The program with candidates in place. Raises Refused where they can't be put there."""
        edits = [edit for candidate in candidates for edit in candidate.edits]
        conversions = tuple(dict.fromkeys(entry for candidate in candidates for entry in candidate.conversions))
        try:
            swap = self._swap(edits)
        except Refused:
            if not conversions:  # which stand for edits of what has run already
                raise
            swap = None
        return Arm(self, swap, self._converted(conversions), any(candidate.beside_step for candidate in candidates))

    def put(self, arm: "Arm") -> None:
        """Make an arm the version that runs."""
        if arm is not self._current:
            self.put_back()
            self._current = arm
            arm.begin()

    def put_back(self) -> None:
        """Put the original in place."""
        if self._current is not None:
            current, self._current = self._current, None
            current.end()

    def _converted(self, conversions: Sequence[Conversion]) -> Converted | None:
        workload = self.workload
        if not conversions:
            return None
        return convert(workload.model, workload.args, workload.kwargs, conversions, workload.optimizers)

    def _swap(self, edits: Sequence[Edit]) -> Swap | None:
        try:
            found = changes(self._open, edits)
        except ValueError as error:
            raise Refused(f"its edit can't be made: {error}") from None
        return plan_all([(change.file, change.after) for change in found]) if found else None


class Arm:
    """One version: `enter` puts it in place, `run` times a step of it."""

    def __init__(self, arms: Arms, swap: Swap | None, converted: Converted | None, beside_step: bool) -> None:
        self._workload = arms.workload
        self._arms = arms
        self._beside_step = beside_step
        self._swap = swap
        self._edited = True
        self._converted = converted

    def unedited(self) -> "Arm":
        """The original, which pays for being put in place what this version pays."""
        arm = Arm(self._arms, self._swap, None, False)
        arm._edited = False
        return arm

    def enter(self) -> None:
        """Put it in place of whatever version is there."""
        self._arms.put(self)

    def run(self) -> int:
        """Nanoseconds of one step."""
        return self._workload.timed()

    def begin(self) -> None:
        """Put it in place of the original."""
        if self._swap is not None:
            self._swap.enter(edited=self._edited)
        if self._converted is not None:
            self._converted.enter()
            self._workload.take(self._converted, beside_step=self._beside_step)

    def end(self) -> None:
        """Put the original back."""
        try:
            if self._converted is not None:
                self._workload.take(None)
                self._converted.leave(keep=self._workload.moves_on)
        finally:
            if self._swap is not None:
                self._swap.leave()
