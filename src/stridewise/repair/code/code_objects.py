"""Code objects: whether two of them do the same, and which of an edited file stands in place of which. No torch."""

import dis
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterator
from inspect import CO_NEWLOCALS, CO_OPTIMIZED
from types import CodeType

_OF_THE_SOURCE = frozenset({"__firstlineno__", "__static_attributes__"})
"""What class bodies note of their own source, from 3.13 on: lines above change it, and what methods assign."""


class Pair:
    """Code of a file as it is, and what stands in its place when it is edited; None if that can't be told."""

    def __init__(self, old: CodeType, new: CodeType | None, above: "Pair | None") -> None:
        self.old = old
        self.new = new
        self.above = above
        """What defines it; None for a module."""
        self.changed = new is None or meaning(old) != meaning(new)
        self.changed_itself = new is None or _own(old) != _own(new)

    @property
    def is_body(self) -> bool:
        """A module's or a class's."""
        return _is_body(self.old)

    @property
    def is_function(self) -> bool:
        """A function's or a lambda's; not one that Python makes of a comprehension or of type parameters."""
        return not self.is_body and (self.old.co_name == "<lambda>" or not self.old.co_name.startswith("<"))

    def outward(self) -> "Iterator[Pair]":
        """It, what defines it, and so on."""
        pair: Pair | None = self
        while pair is not None:
            yield pair
            pair = pair.above


def pairs_of(old: CodeType, new: CodeType) -> list[Pair]:
    """The code of a module and of all that is defined in it, from the outside in: equal names go in order."""
    pairs = [Pair(old, new, None)]
    for above in pairs:
        olds, news = _defined(above.old), _defined(above.new) if above.new is not None else []
        counts, new_counts = (Counter(code.co_qualname for code in codes) for codes in (olds, news))
        partners: dict[str, deque[CodeType]] = defaultdict(deque)
        for code in news:
            partners[code.co_qualname].append(code)
        for code in olds:
            name = code.co_qualname
            pairs.append(Pair(code, partners[name].popleft() if counts[name] == new_counts[name] else None, above))
    return pairs


def meaning(code: CodeType) -> Hashable:
    """A key of what code does, and what it defines does, wherever it stands."""
    return _own(code), tuple(map(meaning, _defined(code)))


def exact(code: CodeType) -> Hashable:
    """A key of what code does, and where it stands. Python's own `==` leaves the columns out in some 3.12."""
    return _own(code), code.co_firstlineno, code.co_linetable, tuple(map(exact, _defined(code)))


def _own(code: CodeType) -> Hashable:
    """What code does itself, whatever the functions do that it defines."""
    return (
        code.co_qualname,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
        _instructions(code) if _is_body(code) else (code.co_code, tuple(map(_constant, code.co_consts))),
        (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars),
        code.co_exceptiontable,
    )


def _instructions(code: CodeType) -> Hashable:
    """What a class body or a module does, without what it notes of its source."""
    found: list[Hashable] = []
    for step in dis.get_instructions(code):
        if step.opname in ("STORE_NAME", "STORE_GLOBAL") and step.argval in _OF_THE_SOURCE and found:
            found[-1] = None
        if step.opname != "EXTENDED_ARG":
            found.append((step.opname, _constant(step.argval)))
    return tuple(found)


def _constant(value: object) -> Hashable:
    """A key of a constant that tells 0.0 from -0.0 and 1 from True."""
    if isinstance(value, CodeType):
        return CodeType, value.co_qualname
    if isinstance(value, tuple):
        return tuple, tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return frozenset, frozenset(map(_constant, value))
    if isinstance(value, (float, complex, slice)):
        return type(value), repr(value)
    return type(value), value


def _defined(code: CodeType) -> list[CodeType]:
    return [value for value in code.co_consts if isinstance(value, CodeType)]


def _is_body(code: CodeType) -> bool:
    return not (code.co_flags & CO_OPTIMIZED and code.co_flags & CO_NEWLOCALS)
