"""`guard_collectives` in real ranks: its modes, what it restores, and that it says nothing of what is right."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import all_reduce  # imported by name, before any guard is on
from torch.distributed._functional_collectives import reduce_scatter_tensor
from torch.nn.parallel import DistributedDataParallel

from stridewise.checks.ranks import guard_collectives
from stridewise.checks.ranks.collectives import METHODS
from stridewise.errors import ContractError, LayoutWarning, UsageError

from .buffers import Buffer
from .calls import CALLS
from .world import world

CAN_WRITE = ("contiguous", "permuted", "gapped", "rows")


def methods() -> dict[str, Any]:
    operators = torch.ops._c10d_functional
    functional = {f"type of {name}": type(getattr(operators, name)) for name in ("all_reduce_", "broadcast_")}
    return {**{name: vars(dist.ProcessGroup).get(name) for name in METHODS}, **functional}


# -- raise -------------------------------------------------------------------------------------------------------------


def stopped(rank: int) -> list[Any]:
    found: list[Any] = []
    table = torch.full((4, 3), float(rank))
    before, memory = methods(), table.clone()
    with guard_collectives() as guard:
        for act in (
            lambda: dist.broadcast(table[:, 0], src=0),
            lambda: all_reduce(table[:, 0]),
            lambda: dist.all_reduce(table[:, 0], async_op=True),
            lambda: dist.all_reduce(torch.ones(1).expand(4)),
            lambda: torch.ops._c10d_functional.all_reduce_(table[:, 1], "sum", dist.group.WORLD.group_name),
            lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, table.t(), 1 - rank)]),
            lambda: dist.recv(table[:, 2], 1 - rank),
        ):
            try:
                act()
            except ContractError as error:
                found.append((error.finding.code, error.finding.site.where, str(error)))
        all_reduce(memory[:1].clone())  # the rest of the program goes on
    return [found, torch.equal(table, memory), before == methods(), len(guard.findings)]


def test_raise() -> None:
    for found, is_unharmed, is_restored, count in world(2, stopped):
        assert [code for code, _, _ in found] == ["SW201"] * 7
        assert all("test_guard.py" in where for _, where, _ in found)
        assert is_unharmed
        assert is_restored
        assert count == 7
        assert found[0][2].startswith(
            "`dist.broadcast(table[:, 0], src=0)` gets `table[:, 0]`, gapped, (4,) with strides"
        )
        assert "`table[:, 0] = t`" in found[1][2]
        assert "`t = table[:, 2].new_empty(table[:, 2].shape)`" in " ".join(found[6][2].split())


# -- convert -----------------------------------------------------------------------------------------------------------


def converted(rank: int) -> dict[Any, str]:
    found = {}
    with guard_collectives("convert"):
        for name, call in CALLS.items():
            for kind in CAN_WRITE:
                found[name, kind] = call(kind)
            if name == "reduce_scatter_base_input" or name.startswith("functional"):
                continue
            found[name, "mixed"] = call(("contiguous", "permuted")[rank])
    with guard_collectives("convert", across_ranks=True, timeout=20):
        for name, call in CALLS.items():
            if not name.startswith("functional_reduce"):
                found[name, "across"] = call(("gapped", "permuted")[rank])
    return found


def test_convert_makes_every_call_right() -> None:
    for found in world(2, converted):
        assert {key: result for key, result in found.items() if result != "right"} == {}


def handles(rank: int) -> list[Any]:
    """Asynchronous calls: nothing is complete before results were copied back, and that happens once."""
    found = []
    with guard_collectives("convert"):
        for finish in ("wait", "future", "poll"):
            table = torch.zeros(4, 3)
            table[:, 1] = rank + 1
            column = table[:, 1]
            version = table._version
            work = dist.all_reduce(column, async_op=True)
            if finish == "wait":
                work.wait()
                work.wait()
                assert work.result()[0] is column
            elif finish == "future":
                assert work.get_future().wait()[0] is column
                work.wait()
            else:
                while not work.is_completed():
                    time.sleep(0.001)
                work.wait()
            found.append((column.tolist(), table[:, 0].tolist(), table._version - version, isinstance(work, dist.Work)))
        requests = []
        table = torch.full((4, 3), float(rank))
        sends, receives = table[:, 0], table[:, 2]
        for function, tensor in ((dist.isend, sends), (dist.irecv, receives)):
            requests.append(dist.P2POp(function, tensor, 1 - rank))
        for work in dist.batch_isend_irecv(requests):
            work.wait()
        found.append(table.tolist())
        if rank == 0:
            dist.send(table[:, 0], 1)
        else:
            assert dist.recv(table[:, 1]) == 0
        found.append(table[:, 1].tolist())
    return found


def test_convert_keeps_handles() -> None:
    for rank, found in enumerate(world(2, handles)):
        assert found[:3] == [([3.0] * 4, [0.0] * 4, 1, True)] * 3
        assert found[3] == [[float(rank), float(rank), float(1 - rank)]] * 4
        assert found[4] == [0.0] * 4


def not_writable(rank: int) -> list[str]:
    found = []
    with guard_collectives("convert"):
        for kind in ("expanded", "overlapping"):
            for act in (dist.all_reduce, lambda tensor: dist.broadcast(tensor, src=1 - rank)):
                with contextlib.suppress(ContractError):
                    act(Buffer(kind).view)
                    found.append(kind)
    return found


def test_convert_refuses_what_cannot_be_written_back() -> None:
    assert world(2, not_writable) == [[], []]


def expanded_source(rank: int) -> list[float]:
    tensor = torch.tensor([5.0]).expand(4) if rank == 0 else torch.zeros(4)
    with guard_collectives("convert"):
        dist.broadcast(tensor, src=0)
    return tensor.tolist()


def test_convert_reads_what_shares_memory() -> None:
    assert world(2, expanded_source) == [[5.0] * 4] * 2


# -- warn, nesting, threads


def warned(rank: int) -> list[Any]:
    table = torch.zeros(4, 3)
    with warnings.catch_warnings(record=True) as caught, guard_collectives("warn"):
        warnings.simplefilter("always")
        for _ in range(3):
            dist.all_reduce(table[:, 0])
        dist.all_reduce(table[:, 1])
    return [(issubclass(each.category, LayoutWarning), each.filename, each.lineno) for each in caught]


def test_warn_tells_each_site_once() -> None:
    for caught in world(2, warned):
        assert [kind for kind, _, _ in caught] == [True, True]
        assert all(__file__.endswith(name) for _, name, _ in caught)
        assert caught[1][2] == caught[0][2] + 1


def nested(rank: int) -> list[bool]:
    table, before, said = torch.zeros(4, 3), methods(), []

    def harms() -> bool:
        try:
            dist.all_reduce(table[:, 0])
        except ContractError:
            return True
        return False

    outer = guard_collectives()
    assert outer.start() is outer
    with guard_collectives("convert"):
        said.append(harms())  # the last one decides
    said.append(harms())
    inner = guard_collectives("convert").start()
    outer.stop()  # in any order
    said.append(harms())
    inner.stop()
    inner.stop()
    said.append(methods() == before)
    with contextlib.suppress(ZeroDivisionError), guard_collectives():
        raise ZeroDivisionError
    said.append(methods() == before)
    with guard_collectives():
        thread = threading.Thread(target=lambda: said.append(harms()))
        thread.start()
        thread.join()
        original = vars(dist.ProcessGroup)["allreduce"]
        dist.ProcessGroup.allreduce = lambda *args, **kwargs: original(*args, **kwargs)
        theirs = vars(dist.ProcessGroup)["allreduce"]
    said.append(vars(dist.ProcessGroup)["allreduce"] is theirs)  # somebody else's stays, and works
    dist.all_reduce(torch.zeros(2))
    dist.ProcessGroup.allreduce = before["allreduce"]
    return said


def test_guards_nest_and_restore() -> None:
    assert world(2, nested) == [[False, True, False, True, True, True, True]] * 2


# -- across ranks


def disagrees(rank: int) -> list[Any]:
    found: list[Any] = []
    image = torch.ones(1, 3, 2, 2)
    if rank == 1:
        image = image.contiguous(memory_format=torch.channels_last)
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = groups[rank // 2]
    sequence = dist.group.WORLD._get_sequence_number_for_group()
    with guard_collectives(across_ranks=True, timeout=20):
        for act in (
            lambda: dist.all_reduce(image),
            lambda: dist.all_reduce(image, group=own),
            lambda: dist.broadcast(image, src=0),
            lambda: dist.all_reduce(torch.ones(4, 3)[:, 0] if rank == 3 else torch.ones(4)),
            lambda: dist.all_gather([torch.empty(1, 3, 2, 2) for _ in range(4)], image),
            lambda: dist.all_reduce(torch.ones(2, 6)) if rank else dist.all_reduce(torch.ones(3, 4)),
            lambda: dist.all_reduce(torch.ones(2)),
        ):
            try:
                act()
                found.append("silent")
            except ContractError as error:
                found.append((error.finding.code, error.finding.evidence))
    made = dist.group.WORLD._get_sequence_number_for_group() - sequence
    return [found, made]


def test_across_ranks_all_raise_together() -> None:
    results = world(4, disagrees)
    for rank, (found, made) in enumerate(results):
        assert found[0][0] == "SW202"
        assert "channels_last" in found[0][1][1]
        assert [line.partition(":")[0] for line in found[0][1]] == [f"rank {each}" for each in range(4)]
        assert (found[1] == "silent") is (rank >= 2)  # only the ranks of the group
        assert found[2][0] == "SW202"
        assert found[3][0] == "SW201"  # on rank 3, and so on all
        assert found[4:] == ["silent"] * 3
        assert made == 3  # nothing was added to the job's own group


def absent(rank: int) -> str:
    with guard_collectives(across_ranks=True, timeout=0.5):
        dist.all_reduce(torch.ones(2))
        if rank == 1:
            return ""
        try:
            dist.all_reduce(torch.ones(2))
        except UsageError as error:
            return str(error)
    return "silent"


def never_there(rank: int) -> str:
    if rank == 1:
        dist.distributed_c10d._get_default_store().wait(["over"])
        return ""
    try:
        with guard_collectives(across_ranks=True, timeout=0.5):
            dist.all_reduce(torch.ones(2))
    except UsageError as error:
        dist.distributed_c10d._get_default_store().set("over", "1")
        return str(error)
    return "silent"


@pytest.mark.parametrize("function", [absent, never_there])
def test_a_rank_that_does_not_come_is_named(function: Any) -> None:
    message = world(2, function)[0]
    assert message.startswith("`dist.all_reduce(torch.ones(2))`: rank 1 did not come to compare layouts within 0.5 s")


UNCAUGHT = """
import atexit, os
atexit.register(lambda: print(threads()))  # the first, so it runs last
def threads():
    return len(os.listdir("/proc/self/task"))
import torch
import torch.distributed as dist
import stridewise
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(2))
print(threads())
with stridewise.guard_collectives(across_ranks=True):
    dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(4, 4)[:, ::2])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_an_uncaught_error_leaves_no_thread_of_ours_at_exit() -> None:
    """Threads of a gloo group that are alive when the process ends abort it now and then."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, "-c", UNCAUGHT], capture_output=True, text=True, env=environment)
    assert "ContractError" in ran.stderr
    before, after = ran.stdout.split()
    assert before == after
    assert ran.returncode == 1


# -- healthy programs --------------------------------------------------------------------------------------------------


def trained(rank: int, across_ranks: bool, guarded: bool) -> list[Any]:
    """Three steps of a small channels_last model under DDP, with object collectives and a sparse tensor beside it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 4))
    wrapped = DistributedDataParallel(model.to(memory_format=torch.channels_last))
    optimizer = torch.optim.AdamW(wrapped.parameters())
    guard = guard_collectives(across_ranks=across_ranks, timeout=20) if guarded else contextlib.nullcontext()
    with guard:
        for step in range(3):
            torch.manual_seed(step * 10 + rank)
            loss = wrapped(torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)).square().sum()
            loss.backward()
            dist.all_reduce(model[0].weight.grad)
            optimizer.step()
            optimizer.zero_grad()
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        dist.broadcast_object_list(objects, src=0)
        dist.all_reduce(torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), check_invariants=True).coalesce())
        dist.barrier()
    found = guard.findings if guarded else []
    return [objects, len(found), [parameter.detach().clone() for parameter in model.parameters()]]


@pytest.mark.parametrize("across_ranks", [False, True])
def test_training_is_left_alone(across_ranks: bool) -> None:
    guarded, plain = world(2, trained, across_ranks, True), world(2, trained, across_ranks, False)
    for (objects, count, parameters), (_, _, wanted) in zip(guarded, plain, strict=True):
        assert objects == [{"rank": 0}, {"rank": 1}]
        assert count == 0
        assert all(torch.equal(*pair) for pair in zip(parameters, wanted, strict=True))


def sharded(rank: int) -> list[int]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    counts = []
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 4))
    with guard_collectives(across_ranks=True, timeout=20) as guard:
        fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            model(torch.randn(2, 3, 8, 8)).square().sum().backward()
            optimizer.step()
        counts.append(len(guard.findings))
    return counts


@pytest.mark.needs_torch("2.7", "`fully_shard` runs on no CPU")
def test_sharded_training_is_left_alone() -> None:
    assert world(2, sharded) == [[0], [0]]


def compiled(rank: int) -> list[Any]:
    def program(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor * 2
        dist.all_reduce(tensor)
        return reduce_scatter_tensor(tensor, "sum", 0, dist.group.WORLD) + 1

    with guard_collectives() as guard:
        made = torch.compile(program, backend="aot_eager", fullgraph=True)(torch.ones(4, 3))
    return [made.tolist(), len(guard.findings)]


def test_compiled_programs_run() -> None:
    assert world(2, compiled) == [[[[9.0] * 3] * 2, 0]] * 2


@pytest.mark.parametrize(("mode", "timeout"), [("stop", 1.0), ("raise", 0.0)])
def test_what_it_takes(mode: Any, timeout: float) -> None:
    with pytest.raises(UsageError):
        guard_collectives(mode, timeout=timeout)
