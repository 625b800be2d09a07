"""Outcomes that one finding is about, and the words for them. No torch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from stridewise.checks.operators.case import Fault, Outcome
from stridewise.checks.operators.plan import kind_of
from stridewise.checks.words import strided
from stridewise.findings import Site

_MOST_EVIDENCE = 4
_KINDS = {
    "contiguous": "contiguous",
    "permuted": "permuted",
    "gaps": "with gaps",
    "permuted with gaps": "permuted with gaps",
    "expanded": "expanded",
    "windows": "in overlapping windows",
    "odd strides of size 1": "with odd strides where its size is 1",
    "offset": "at an address that is not aligned",
}


_CLEAR = re.compile(
    r"contiguous|strid|layout|memory[ _]format|channels_last|dense|overlap|expand|alias|single memory location"
    r"|not aligned|alignment|view size is not compatible",
    re.IGNORECASE,
)
"""What the message of an error has to speak of to tell its reader that layout is the matter."""


class Group(Struct, frozen=True):
    """What went wrong with an operator in one way, for one operand or some together."""

    op: str
    site: Site
    operands: tuple[str, ...]
    """Those that were not contiguous; none if a gradient alone was not, or nothing was."""
    failed: tuple[Outcome, ...]
    held: tuple[Outcome, ...]
    """Of the same operands, those in which nothing was wrong, beside layouts that any walk over memory takes."""
    always: bool = False
    """Whether every other layout fails in this way."""
    written: bool = False
    """Whether it writes one of these operands."""
    own_fake: bool = True
    """Whether it has a fake kernel of its own; else torch's operators tell what they promise."""

    @property
    def layouts(self) -> str:
        """Which layouts fail, in words: `with gaps, expanded`."""
        partly = kinds(self.held)
        return _joined([f"{_KINDS[kind]}{' in some ways' if kind in partly else ''}" for kind in self.failing])

    @property
    def failing(self) -> tuple[str, ...]:
        """The kinds of layouts that fail."""
        return kinds(self.failed)

    @property
    def holding(self) -> tuple[str, ...]:
        """The kinds of layouts none of which fails."""
        return tuple(kind for kind in kinds(self.held) if kind not in self.failing)

    @property
    def right(self) -> str:
        """In which layouts nothing is wrong: `` It is right for `x` permuted. ``; empty if there is none."""
        if len(self.operands) != 1 or not self.holding:
            return ""
        return f" It is right for {self.names} {_joined([_KINDS[kind] for kind in self.holding])}."

    @property
    def names(self) -> str:
        """The operands in words."""
        return _joined([f"`{name}`" for name in self.operands])

    @property
    def gradients(self) -> tuple[str, ...]:
        """The layouts that gradients came in, where these alone were not contiguous."""
        came = [outcome.case.gradient.name for outcome in self.failed if outcome.case.gradient is not None]
        return tuple(dict.fromkeys(name for name in came if name != "contiguous"))

    @property
    def where(self) -> str:
        """Of what, in which layouts: `` for `x` with gaps, expanded ``."""
        if not self.operands:
            if self.gradients:
                return f"for a gradient that is {_joined(self.gradients)}"
            if all(outcome.case.sizes for outcome in self.failed):
                empty = all(0 in sizes for outcome in self.failed for sizes in outcome.case.sizes.values())
                return f"for contiguous operands {'without elements' if empty else 'of which some sizes are 1 or 0'}"
            return "for contiguous operands"
        if len(self.operands) > 1:
            return f"where {self.names} are in other layouts together, though not for each alone"
        whole = "whenever it is not contiguous: " if self.always else ""
        return f"for {self.names} {whole}{self.layouts}"

    @property
    def evidence(self) -> tuple[str, ...]:
        """Some of what was seen: the first of each kind of layouts, then others."""
        firsts = list({kinds([outcome]): outcome for outcome in reversed(self.failed)}.values())[::-1]
        others = [outcome for outcome in self.failed if not any(outcome is first for first in firsts)]
        return tuple(f"{in_words(outcome)}: {said(outcome)}" for outcome in (firsts + others)[:_MOST_EVIDENCE])

    @property
    def reads_past(self) -> bool:
        """Whether what lies around an operand changed a result."""
        return any(fault.reads_past for fault in self.faults)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """All of them."""
        return tuple(fault for outcome in self.failed for fault in outcome.faults)


def kinds(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """The kinds of layouts of some outcomes."""
    found = [kind_of(arrangement) for outcome in outcomes for arrangement in outcome.case.arrangements.values()]
    return tuple(kind for kind in _KINDS if kind in found)


def layouts_in_words(outcome: Outcome) -> tuple[str, ...]:
    """`x[:, ::2]`, (3, 4) with strides (8, 2); one for each operand that is not contiguous."""
    found = []
    for name, arrangement in outcome.case.arrangements.items():
        is_code = arrangement.name[1:2] in (".", "[")
        shown = f"`{name}{arrangement.name[1:]}`" if is_code else f"`{name}`{arrangement.name[1:]}"
        layout = outcome.layouts.get(name)
        found.append(f"{shown}, {strided(layout)}" if layout is not None else shown)
    return tuple(found)


def in_words(outcome: Outcome) -> str:
    """All that a case is."""
    parts = list(layouts_in_words(outcome))
    if outcome.case.sizes and not parts:
        parts.append(", ".join(f"`{name}` of sizes {sizes}" for name, sizes in outcome.case.sizes.items()))
    if outcome.case.gradient is not None and outcome.case.gradient.name != "contiguous":
        parts.append(f"gradient {outcome.case.gradient.name}")
    return "; ".join(parts) or "contiguous"


def said(outcome: Outcome) -> str:
    """What was wrong with one."""
    if outcome.faults:
        return "; ".join(f"{fault.what}: {fault.detail}" for fault in outcome.faults[:2])
    return outcome.message or outcome.status


def is_clear(message: str | None) -> bool:
    """Whether an error tells that layout is the matter."""
    return bool(message and _CLEAR.search(message))


def _joined(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
