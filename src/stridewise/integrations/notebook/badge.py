"""What is shown of one tensor's layout. Reads its description only: no value, no copy, no wait for a device."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from stridewise import layout
from stridewise.report.text import one_line
from stridewise.results.numbers import byte_count, share

if TYPE_CHECKING:
    from torch import Tensor

Tone = Literal["format", "other", "care"]
_HINTED = ("expanded", "overlapping", "gapped")
_FORMATS = ("contiguous", "channels_last", "channels_last_3d")

_BARS: dict[Tone, str] = {"format": "#2a9d8f", "other": "#8a8f98", "care": "#d08700"}
"""Seen on white and on black. They say nothing that the words do not."""
_BOX = "margin:.2em 0;padding:.1em .6em;border-left:4px solid {bar};color:inherit;font-size:90%;line-height:1.5"
_PRE = "margin:.3em 0;padding:0;background:transparent;color:inherit;white-space:pre;overflow-x:auto"


class Badge(Struct, frozen=True):
    """A tensor's layout in a line or two."""

    label: str
    """The layout class, or what it has in the place of one: `sparse_coo`, `nested`."""
    tone: Tone
    facts: tuple[str, ...]
    """Sizes, strides, dtype and device, share of its storage: those that are known."""
    hint: str | None = None
    """What the label means, where that is not obvious."""
    why: str = ""
    """All that `stridewise explain` says."""

    def to_text(self) -> str:
        """As lines of plain text."""
        lines = [" · ".join((self.label, *self.facts)), *([self.hint] if self.hint else [])]
        return "\n".join(one_line(line) for line in lines)

    def to_html(self) -> str:
        """As one element that takes its colours from the page."""
        facts = "".join(f" · {escape(one_line(fact))}" for fact in self.facts)
        hint = f'<br><span style="opacity:.85">{escape(one_line(self.hint))}</span>' if self.hint else ""
        return (
            f'<div class="stridewise-badge" title="{escape(one_line(self.why))}" '
            f'style="{_BOX.format(bar=_BARS[self.tone])}">'
            f"<strong>{escape(one_line(self.label))}</strong>{facts}{hint}</div>"
        )


def preformatted(text: str) -> str:
    """Plain text as HTML."""
    return f'<pre style="{_PRE}">{escape(text)}</pre>'


def describe(tensor: Tensor) -> Badge:
    """What to show of a tensor. Raises nothing, but lets through what interrupts: a subclass may raise that as well."""
    import torch

    # With a function mode on, a recorder's say, looking at a tensor would be a call of the program's.
    with torch._C.DisableTorchFunction():
        try:
            return _describe(tensor)
        except Exception as error:  # a subclass's own code, a tensor that is half made: it is to be shown all the same
            first = (str(error).splitlines() or [""])[0]
            return Badge("unknown layout", "other", (), hint=f"{type(error).__name__}: {first}"[:200])


def _describe(tensor: Tensor) -> Badge:
    from torch.nn.parameter import is_lazy

    from stridewise.recorder.tensors import layout_of

    if is_lazy(tensor):
        return Badge("uninitialized", "other", _facts(tensor), hint="Its sizes are known after the first forward.")
    found = layout_of(tensor)
    if isinstance(found, str):
        label, _, why = found.removeprefix("_").partition(": ")
        own = label == type(tensor).__name__
        strides = _read(lambda: f"strides {_numbers(tensor.stride())}") if own else None
        return Badge(label, "other", _facts(tensor, strides), hint=_sentence(why), why=found)
    label = layout.name(found)
    itemsize = tensor.element_size()
    why = layout.explain(found, itemsize)
    also = [name for name in layout.classes(found)[1:] if name in _FORMATS]
    return Badge(
        f"{label} ({', '.join(also)} too)" if also else label,
        "care" if label in _HINTED else "format" if label in _FORMATS else "other",
        _facts(
            tensor,
            f"strides {_numbers(found.strides)}",
            f"offset {found.offset}" if found.offset else None,
            storage=lambda: _storage(tensor, found, itemsize),
        ),
        hint=_sentence(why.partition(": ")[2]) if label in _HINTED else None,
        why=why,
    )


def _facts(
    tensor: Tensor, *layout_facts: str | None, storage: Callable[[], str | None] | None = None
) -> tuple[str, ...]:
    facts = (
        _read(lambda: f"sizes {_numbers(tensor.shape)}"),
        *layout_facts,
        _read(lambda: f"{str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"),
        _read(storage) if storage is not None else None,
    )
    return tuple(fact for fact in facts if fact)


def _read(fact: Callable[[], str | None]) -> str | None:
    """A fact, or None of a tensor that can't tell it: nested ones have no sizes, those inside torch.func no storage."""
    try:
        return fact()
    except Exception:
        return None


def _storage(tensor: Tensor, found: layout.Layout, itemsize: int) -> str | None:
    if found.is_empty:
        return "no elements"
    if tensor.device.type == "meta":
        return "no memory"
    own, whole = layout.stored(found) * itemsize, tensor.untyped_storage().nbytes()
    if whole == 0:
        return f"its storage of {byte_count(layout.storage_needed(found) * itemsize)} is freed"
    if whole < (needed := layout.storage_needed(found) * itemsize):
        return f"its storage has {byte_count(whole)} of the {byte_count(needed)} that it needs"
    if own >= whole:
        return f"all {byte_count(whole)} of its storage"
    return f"{byte_count(own)} of {byte_count(whole)} of its storage ({share(own / whole)})"


def _numbers(values: Any) -> str:
    return f"({', '.join(map(str, values))}{',' if len(values) == 1 else ''})"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
