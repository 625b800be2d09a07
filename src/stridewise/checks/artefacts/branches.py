"""Where a model asks for the layout of a tensor, and whether the answers change with its inputs' layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from stridewise.checks.artefacts.facts import Asked
from stridewise.checks.words import call_place, site_of

_QUESTIONS = frozenset({"is_contiguous", "stride", "is_non_overlapping_and_dense", "storage_offset", "dim_order"})
_WAYS_OUT = frozenset({"data_ptr", "numpy", "untyped_storage", "storage", "__array__", "__dlpack__"})
"""What gives the program a tensor's memory: what it does with that can't be heard."""
_MOST = 4
_Key = tuple[tuple[int, int], str, int]


def differing(home: Callable[[], Any], other: Callable[[], Any]) -> tuple[Asked, ...]:
    """The questions whose answers differ between two runs of a model, in the order of the program."""
    at_home, elsewhere = _answers(home), _answers(other)
    found = [
        Asked(site_of(place), name, _shown(at_home[place, name, number]), _shown(elsewhere[place, name, number]))
        for place, name, number in at_home
        if elsewhere.get((place, name, number), at_home[place, name, number]) != at_home[place, name, number]
    ]
    found.sort(key=lambda asked: asked.question in _WAYS_OUT)  # the program's own words for layouts first
    return tuple({(asked.site, asked.question): asked for asked in reversed(found)}.values())[::-1][:_MOST]


def _answers(run: Callable[[], Any]) -> dict[_Key, Any]:
    """What was answered, by place, function, and how often it was asked there before."""
    import torch
    from torch.overrides import TorchFunctionMode

    found: dict[_Key, Any] = {}
    asked: Counter[tuple[tuple[int, int], str]] = Counter()

    class Listening(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            answer = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            if name in _QUESTIONS or name in _WAYS_OUT:
                place = call_place()
                found[place, name, asked[place, name]] = answer if name in _QUESTIONS else _Memory()
                asked[place, name] += 1
            return answer

    try:
        with torch.no_grad(), Listening():
            run()
    except Exception:  # what it asked until then counts
        pass
    return found


class _Memory:
    """The memory of a tensor: of another run it is another, which is no difference that tells by itself."""

    def __str__(self) -> str:
        return "memory that lies otherwise"


def _shown(answer: Any) -> str:
    return str(tuple(answer)) if isinstance(answer, (tuple, list)) else str(answer)
