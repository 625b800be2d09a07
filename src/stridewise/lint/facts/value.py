"""What is known of a value at one place of a function: what it is, how it lies in memory, and how it was made."""

import ast
from enum import Enum
from typing import Literal, NamedTuple, Optional

Kind = Literal["tensor", "array", "other", "unknown"]
"""`array` is numpy's; `other` is anything that is surely neither."""
Memory = Literal["fresh", "view", "maybe", "same", "unknown"]
"""Whose memory a value has, seen from what it was made of: its own, that one's, either by layout, or it is that one."""


class State(Enum):
    """How a tensor lies in memory, as far as source tells."""

    CONTIGUOUS = "contiguous"
    CHANNELS_LAST = "channels_last"
    PERMUTED = "permuted"
    """A view with dimensions in another order than those of what it views."""
    EXPANDED = "expanded"
    """A view that repeats elements by strides of 0."""
    GAPPED = "gapped"
    """A view of a part."""
    UNKNOWN = "unknown"


class Value(NamedTuple):
    """One value. Two are equal if they were made by the same expression."""

    kind: Kind = "unknown"
    state: State = State.UNKNOWN
    sure: bool = False
    """Whether the state holds in every run, if no dimension has size 1.

    Not where it depends on how a tensor lies that comes from elsewhere: the transpose of an argument may be contiguous.
    """
    op: str | None = None
    """What made it: `transpose`, `Conv2d`, `parameter` for a function's own, `element` for one of several."""
    node: ast.expr | None = None
    """The expression that made it."""
    of: Optional["Value"] = None
    """What it was made of: the receiver of a method, a function's first tensor."""
    memory: Memory = "unknown"
    seen: bool = False
    """Whether a recording saw the state, rather than the source telling it."""

    @property
    def is_contiguous(self) -> bool:
        """Whether it is contiguous for sure."""
        return self.state is State.CONTIGUOUS and self.sure

    @property
    def is_strided(self) -> bool:
        """Whether it is a view that is not contiguous for sure, but for dimensions of size 1."""
        return self.sure and self.state in (State.PERMUTED, State.EXPANDED, State.GAPPED)

    @property
    def root(self) -> "Value":
        """What it is a view of, or is itself, for sure."""
        value = self
        while value.of is not None and value.memory in ("view", "same"):
            value = value.of
        return value


UNKNOWN = Value()
OTHER = Value(kind="other")


def join(one: Value, other: Value) -> Value:
    """What is known of a value that is one or the other."""
    if one == other:
        return one
    kind: Kind = one.kind if one.kind == other.kind else "unknown"
    if one.state is not other.state:
        return Value(kind)
    alike = one.op if one.op == other.op else None
    memory: Memory = one.memory if one.memory == other.memory else "unknown"
    return Value(kind, one.state, one.sure and other.sure, alike, None, None, memory, one.seen and other.seen)
