"""Writes which copies inside operators are made for operands of any layout: `python docs/copies_anyway.py`.

Each operator of torch's own database runs on its samples, with operands that are contiguous, permuted and with gaps.
A copy is named by the operators that it lies in, as `linalg_inv/linalg_inv_ex`; it is made anyway if a run makes as
many of it whatever the layout. A test judges a part of the operators anew.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_map_only

import stridewise
from stridewise.analysis.copies import operators_around
from stridewise.analysis.functions import EXPLICIT, IMPLICIT
from stridewise.recording.handle import Recording

TABLE = Path(stridewise.__file__).parent / "analysis" / "copies_anyway.py"
DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)
MOST_SAMPLES = 40
MADE_FOR_LAYOUT = {"contiguous", *IMPLICIT}
"""Operators that copy only if the layout is not the one that is asked for."""

DOC = '''"""Copies inside operators that are made for operands of any layout: written by `python docs/copies_anyway.py`.

An entry names the operators that such a copy lies in, from the outside in.
"""

from typing import Final
'''
Counts = Counter[str]
Layout = Callable[[Tensor], Tensor]


def permuted(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """The same elements, with the dimensions in memory in another order."""
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return tensor.permute(tuple(order)).contiguous().permute(tuple(inverse))


def by_order(order: Callable[[list[int]], list[int]]) -> Layout:
    """A layout with the dimensions in memory in another order."""
    return lambda tensor: permuted(tensor, order(list(range(tensor.dim()))))


LAYOUTS: tuple[Layout, ...] = (
    Tensor.contiguous,
    by_order(lambda dims: [*dims[:-2], *dims[-2:][::-1]]),
    by_order(lambda dims: dims[::-1]),
    by_order(lambda dims: [*dims[:1], *dims[2:], *dims[1:2]]),
    lambda tensor: tensor.repeat_interleave(2, -1)[..., ::2] if tensor.dim() else tensor,
)


def variants(given: Any) -> Iterator[Any]:
    """The arguments of an operator, with all tensors in one layout, for each layout."""
    for layout in LAYOUTS:
        yield tree_map_only(Tensor, partial(in_layout, layout=layout), given)


def in_layout(tensor: Tensor, layout: Layout) -> Tensor:
    """A tensor in a layout, if it has strides and elements."""
    strided = type(tensor) is Tensor and tensor.layout == torch.strided and tensor.numel()
    return layout(tensor.detach()) if strided else tensor


def copies_by_layout(op: OpInfo) -> list[list[Counts]]:
    """For samples from first to last, and each layout in which they ran: how often each copy was made."""
    dtype = next((dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")), None)
    if dtype is None:
        return []
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    ran: list[int | None] = []
    with torch.no_grad(), stridewise.record() as recording:
        for number, sample in enumerate(samples[:: -(-len(samples) // MOST_SAMPLES) or 1]):
            for first, args, kwargs in variants((sample.input, tuple(sample.args), sample.kwargs)):
                torch.manual_seed(1)
                stridewise.step()
                try:
                    op(first, *args, **kwargs)
                except Exception:
                    ran.append(None)
                else:
                    ran.append(number)
                stridewise.step()
    counts = _counts(recording, len(ran))
    found: dict[int, list[Counts]] = defaultdict(list)
    for of, each in zip(ran, counts, strict=True):
        if of is not None:
            found[of].append(each)
    return list(found.values())


def _counts(recording: Recording, runs: int) -> list[Counts]:
    """The copies of each run: a step, behind one that prepares it."""
    ops, steps = recording.trace.ops, recording.trace.steps
    starts = [step.start_ns for step in steps]
    counts = [Counts() for _ in range(runs)]
    for index in ops.named("aten::copy_"):
        step = bisect_right(starts, ops.start_ns[index]) - 1
        sizes = ops.args[index].dims[:2]
        moves = len(sizes) == 2 and sizes[0] == sizes[1] and sizes[0] and 0 not in sizes[0]
        if step % 2 and ops.start_ns[index] < steps[step].end_ns and moves:
            counts[step // 2]["/".join(reversed(list(operators_around(ops, index))))] += 1
    return counts


def judged(samples: Iterable[Sequence[Counts]]) -> tuple[set[str], set[str]]:
    """The copies that are made as often whatever the layout, and those that are not, by where they lie."""
    same, other = set[str](), set[str]()
    for counts in samples:
        for path in set[str]().union(*counts):
            (same if len({each[path] for each in counts}) == 1 else other).add(path)
    return same - other, other


def table(same: set[str], other: set[str]) -> tuple[set[str], set[str]]:
    """The shortest ends of paths that tell such a copy anywhere, and the paths that tell it only from the outside."""
    same = {path for path in same if not MADE_FOR_LAYOUT.intersection(path.split("/")) and _is_hidden(path)}
    of_others = {end for path in other for end in ends(path)}
    anywhere = set[str]()
    outermost = set[str]()
    for path in same:
        known = [end for end in ends(path) if end not in of_others and _is_hidden(end)]
        if known:
            anywhere.add(known[0])
        else:
            outermost.add(path)
    return anywhere, outermost


def _is_hidden(path: str) -> bool:
    """Whether the first operator is none that is asked for a copy: those are in many others, whose layout decides."""
    return path.split("/")[0] not in EXPLICIT | IMPLICIT


def ends(path: str) -> list[str]:
    """What a path ends with, the shortest first."""
    names = path.split("/")
    return ["/".join(names[at:]) for at in reversed(range(len(names)))]


def source(tables: Mapping[str, set[str]]) -> str:
    """The module that holds the tables."""
    parts = [DOC, f'\nTORCH: Final = "{torch.__version__.partition("+")[0]}"\n"""The torch that was run."""\n']
    docs = {
        "ANYWHERE": "Wherever the first of these operators is called.",
        "OUTERMOST": "Only where nothing is around the first: in others the layout decides whether it is called.",
    }
    for name, entries in tables.items():
        lines = "".join(f'        "{entry}",\n' for entry in sorted(entries))
        parts.append(f'\n{name}: Final = frozenset(\n    {{\n{lines}    }}\n)\n"""{docs[name]}"""\n')
    return "".join(parts)


def written() -> str:
    """The module, when all operators have run: some minutes."""
    with warnings.catch_warnings(action="ignore"):
        same, other = judged(counts for op in op_db for counts in copies_by_layout(op))
    anywhere, outermost = table(same, other)
    return source({"ANYWHERE": anywhere, "OUTERMOST": outermost})


if __name__ == "__main__":
    TABLE.write_text(written(), encoding="utf-8")
