"""Every collective of gloo, once for each operand: a function of the layout of that operand that says what came out."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from .buffers import SHAPE, Buffer, faults, of_all

BIG = (2 * SHAPE[0], *SHAPE[1:])
"""Of one tensor for both ranks."""
CALLS: dict[str, Callable[[str], str]] = {}


def call(function: Callable[[str], str]) -> Callable[[str], str]:
    CALLS[function.__name__] = function
    return function


def _name() -> str:
    return dist.group.WORLD.group_name


def _root() -> bool:
    return dist.get_rank() == 0


def _chunk(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.chunk(2)[dist.get_rank()]


def _wait(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ops._c10d_functional.wait_tensor(tensor)


@call
def broadcast(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    dist.broadcast(tensor.view, 0)
    return faults((tensor, every[0]))


@call
def all_reduce(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    dist.all_reduce(tensor.view)
    return faults((tensor, sum(every)))


@call
def all_reduce_max(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    dist.all_reduce(tensor.view, dist.ReduceOp.MAX)
    return faults((tensor, every[1]))


@call
def all_reduce_coalesced(kind: str) -> str:
    tensor, other = Buffer(kind), Buffer("contiguous", 3)
    every, others = of_all(tensor.values), of_all(other.values)
    dist.group.WORLD.allreduce_coalesced([other.view, tensor.view]).wait()
    return faults((tensor, sum(every)), (other, sum(others)))


@call
def reduce(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    dist.reduce(tensor.view, 0)
    # What is in the tensors of other ranks is nobody's business, but what lies around them is.
    return faults((tensor, sum(every))) if _root() else faults((tensor, tensor.view))


@call
def all_gather_input(kind: str) -> str:
    tensor, outputs = Buffer(kind), [Buffer("contiguous", 5) for _ in range(2)]
    every = of_all(tensor.values)
    dist.all_gather([each.view for each in outputs], tensor.view)
    return faults((tensor, None), *zip(outputs, every, strict=True))


@call
def all_gather_output(kind: str) -> str:
    tensor, outputs = Buffer("contiguous"), [Buffer(kind, 5) for _ in range(2)]
    every = of_all(tensor.values)
    dist.all_gather([each.view for each in outputs], tensor.view)
    return faults((tensor, None), *zip(outputs, every, strict=True))


@call
def all_gather_base_input(kind: str) -> str:
    tensor, output = Buffer(kind), Buffer("contiguous", 5, BIG)
    every = of_all(tensor.values)
    dist.group.WORLD._allgather_base(output.view, tensor.view).wait()
    return faults((tensor, None), (output, torch.cat(every)))


@call
def all_gather_base_output(kind: str) -> str:
    tensor, output = Buffer("contiguous"), Buffer(kind, 5, BIG)
    every = of_all(tensor.values)
    dist.group.WORLD._allgather_base(output.view, tensor.view).wait()
    return faults((tensor, None), (output, torch.cat(every)))


@call
def all_gather_base_coalesced_input(kind: str) -> str:
    tensor, output = Buffer(kind), Buffer("contiguous", 5, BIG)
    every = of_all(tensor.values)
    dist.group.WORLD.allgather_into_tensor_coalesced([output.view], [tensor.view]).wait()
    return faults((tensor, None), (output, torch.cat(every)))


@call
def all_gather_base_coalesced_output(kind: str) -> str:
    tensor, output = Buffer("contiguous"), Buffer(kind, 5, BIG)
    every = of_all(tensor.values)
    dist.group.WORLD.allgather_into_tensor_coalesced([output.view], [tensor.view]).wait()
    return faults((tensor, None), (output, torch.cat(every)))


@call
def all_gather_coalesced_input(kind: str) -> str:
    tensor, outputs = Buffer(kind), [Buffer("contiguous", 5) for _ in range(2)]
    every = of_all(tensor.values)
    dist.group.WORLD.allgather_coalesced([[each.view] for each in outputs], [tensor.view]).wait()
    return faults((tensor, None), *zip(outputs, every, strict=True))


@call
def all_gather_coalesced_output(kind: str) -> str:
    tensor, outputs = Buffer("contiguous"), [Buffer(kind, 5) for _ in range(2)]
    every = of_all(tensor.values)
    dist.group.WORLD.allgather_coalesced([[each.view] for each in outputs], [tensor.view]).wait()
    return faults((tensor, None), *zip(outputs, every, strict=True))


@call
def gather_input(kind: str) -> str:
    tensor, outputs = Buffer(kind), [Buffer("contiguous", 5) for _ in range(2)]
    every = of_all(tensor.values)
    dist.gather(tensor.view, [each.view for each in outputs] if _root() else None, 0)
    return faults((tensor, None), *(zip(outputs, every, strict=True) if _root() else ()))


@call
def gather_output(kind: str) -> str:
    tensor, outputs = Buffer("contiguous"), [Buffer(kind, 5) for _ in range(2)]
    every = of_all(tensor.values)
    dist.gather(tensor.view, [each.view for each in outputs] if _root() else None, 0)
    return faults((tensor, None), *(zip(outputs, every, strict=True) if _root() else ()))


def _scatter(input_kind: str, output_kind: str) -> str:
    output, inputs = Buffer(output_kind), [Buffer(input_kind, 7 + number, rank=0) for number in range(2)]
    dist.scatter(output.view, [each.view for each in inputs] if _root() else None, 0)
    return faults((output, inputs[dist.get_rank()].values), *((each, None) for each in inputs))


@call
def scatter_input(kind: str) -> str:
    return _scatter(kind, "contiguous")


@call
def scatter_output(kind: str) -> str:
    return _scatter("contiguous", kind)


@call
def scatter_both(kind: str) -> str:
    return _scatter(kind, kind)


def _reduce_scatter(input_kind: str, output_kind: str) -> str:
    output, inputs = Buffer(output_kind, 5), [Buffer(input_kind, 7 + number) for number in range(2)]
    every = [of_all(each.values) for each in inputs]
    dist.reduce_scatter(output.view, [each.view for each in inputs])
    return faults((output, sum(every[dist.get_rank()])), *((each, None) for each in inputs))


@call
def reduce_scatter_input(kind: str) -> str:
    return _reduce_scatter(kind, "contiguous")


@call
def reduce_scatter_output(kind: str) -> str:
    return _reduce_scatter("contiguous", kind)


@call
def reduce_scatter_both(kind: str) -> str:
    return _reduce_scatter(kind, kind)


@call
def reduce_scatter_base_input(kind: str) -> str:
    output, tensor = Buffer("contiguous", 5), Buffer(kind, 7, BIG)
    every = of_all(tensor.values)
    dist.group.WORLD._reduce_scatter_base(output.view, tensor.view).wait()
    return faults((output, _chunk(sum(every))), (tensor, None))


@call
def reduce_scatter_base_output(kind: str) -> str:
    output, tensor = Buffer(kind, 5), Buffer("contiguous", 7, BIG)
    every = of_all(tensor.values)
    dist.group.WORLD._reduce_scatter_base(output.view, tensor.view).wait()
    return faults((output, _chunk(sum(every))), (tensor, None))


@call
def reduce_scatter_base_coalesced_input(kind: str) -> str:
    output, tensor = Buffer("contiguous", 5), Buffer(kind, 7, BIG)
    every = of_all(tensor.values)
    dist.group.WORLD.reduce_scatter_tensor_coalesced([output.view], [tensor.view]).wait()
    return faults((output, _chunk(sum(every))), (tensor, None))


@call
def reduce_scatter_base_coalesced_output(kind: str) -> str:
    output, tensor = Buffer(kind, 5), Buffer("contiguous", 7, BIG)
    every = of_all(tensor.values)
    dist.group.WORLD.reduce_scatter_tensor_coalesced([output.view], [tensor.view]).wait()
    return faults((output, _chunk(sum(every))), (tensor, None))


def _all_to_all(input_kind: str, output_kind: str) -> str:
    outputs = [Buffer(output_kind, 5) for _ in range(2)]
    inputs = [Buffer(input_kind, 7 + number) for number in range(2)]
    every = [of_all(each.values) for each in inputs]
    dist.all_to_all([each.view for each in outputs], [each.view for each in inputs])
    return faults(*zip(outputs, every[dist.get_rank()], strict=True), *((each, None) for each in inputs))


@call
def all_to_all_input(kind: str) -> str:
    return _all_to_all(kind, "contiguous")


@call
def all_to_all_output(kind: str) -> str:
    return _all_to_all("contiguous", kind)


@call
def all_to_all_single_output(kind: str) -> str:
    output, tensor = Buffer(kind, 5, BIG), Buffer("contiguous", 7, BIG)
    every = of_all(tensor.values)
    dist.all_to_all_single(output.view, tensor.view)
    return faults((output, torch.cat([_chunk(each) for each in every])), (tensor, None))


@call
def functional_all_reduce(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    made = _wait(torch.ops._c10d_functional.all_reduce(tensor.view, "sum", _name()))
    return faults((tensor, None)) if torch.equal(made, sum(every)) else "wrong"


@call
def functional_all_reduce_coalesced(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    made = _wait(torch.ops._c10d_functional.all_reduce_coalesced([tensor.view], "sum", _name())[0])
    return faults((tensor, None)) if torch.equal(made, sum(every)) else "wrong"


@call
def functional_broadcast(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    made = _wait(torch.ops._c10d_functional.broadcast(tensor.view, 0, _name()))
    return faults((tensor, None)) if torch.equal(made, every[0]) else "wrong"


@call
def functional_all_gather(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    made = _wait(torch.ops._c10d_functional.all_gather_into_tensor(tensor.view, 2, _name()))
    return faults((tensor, None)) if torch.equal(made, torch.cat(every)) else "wrong"


@call
def functional_all_gather_coalesced(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    made = _wait(torch.ops._c10d_functional.all_gather_into_tensor_coalesced([tensor.view], 2, _name())[0])
    return faults((tensor, None)) if torch.equal(made, torch.cat(every)) else "wrong"


@call
def functional_reduce_scatter(kind: str) -> str:
    tensor = Buffer(kind, 7, BIG)
    every = of_all(tensor.values)
    made = _wait(torch.ops._c10d_functional.reduce_scatter_tensor(tensor.view, "sum", 2, _name()))
    return faults((tensor, None)) if torch.equal(made, _chunk(sum(every))) else "wrong"


@call
def functional_reduce_scatter_coalesced(kind: str) -> str:
    tensor = Buffer(kind, 7, BIG)
    every = of_all(tensor.values)
    made = _wait(torch.ops._c10d_functional.reduce_scatter_tensor_coalesced([tensor.view], "sum", 2, _name())[0])
    return faults((tensor, None)) if torch.equal(made, _chunk(sum(every))) else "wrong"


@call
def functional_all_to_all(kind: str) -> str:
    tensor = Buffer(kind, 7, BIG)
    every = of_all(tensor.values)
    made = _wait(torch.ops._c10d_functional.all_to_all_single(tensor.view, [2, 2], [2, 2], _name()))
    return faults((tensor, None)) if torch.equal(made, torch.cat([_chunk(each) for each in every])) else "wrong"


@call
def functional_all_reduce_in_place(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    _wait(torch.ops._c10d_functional.all_reduce_(tensor.view, "sum", _name()))
    return faults((tensor, sum(every)))


@call
def functional_all_reduce_coalesced_in_place(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    _wait(torch.ops._c10d_functional.all_reduce_coalesced_([tensor.view], "sum", _name())[0])
    return faults((tensor, sum(every)))


@call
def functional_broadcast_in_place(kind: str) -> str:
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    _wait(torch.ops._c10d_functional.broadcast_.default(tensor.view, 0, _name()))
    return faults((tensor, every[0]))


@call
def functional_all_gather_out(kind: str) -> str:
    tensor, output = Buffer("contiguous"), Buffer(kind, 5, BIG)
    every = of_all(tensor.values)
    _wait(torch.ops._c10d_functional.all_gather_into_tensor_out(tensor.view, 2, _name(), out=output.view))
    return faults((output, torch.cat(every)), (tensor, None))


@call
def broadcast_coalesced(kind: str) -> str:
    """As DistributedDataParallel sends parameters and buffers: in C++, by no method of a group."""
    tensor = Buffer(kind)
    every = of_all(tensor.values)
    dist._broadcast_coalesced(dist.group.WORLD, [tensor.view], 1024, 0)
    return faults((tensor, every[0]))


@call
def functional_reduce_scatter_out(kind: str) -> str:
    output, tensor = Buffer(kind, 5), Buffer("contiguous", 7, BIG)
    every = of_all(tensor.values)
    operator = getattr(torch.ops._c10d_functional, "reduce_scatter_tensor_out", None)
    if operator is None:  # before torch 2.7 or so
        return "right"
    _wait(operator(tensor.view, "sum", 2, _name(), out=output.view))
    return faults((output, _chunk(sum(every))), (tensor, None))


if torch.__version__ < "2.7":
    # gloo has no all_to_all and no reduce_scatter there; the functional one refuses on one rank, and the other waits.
    for lacking in (
        *("all_to_all_input", "all_to_all_output", "functional_all_to_all"),
        *("reduce_scatter_input", "reduce_scatter_output", "reduce_scatter_both"),
    ):
        del CALLS[lacking]
