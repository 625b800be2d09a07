"""The ways into a run of `fix`: a model and its arguments, a step, a target, a script."""

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stridewise.config import project_root
from stridewise.errors import StridewiseError, UsageError
from stridewise.recorder import script as recorded_script
from stridewise.repair.options import Options
from stridewise.repair.outcome import Outcome
from stridewise.repair.trial.interrupts import held_back
from stridewise.repair.trial.script import ScriptTrials
from stridewise.repair.trial.session import OnProgress, Session, live_of
from stridewise.repair.trial.workload import of_model, of_step, step_or_model
from stridewise.source.files import Files
from stridewise.source.target import load_target


def is_module(model: Any) -> bool:
    """Whether it is an `nn.Module`."""
    return isinstance(model, nn.Module)


def try_model(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Options,
    on_progress: OnProgress | None,
    *,
    train: bool,
    loss: Callable[[Any], Tensor] | None = None,
    target: Callable[..., Any] | None = None,
) -> Outcome:
    """Try edits of what `model(*args, **kwargs)` runs. Raises UsageError under several ranks."""
    _require_one_rank()
    with held_back(), of_model(model, args, kwargs, train=train, loss=loss) as workload:
        session = Session(workload, Files(project_root()), options, on_progress=on_progress)
        return session.run(live_of(workload, target))


def try_step(step: Callable[[], Any], options: Options, on_progress: OnProgress | None) -> Outcome:
    """Try edits of what a step of the program's own runs. Raises UsageError under several ranks."""
    _require_one_rank()
    with held_back(), of_step(step) as workload:
        session = Session(workload, Files(project_root()), options, on_progress=on_progress)
        return session.run(live_of(workload))


def try_target(target: str, options: Options, on_progress: OnProgress | None, *, train: bool) -> Outcome:
    """Try edits of what a target's function gives. Raises UsageError where it gives nothing that can be run."""
    _require_one_rank()
    function = load_target(target, "a function that gives (model, args), or a step")
    if is_module(function):
        raise UsageError(f"{target} is a model.", expected="Expected: a function that returns (model, args).")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise UsageError(f"{target} is a coroutine or a generator.", expected="Expected: a function.")
    needed = [name for name, parameter in _parameters(function) if parameter.default is parameter.empty]
    if needed:
        raise UsageError(f"{target} takes arguments ({', '.join(needed)}).", expected="Expected: a function without.")
    made = function()
    given = step_or_model(made, target)
    if given is not None:
        return try_model(*given, options, on_progress, train=train, target=function)
    if train:
        raise UsageError(
            f"{target} gives a step, which has a backward of its own or none.", advice="Leave out --train."
        )
    return try_step(made if callable(made) else function, options, on_progress)


def try_script(
    argv: list[str], options: Options, on_progress: OnProgress | None, *, module: bool, stop: bool
) -> tuple[Outcome | None, int, str | None]:
    """Run a script, and try edits over its steps: what came of it, the script's exit code, and what else to say."""
    _require_one_rank()
    trials = ScriptTrials(Files(project_root()), options, stop=stop, on_progress=on_progress)
    recording = recorded_script.Options(library_copies=options.library_copies)
    try:
        ran = recorded_script.run(argv, module=module, options=recording, then=trials.begin)
    finally:
        trials.end("The script ended")
    if trials.failure is not None and not isinstance(trials.failure, StridewiseError):
        raise trials.failure
    messages = [*ran.messages, *filter(None, [trials.message])]
    return trials.outcome, ran.exit_code, "\n".join(messages) or None


def _parameters(function: Callable[..., Any]) -> list[tuple[str, inspect.Parameter]]:
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    try:
        return [entry for entry in inspect.signature(function).parameters.items() if entry[1].kind not in kinds]
    except (TypeError, ValueError):
        return []


def _require_one_rank() -> None:
    """Ranks that try other edits than each other, or for other times, would wait for each other for ever."""
    ranks = int(os.environ["WORLD_SIZE"]) if os.environ.get("WORLD_SIZE", "").isdigit() else 1
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        ranks = max(ranks, torch.distributed.get_world_size())
    if ranks > 1:
        raise UsageError(
            f"This process is one of {ranks} ranks.",
            advice="Run `fix` in a single process: an edit that wins there can be tried in the job by hand.",
        )
