"""What gloo does with views that are not contiguous, and what SW318 says of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from stridewise.linter.rules import sw318

from ..texts import findings, run

RANKS = 2
_Case = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


def _gapped(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A view with gaps that holds rank + 1, and what it is a part of."""
    whole = torch.full((4, 3), -1.0)
    whole[:, 0] = rank + 1
    return whole[:, 0], whole


def _whole(part: torch.Tensor | float) -> torch.Tensor:
    whole = torch.full((4, 3), -1.0)
    whole[:, 0] = part
    return whole


def _all_reduce(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    part, whole = _gapped(rank)
    dist.all_reduce(part)
    return whole, _whole(3)


def _broadcast(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    part, whole = _gapped(rank)
    dist.broadcast(part, src=0)
    return whole, _whole(1)


def _reduce(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    part, whole = _gapped(rank)
    dist.reduce(part, dst=0)
    return (whole, _whole(3)) if rank == 0 else (part, part)


def _scatter(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    part, whole = _gapped(rank)
    dist.scatter(part, [torch.arange(4.0), torch.arange(4.0)] if rank == 0 else None, src=0)
    return whole, _whole(torch.arange(4.0))


def _scatter_list(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    part = torch.zeros(4)
    dist.scatter(part, [_gapped(0)[0], _gapped(1)[0]] if rank == 0 else None, src=0)
    return part, torch.full((4,), rank + 1.0)


def _reduce_scatter(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    part, whole = _gapped(rank)
    dist.reduce_scatter(part, [torch.arange(4.0), torch.arange(4.0)])
    return whole, _whole(2 * torch.arange(4.0))


def _all_to_all_single(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    part, whole = _gapped(rank)
    dist.all_to_all_single(part, torch.full((4,), rank + 1.0))
    return whole, _whole(torch.tensor([1.0, 1.0, 2.0, 2.0]))


def _transposed(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A dense view in another order, and what it holds as a contiguous tensor."""
    told = torch.arange(6.0).view(3, 2) * (rank + 1)
    return told.t().contiguous().t(), told


def _all_reduce_transposed(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    view, told = _transposed(0)
    dist.all_reduce(view)
    return view, 2 * told


def _all_reduce_mixed(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    view, told = _transposed(0)
    given = view if rank == 0 else told.clone()
    dist.all_reduce(given)
    return given, 2 * told


def _broadcast_transposed(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    view, _ = _transposed(rank)
    dist.broadcast(view, src=0)
    return view, _transposed(0)[1]


def _reduce_transposed(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    view, told = _transposed(0)
    dist.reduce(view, dst=0)
    return (view, 2 * told) if rank == 0 else (view, view)


def _scatter_transposed(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    view, told = _transposed(0)
    dist.scatter(view, [told, told] if rank == 0 else None, src=0)
    return view, told


def _reduce_scatter_transposed(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    view, told = _transposed(0)
    dist.reduce_scatter(view, [told, told])
    return view, 2 * told


def _all_to_all_single_transposed(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    told = torch.arange(8.0).view(4, 2)
    view = torch.zeros(2, 4).t()
    dist.all_to_all_single(view, told)
    return view, torch.cat([told[2 * rank : 2 * rank + 2]] * 2)


def _expanded(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    memory = torch.full((8,), rank + 1.0)
    dist.all_reduce(memory[:1].expand(4))
    return memory, torch.tensor([3.0] + [rank + 1.0] * 7)


def _all_gather(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    parts = [_whole(0), _whole(0)]
    dist.all_gather([part[:, 0] for part in parts], _gapped(rank)[0])
    return torch.cat(parts), torch.cat([_whole(1), _whole(2)])


WRONG: tuple[_Case, ...] = (
    *(_all_reduce, _broadcast, _reduce, _scatter, _scatter_list, _reduce_scatter, _all_to_all_single),
    *(_all_reduce_mixed, _scatter_transposed, _reduce_scatter_transposed, _all_to_all_single_transposed, _expanded),
)
LACKING = (_reduce_scatter, _reduce_scatter_transposed) if torch.__version__ < "2.7" else ()
RIGHT: tuple[_Case, ...] = (_all_reduce_transposed, _broadcast_transposed, _reduce_transposed, _all_gather)


def _send(rank: int) -> None:
    dist.send(_gapped(rank)[0], 1 - rank)


def _recv(rank: int) -> None:
    dist.recv(_gapped(rank)[0], 1 - rank)


def _isend(rank: int) -> None:
    dist.isend(_gapped(rank)[0], 1 - rank)


def _irecv(rank: int) -> None:
    dist.irecv(_gapped(rank)[0], 1 - rank)


def _all_to_all_single_input(rank: int) -> None:
    dist.all_to_all_single(torch.zeros(4), _gapped(rank)[0])


RAISES: tuple[Callable[[int], None], ...] = (_send, _recv, _isend, _irecv, _all_to_all_single_input)
FIRES = [example.source for example in sw318.FIRES]


def _is_right(case: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> bool:
    dist.barrier()
    got, wanted = case()
    return torch.equal(got, wanted)


def _error(case: Callable[[int], None], rank: int) -> str:
    try:
        case(rank)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return ""


def _work(rank: int, folder: str) -> None:
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    cases = [case for case in (*WRONG, *RIGHT) if case not in LACKING]
    seen: dict[str, Any] = {case.__name__: _is_right(lambda case=case: case(rank)) for case in cases}
    seen |= {f"fires {at}": _is_right(run(text)["program"]) for at, text in enumerate(FIRES)}
    seen |= {f"quiet {at}": _is_right(run(text)["program"]) for at, text in enumerate(sw318.QUIET)}
    seen |= {case.__name__: _error(case, rank) for case in RAISES}
    torch.save(seen, f"{folder}/{rank}")
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks saw."""
    folder: Path = tmp_path_factory.mktemp("gloo")
    mp.spawn(_work, (str(folder),), nprocs=RANKS)
    return [torch.load(folder / str(rank)) for rank in range(RANKS)]


@pytest.mark.needs_torch("2.7", "gloo has no reduce_scatter", "[_reduce_scatter")
@pytest.mark.parametrize("name", [case.__name__ for case in WRONG] + [f"fires {at}" for at in range(len(FIRES))])
def test_gloo_is_wrong_without_an_error(seen: list[dict[str, Any]], name: str) -> None:
    assert not all(rank[name] for rank in seen)


@pytest.mark.parametrize("name", [case.__name__ for case in RIGHT] + [f"quiet {at}" for at in range(len(sw318.QUIET))])
def test_gloo_is_right(seen: list[dict[str, Any]], name: str) -> None:
    assert all(rank[name] for rank in seen)


@pytest.mark.parametrize("name", [case.__name__ for case in RAISES])
def test_gloo_raises(seen: list[dict[str, Any]], name: str) -> None:
    assert all("contiguous" in rank[name] for rank in seen)


def test_every_collective_of_the_rule_was_tried() -> None:
    tried = " ".join(case.__name__ for case in (*WRONG, *RAISES))
    assert all(f"_{name}" in tried for name in {*sw318.WRONG, *sw318.RAISES})


@pytest.mark.parametrize(
    "call",
    [
        "dist.all_reduce(x[:, ::2])",
        "dist.all_reduce(tensor=x[..., ::2], op=dist.ReduceOp.SUM)",
        "dist.broadcast(torch.zeros(4, 3)[:, 0], 0)",
        "dist.reduce(torch.zeros(4, 3).t(), dst=0)",
        "dist.scatter(y, [x[::2], x[::2]], src=0)",
        "dist.reduce_scatter(x[::2], parts)",
        "dist.all_to_all_single(x[::2], y)",
        "dist.all_reduce(x.expand(4, 3))",
        "dist.send(x[::2], 1)",
        "torch.distributed.all_reduce(x[::2])",
        "dist.all_reduce(x[:, 0])",
        "dist.all_reduce(x[..., :2])",
        "dist.all_reduce(x.select(1, 0))",
        "dist.all_reduce(x.chunk(2, dim=1)[0])",
    ],
)
def test_it_fires(call: str) -> None:
    text = f"import torch\nimport torch.distributed as dist\n\ndef f(x, y, parts):\n    {call}\n"
    assert findings(text, "SW318")


@pytest.mark.parametrize(
    "call",
    [
        "dist.all_reduce(x)",
        "dist.all_reduce(x.t())",
        "dist.broadcast(x[1:], 0)",
        "dist.gather(x[::2], parts)",
        "comm.all_reduce(x[::2])",
        "functools.reduce(f, x[::2])",
    ],
)
def test_it_is_quiet(call: str) -> None:
    text = (
        f"import functools\nimport torch\nimport torch.distributed as dist\n\ndef f(x, y, parts, comm):\n    {call}\n"
    )
    assert findings(text, "SW318") == ()


def test_it_says_what_happens() -> None:
    head = "import torch\nimport torch.distributed as dist\n\ndef f(x, y):\n    "
    gapped, ordered, sent = (
        findings(f"{head}{call}\n", "SW318")[0].message
        for call in ("dist.all_reduce(x[:, ::2])", "dist.reduce(torch.zeros(4, 3).t(), 0)", "dist.send(x[::2], 1)")
    )
    assert "`x[:, ::2]` is not contiguous, and `dist.all_reduce` gets it" in gapped
    assert "wrong values in it and beside it, and no error" in gapped
    assert "right only if it lies alike on all ranks" in ordered
    assert "raise" in sent


START = "import torch\nimport torch.distributed as dist\n\ndef f(x):\n    x = x.contiguous()\n    "
WHOLE = [
    "x.expand_as(x)",
    "x.expand(-1, -1)",
    "x.expand(x.shape)",
    "x.expand(*x.size())",
    "torch.zeros(3, 4).expand(3, 4)",
    "torch.zeros((3, 4)).expand(1, 3, -1)",
    "torch.broadcast_to(torch.full((3, 4), 1.0), (3, 4))",
    "torch.zeros(3, 1).t()",
    "torch.zeros(3).unsqueeze(1).t()",
    "torch.full((1, 4), 2.0)[:, 0]",
    "x.view(12, 1).t()",
]
STRIDED = [
    "x.expand(2, 3, 4)",
    "torch.zeros(3, 4).expand(2, 3, 4)",
    "torch.zeros(1, 4).expand(3, 4)",
    "x[:1].expand_as(x)",
    "torch.zeros(3, 4).t()",
    "torch.full((3, 4), 1.0)[:, 0]",
]


@pytest.mark.parametrize("expression", WHOLE)
def test_views_that_are_contiguous_all_the_same(expression: str) -> None:
    assert eval(expression, {"torch": torch, "x": torch.rand(3, 4)}).is_contiguous()
    assert findings(f"{START}dist.all_reduce({expression})\n", "SW318") == ()


@pytest.mark.parametrize("expression", STRIDED)
def test_views_that_are_not(expression: str) -> None:
    assert not eval(expression, {"torch": torch, "x": torch.rand(3, 4)}).is_contiguous()
    assert len(findings(f"{START}dist.all_reduce({expression})\n", "SW318")) == 1
