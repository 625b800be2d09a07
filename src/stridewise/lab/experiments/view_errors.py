"""When view raises, what it says, and what reshape does then: every small case."""

import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import Refused, tried

_SIZES = (2, 3, 4)
_UNEVEN = (5, 4)
"""Not a shape of that many elements."""


def run(bench: Bench) -> None:
    """Every permutation of a tensor of 24 elements, and every shape of 24 elements without a dimension of size 1."""
    x = bench.randn(*_SIZES)
    found: Counter[str] = Counter()
    messages: set[str] = set()
    for order, shape in itertools.product(itertools.permutations(range(len(_SIZES))), _shapes(x.numel())):
        value = x.permute(order)
        refused = _refused(value.view, shape)
        found["foretold"] += _has_strides(value, shape) == (refused is None)
        found["reshaped"] += _refused(value.reshape, shape) is None
        if refused:
            messages.add(refused)
            reshaped = tried(partial(value.reshape, shape))
            found["copied"] += (
                not isinstance(reshaped, Refused)
                and reshaped.data_ptr() != x.data_ptr()
                and torch.equal(reshaped, value.contiguous().view(shape))
            )
        found["refused" if refused else "viewed"] += 1
    cases = found["refused"] + found["viewed"]
    bench.count(
        "Shapes asked of the permutations of a tensor",
        "shapes",
        {"view": found["viewed"], "view raises": found["refused"]},
    )
    text = "`view` works exactly where strides exist that walk the new shape in the old order"
    bench.expect("C121", text, found["foretold"] == cases, f"{found['foretold']} of {cases} shapes")
    text = "where `view` raises, `reshape` gives what `contiguous().view()` gives, in new memory"
    if found["refused"]:
        said = f"{found['copied']} of {found['refused']} shapes"
        bench.expect("C122", text, found["copied"] == found["refused"], said)
    else:
        bench.untested("C122", text, f"`view` raises for none of {cases} shapes")
    text = "`reshape` succeeds for every shape of as many elements"
    bench.expect("C123", text, found["reshaped"] == cases, f"{found['reshaped']} of {cases} shapes")
    _errors(bench, x, "; ".join(sorted(messages)))
    swapped = x.transpose(0, 1)
    arms = {
        "x.contiguous().view(6, 4)": lambda: swapped.contiguous().view(6, 4),
        "x.reshape(6, 4)": lambda: swapped.reshape(6, 4),
    }
    bench.predict("C124", bench.compare("24 elements", arms, timed=False).copies("x.reshape(6, 4)"))


def _errors(bench: Bench, x: Tensor, strided: str) -> None:
    """What the two errors say; `strided` is what `view` said of strides."""
    text = "`view` says of a strided tensor that the shape is invalid"
    bench.expect("C120", text, "is invalid" in strided, strided or "it raises for none")
    uneven, reshaped = _refused(x.view, _UNEVEN), _refused(x.reshape, _UNEVEN)
    said = f"`reshape`: {reshaped or 'no error'}"
    text = "where `view` does say so, `reshape` works"
    bench.expect("C120", text, "is invalid" in (uneven or "") and reshaped is None, said)
    bench.expect("C123", "it succeeds for a shape of another number of elements", reshaped is None, said)


def _shapes(elements: int) -> Iterator[tuple[int, ...]]:
    """Every ordered way to write a number as a product of numbers above 1."""
    yield (elements,)
    for first in range(2, elements // 2 + 1):
        if elements % first == 0:
            yield from ((first, *rest) for rest in _shapes(elements // first))


def _has_strides(value: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether one stride a dimension leads through the elements in order, worked out from each element's place."""
    places = _walk(value.shape, value.stride())
    steps = [places[math.prod(shape[dim + 1 :])] for dim in range(len(shape))]
    return _walk(shape, steps) == places


def _walk(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Where the elements lie, in order."""
    return [sum(map(operator.mul, index, strides)) for index in itertools.product(*map(range, sizes))]


def _refused(method: Callable[[tuple[int, ...]], Tensor], shape: tuple[int, ...]) -> str | None:
    """What `view` or `reshape` of a tensor says if it raises."""
    try:
        method(shape)
    except RuntimeError as error:
        return str(error).split(" (")[0].split(". ")[0]
    return None


EXPERIMENT = Experiment(
    name="view-errors",
    title="What view refuses",
    method="All permutations of a tensor of sizes 2, 3, 4 with all shapes of 24 elements that have no dimension of "
    "size 1. Whether strides exist is worked out from each element's place in memory, not asked of torch.",
    claims={
        "C120": Claim(
            "6.1",
            "`view` fails with `shape is invalid` where `reshape` works.",
            "These are two errors. A wrong number of elements is invalid for `reshape` too; strides that do not fit "
            "are said to be `not compatible`, with the advice to use `reshape`.",
        ),
        "C121": Claim(
            "6.1",
            "`view` needs a shape that strides can be worked out for.",
            "So it is a test, too: what `view` gives is never a copy.",
        ),
        "C122": Claim(
            "6.1",
            "Where `view` fails, `reshape` is `contiguous()` and then `view`.",
            "The copy is of the whole tensor, in row-major order.",
        ),
        "C123": Claim(
            "6.1",
            "`reshape` therefore always succeeds.",
            "For every shape with the same number of elements, and for no other.",
        ),
        "C124": Claim(
            "6.1",
            "`reshape` can hide a copy.",
            "Where that must not be, `view` raises instead.",
        ),
    },
    run=run,
)
