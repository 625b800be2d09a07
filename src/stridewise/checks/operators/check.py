"""Whether an operator honours layouts: runs it over them, and says what goes wrong, with the smallest layout."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stridewise.checks.operators import judge, load, sandbox
from stridewise.checks.operators.case import Described, Outcome
from stridewise.checks.operators.contract import contract_for, source_of
from stridewise.checks.operators.definition import definition_of
from stridewise.checks.operators.judge import Judged
from stridewise.checks.operators.operands import Bound
from stridewise.checks.operators.options import Options
from stridewise.checks.operators.plan import kind_of, plan
from stridewise.checks.operators.shrink import smallest
from stridewise.checks.operators.snippet import shows, snippet
from stridewise.checks.words import environment
from stridewise.errors import UsageError
from stridewise.findings import Site
from stridewise.recording.filenames import public_place
from stridewise.results.checks import Conformance, Snippet

_SHRINK_S = 12.0
"""How long the smallest layouts of all findings together may be looked for, as a share for each."""
_LARGEST = 1 << 25
_MOST_SHOWN = 3
"""Kinds of layouts that are tried for a program that shows a finding."""


def check_op(
    fn: Callable[..., Any],
    *sample: Any,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    target: str | None = None,
    gradients: bool = True,
    second_order: bool = False,
    fake: bool = True,
    tolerance: float | None = None,
    timeout: float = 10.0,
    time_limit: float = 60.0,
    contain: bool = True,
    contract: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> Conformance:
    """See `stridewise.api.check_op`."""
    require_positive(timeout=timeout, time_limit=time_limit)
    require_share(tolerance)
    options = Options(
        gradients=gradients,
        second_order=second_order,
        fake=fake,
        tolerance=tolerance,
        timeout_s=timeout,
        time_limit_s=time_limit,
        contain=contain,
    )
    shown = name or _name_of(fn)
    place = target or load.target_of(fn)
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise UsageError(f"kwargs are {type(kwargs).__name__}.", expected="Expected: a dict of keyword arguments.")
    bound = Bound(fn, sample, kwargs or {})
    require_small(bound)
    found, judged = _checked(bound, options, shown, place, site_of(fn, shown), progress)
    return _with_contract(found, bound, options, shown, judged) if contract and judged else found


def _checked(
    bound: Bound,
    options: Options,
    name: str,
    place: str | None,
    site: Site,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[Conformance, tuple[Judged, ...]]:
    if options.contain:
        _import_fakes()
    runner = sandbox.runner(bound, options, name, place)
    try:
        return _check(runner, options, site, bound, place, progress)
    finally:
        runner.close()


def _check(
    runner: sandbox.Runner,
    options: Options,
    site: Site,
    bound: Bound,
    place: str | None,
    progress: Callable[[int, int], object] | None,
) -> tuple[Conformance, tuple[Judged, ...]]:
    end = time.monotonic() + options.time_limit_s
    described = runner.describe()
    cases = plan(described, options)
    outcomes: list[Outcome] = []
    interrupted = False
    snippets: tuple[Snippet, ...] = ()
    judged: tuple[Judged, ...] = ()
    try:
        for done, case in enumerate(cases):
            if time.monotonic() > end:
                break
            if progress is not None:
                progress(done, len(cases))
            outcomes.append(runner.run(case))
        if progress is not None:
            progress(len(outcomes), len(cases))
        outcomes = runner.revised(outcomes)
        judged = judge.judge(outcomes, described, site, own_fake=bound.is_of_library)
        wanted = [entry for entry in judged if entry.finding.severity != "note"]
        snippets = tuple(_snippet(entry, described, runner, bound, place, _SHRINK_S / len(wanted)) for entry in wanted)
    except KeyboardInterrupt:
        interrupted = True
        judged = judge.judge(outcomes, described, site, own_fake=bound.is_of_library)
    left = len(cases) - len(outcomes)
    result = Conformance(
        op=described.op,
        operands=judge.operands(outcomes, described),
        cases=judge.tried(outcomes, described),
        findings=tuple(entry.finding for entry in judged),
        snippets=snippets,
        contract=None,
        contract_holds=None,
        tolerance=described.tolerance_words,
        contained=runner.contained,
        notes=(*described.notes, *runner.notes, *_notes(outcomes, left, interrupted, described)),
        environment=environment(),
        interrupted=interrupted,
        left=left,
    )
    return result, judged


def _snippet(
    entry: Judged, described: Described, runner: sandbox.Runner, bound: Bound, place: str | None, limit_s: float
) -> Snippet:
    """The smallest layout for a finding, as a program: of a few kinds of layouts the first whose program shows it."""
    found: list[Snippet] = []
    for outcome in _unlike(entry.group.failed)[:_MOST_SHOWN]:
        made = _smallest(entry, outcome, described, runner, bound, place, limit_s / _MOST_SHOWN)
        if shows(made):
            return made
        found.append(made)
    return found[0]


def _unlike(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The simplest outcome of each kind of layouts."""
    kinds: dict[tuple[object, ...], Outcome] = {}
    for outcome in sorted(outcomes, key=lambda outcome: len(outcome.case.arrangements)):
        case = outcome.case
        arranged = tuple((name, kind_of(arrangement)) for name, arrangement in case.arrangements.items())
        kinds.setdefault((arranged, case.gradient and case.gradient.name), outcome)
    return list(kinds.values())


def _smallest(
    entry: Judged,
    first: Outcome,
    described: Described,
    runner: sandbox.Runner,
    bound: Bound,
    place: str | None,
    limit_s: float,
) -> Snippet:
    wanted = judge.verdict_of(first, described)

    def is_same(outcome: Outcome) -> bool:
        return judge.verdict_of(outcome, described) == wanted

    hangs = first.status == "hung"  # each try would take the whole timeout
    shrunk = first if hangs else smallest(first, described, runner.run, is_same, limit_s)
    again, execute = shrunk is not None, runner.execute
    return snippet(entry.finding.fingerprint, shrunk or first, described, bound, place, again=again, execute=execute)


def _with_contract(
    found: Conformance, bound: Bound, options: Options, name: str, judged: Sequence[Judged]
) -> Conformance:
    """The same with the contract that keeps the failing layouts out, and whether it does."""
    from stridewise.checks.contracts import expect_layout

    wrong = [outcome for entry in judged if entry.code != "SW403" for outcome in entry.group.failed]
    kinds: Any = contract_for(wrong)
    try:
        held: Any = kinds and expect_layout(**kinds, mode="convert")(_own(bound.fn))
    except UsageError:  # what fails is no argument by name, as a parameter
        held = None
    if held is None:
        note = "No contract of layouts keeps out what goes wrong here."
        if kinds:
            note = f"A contract can't be tried on it as it is; on its class or function: {source_of(kinds)}"
        return replace(found, notes=(*found.notes, note)) if wrong else found
    again = replace(options, fake=False)
    _, left = _checked(Bound(held, bound.args, bound.kwargs), again, name, None, site_of(bound.fn, name))
    holds = not any(entry.group.operands or entry.group.gradients for entry in left)
    return replace(found, contract=source_of(kinds), contract_holds=holds)


def _own(fn: Any) -> Any:
    """What can be decorated without a change of what was given: classes are changed in place."""
    return type(fn.__name__, (fn,), {"__module__": fn.__module__}) if isinstance(fn, type) else fn


# ---------------------------------------------------------------------------------------------------- how it is run


def _import_fakes() -> None:
    """Once here, and not in each child: the first mode imports for a second."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    FakeTensorMode()


def site_of(fn: Any, name: str) -> Site:
    """Where the program defines an operator, under all that wraps it; its name where that is not Python."""
    import torch

    source = definition_of(fn)
    if isinstance(source, torch.nn.Module):
        source = type(source)
    try:
        lines, line = inspect.getsourcelines(source)
        file = inspect.getsourcefile(source)
    except (TypeError, OSError):
        return Site(expression=f"`{name}`")
    defined = next((at for at, text in enumerate(lines) if text.lstrip().startswith(("def ", "class ", "async "))), 0)
    text = lines[defined].rstrip("\n")
    file, shown = public_place(file or "", line + defined)
    return Site(file=file, line=shown, function=name, text=text)


def _name_of(fn: Any) -> str:
    import torch

    if isinstance(fn, torch.nn.Module):
        return type(fn).__name__
    if hasattr(fn, "_qualname"):  # of torch.library
        return str(fn._qualname)
    if inspect.isbuiltin(fn):  # its class is none that anybody knows
        return fn.__name__
    return str(getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or fn)


def _notes(outcomes: list[Outcome], left: int, interrupted: bool, described: Described) -> list[str]:
    notes = []
    if left:
        why = "it was interrupted" if interrupted else "its time was over"
        notes.append(f"{left} of {left + len(outcomes)} runs were not made: {why}.")
    unable = [outcome for outcome in outcomes if outcome.status == "not applicable"]
    if unable and len(unable) > len(outcomes) // 4 and not described.random:
        reason = unable[0].reference or ""
        notes.append(f"{len(unable)} of {len(outcomes)} runs say nothing, as the first: {reason}")
    if described.random:
        notes.append("Its values change with the seed: they were not compared, nor were gradients.")
    if described.noise > 0:
        notes.append(f"Equal calls differ by {100 * described.noise:.2g} % of the largest magnitude.")
    return notes


def require_share(tolerance: Any) -> None:
    """Raises UsageError for a tolerance that is no share; None is that of the dtype."""
    if tolerance is not None and not (isinstance(tolerance, (int, float)) and 0 <= tolerance < 1):
        raise UsageError(f"A tolerance of {tolerance!r} was given.", expected="Expected: a share from 0 to 1.")


def require_small(bound: Bound) -> None:
    """Raises UsageError for a sample that is too large to be run some hundred times."""
    for name, tensor in bound.tensors.items():
        if tensor.numel() > _LARGEST:
            raise UsageError(
                f"`{name}` has {tensor.numel():,} elements.",
                expected=f"Expected: a small sample, of at most {_LARGEST:,} an operand; it is run some hundred times.",
            )


def require_positive(**seconds: Any) -> None:
    """Raises UsageError for what is no number of seconds."""
    for name, value in seconds.items():
        if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            given = f"A {name.replace('_', ' ')} of {value!r} was given."
            raise UsageError(given, expected="Expected: seconds, more than 0.")
