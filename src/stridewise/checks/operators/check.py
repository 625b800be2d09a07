"""Whether an operator honours layouts: runs it over them, and says what goes wrong, with the smallest layout for each."""

from __future__ import annotations

import inspect
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stridewise.checks.operators import judge, load, sandbox
from stridewise.checks.operators.case import Described, Outcome
from stridewise.checks.operators.contract import contract_for, source_of
from stridewise.checks.operators.judge import Judged
from stridewise.checks.operators.operands import Bound
from stridewise.checks.operators.options import Options
from stridewise.checks.operators.plan import plan
from stridewise.checks.operators.probe import Probe
from stridewise.checks.operators.shrink import smallest
from stridewise.checks.operators.snippet import snippet
from stridewise.errors import UsageError
from stridewise.findings import Site
from stridewise.recording.filenames import public_path
from stridewise.results.checks import Conformance, Snippet

_SHRINK_S = 8.0
"""How long the smallest layout of a finding may be looked for."""


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
    _require_positive(timeout=timeout, time_limit=time_limit)
    if tolerance is not None and not 0 <= tolerance < 1:
        raise UsageError(f"A tolerance of {tolerance!r} was given.", expected="Expected: a share from 0 to 1.")
    options = Options(
        gradients=gradients,
        second_order=second_order,
        fake=fake,
        tolerance=tolerance,
        timeout_s=timeout,
        time_limit_s=time_limit,
        contain=contain,
        contract=contract,
    )
    shown = name or _name_of(fn)
    place = target or load.target_of(fn)
    bound = Bound(fn, sample, kwargs or {})
    runner = _runner(bound, options, shown, place)
    try:
        found, judged = _check(runner, options, site_of(fn, shown), bound, place, progress)
    finally:
        runner.close()
    wrong = [outcome for entry in judged if entry.code != "SW403" for outcome in entry.group.failed]
    return _with_contract(found, bound, options, shown, wrong) if contract and wrong else found


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
        judged = judge.judge(outcomes, described, site)
        snippets = tuple(
            _snippet(entry, described, runner, bound, place) for entry in judged if entry.finding.severity != "note"
        )
    except KeyboardInterrupt:
        interrupted = True
        judged = judge.judge(outcomes, described, site)
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
        notes=(*described.notes, *_notes(outcomes, left, interrupted, described)),
        environment=_environment(),
        interrupted=interrupted,
        left=left,
    )
    return result, judged


def _snippet(entry: Judged, described: Described, runner: sandbox.Runner, bound: Bound, place: str | None) -> Snippet:
    """The smallest layout for a finding, as a program."""
    first = min(entry.group.failed, key=lambda outcome: len(outcome.case.arrangements))
    wanted = judge.verdict_of(first, described)
    quick = first.status != "hung"
    shrunk = (
        smallest(
            first, described, runner.run, lambda outcome: judge.verdict_of(outcome, described) == wanted, _SHRINK_S
        )
        if quick
        else first
    )
    return snippet(entry.finding.fingerprint, shrunk or first, described, bound, place, again=shrunk is not None)


def _with_contract(
    found: Conformance, bound: Bound, options: Options, name: str, wrong: Sequence[Outcome]
) -> Conformance:
    """The same with the contract that keeps the failing layouts out, and whether it does."""
    from stridewise.checks.contracts import expect_layout

    kinds: Any = contract_for(wrong)
    if kinds is None:
        return replace(found, notes=(*found.notes, "No contract of layouts keeps out what goes wrong here."))
    held: Any = expect_layout(**kinds, mode="convert")(bound.fn)
    again = check_op(
        held,
        *bound.args,
        kwargs=bound.kwargs,
        name=name,
        gradients=options.gradients,
        second_order=options.second_order,
        fake=False,
        tolerance=options.tolerance,
        timeout=options.timeout_s,
        time_limit=options.time_limit_s,
        contain=options.contain,
    )
    return replace(found, contract=source_of(kinds), contract_holds=again.ok)


# ---------------------------------------------------------------------------------------------------- how it is run


def _runner(bound: Bound, options: Options, name: str, place: str | None) -> sandbox.Runner:
    import torch

    def make() -> Probe:
        return Probe(bound.fn, bound.args, bound.kwargs, options, name)

    if not options.contain:
        return sandbox.InProcess(make())
    if hasattr(os, "fork") and not torch.cuda.is_initialized():
        return sandbox.Sandbox(sandbox.forked(make), options, "in a child process, forked, on one thread")
    if place is None:
        raise UsageError(
            f"`{name}` can't run in a child process: CUDA is in use, so that it can't be forked, nor be imported there.",
            advice="Put it into a module of its own, or give contain=False.",
        )
    start = sandbox.spawned(load.packed(place, bound.args, bound.kwargs, options, name))
    return sandbox.Sandbox(start, options, "in a child process, started anew, on one thread")


def site_of(fn: Any, name: str) -> Site:
    """Where an operator is defined; its name where that is not Python."""
    import torch

    source: Any = getattr(fn, "_init_fn", None) or fn
    if isinstance(source, torch.nn.Module):
        source = type(source)
    try:
        lines, line = inspect.getsourcelines(inspect.unwrap(source) if not isinstance(source, type) else source)
        file = inspect.getsourcefile(source)
    except (TypeError, OSError):
        return Site(expression=f"`{name}`")
    defined = next((at for at, text in enumerate(lines) if text.lstrip().startswith(("def ", "class ", "async "))), 0)
    text = lines[defined].rstrip("\n")
    return Site(file=public_path(file or ""), line=line + defined, function=name, text=text)


def _name_of(fn: Any) -> str:
    import torch

    if isinstance(fn, torch.nn.Module):
        return type(fn).__name__
    if hasattr(fn, "_qualname"):  # of torch.library
        return str(fn._qualname)
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


def _environment() -> dict[str, str]:
    import torch

    return {"torch": torch.__version__, "python": platform.python_version()}


def _require_positive(**seconds: float) -> None:
    for name, value in seconds.items():
        if not 0 < value < float("inf"):
            given = f"A {name.replace('_', ' ')} of {value!r} was given."
            raise UsageError(given, expected="Expected: seconds, more than 0.")
