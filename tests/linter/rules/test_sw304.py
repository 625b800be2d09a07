"""SW304: a write through what may be a copy is lost where it is one, and no error says so."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from hypothesis import given

from stridewise.linter.facts.effects import RELAYOUTS
from stridewise.linter.reading.writes import COLLECTIVES, NO_WRITES
from stridewise.linter.rules.sw304 import _CASTS, _SURE_WRITES, FIRES

from ..texts import findings, fixed, run
from .layouts import tensors

WRITES = (
    "x.flatten()[0] = 7.0",
    "x.ravel().fill_(7.0)",
    "x.reshape(-1)[0] = 7.0",
    "x.reshape(-1).add_(1)",
    "x.reshape(-1).mul_(2).add_(3)",
    "x.contiguous().fill_(7.0)",
    "x.contiguous()[0] += 1",
    "torch.add(x.sum(), 1, out=x.reshape(-1)[0])",
    "torch.relu_(x.t().contiguous())",
    "flat = x.reshape(-1)\n    flat[0] = 7.0\n    flat += 1",
    "flat = x.flatten()\n    flat.add_(1)",
)
TEXTS = [pytest.param(f"import torch\ndef program(x):\n    {text}\n    return x\n", id=text) for text in WRITES]


@pytest.mark.parametrize("text", TEXTS)
def test_the_write_is_lost_on_one_layout_and_not_on_the_other(text: str) -> None:
    assert [finding.code for finding in findings(text, "SW304")] == ["SW304"]
    program = run(text)["program"]
    changed = []
    for x in (torch.full((2, 3), -1.0), torch.full((3, 2), -1.0).t()):
        before = x.clone()
        changed.append(not torch.equal(program(x), before))
    assert sorted(changed) == [False, True]


@pytest.mark.parametrize("text", TEXTS)
def test_its_fix_loses_nothing(text: str) -> None:
    repaired = fixed(text, "SW304")
    assert findings(repaired, "SW304") == ()
    for x in (torch.full((2, 3), -1.0), torch.full((3, 2), -1.0).t()):
        before = x.clone()
        try:
            run(repaired)["program"](x)
        except RuntimeError as error:
            assert "view size is not compatible" in str(error)  # noqa: PT017
            assert torch.equal(x, before)
        else:
            assert not torch.equal(x, before)


@given(x=tensors())
def test_its_fix_writes_the_same_where_nothing_was_lost(x: torch.Tensor) -> None:
    text = "import torch\ndef program(x):\n    x.reshape(-1).add_(1)\n    return x\n"
    x = x.detach().clone().as_strided(x.shape, x.stride()) if _is_dense(x) else x.detach().contiguous()
    other = x.clone(memory_format=torch.preserve_format)
    wanted = x.clone()
    run(text)["program"](x)
    if x.numel() and torch.equal(x, wanted):  # lost
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            run(fixed(text, "SW304"))["program"](other)
    elif x.stride() == other.stride():
        assert torch.equal(run(fixed(text, "SW304"))["program"](other), x)


def _is_dense(x: torch.Tensor) -> bool:
    return type(x) is torch.Tensor and x.detach().clone().stride() == x.stride()


def test_what_the_examples_do() -> None:
    marked, flat, (kept, doubled), _, cast, cleared = (run(example.source)["program"]() for example in FIRES)
    assert torch.equal(marked, torch.ones(3, 2))
    assert torch.equal(flat, torch.ones(3, 2))
    assert torch.equal(kept, doubled)  # the caller's tensor has changed as well
    assert torch.equal(cast, torch.ones(2, 3, dtype=torch.float64))
    assert cleared[0].tolist() == [2.0, 1.0, 1.0]
    strided = torch.ones(2, 3).t()
    kept, doubled = run(FIRES[2].source)["scaled"](strided)
    assert not torch.equal(kept, doubled)


@pytest.mark.parametrize("cast", [name for name in _CASTS if name not in ("to", "type_as", "cuda", "cpu")])
def test_a_cast_loses_the_write_unless_it_is_none(cast: str) -> None:
    text = f"import torch\ndef program(x: torch.Tensor):\n    x.{cast}()[0] = 1\n    return x\n"
    assert [finding.code for finding in findings(text, "SW304")] == ["SW304"]
    same = getattr(torch.zeros(2), cast)().dtype
    other = torch.int32
    assert run(text)["program"](torch.zeros(2, dtype=same)).any()
    assert not run(text)["program"](torch.zeros(2, dtype=other)).any()
    unknown = text.replace(": torch.Tensor", "")
    assert findings(unknown, "SW304") == ()  # a module is cast as well


def test_the_names_that_are_no_writes() -> None:
    """What they do to a tensor leaves each element as it is."""
    for name in NO_WRITES - RELAYOUTS:
        assert hasattr(torch.Tensor, name)
        x = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
        getattr(x, name)(*((None,) if name == "rename_" else ()))
        assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


LACKING = {"reduce_scatter"} if torch.__version__ < "2.7" else set()
"""Collectives that gloo has not."""


def _hand_over(rank: int, folder: Path) -> None:
    """Which collectives change a contiguous tensor, and which a transposed one, through `contiguous`."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    parts = [torch.ones(2, 3), torch.ones(2, 3)]
    others: dict[str, tuple[object, ...]] = {
        "all_reduce": (),
        "all_gather_into_tensor": (torch.ones(1, 3),),
        "reduce_scatter": (parts,),
        "reduce_scatter_tensor": (torch.ones(4, 3),),
        "scatter": (parts if rank == 0 else None, 0),
        "all_to_all_single": (torch.ones(2, 3),),
        "recv": (1 - rank,),
        "irecv": (1 - rank,),
    }
    changed: dict[str, list[bool]] = {}
    for name, arguments in others.items():
        if name in LACKING:
            continue
        for x in (torch.full((2, 3), 5.0), torch.full((3, 2), 5.0).t()):
            sent = dist.isend(torch.ones(2, 3), 1 - rank) if name in ("recv", "irecv") else None
            work = getattr(dist, name)(x.contiguous(), *arguments)
            for each in (sent, work):
                if hasattr(each, "wait"):
                    each.wait()
            changed.setdefault(name, []).append(bool((x != 5).any()))
    torch.save(changed, folder / f"{rank}.pt")
    dist.destroy_process_group()


def test_what_collectives_write(tmp_path: Path) -> None:
    mp.spawn(_hand_over, (tmp_path,), nprocs=2)  # type: ignore[no-untyped-call]
    for rank in range(2):
        assert torch.load(tmp_path / f"{rank}.pt") == {name: [True, False] for name in COLLECTIVES - LACKING}


def test_no_module_has_what_writes_for_sure() -> None:
    for name in _SURE_WRITES:
        assert hasattr(torch.Tensor, name)
        assert not hasattr(torch.nn.Module, name)


@pytest.mark.parametrize(
    "body",
    [
        "x = x.contiguous().add_(1)",
        "y = x.reshape(-1).clone().add_(1)",
        "x.view(-1)[0] = 1",
        "x.clone().reshape(-1)[0] = 1",
        "(x * 2).contiguous().zero_()",
        "x.reshape(-1)[0]",
        "y = x.reshape(-1)\n    y[0] = 1\n    return y",
        "y = x.reshape(-1)\n    y[0] = 1\n    z = y.sum()",
        "y = x.reshape(-1)\n    z = y.add_(1)",
        "assert x.is_contiguous()\n    x.reshape(-1)[0] = 1",
        "z = torch.zeros(2, 3)\n    z.flatten()[0] = 1\n    z.contiguous().add_(1)",
        "self.model.to(x.device).requires_grad_(False)",
        "model.to(x.device).reset_()",
        "batch.to(x.device)['mask'] = x",
        "self.reshape(-1)[0] = 1",
        "y = x.float().mul_(2)",
        "torch.distributed.broadcast(x.contiguous(), 0)",
        "torch.distributed.reduce_scatter_tensor(x, self.gradient.contiguous())",
        "a = np.load('a.npy')\n    a.reshape(-1)[0] = 1",
        "y = x + 1\n    y = y * 2\n    return y.contiguous().add_(1)",
    ],
)
def test_it_is_quiet(body: str) -> None:
    text = f"import numpy as np\nimport torch\ndef program(self, x, model, batch):\n    {body}\n"
    assert findings(text, "SW304") == ()


@pytest.mark.parametrize(
    "body",
    [
        "return x.contiguous().add_(1)",
        "y = x.reshape(-1).add_(1)\n    return x, y",
        "y = self.buffer.reshape(-1).add_(1)",
        "y = x + 1\n    z = y.contiguous().add_(1)\n    return y + z",
        "self.weight.grad.reshape(-1).copy_(x)",
        "self.weight.data.contiguous()[:, 0] = x",
        "x.t().contiguous().view(-1)[3] = 1",
        "x.to(torch.float16).zero_()",
        "x.type_as(self.w).copy_(x)",
        "torch.nn.init.normal_(self.weight.reshape(4, -1))",
        "work = dist.all_reduce(x.contiguous(), async_op=True)",
        "dist.recv(x.reshape(-1), 1)",
    ],
)
def test_it_fires(body: str) -> None:
    assert (
        len(
            findings(
                f"import torch\nfrom torch import distributed as dist\ndef program(self, x):\n    {body}\n", "SW304"
            )
        )
        == 1
    )


def test_what_it_says() -> None:
    (lost, *_), (named,), (also,) = (findings(example.source, "SW304") for example in FIRES[:3])
    assert lost.message == (
        "`x.flatten()[0] = 1.0` changes `x` only if `flatten` gives a view of it: where that copies, the write is lost."
    )
    assert named.message == (
        "What is written to `flat` changes `x` only if `reshape` gives a view of it: where that copies, the writes are "
        "lost."
    )
    assert also.message == (
        "`x.contiguous().mul_(2)` changes `x` as well if `contiguous` gives a view of it, and not where that copies."
    )
    assert {edit.safety for edit in (*lost.edits, *named.edits)} == {"unsafe"}
