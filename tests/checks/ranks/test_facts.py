"""What gloo does with layouts, found by running it; the guard says neither more nor less."""

import warnings
from functools import cache

import pytest
import torch
import torch.distributed as dist
from torch.torch_version import TorchVersion

from stridewise.checks.ranks import guard_collectives
from stridewise.checks.ranks.collectives import FUNCTIONAL, METHODS, OLDER, guarded
from stridewise.errors import LayoutWarning

from .buffers import KINDS, Buffer, of_all
from .calls import BIG, CALLS
from .world import ends, world

MIXED = (("contiguous", "permuted"), ("permuted", "contiguous"), ("gapped", "contiguous"), ("rows", "permuted"))
"""Layouts of rank 0 and of rank 1."""
REFUSED = "more than one element of the written-to tensor refers to a single memory location"

Outcome = tuple[str, tuple[str, ...]]
"""What came out on a rank, and the codes that the guard found there."""


def outcomes(rank: int) -> dict[tuple[str, object], Outcome]:
    """Of each call and layout: the guard only warns, so the collective runs as it would without it."""
    warnings.simplefilter("ignore", LayoutWarning)
    found = {}
    for name in CALLS:
        for kinds in (*KINDS, *MIXED):
            mixed = not isinstance(kinds, str)
            with guard_collectives("warn", across_ranks=mixed, timeout=20) as guard:
                try:
                    result = CALLS[name](kinds[rank] if mixed else kinds)
                except RuntimeError as error:
                    result = str(error)
            found[name, kinds] = result, tuple(each.code for each in guard.findings)
            of_all(torch.zeros(1))  # a barrier could raise the error of the call before
    return found


@cache
def found() -> list[dict[tuple[str, object], Outcome]]:
    return world(2, outcomes)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_guard_finds_what_gloo_gets_wrong(name: str) -> None:
    """On some rank, for layouts that are the same on both."""
    for kind in KINDS:
        results = [of_rank[name, kind] for of_rank in found()]
        codes = {code for _, codes in results for code in codes}
        if any(REFUSED in result for result, _ in results):  # torch says it well enough
            assert codes <= {"SW201"}
            continue
        wrong = any(result != "right" for result, _ in results)
        assert codes == ({"SW201"} if wrong else set()), (kind, results)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_guard_finds_where_ranks_disagree(name: str) -> None:
    if name == "broadcast_coalesced" or name.startswith("functional_"):
        kinds: tuple[tuple[str, str], ...] = MIXED[:2]
    else:
        kinds = MIXED
    for kind in kinds:
        results = [of_rank[name, kind] for of_rank in found()]
        wrong = any(result != "right" for result, _ in results)
        assert all(bool(codes) == wrong for _, codes in results), (kind, results)


def test_what_differs_between_ranks_is_called_so() -> None:
    for name in ("broadcast", "all_reduce", "reduce", "reduce_scatter_base_input"):
        for of_rank in found():
            assert of_rank[name, ("contiguous", "permuted")][1] == ("SW202",)


def test_a_gap_on_one_rank_is_told_on_both() -> None:
    assert [of_rank["all_reduce", ("gapped", "contiguous")][1] for of_rank in found()] == [("SW201",), ("SW201",)]


# -- those that refuse: one rank raises, and the other loses its connection


def refused(rank: int, op: str, kind: str) -> Outcome:
    warnings.simplefilter("ignore", LayoutWarning)
    with guard_collectives("warn") as guard:
        try:
            if op == "all_to_all_single":
                dist.all_to_all_single(Buffer("contiguous", 5, BIG).view, Buffer(kind, 7, BIG).view)
            elif rank == 0:
                dist.send(Buffer(kind if op == "send" else "contiguous").view, 1)
            else:
                given = Buffer("contiguous" if op == "send" else kind).view
                dist.recv(given, None if op == "recv_anysource" else 0)
        except (RuntimeError, ValueError) as error:
            return str(error), tuple(each.code for each in guard.findings)
    return "right", tuple(each.code for each in guard.findings)


@pytest.mark.parametrize("kind", ["permuted", "gapped", "expanded"])
@pytest.mark.parametrize("op", ["send", "recv", "recv_anysource", "all_to_all_single"])
def test_what_gloo_refuses_is_named_before(op: str, kind: str) -> None:
    results = [result for ok, result in ends(2, refused, op, kind) if ok]
    assert len(results) == 2
    message, codes = results[0 if op == "send" else 1]
    assert "contiguous" in message
    assert codes == ("SW201",)


def test_every_method_that_takes_tensors_is_guarded() -> None:
    """A method of `ProcessGroup` that this table doesn't know would go unguarded."""
    taking = {
        name
        for name, method in vars(dist.ProcessGroup).items()
        if "torch.Tensor" in (getattr(method, "__doc__", None) or "")
    }
    assert taking <= METHODS.keys()


@pytest.mark.parametrize(
    ("version", "names"), [("2.6.0+cpu", {*OLDER}), ("2.10.0", {*OLDER} - {"gather"}), ("2.13.0", set())]
)
def test_what_an_older_torch_does_otherwise(version: str, names: set[str]) -> None:
    methods = guarded(METHODS, TorchVersion(version), functional=False)
    functional = guarded(FUNCTIONAL, TorchVersion(version), functional=True)
    assert methods.keys() == METHODS.keys()
    assert {name for name in methods if methods[name] is not METHODS[name]} == names & {"gather"}
    assert functional.keys() - FUNCTIONAL.keys() == names - {"gather"}


def test_every_functional_operator_is_known() -> None:
    """Each was tried above, or refuses what is not contiguous."""
    tried = [
        *("all_reduce", "all_reduce_", "all_reduce_coalesced", "all_reduce_coalesced_", "broadcast", "broadcast_"),
        *("all_gather_into_tensor", "all_gather_into_tensor_coalesced", "all_gather_into_tensor_out"),
        *("reduce_scatter_tensor", "reduce_scatter_tensor_out", "reduce_scatter_tensor_coalesced"),
        "all_to_all_single",
    ]
    refusing = ["isend", "irecv", "batch_p2p_ops", "wait_tensor"]
    schemas = torch._C._jit_get_all_schemas()
    names = {each.name.partition("::")[2] for each in schemas if each.name.startswith("_c10d_functional::")}
    public = {name for name in names if not name.startswith("_")}  # the others move no data: they wrap results
    assert public <= {*tried, *refusing}
