"""What is_contiguous() answers, over every layout of a small size."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F

from stridewise import layout
from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import Refused, tried

_NONE = "no layout is such a one"


class _Case(NamedTuple):
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    contiguous: bool
    """As torch says."""
    formula: bool
    """As the article says."""
    packed: bool
    """Every element has a place of its own, and there are no gaps between them."""

    @property
    def trivial(self) -> bool:
        """Some dimension has a stride that no element is reached by."""
        return min(self.sizes) < 2


def run(bench: Bench, sizes: int, strides: int) -> None:
    """Three dimensions, each of a size below `sizes` and a stride below `strides`."""
    cases = _cases(sizes, strides)
    _one_bit(bench)
    _packed(bench, cases)
    _conditions(bench, cases)
    _as_written(bench)
    bench.count(
        f"Of {len(cases):,} layouts",
        "layouts",
        {
            "is_contiguous()": sum(case.contiguous for case in cases),
            "the article's condition": sum(case.formula for case in cases),
            "packed in some order": sum(case.packed for case in cases),
        },
    )


def _cases(top_size: int, top_stride: int) -> list[_Case]:
    found = []
    for sizes in product(range(top_size), repeat=3):
        for strides in product(range(top_stride), repeat=3):
            tensor = torch.empty_strided(sizes, strides, device="meta")
            packed = layout.is_non_overlapping_and_dense(layout.Layout(sizes, strides))
            found.append(_Case(sizes, strides, tensor.is_contiguous(), _formula(sizes, strides), packed))
    return found


def _formula(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    return strides[-1] == 1 and all(strides[at] == math.prod(sizes[at + 1 :]) for at in range(len(sizes)))


def _one_bit(bench: Bench) -> None:
    empty = torch.empty(2, 3, device="meta")
    told = (empty.is_contiguous(), empty.t().is_contiguous())
    said = f"{told[0]} for a tensor on meta, {told[1]} for its transpose"
    bench.expect("C3", "a tensor without elements in memory knows it as well", told == (True, False), said)
    image, weight = bench.randn(2, 4, 6, 6), bench.randn(4, 4, 1, 1)
    alike = {
        "channels_last": image.contiguous(memory_format=torch.channels_last),
        "transposed": image.transpose(2, 3),
    }
    made = {name: tried(partial(F.conv2d, tensor, weight)) for name, tensor in alike.items()}
    told_of = {name: each.said if isinstance(each, Refused) else each.stride() for name, each in made.items()}
    refused = any(isinstance(each, Refused) for each in made.values())
    bench.expect(
        "C3",
        "`conv2d` makes the same layout of two inputs of one shape for which `is_contiguous()` is False",
        not refused and len(set(told_of.values())) == 1,
        ", ".join(f"{name}: {found}" for name, found in told_of.items()),
    )


def _packed(bench: Bench, cases: Sequence[_Case]) -> None:
    contiguous = [case for case in cases if case.contiguous]
    packed = [case for case in cases if case.packed]
    gapped = sum(not case.packed for case in contiguous if math.prod(case.sizes))
    bench.expect_of_all(
        "C11",
        "no contiguous tensor has gaps",
        [case.packed for case in contiguous if math.prod(case.sizes)],
        f"{gapped:,} of {len(contiguous):,} layouts have some",
        none=_NONE,
    )
    others = sum(not case.contiguous for case in packed)
    bench.expect_of_all(
        "C11",
        "a tensor that is packed without gaps is contiguous",
        [case.contiguous for case in packed],
        f"{others:,} of {len(packed):,} packed layouts are not",
        none=_NONE,
    )


def _conditions(bench: Bench, cases: Sequence[_Case]) -> None:
    wrong = sum(layout.is_contiguous(layout.Layout(case.sizes, case.strides)) != case.contiguous for case in cases)
    bench.expect(
        "C15",
        "a rule that knows only sizes and strides answers what torch answers",
        wrong == 0,
        f"it is wrong about {wrong:,} of {len(cases):,} layouts",
    )
    differ = [case for case in cases if case.formula != case.contiguous]
    trivial = sum(case.trivial for case in differ)
    bench.expect(
        "C16",
        "the condition holds exactly where `is_contiguous()` is True",
        not differ,
        f"they differ for {len(differ):,} of {len(cases):,} layouts, {trivial:,} of them with a size of 0 or 1",
    )
    proper = [case for case in cases if not case.trivial]
    ends = [case for case in proper if case.strides[-1] == 1]
    contiguous = [case for case in proper if case.contiguous]
    bench.expect_of_all(
        "C18",
        "where sizes are above 1, every contiguous tensor has `stride(-1) == 1`",
        [case.strides[-1] == 1 for case in contiguous],
        f"{sum(case.strides[-1] == 1 for case in contiguous):,} of {len(contiguous):,} layouts have it",
        none=_NONE,
    )
    bench.expect_of_all(
        "C18",
        "where sizes are above 1, every tensor with `stride(-1) == 1` is contiguous",
        [case.contiguous for case in ends],
        f"{sum(not case.contiguous for case in ends):,} of {len(ends):,} layouts are not",
        none=_NONE,
    )


def _as_written(bench: Bench) -> None:
    shape: object = torch.empty(2, 3, 4, device="meta").shape
    try:
        found = str(shape[1:].prod())  # type: ignore[index]
        runs = True
    except AttributeError as error:
        found, runs = f"AttributeError: {error}", False
    bench.expect("C17", "`tensor.shape[i+1:].prod()` can be run", runs, found)


EXPERIMENT = Experiment(
    name="contiguity-condition",
    title="What is_contiguous() means",
    method="Every layout of three dimensions with small sizes and strides, empty ones and sizes of 1 among them: what "
    "torch answers, what the article's condition says, and whether the layout is packed.",
    claims={
        "C3": Claim(
            "1",
            "Contiguity is one bit of metadata that says how data lie.",
            "It is computed from sizes and strides, and is one of several properties: channels_last and dense in any "
            "order are others, and most kernels ask for those.",
        ),
        "C11": Claim(
            "2.1",
            "`is_contiguous()` says that elements lie side by side, without gaps or jumps.",
            "Contiguous is row-major and packed. A transposed or a channels_last tensor is packed just as well, in "
            "another order.",
        ),
        "C15": Claim(
            "2.1",
            "`stride()` and `shape` are enough to tell whether a tensor is contiguous.",
            "Nothing else enters: neither the device nor the storage.",
        ),
        "C16": Claim(
            "2.1",
            "A tensor is contiguous if and only if `stride(-1)` is 1 and every `stride(i)` is the product of the sizes "
            "behind it.",
            "It is enough, but not needed: strides of dimensions of size 1 don't count, and a tensor without elements "
            "is always contiguous.",
        ),
        "C17": Claim(
            "2.1",
            "The product of the sizes behind a dimension is `tensor.shape[i+1:].prod()`.",
            "A `torch.Size` is a tuple. `shape[i+1:].numel()` or `math.prod(shape[i+1:])` gives the product.",
        ),
        "C18": Claim(
            "2.1",
            "The condition checks that a step in the last dimension moves by one element.",
            "That is its first part. The others check all other dimensions, and they fail more often.",
        ),
    },
    run=run,
    cpu={"sizes": 5, "strides": 9},
    quick={"sizes": 4, "strides": 7},
)
