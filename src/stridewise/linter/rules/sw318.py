"""SW318 strided-collective: a collective is handed a view that is not contiguous.

What it means
    `dist.all_reduce(x[:, ::2])` hands over a view with gaps. Gloo takes as many elements as the view has from the
    memory where it begins, gaps and all: some of the view is left out, its neighbours are overwritten, and no error
    says so. Of a view that repeats elements it reads and writes past the end of the memory. `send` and `recv` raise.
    NCCL refuses every such tensor: "Tensors must be contiguous".

Why it happens
    A collective moves memory, not elements. Gloo copies where a tensor is gathered, and nowhere else. A dense view in
    another order, such as a transpose, is reduced rightly as long as it lies alike on all ranks.

How to fix it
    Run the collective on a contiguous copy, and write its result back:
    `part = x[:, ::2].contiguous(); dist.all_reduce(part); x[:, ::2] = part`.

When to ignore it
    When the dimension that the view leaves gaps in has size 1.
"""

import ast
from collections.abc import Iterator

from stridewise.linter.facts.value import State, Value
from stridewise.linter.module import Module
from stridewise.linter.reading.expansion import EXPANSIONS, has_size_one, is_whole
from stridewise.linter.rule import Fires, Problem

SEVERITY = "error"
WRONG: dict[str, dict[str, int]] = {
    "all_reduce": {"tensor": 0},
    "broadcast": {"tensor": 0},
    "reduce": {"tensor": 0},
    "scatter": {"tensor": 0, "scatter_list": 1},
    "reduce_scatter": {"output": 0},
    "all_to_all_single": {"output": 0},
}
"""By collective the arguments whose memory gloo takes as it lies, and where they stand."""
RAISES: dict[str, dict[str, int]] = {
    "all_to_all_single": {"input": 1},
    **{name: {"tensor": 0} for name in ("send", "recv", "isend", "irecv")},
}
"""The same of those that gloo refuses."""
ORDERED = frozenset(("all_reduce", "broadcast", "reduce"))
"""Collectives that gloo does rightly on dense tensors in another order, if all ranks have the same."""
WORDS = tuple(sorted({*WRONG, *RAISES}))

FIRES = (
    Fires(
        """
import torch
import torch.distributed as dist

def program():
    x = torch.full((2, 4), float(dist.get_rank() + 1))
    wanted = x.clone()
    wanted[:, ::2] = 3.0
    dist.all_reduce(x[:, ::2])
    return x, wanted
"""
    ),
    Fires(
        """
import torch
from torch.distributed import broadcast, get_rank

def program():
    x = torch.zeros(4, 3) + get_rank()
    wanted = x.clone()
    wanted[::2] = 0.0
    rows = x[::2]
    broadcast(rows, src=0)
    return x, wanted
"""
    ),
    Fires(
        """
import torch
import torch.distributed as dist

def sync(stats: torch.Tensor):
    dist.all_reduce(stats[:, 0])

def program():
    x = torch.full((2, 4), float(dist.get_rank() + 1))
    wanted = x.clone()
    wanted[:, 0] = 3.0
    sync(x)
    return x, wanted
"""
    ),
    Fires(
        """
import torch
import torch.distributed as dist

def program():
    x = torch.zeros(2, 3).t()
    parts = [torch.arange(6.0).view(3, 2) + 10 * rank for rank in range(2)] if dist.get_rank() == 0 else None
    dist.scatter(x, parts, src=0)
    return x, torch.arange(6.0).view(3, 2) + 10 * dist.get_rank()
"""
    ),
)
QUIET = (
    """
import torch
import torch.distributed as dist

def program():
    x = torch.full((2, 4), float(dist.get_rank() + 1))
    wanted = x.clone()
    wanted[:, ::2] = 3.0
    part = x[:, ::2].contiguous()
    dist.all_reduce(part)
    x[:, ::2] = part
    return x, wanted
""",
    """
import torch
import torch.distributed as dist

def program():
    x = torch.zeros(4, 2) + dist.get_rank()
    parts = [torch.zeros(4, 1), torch.zeros(4, 1)]
    dist.broadcast(x[1:3], src=0)
    dist.all_gather(parts, x[:, ::2])
    return torch.cat([x[1:3], parts[0][1:3]], 1), torch.zeros(2, 3)
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Tensors that lie strided for sure among the arguments of such collectives."""
    for call in module.calls(*WORDS):
        name = module.name(call.func) or ""
        if not name.startswith("torch.distributed."):
            continue
        name = name.removeprefix("torch.distributed.")
        for raises, table in ((False, WRONG), (True, RAISES)):
            for argument in _tensors(call, table.get(name, {})):
                value = module.value(argument)
                is_expanded = value.op in EXPANSIONS
                if is_whole(module, value) if is_expanded else has_size_one(module, value):
                    continue
                is_sure = value.is_strided or is_expanded
                if not is_sure and value.state is not State.GAPPED:
                    continue
                # A part of an argument: of a contiguous tensor, as nearly all are, it has gaps.
                when = "" if is_sure or value.of is None else ", unless it is all of what it is cut from"
                yield Problem(
                    argument,
                    f"`{module.text(argument)}` is not contiguous{when}, and `{module.text(call.func)}` gets it. "
                    + _what(name, value, raises),
                    advice="Hand over a contiguous copy, and write its result back where one is wanted.",
                    origin=value.node if value.node is not argument else None,
                    severity=None if is_sure else "warning",
                )


def _tensors(call: ast.Call, places: dict[str, int]) -> Iterator[ast.expr]:
    """The arguments of a call at some places, or of some names; of lists, what stands in them."""
    for name, at in places.items():
        given = call.args[at : at + 1] or [keyword.value for keyword in call.keywords if keyword.arg == name]
        for each in given:
            yield from each.elts if isinstance(each, (ast.List, ast.Tuple)) else (each,)


def _what(name: str, value: Value, raises: bool) -> str:
    if raises:
        return "Gloo and NCCL raise for such a tensor."
    if value.state is State.PERMUTED and name in ORDERED:
        return "Gloo takes its memory as it lies: the result is right only if it lies alike on all ranks. NCCL raises."
    if value.state is State.PERMUTED:
        return "Gloo takes its memory as it lies, in another order: wrong values, and no error. NCCL raises."
    if value.state is State.EXPANDED:
        return "Gloo takes as many elements as it has, from memory that holds fewer: it goes past the end. NCCL raises."
    return (
        "Gloo takes as many elements as it has, gaps and all: wrong values in it and beside it, and no error. NCCL "
        "raises."
    )
