"""What a finding calls the tensor that is copied, and what it advises."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import stridewise
from stridewise.findings import Finding

ONES = torch.ones(400)
EDGES = torch.randint(0, 50, (400, 2))


def finding(program: Callable[[], object], code: str) -> Finding:
    with stridewise.record() as recording:
        program()
    (found,) = stridewise.analyze(recording, min_share=0).findings
    assert found.code == code
    return found


def degree(index: Tensor) -> Tensor:
    return torch.zeros(50).index_add(0, index, ONES)


def test_of_names_that_a_tensor_is_unpacked_into_the_one_that_is_copied() -> None:
    def program() -> None:
        src, dst = EDGES.t()
        degree(dst), degree(dst), src.size()

    found = finding(program, "SW101")
    assert found.message == "`dst` is a tensor with gaps; 2 calls behind it copy it into their order (index_add)."
    assert found.advice is not None
    assert found.advice.startswith("Copy it once, right behind this: `dst = dst.contiguous()`.")
    assert (found.site.expression, found.site.column, found.site.end_column) == ("dst", 13, 16)


def test_several_names_stay_together() -> None:
    def program() -> None:
        src, dst = EDGES.t()
        degree(src), degree(dst)

    assert finding(program, "SW101").message.startswith("`src, dst` starts a tensor with gaps;")


def test_attributes_that_a_tensor_is_unpacked_into() -> None:
    class Graph:
        src: Tensor
        dst: Tensor

    graph = Graph()

    def program() -> None:
        (graph.src, graph.dst) = EDGES.t()
        degree(graph.dst), degree(graph.dst)

    found = finding(program, "SW101")
    assert found.site.expression == "graph.dst"
    assert "`graph.dst = graph.dst.contiguous()`" in (found.advice or "")


def test_one_payer_is_told_the_line() -> None:
    def program() -> None:
        src, dst = EDGES.t()
        src.size(), degree(dst)

    found = finding(program, "SW103")
    assert found.origin is not None
    assert found.origin.expression == "dst"
    assert (found.advice or "").startswith("Make `src, dst = EDGES.t()` give the order that the operator needs;")


FIRST = EDGES.t()[1]


def two_kinds(index: Tensor) -> None:
    degree(index)
    torch.zeros(50).index_reduce(0, index, ONES, "amax")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", EDGES.t()[1])

    def forward(self) -> None:
        degree(self.table), degree(self.table)


@pytest.mark.parametrize(
    ("program", "message", "advice"),
    [
        (
            lambda: (degree(FIRST), degree(FIRST)),
            "`index_add` copies a tensor made outside the recorded calls 2 times a step, each time the same way.",
            "Copy it once, with `.contiguous()` before the step, or before the loop that takes it.",
        ),
        (
            Net(),
            "`index_add` copies the buffer `table` 2 times a step, each time the same way.",
            "Copy it once, with `.contiguous()` where the model is built.",
        ),
    ],
    ids=["outside", "buffer"],
)
def test_repeated_copies_say_of_what_and_where_to_copy_once(
    program: Callable[[], object], message: str, advice: str
) -> None:
    found = finding(program, "SW102")
    assert (found.message, found.advice) == (message, advice)


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_repeated_copies_name_the_functions() -> None:
    message = finding(lambda: two_kinds(FIRST), "SW102").message
    assert message.startswith("`index_add` and `index_reduce` copy a tensor made outside the recorded calls 2 times")


def test_targets_are_no_expression_that_gives_an_order() -> None:
    def program() -> None:
        q, k = map(torch.t, torch.randn(2, 8, 16))
        nn.functional.layer_norm(q, (8,)), k.size()

    advice = finding(program, "SW103").advice or ""
    assert advice.startswith("Make `q, k = map(torch.t, torch.randn(2, 8, 16))` give the order")


def test_one_expression_with_operands_of_two_origins_speaks_of_both() -> None:
    def normalized(x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:])

    def program() -> None:
        m = torch.randn(8, 16).t()
        normalized(m), normalized(torch.randn(4, 16).t())

    found = finding(program, "SW103")
    assert "(16, 8) with strides (1, 16); input 0, (16, 4) with strides (1, 16)" in found.message
    assert "(`torch.randn(8, 16).t()`, `torch.randn(4, 16).t()`)" in (found.advice or "")
