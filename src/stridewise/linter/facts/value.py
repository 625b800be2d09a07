"""What is known of a value at one place of a function: what it is, how it lies in memory, and how it was made."""

import ast
from enum import Enum
from typing import Literal, NamedTuple, Optional, Protocol

Kind = Literal["tensor", "array", "other", "unknown"]
"""`array` is numpy's; `other` is anything that is surely neither."""
Memory = Literal["fresh", "view", "maybe", "same", "unknown"]
"""Whose memory a value has, seen from what it was made of: its own, that one's, either by layout, or it is that one."""


class State(Enum):
    """How a tensor lies in memory, as far as source tells."""

    CONTIGUOUS = "contiguous"
    CHANNELS_LAST = "channels_last"
    PERMUTED = "permuted"
    """Its dimensions lie in another order than they are counted: a view of another tensor, or a copy that kept that."""
    EXPANDED = "expanded"
    """A view that repeats elements by strides of 0."""
    GAPPED = "gapped"
    """A view of a part."""
    NEGATIVE = "negative"
    """A view of a numpy array that runs backwards along a dimension; torch has none."""
    UNKNOWN = "unknown"


STRIDED = (State.PERMUTED, State.EXPANDED, State.GAPPED, State.NEGATIVE)


class Value(NamedTuple):
    """One value. Two are equal if they were made by the same expression."""

    kind: Kind = "unknown"
    state: State = State.UNKNOWN
    sure: bool = False
    """Whether the state holds in every run: of a tensor with two dimensions or more, none of them of size 1 or 0.

    Not where it depends on how a tensor lies that comes from elsewhere: the transpose of an argument may be contiguous.
    Of a value whose kind is not known it holds if that is a tensor, as what torch's methods are called on must be.
    What a called function does to the layout of its arguments in place is not looked at: nearly none does.
    """
    op: str | None = None
    """What made it: `transpose`, `Conv2d`, `parameter` for a function's own, `element` for one of several."""
    node: ast.expr | None = None
    """The expression that made it."""
    of: Optional["Value"] = None
    """What it was made of: the receiver of a method, a function's first tensor."""
    memory: Memory = "unknown"
    seen: bool = False
    """Whether the state is what a recording saw, or follows from that, rather than what the source tells."""
    regular: bool = False
    """Whether a contiguous tensor has the strides of a new one at dimensions of size 1 too, where any is contiguous.

    What `contiguous()` returns and `is_contiguous()` tells of may have others: an image of one channel that lies as
    channels_last is contiguous too, and what is made of it and of others may come out as channels_last.
    """

    @property
    def is_contiguous(self) -> bool:
        """Whether it is contiguous for sure."""
        return self.state is State.CONTIGUOUS and self.sure

    @property
    def is_strided(self) -> bool:
        """Whether it is not contiguous for sure, but for dimensions of size 1."""
        return self.sure and self.state in STRIDED

    @property
    def root(self) -> "Value":
        """What it is a view of, or is itself, for sure."""
        value = self
        while value.of is not None and value.memory in ("view", "same"):
            value = value.of
        return value


UNKNOWN = Value()
OTHER = Value(kind="other")
NUMBER = Value(kind="other", op="number")
"""A whole number, for sure."""
SIZES = Value(kind="other", op="sizes")
"""Several of these: the sizes or strides of a tensor."""

OPTIONS = Value(kind="other", op="options")
"""A dictionary of a device and a dtype, as is given to functions that make tensors by `**`."""


class Seen(Protocol):
    """What a recording saw of the expressions of a file."""

    def output(self, node: ast.expr) -> State | None:
        """How what an expression gives lay in every step; None if that is not known, or differed."""

    def receiver(self, node: ast.expr) -> State | None:
        """The same of what a method is called on."""


def join(one: Value, other: Value) -> Value:
    """What is known of a value that is one or the other."""
    if one is other or one == other:
        return one
    alike = one.state is other.state
    return Value(
        one.kind if one.kind == other.kind else "unknown",
        one.state if alike else State.UNKNOWN,
        alike and one.sure and other.sure,
        one.op if one.op == other.op else None,
        None,
        None,
        one.memory if one.memory == other.memory else "unknown",
        alike and one.seen and other.seen,
        alike and one.regular and other.regular,
    )
