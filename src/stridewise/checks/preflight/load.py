"""What `stridewise check model` looks at, from the function that a target names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from stridewise.errors import UsageError
from stridewise.source.target import load_target

_KEYS = ("model", "optimizer", "loader", "process_group", "sample", "loss", "state_dict")
_WHAT = f"a function that returns a dict with any of {', '.join(_KEYS)}, or a model, or a model and its arguments"


def load_subject(target: str) -> dict[str, Any]:
    """The arguments of `preflight`. Raises UsageError where the target gives something else."""
    import torch

    function = load_target(target, _WHAT)
    try:
        inspect.signature(function).bind()
    except TypeError:
        raise UsageError(f"{target} takes arguments, and is called without.", expected=f"Expected: {_WHAT}.") from None
    except ValueError:  # of C, without a signature
        pass
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"{target} is a coroutine.", expected=f"Expected: {_WHAT}.")
    made: Any = function()
    if isinstance(made, torch.nn.Module):
        return {"model": made}
    if isinstance(made, tuple) and made and isinstance(made[0], torch.nn.Module):
        return _with_sample(target, *made)
    if not isinstance(made, Mapping):
        raise UsageError(f"{target} returned {type(made).__name__}.", expected=f"Expected: {_WHAT}.")
    unknown = [key for key in made if key not in _KEYS]
    if unknown:
        raise UsageError(
            f"{target} returned a dict with `{unknown[0]}` in it.", expected=f"Expected: {', '.join(_KEYS)}."
        )
    return dict(made)


def _with_sample(target: str, model: Any, *sample: Any) -> dict[str, Any]:
    """A model and its arguments, one after the other. What else there is to look at has to be named in a dict."""
    import torch

    for thing in sample:
        if isinstance(thing, (torch.nn.Module, torch.optim.Optimizer, torch.utils.data.DataLoader)):
            raise UsageError(
                f"{target} returned a tuple with {type(thing).__name__} in it, which is no argument of a model.",
                expected=f"Expected: {_WHAT}.",
            )
    if not sample:
        return {"model": model}
    return {"model": model, "sample": sample[0] if len(sample) == 1 else sample}
