"""The collectives that are guarded: which tensors each takes, and what gloo does with them.

No fact here is from memory: `tests/checks/ranks/test_facts.py` runs every collective of gloo over layouts without a
guard, and compares what comes of it with this table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from stridewise.checks.rules.sw201 import Role, Treatment

if TYPE_CHECKING:
    from torch.torch_version import TorchVersion


class Operand(Struct, frozen=True):
    """One argument of a collective: a tensor, or lists of tensors."""

    names: tuple[str, ...]
    """As keywords; signatures differ in them."""
    role: Role
    treatment: Treatment
    by_keyword: bool = False
    """It can't be given by position."""


class Collective(Struct, frozen=True):
    """What one method of `ProcessGroup`, or one functional operator, does with its tensors."""

    operands: tuple[Operand, ...]
    """By position."""
    root: Literal["source", "target"] | None = None
    """Of `both`: only the root's is read (`source`), or only the root's is written (`target`)."""
    in_order: bool = False
    """Elements meet by their place in memory: strides have to be equal on all ranks, and here of all operands."""
    pairwise: bool = False
    """Not called by all ranks of the group."""
    functional: bool = False


def _of(names: str, role: Role, treatment: Treatment) -> Operand:
    return Operand(tuple(names.split()), role, treatment)


_GATHER = Collective(
    (
        _of("output_tensors output_lists output outputs", "output", "packed"),
        _of("input_tensors input_tensor input_list input inputs", "input", "packed"),
    )
)
_REDUCE_SCATTER_SINGLE = Collective(
    (
        _of("outputTensor outputs", "output", "packed"),
        _of("inputTensor inputs", "input", "cloned"),
    ),
    in_order=True,
)
_ALL_TO_ALL_SINGLE = Collective((_of("output", "output", "row_major"), _of("input", "input", "contiguous")))
_TENSORS = "tensors tensor"

METHODS: dict[str, Collective] = {
    "broadcast": Collective((_of(_TENSORS, "both", "flat"),), root="source", in_order=True),
    "allreduce": Collective((_of(_TENSORS, "both", "flat"),), in_order=True),
    "allreduce_coalesced": Collective((_of(_TENSORS, "both", "packed"),)),
    "reduce": Collective((_of(_TENSORS, "both", "flat"),), root="target", in_order=True),
    "allgather": _GATHER,
    "allgather_coalesced": _GATHER,
    "_allgather_base": _GATHER,
    "all_gather_single": _GATHER,
    "all_gather_single_coalesced": _GATHER,
    "allgather_into_tensor_coalesced": _GATHER,
    "gather": _GATHER,
    "scatter": Collective(
        (_of("output_tensors output_tensor", "output", "flat"), _of("input_tensors", "input", "flat")), in_order=True
    ),
    "reduce_scatter": Collective(
        (_of("output_tensors output", "output", "flat"), _of("input_tensors input", "input", "cloned")), in_order=True
    ),
    "_reduce_scatter_base": _REDUCE_SCATTER_SINGLE,
    "reduce_scatter_single": _REDUCE_SCATTER_SINGLE,
    "reduce_scatter_single_coalesced": _REDUCE_SCATTER_SINGLE,
    "reduce_scatter_tensor_coalesced": _REDUCE_SCATTER_SINGLE,
    "alltoall": Collective((_of("output_tensors", "output", "packed"), _of("input_tensors", "input", "packed"))),
    "alltoall_base": _ALL_TO_ALL_SINGLE,
    "all_to_all_single": _ALL_TO_ALL_SINGLE,
    "send": Collective((_of(_TENSORS, "input", "contiguous"),), pairwise=True),
    "recv": Collective((_of(_TENSORS, "output", "contiguous"),), pairwise=True),
    "recv_anysource": Collective((_of("arg0", "output", "contiguous"),), pairwise=True),
}
"""Methods of `torch.distributed.ProcessGroup`; those that a version of torch lacks are not guarded there."""

FUNCTIONAL: dict[str, Collective] = {
    "all_reduce_": Collective((_of("input", "both", "flat"),), in_order=True, functional=True),
    "broadcast_": Collective((_of("input", "both", "flat"),), root="source", in_order=True, functional=True),
    "all_gather_into_tensor_out": Collective(
        (_of("input", "input", "packed"), Operand(("out",), "output", "packed", by_keyword=True)), functional=True
    ),
    "reduce_scatter_tensor_out": Collective(
        (_of("input", "input", "packed"), Operand(("out",), "output", "packed", by_keyword=True)), functional=True
    ),
}
"""Operators of `torch.ops._c10d_functional` that harm; the rest copy what they are given to contiguous memory."""

_REDUCE_SCATTER_FUNCTIONAL = Collective((_of("input inputs", "input", "cloned"),), in_order=True, functional=True)
OLDER: dict[str, tuple[str, Collective]] = {
    # PyTorch's #158903 made contiguous what `gather` reads.
    "gather": ("2.9", Collective((_GATHER.operands[0], _of("input_tensors input", "input", "row_major")))),
    # What isn't contiguous was refused for some versions, until PyTorch's #177965 had it copied.
    "reduce_scatter_tensor": ("2.12", _REDUCE_SCATTER_FUNCTIONAL),
    "reduce_scatter_tensor_coalesced": ("2.12", _REDUCE_SCATTER_FUNCTIONAL),
}
"""By method or functional operator the version of torch before which it did something else, and what: seen on 2.6."""


def guarded(table: dict[str, Collective], version: TorchVersion, *, functional: bool) -> dict[str, Collective]:
    """The collectives of a table as a version of torch has them."""
    older = {name: each for name, (first, each) in OLDER.items() if version < first and each.functional is functional}
    return table | older


class Place(Struct, frozen=True):
    """Where in the arguments of a call a tensor stands."""

    position: int
    """Of the operand."""
    keyword: str | None
    path: tuple[int, ...]
    """Into nested lists."""


def tensors_of(collective: Collective, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[Place, Any]]:
    """Every tensor that a call hands over. `args` are without the group."""
    found: list[tuple[Place, Any]] = []
    for position, operand in enumerate(collective.operands):
        if position < len(args) and not operand.by_keyword:
            _add(found, Place(position, None, ()), args[position])
            continue
        for name in operand.names:
            if name in kwargs:
                _add(found, Place(position, name, ()), kwargs[name])
    return found


def _add(found: list[tuple[Place, Any]], place: Place, value: Any) -> None:
    if isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            _add(found, Place(place.position, place.keyword, (*place.path, index)), each)
    elif hasattr(value, "is_contiguous"):
        found.append((place, value))


def replaced(
    args: tuple[Any, ...], kwargs: dict[str, Any], others: dict[Place, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with other tensors in these places; the caller's lists stay as they are."""
    new_args, new_kwargs = list(args), dict(kwargs)
    for place, other in others.items():
        holder: Any = new_args if place.keyword is None else new_kwargs
        key: Any = place.position if place.keyword is None else place.keyword
        for index in place.path:
            holder[key] = list(holder[key])
            holder, key = holder[key], index
        holder[key] = other
    return tuple(new_args), new_kwargs


def root_of(collective: Collective, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The rank within the group that a rooted collective is about."""
    given = (*args[1:], *kwargs.values())
    for value in given:
        rank = getattr(value, "rootRank", None)
        if isinstance(rank, int):
            return rank
    if collective.functional:
        rank = kwargs.get("src", args[1] if len(args) > 1 else None)
    else:
        rank = kwargs.get("root", args[1] if len(args) > 1 else None)
    return rank if isinstance(rank, int) else 0


def role_of(operand: Operand, collective: Collective, is_root: bool) -> Role:
    """What this rank's tensor is to the collective."""
    if operand.role != "both" or collective.root is None:
        return operand.role
    if collective.root == "source":
        return "input" if is_root else "output"
    return "both" if is_root else "input"
