"""Which layouts an operator is run with, those first that tell most. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, zip_longest

from stridewise.checks.operators.case import Arrangement, Case, Described, Operand
from stridewise.checks.operators.grid import gradient_grid, grid, size_variants
from stridewise.checks.operators.options import Options

MOST_CASES = 600
_MOST_ALONE = 360
_MOST_OF_PARAMETER = 8
_MOST_PAIRED = 4
"""Operands that are laid out together, two by two."""


def plan(described: Described, options: Options) -> tuple[Case, ...]:
    """The cases of an operator, each once: it may end anywhere, and what comes first was the most telling."""
    grids = {operand.name: _grid(operand) for operand in described.operands}
    # Of each operand in turn: if there are too many, each has lost some.
    rounds = zip_longest(*([Case({name: arrangement}) for arrangement in found] for name, found in grids.items()))
    alone = [case for each in rounds for case in each if case is not None][:_MOST_ALONE]
    cases = [Case(), *alone, *_together(described.operands, grids)]
    if described.differentiable and not described.random:
        cases += _gradients(described, grids)
        if options.second_order:
            cases += [_with(case, aspect="second order") for case in _gradients(described, grids)]
    if described.has_fake:
        cases += [Case(case.arrangements, aspect="fake") for case in (Case(), *alone)]
    if options.sizes:
        cases += _sizes(described.operands)
    distinct: list[Case] = []
    seen = set()
    for case in cases:
        key = repr(case)
        if key not in seen:
            seen.add(key)
            distinct.append(case)
    return tuple(distinct[:MOST_CASES])


def _grid(operand: Operand) -> tuple[Arrangement, ...]:
    found = grid(operand.sizes, read_only=operand.role in ("input", "parameter", "buffer"), home=operand.home)
    return found[:_MOST_OF_PARAMETER] if operand.role in ("parameter", "buffer") else found


def _together(operands: Sequence[Operand], grids: dict[str, tuple[Arrangement, ...]]) -> Iterator[Case]:
    """All operands in layouts of one kind, and pairs in layouts of two kinds."""
    kinds = {name: _by_kind(found) for name, found in grids.items()}
    if len(operands) < 2:
        return
    for kind in dict.fromkeys(kind for found in kinds.values() for kind in found):
        yield Case({name: found[kind] for name, found in kinds.items() if kind in found})
    for one, other in combinations([operand.name for operand in operands[:_MOST_PAIRED]], 2):
        for first, second in (("permuted", "gaps"), ("gaps", "permuted"), ("expanded", "permuted")):
            if first in kinds[one] and second in kinds[other]:
                yield Case({one: kinds[one][first], other: kinds[other][second]})


def _by_kind(found: Sequence[Arrangement]) -> dict[str, Arrangement]:
    """The first arrangement of each kind."""
    kinds: dict[str, Arrangement] = {}
    for arrangement in found:
        kinds.setdefault(kind_of(arrangement), arrangement)
    return kinds


def kind_of(arrangement: Arrangement) -> str:
    """What kind of layout it makes, in a word or two that fit behind `x`'s name."""
    has_gaps = any(arrangement.before or ()) or any(arrangement.after or ()) or (arrangement.steps or (1,))[-1] != 1
    has_gaps = has_gaps or any(step > 1 for step in arrangement.steps or ())
    if arrangement.odd_ones:
        return "odd strides of size 1"
    if arrangement.windows is not None:
        return "windows"
    if arrangement.expanded:
        return "expanded"
    if arrangement.order is not None:
        return "permuted with gaps" if has_gaps else "permuted"
    if has_gaps:
        return "gaps"
    return "offset" if arrangement.offset else "contiguous"


def _gradients(described: Described, grids: dict[str, tuple[Arrangement, ...]]) -> Iterator[Case]:
    """Gradients that come in in every layout; operands in some, with one that is contiguous and one that is not."""
    incoming = gradient_grid((2, 2))
    contiguous = Arrangement("contiguous")
    for arrangement in (contiguous, *incoming):
        yield Case(gradient=arrangement, aspect="gradient")
    for name, found in grids.items():
        for arrangement in _by_kind(found).values():
            for gradient in (contiguous, incoming[1]):
                yield Case({name: arrangement}, gradient=gradient, aspect="gradient")


def _sizes(operands: Sequence[Operand]) -> Iterator[Case]:
    """Sizes of 1 and 0, and layouts of them."""
    for sizes in size_variants(operands):
        yield Case(sizes=sizes)
        for operand in operands[:_MOST_PAIRED]:
            if operand.name not in sizes:
                continue
            found = grid(sizes[operand.name], read_only=operand.role == "input")
            for kind, arrangement in _by_kind(found).items():
                if kind in ("permuted", "gaps", "odd strides of size 1"):
                    yield Case({operand.name: arrangement}, sizes)


def _with(case: Case, **fields: object) -> Case:
    from msgspec.structs import replace

    return replace(case, **fields)
