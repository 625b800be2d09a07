"""Example modules that are written to disk, imported, and recorded: what kinds of candidates are tested on."""

import importlib.util
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import stridewise
from stridewise.analysis.assemble import report_of
from stridewise.analysis.case import Case
from stridewise.repair.candidate import Candidate, Kind
from stridewise.repair.context import Context, Live
from stridewise.repair.plan.costs import Costs
from stridewise.repair.plan.slow import Format, Slow
from stridewise.repair.trial.capture import capture
from stridewise.repair.trial.costs import measure
from stridewise.repair.trial.replay import Arm, replay
from stridewise.source.edits import apply, check
from stridewise.source.files import Files

STEPS = 2


def load(folder: Path, source: str, name: str = "example") -> ModuleType:
    """Import source from a file of its own."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    torch.manual_seed(0)
    spec.loader.exec_module(module)
    return module


def context_of(module: ModuleType) -> Context:
    """Record `program()` of a module: two steps. Its `model`, `loaders` and `args` are what is live."""
    program: Any = module.program  # type: ignore[attr-defined]
    output = program()
    with stridewise.record() as recording:
        for _ in range(STEPS):
            program()
            recording.step()
    case = Case(recording.trace)
    live = Live(
        model=getattr(module, "model", None),
        args=getattr(module, "args", ()),
        output=output,
        loaders=getattr(module, "loaders", ()),
    )
    files = Files(Path.cwd())
    return Context(report_of(case, min_share=0), case, live, files.open, slow_calls(program), costs_of(program))


def slow_calls(program: Callable[[], Any], format: Format = "contiguous") -> tuple[Slow, ...]:
    """The calls of a step with strided operands, as if each were slow for that and a copy into a format paid."""

    def timer(arm: Arm, times: int) -> float:
        return times * (100.0 if arm.format is None else 40.0 if arm.format == format else 200.0)

    return replay(capture(program), deadline=1, clock=lambda: 0, timer=timer)


def costs_of(program: Callable[[], object]) -> Costs:
    """What the calls of a step cost if a strided element takes four times as long as others, and a copy of it five."""

    def timer(arm: Arm, times: int) -> float:
        elements = sum(prod(spec.sizes) for spec in arm.call.tensors)
        copies = arm.call.function is torch.Tensor.contiguous
        return 1e6 * times * elements * ((5 if copies else 4) if arm.format is None else 0 if copies else 1)

    _, costs = measure(capture(program, everything=True), deadline=1, clock=lambda: 0, timer=timer)
    return costs


def edited(context: Context, candidate: Candidate) -> str:
    """The text of the one file that a candidate edits, with its edits."""
    (name,) = {edit.file for edit in candidate.edits}
    file = context.file(name)
    assert file is not None
    check(file, candidate.edits)
    return apply(file.content, file.encoding, candidate.edits).decode(file.encoding)


def proposals(kind: Kind, context: Context) -> list[Candidate]:
    return list(kind.candidates(context))
