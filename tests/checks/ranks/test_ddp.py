"""`guard_ddp` in real ranks: told at once and at the next forward, silent on what is right, restored exactly."""

import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from stridewise.checks.ranks import guard_collectives, guard_ddp
from stridewise.checks.rules.sw203 import is_restrided
from stridewise.errors import ContractError, LayoutWarning, UsageError
from stridewise.layout import Layout

from .world import world

LAST = torch.channels_last


def conv(kernel: int = 3) -> nn.Conv2d:
    torch.manual_seed(0)
    return nn.Conv2d(3, 4, kernel)


def patched() -> list[Any]:
    return [
        vars(nn.Module)["_apply"],
        vars(DistributedDataParallel)["__init__"],
        vars(DistributedDataParallel)["forward"],
    ]


def code(act: Any) -> str:
    try:
        act()
    except ContractError as error:
        return error.finding.code
    return "silent"


def told(rank: int) -> dict[str, Any]:
    before, x, found = patched(), torch.zeros(2, 3, 8, 8), {}
    for name in ("static_graph", "find_unused_parameters", "gradient_as_bucket_view", "defaults"):
        with guard_ddp():
            ddp = DistributedDataParallel(conv(), **({} if name == "defaults" else {name: True}))
            found[name] = code(lambda ddp=ddp: ddp.to(memory_format=LAST)), code(lambda ddp=ddp: ddp(x))
    ddp = DistributedDataParallel(conv())
    hooks = dict(vars(ddp))
    with guard_ddp(ddp) as guard:
        ddp.module.weight.data = ddp.module.weight.data.contiguous(memory_format=LAST)
        found["by hand"] = code(lambda: ddp(x)), code(lambda: DistributedDataParallel(ddp.module)(x))
        found["findings"] = [each.count for each in guard.findings]
    found["unchanged"] = {key: value for key, value in vars(ddp).items() if hooks.get(key) is not value} == {}
    # What is no matter of layout, or of no consequence.
    with guard_ddp() as guard:
        ddp = DistributedDataParallel(conv(1))
        ddp.to(memory_format=LAST)
        frozen = conv()
        frozen.weight.requires_grad_(False)
        DistributedDataParallel(frozen).to(memory_format=LAST)
        conv().to(memory_format=LAST)
        right = DistributedDataParallel(nn.Sequential(conv(), nn.BatchNorm2d(4)).to(memory_format=LAST))
        for _ in range(2):
            right(x.to(memory_format=LAST)).sum().backward()
        right.eval().train()
        found["quiet"] = len(guard.findings)
    found["restored"] = patched() == before
    return found


def test_what_is_told() -> None:
    for found in world(2, told):
        assert found["static_graph"] == found["find_unused_parameters"] == found["defaults"] == ("SW203", "SW203")
        assert found["gradient_as_bucket_view"] == ("silent", "silent")
        assert found["by hand"] == ("SW203", "silent")
        assert found["findings"] == [1]
        assert found["quiet"] == 0
        assert found["unchanged"]
        assert found["restored"]


def warned(rank: int) -> tuple[int, list[bool], bool]:
    ddp = DistributedDataParallel(conv())
    with warnings.catch_warnings(record=True) as caught, guard_ddp(ddp, "warn"):
        warnings.simplefilter("always")
        ddp.to(memory_format=LAST)
        with torch.no_grad():
            ddp(torch.zeros(1, 3, 8, 8))
            ddp(torch.zeros(1, 3, 8, 8))
    reference = weakref.ref(ddp)
    del ddp
    gc.collect()
    return len(caught), [issubclass(each.category, LayoutWarning) for each in caught], reference() is None


def test_it_warns_once_and_keeps_nothing_alive() -> None:
    assert world(2, warned) == [(1, [True], True)] * 2


def trained(rank: int, guarded: bool, last: bool) -> list[torch.Tensor]:
    from contextlib import ExitStack

    with ExitStack() as stack:
        if guarded:
            stack.enter_context(guard_ddp())
            stack.enter_context(guard_collectives(across_ranks=True, timeout=20))
        model = nn.Sequential(conv(), nn.ReLU(), nn.Conv2d(4, 2, 3))
        ddp = DistributedDataParallel(model.to(memory_format=LAST) if last else model)
        optimizer = torch.optim.SGD(ddp.parameters(), 0.01)
        for step in range(3):
            torch.manual_seed(step * 10 + rank)
            ddp(torch.randn(2, 3, 8, 8)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize(("size", "last"), [(2, False), (2, True), (4, True)])
def test_training_is_left_alone(size: int, last: bool) -> None:
    guarded, plain = world(size, trained, True, last), world(size, trained, False, last)
    for parameters, wanted in zip(guarded, plain, strict=True):
        assert all(torch.equal(*pair) for pair in zip(parameters, wanted, strict=True))


def zeroes(rank: int) -> list[Any]:
    """What torch tells of the strides that gradient buckets were laid out for."""
    found = []
    for made in (conv(), conv().to(memory_format=LAST)):
        ddp = DistributedDataParallel(made)
        buckets = ddp.reducer._get_zeros_like_grad_buckets()
        found.append([gradient.stride() for bucket in buckets for gradient in bucket.gradients()])
    return found


def test_torch_does_not_tell_later() -> None:
    """So there is no look at a wrapped model that could find what `guard_ddp` finds."""
    contiguous, last = world(1, zeroes)[0]
    assert contiguous == last


def test_what_counts_as_restrided() -> None:
    before = Layout((4, 3, 1, 1), (3, 1, 1, 1))
    assert not is_restrided(before, Layout((4, 3, 1, 1), (3, 1, 3, 3)))
    assert not is_restrided(before, Layout((4, 3), (1, 4)))
    assert is_restrided(Layout((4, 3), (3, 1)), Layout((4, 3), (1, 4)))


def test_what_it_takes() -> None:
    with pytest.raises(UsageError, match="without DistributedDataParallel"):
        guard_ddp(nn.Linear(2, 2))
    with pytest.raises(UsageError, match="mode="):
        guard_ddp(mode="convert")  # type: ignore[arg-type]
