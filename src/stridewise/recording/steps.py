"""Where one step of the program ends and the next begins: found in a recording, and counted while it is made."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from stridewise.recording.model import BEGIN_MARK, LAST_MARK, MARK, MODULE_MARK, OPTIMIZER_MARK, STEP_MARK, CallLog
from stridewise.recording.trace import Ops, Step

Boundary = Literal["step", "module-step", "optimizer", "root"]
"""What tells steps apart, in the order in which it counts. The first and third end steps, the others start them."""


# -- in a recording ------------------------------------------------------------------------------------------------


class Found(NamedTuple):
    """The steps of a recording."""

    steps: list[Step]
    told_apart: bool
    """False: all of the recording is one step."""
    notes: list[str]
    """What a reader should know of that."""
    whole: bool = True
    """False: the one step was not over when the recording ended."""


def find_steps(
    ops: Ops, log: CallLog | None, profiler_steps: Sequence[tuple[int, int]], start_ns: int, end_ns: int
) -> Found:
    """The steps of a recording.

    What the program said by `step()` counts first, then calls of the module that was asked for. Then a step runs from
    the end of one `step()` of the first optimizer seen to the end of the next, and without an optimizer from one
    outermost call of the root module that is called most to its next. Traces recorded elsewhere have `ProfilerStep#`
    annotations. Failing all of these, the whole recording is one step.
    """
    end_ns = max(end_ns, start_ns + 1)
    begin = _marks(ops, BEGIN_MARK)[:1]
    notes = []
    said = _ended(_said(ops), begin, ops, start_ns)
    asked = _module_steps(ops, log, _asked_modules(log), end_ns)
    if log is not None and log.module_step and not (said.steps or asked.steps):
        notes.append(f"No module called {log.module_step} ran: steps were told apart without it.")
    for found in (
        said,
        asked,
        _ended(_first_optimizer(ops), begin, ops, start_ns),
        _Steps([Step(start, end) for start, end in sorted(profiler_steps) if end > start]),
        _module_steps(ops, log, _busiest_root(ops, log), end_ns),
    ):
        if found.steps:
            steps, more, whole = _recorded(found, log)
            return Found(steps, True, notes + more, whole)
    notes.append("Nothing in the recording tells steps apart: all of it counts as one step.")
    return Found([Step(start_ns, end_ns)], False, notes, log is None or not log.cut)


class _Steps(NamedTuple):
    steps: list[Step]
    open: bool = False
    """Nothing shows that the last one was over when the recording ended."""


def _marks(ops: Ops, name: str) -> list[int]:
    return sorted(ops.start_ns[index] for index in ops.named(name))


def _said(ops: Ops) -> list[int]:
    """Where the program said that steps end. A recording that ended on purpose leaves nothing out after the last."""
    ends = _marks(ops, STEP_MARK)
    for last in _marks(ops, LAST_MARK)[-1:]:
        if not ends:
            ends = [last]
        elif any(start > ends[-1] and not ops.text(at).startswith(MARK) for at, start in enumerate(ops.start_ns)):
            ends[-1] = last
    return ends


def _first_optimizer(ops: Ops) -> list[int]:
    marks = sorted((ops.start_ns[index], ops.text(index)) for index in ops.starting(OPTIMIZER_MARK))
    return [start for start, name in marks if name == marks[0][1]]


def _ended(ends: list[int], begin: list[int], ops: Ops, start_ns: int) -> _Steps:
    """Steps between marks that end them.

    What lies before the first mark is no whole step unless the recording began at one: it holds the program's set-up.
    If there is no other step, it is one from the first module call on.
    """
    if begin or len(ends) != 1:
        return _Steps(_between(begin + ends))
    calls = [ops.start_ns[index] for index in ops.starting(MODULE_MARK)]
    return _Steps(_between([min((start for start in calls if start < ends[0]), default=start_ns), *ends]))


def _between(edges: list[int]) -> list[Step]:
    return [Step(start, end) for start, end in pairwise(edges) if end > start]


def _module_steps(ops: Ops, log: CallLog | None, modules: set[int], end_ns: int) -> _Steps:
    """Steps that start at the outermost calls of some modules; not at those in backward, which recompute."""
    if log is None or not modules:
        return _Steps([])
    starts = sorted(
        ops.start_ns[index]
        for index, call in _module_calls(ops)
        if log.module_calls[call].module in modules and not _lies_in(log, call, modules)
    )
    return _Steps(_between([*starts, end_ns]), open=True)


def _module_calls(ops: Ops) -> Iterator[tuple[int, int]]:
    """The marks of module calls, and the call that each marks; not those in backward, which recompute."""
    for index in ops.starting(MODULE_MARK):
        if ops.module_call[index] >= 0 and ops.node[index] < 0:
            yield index, ops.module_call[index]


def _lies_in(log: CallLog, module_call: int, modules: set[int]) -> bool:
    parent = log.module_calls[module_call].parent
    while parent >= 0:
        if log.module_calls[parent].module in modules:
            return True
        parent = log.module_calls[parent].parent
    return False


def _asked_modules(log: CallLog | None) -> set[int]:
    """The modules that `module_step` names: by path, by path below the root's type, or by class."""
    if log is None or not log.module_step:
        return set()
    name = log.module_step
    by_path = {index for index, (path, _) in enumerate(log.modules) if path == name}
    one_root = any(path == "" for path, _ in log.modules)  # else paths begin with the root's class
    below_root = {index for index, (path, _) in enumerate(log.modules) if path.partition(".")[2] == name}
    return (
        by_path
        or (set() if one_root else below_root)
        or {index for index, (_, kind) in enumerate(log.modules) if kind == name}
    )


def _busiest_root(ops: Ops, log: CallLog | None) -> set[int]:
    """The root module that is called most. Transforms and losses have no parameters: only for want of others."""
    if log is None:
        return set()
    roots = sorted(
        (ops.start_ns[index], log.module_calls[call].module)
        for index, call in _module_calls(ops)
        if log.module_calls[call].parent < 0
    )
    weightless = set(log.weightless)
    called = [module for _, module in roots if module not in weightless] or [module for _, module in roots]
    return {module for module, _ in Counter(called).most_common(1)}


def _recorded(found: _Steps, log: CallLog | None) -> tuple[list[Step], list[str], bool]:
    """Without the steps that only warm the program up, and one that was broken off, unless there are no others.

    Also notes, and whether the steps are whole.
    """
    steps = found.steps
    if log is None:
        return steps, [], True
    if found.open and log.cut:
        if len(steps) == 1:
            return steps, ["The recording ended within its first step: the figures are of a part of it."], False
        steps = steps[:-1]
    kept = steps[log.warmup :]
    if not kept:
        passed = f"{len(steps)} of {log.warmup} steps"
        note = f"The recording ended during warm-up ({passed}): the report is of the last step that there is."
        return steps[-1:], [note], True
    return kept[: log.limit] if log.limit else kept, [], True


# -- while it is made ----------------------------------------------------------------------------------------------


class StepCount:
    """Counts the steps that `find_steps` will find, so that recording can end when there are enough.

    `began_at_step` says that the recording was begun at the start of a step, `asked` that calls of a module which the
    user named are to tell steps apart.
    """

    def __init__(self, *, warmup: int, limit: int, began_at_step: bool = False, asked: bool = False) -> None:
        self.warmup = warmup
        self.limit = limit
        self.began_at_step = began_at_step
        self.asked = asked
        self.seen: Counter[Boundary] = Counter()
        self.roots: Counter[int] = Counter()
        self.weightless: Counter[int] = Counter()

    def saw(self, boundary: Boundary) -> None:
        """A step ends or starts here."""
        self.seen[boundary] += 1

    def saw_root(self, root: int, *, weightless: bool) -> None:
        """A root module is called from outside any; `root` is a number that it keeps."""
        (self.weightless if weightless else self.roots)[root] += 1
        self.seen["root"] = max((self.roots or self.weightless).values())

    @property
    def told_by(self) -> Boundary:
        """What tells steps apart, from what was seen so far."""
        if self.seen["step"]:
            return "step"
        if self.asked:
            return "module-step"
        return "optimizer" if self.seen["optimizer"] else "root"

    @property
    def busiest_root(self) -> int | None:
        """The root module that was called most."""
        return next((root for root, _ in (self.roots or self.weightless).most_common(1)), None)

    @property
    def whole(self) -> int:
        """How many whole steps are over. What lies before the first boundary is none, unless recording began at one."""
        seen = self.seen[self.told_by]
        begun_inside = self.told_by in ("root", "module-step") or not self.began_at_step
        return max(0, seen - begun_inside)

    @property
    def recorded(self) -> int:
        """How many whole steps after warm-up are over."""
        return max(0, self.whole - self.warmup)

    @property
    def enough(self) -> bool:
        """All the steps that were asked for are over."""
        return self.recorded >= self.limit
