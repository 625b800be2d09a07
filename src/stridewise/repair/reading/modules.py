"""Whether a module of torch's does what its class does and nothing else, so that an edit may do the same without it."""

import gc
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from stridewise.repair.context import Context


def are_plain(context: Context, calls: Sequence[int], kind: str) -> bool:
    """Whether modules of torch's class of that name made some calls, and nothing has changed what such modules do.

    Another layer, or another run, may call any module of that class that the model holds: so none may have a hook.
    """
    torch = sys.modules.get("torch")
    expected = getattr(torch.nn, kind, None) if torch is not None else None
    if torch is None or expected is None or _is_replaced(expected) or not calls:
        return False
    numbers = {context.called_module(call) for call in calls}
    if any(number is None or _kind(context, number) != kind for number in numbers):
        return False
    made_by = [context.module(number) for number in numbers if number is not None]
    model = context.live.model
    held = list(_alive(expected)) if model is None or None in made_by else list(model.modules())
    alike = [module for module in held if type(module).__name__ == kind]
    if not alike or any(type(module) is not expected for module in (*alike, *filter(None, made_by))):
        return False
    return not any(map(_is_changed, alike)) and not _has_hooks(vars(torch.nn.modules.module), "_global_")


def _kind(context: Context, number: int) -> str:
    log = context.case.log
    return log.modules[log.module_calls[number].module][1]


def _alive(kind: type) -> Iterator[Any]:
    """The objects of a class and its subclasses: each refers to its class."""
    gc.collect()  # those that are gone but not yet freed are none
    classes: list[type] = [kind]
    for known in classes:
        below: list[type] = known.__subclasses__()
        classes += [kind for kind in below if kind not in classes]
        yield from (thing for thing in gc.get_referrers(known) if type(thing) is known)


def _is_changed(module: Any) -> bool:
    held = vars(module)
    return "forward" in held or _has_hooks(held, "_")


def _has_hooks(held: dict[str, Any], prefix: str) -> bool:
    """Whether any of torch's tables of hooks holds one. Their names are private to torch; tried on 2.13."""
    return any(value for name, value in list(held.items()) if name.startswith(prefix) and name.endswith("_hooks"))


def _is_replaced(kind: type) -> bool:
    """Whether somebody assigned the class another `forward`."""
    forward = getattr(kind, "forward", None)
    return getattr(forward, "__module__", None) != kind.__module__ or "__call__" in vars(kind)


__all__ = ["are_plain"]
