"""Rows whose fault lies between ranks: collectives that move memory flat, and DDP's buckets."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from stridewise.checks.ranks import compare_ranks, guard_collectives, guard_ddp
from stridewise.errors import ContractError

from ..checks.ranks.world import world
from .rows import hazard


def code_of(act: Any) -> str | None:
    try:
        act()
    except ContractError as error:
        return error.finding.code
    return None


def column(rank: int) -> list[Any]:
    def table() -> Tensor:
        return torch.arange(12.0).reshape(4, 3) + 100 * rank

    want = table()
    want[:, 0] = torch.tensor([0.0, 3.0, 6.0, 9.0])
    harmed = table()
    dist.broadcast(harmed[:, 0], src=0)
    stopped = table()
    with guard_collectives():
        code = code_of(lambda: dist.broadcast(stopped[:, 0], src=0))
    cured = table()
    t = cured[:, 0].contiguous()
    dist.broadcast(t, src=0)
    cured[:, 0] = t
    converted = table()
    with guard_collectives("convert"):
        dist.broadcast(converted[:, 0], src=0)
    return [
        torch.equal(harmed, want),
        code,
        torch.equal(stopped, table()),
        torch.equal(cured, want),
        torch.equal(converted, want),
    ]


@hazard(1, 42, code="SW201")
def test_gloo_broadcasts_the_neighbours_of_a_column() -> None:
    """NCCL refuses a strided tensor without its name; gloo takes it, and overwrites what lies beside it."""
    assert world(2, column) == [
        [True, "SW201", True, True, True],  # the source is not written to
        [False, "SW201", True, True, True],
    ]


def summed(rank: int) -> list[Any]:
    def table() -> Tensor:
        return torch.tensor([[rank + 1.0, 7.0, 7.0]] * 4)

    want = torch.tensor([[3.0, 7.0, 7.0]] * 4)
    harmed = table()
    dist.all_reduce(harmed[:, 0])
    with guard_collectives():
        code = code_of(lambda: dist.all_reduce(table()[:, 0]))
    cured = table()
    t = cured[:, 0].contiguous()
    dist.all_reduce(t)
    cured[:, 0] = t
    return [torch.equal(harmed, want), code, torch.equal(cured, want)]


@hazard(1, code="SW201")
def test_gloo_reduces_the_neighbours_of_a_column() -> None:
    """`all_reduce` of a column adds up a row and a bit, and leaves most of the column as it was."""
    assert world(2, summed) == [[False, "SW201", True]] * 2


def scattered(rank: int) -> list[Any]:
    inputs = [torch.full((4,), float(rank + number)) for number in range(2)]
    want = torch.full((4,), 1.0 + 2 * rank)

    def table() -> Tensor:
        return torch.full((4, 3), -1.0)

    harmed = table()
    dist.reduce_scatter(harmed[:, 0], inputs)
    with guard_collectives():
        code = code_of(lambda: dist.reduce_scatter(table()[:, 0], inputs))
    cured = table()
    t = torch.empty(4)
    dist.reduce_scatter(t, inputs)
    cured[:, 0] = t
    return [
        torch.equal(harmed[:, 0], want),
        bool((harmed[:, 1:] == -1).all()),
        code,
        torch.equal(cured[:, 0], want) and bool((cured[:, 1:] == -1).all()),
    ]


@pytest.mark.needs_torch("2.7", "gloo has no reduce_scatter")
@hazard(72, code="SW201")
def test_reduce_scatter_into_a_column_corrupts_the_rest() -> None:
    """The report is of CUDA; gloo writes `reduce_scatter` flat too, over what lies beside the output."""
    assert world(2, scattered) == [[False, False, "SW201", True]] * 2


def disagreeing(rank: int) -> list[Any]:
    def image() -> Tensor:
        made = torch.arange(12.0).reshape(1, 3, 2, 2)
        return made.contiguous(memory_format=torch.channels_last) if rank else made

    harmed = image()
    dist.all_reduce(harmed)
    with guard_collectives(across_ranks=True, timeout=20):
        code = code_of(lambda: dist.all_reduce(image()))
    named = [found.code for found in compare_ranks([("image", image())], timeout=20)]
    cured = image().contiguous()
    dist.all_reduce(cured)
    return [torch.equal(harmed, 2 * image()), code, named, torch.equal(cured, 2 * image())]


@hazard(2, code="SW202")
def test_ranks_with_unequal_strides_add_other_elements() -> None:
    """One rank is channels_last: `all_reduce` adds elements of unequal indices, without an error."""
    assert world(2, disagreeing) == [[False, "SW202", ["SW202"], True]] * 2


WAYS: tuple[tuple[dict[str, bool], list[bool]], ...] = (
    ({}, [False, True, True]),
    ({"static_graph": True}, [False, False, True]),
    ({"find_unused_parameters": True}, [False, False, False]),
    ({"gradient_as_bucket_view": True}, [True, True, True]),
)
"""How a model is wrapped, and in which steps its gradients are right after it was converted."""


def rewrapped(rank: int) -> list[Any]:
    import warnings

    warnings.filterwarnings("ignore", message="Grad strides do not match")
    inputs = [torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(each)) for each in range(2)]

    def conv() -> nn.Conv2d:
        torch.manual_seed(0)
        return nn.Conv2d(3, 4, 3)

    want = torch.zeros(4, 3, 3, 3)
    for each in inputs:
        alone = conv()
        alone(each).square().sum().backward()
        want += alone.weight.grad / 2

    def steps(ddp: Any) -> list[bool]:
        right = []
        for _ in range(3):
            ddp.zero_grad()
            ddp(inputs[rank]).square().sum().backward()
            right.append(torch.allclose(ddp.module.weight.grad, want, rtol=1e-4, atol=1e-4))
        return right

    found = []
    for options, _ in WAYS:
        harmed = DistributedDataParallel(conv(), **options)
        with guard_ddp(harmed):
            code = code_of(lambda harmed=harmed: harmed.to(memory_format=torch.channels_last))
        scrambled = steps(harmed)
        again = steps(DistributedDataParallel(harmed.module, **options))
        first = steps(DistributedDataParallel(conv().to(memory_format=torch.channels_last), **options))
        found.append([scrambled, code, again, first])
    return found


@hazard(3, code="SW203")
def test_converting_a_wrapped_model_scrambles_its_gradients() -> None:
    """`DDP(model)`, then `model.to(channels_last)`: wrong gradients in the first steps, or in all of them."""
    for found in world(2, rewrapped):
        for (options, right), (scrambled, code, again, first) in zip(WAYS, found, strict=True):
            assert scrambled == right, options
            assert code == (None if all(right) else "SW203")
            assert again == first == [True] * 3
