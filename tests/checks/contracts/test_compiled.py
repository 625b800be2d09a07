"""Contracts under torch.compile: the same errors, real conversions, no break in the graph."""

import pytest
import torch
from torch import nn
from torch.library import custom_op

from stridewise.checks.contracts import expect_layout, report, same_as
from stridewise.errors import ContractError, LayoutWarning

BACKENDS = ["aot_eager", "inductor"]
GOOD = torch.arange(12.0).reshape(3, 4)
BAD = torch.arange(12.0).reshape(4, 3).t()
SEEN = []


def flexible(name, **options):
    """An operator that reads memory flat, as a kernel that was handed a pointer does, and says what strides it got."""

    @custom_op(f"stridewise_contracts::{name}", mutates_args=(), **options)
    def flat(x: torch.Tensor) -> torch.Tensor:
        SEEN.append(tuple(x.stride()))
        return x.as_strided((x.numel(),), (1,)).clone()

    flat.register_fake(lambda x: x.new_empty(x.numel()))
    return flat


flat = flexible("flat")
any_layout = flexible("any_layout", tags=(torch.Tag.flexible_layout,))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    SEEN.clear()
    report._warned.clear()


@expect_layout(x="contiguous")
def double(x, factor=2):
    return x * factor


@expect_layout(x="contiguous", mode="convert")
def flattened(x):
    return flat(x)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_raise(backend, fullgraph):
    compiled = torch.compile(lambda x: double(x), backend=backend, fullgraph=fullgraph)
    assert torch.equal(compiled(GOOD), GOOD * 2)
    with pytest.raises(ContractError, match="`double` needs `x` to be contiguous") as caught:
        compiled(BAD)
    assert caught.value.finding.code == "SW408"
    assert torch.equal(compiled(GOOD), GOOD * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_raise_of_a_tensor_that_is_made_inside(backend):
    compiled = torch.compile(lambda x: double((x + 1).t().relu()), backend=backend, fullgraph=True)
    with pytest.raises(ContractError):
        compiled(GOOD)
    assert torch.equal(compiled(BAD), (BAD + 1).t().relu() * 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_convert(backend, fullgraph):
    compiled = torch.compile(lambda x: flattened(x * 1), backend=backend, fullgraph=fullgraph)
    for x in (GOOD, BAD, GOOD.t(), torch.randn(4, 6)[:, ::2]):
        assert torch.equal(compiled(x), x.flatten())
        assert SEEN[-1] == (x.size(1), 1)


def test_a_fulfilled_contract_leaves_nothing_in_the_graph_and_does_not_break_it():
    graphs = []

    def backend(graph, example_inputs):
        graphs.append([node.target for node in graph.graph.nodes if node.op not in ("placeholder", "output")])
        return graph

    @expect_layout(x="contiguous", w="dense", rest="last_stride_1", v=same_as("x"), u="non_overlapping")
    def function(x, w=None, *rest, v=None, u=None, image=None):
        return x + v

    function = expect_layout(image="channels_last")(function)
    image = torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last)

    def program(x):
        return function(x, BAD, x, [x, (x, {"a": x})], v=x, u=x[:, ::2], image=image) * 2

    assert torch.equal(torch.compile(program, backend=backend, fullgraph=True)(GOOD), GOOD * 4)
    assert len(graphs) == 1
    assert not [target for target in graphs[0] if "stridewise" in str(target)]
    explained = torch._dynamo.explain(program)(GOOD)
    assert explained.graph_break_count == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_dynamic_shapes(backend):
    compiled = torch.compile(lambda x: flattened(x.sin()), backend=backend, fullgraph=True, dynamic=True)
    for sizes in ((3, 4), (5, 6), (7, 2)):
        x = torch.randn(sizes)
        assert torch.allclose(compiled(x), x.sin().flatten())
        assert torch.allclose(compiled(x.t()), x.t().sin().flatten())
    strict = torch.compile(lambda x: double(x), backend=backend, fullgraph=True, dynamic=True)
    for sizes in ((3, 4), (5, 6)):
        assert torch.equal(strict(torch.ones(sizes)), torch.full(sizes, 2.0))
        with pytest.raises(ContractError):
            strict(torch.ones(sizes).t())
    for kind in ("dense", "non_overlapping", "last_stride_1"):
        held = expect_layout(x=kind)(lambda x: x * 2)
        strict = torch.compile(held, backend=backend, fullgraph=True, dynamic=True)
        assert torch.equal(strict(GOOD), GOOD * 2)
        with pytest.raises(ContractError):
            strict(torch.randn(3, 1).expand(3, 5))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_through_a_conversion(backend):
    @expect_layout(x="contiguous", mode="convert")
    def function(x):
        return x.view(-1).sin()

    def step(call):
        leaf = torch.arange(12.0).reshape(3, 4).requires_grad_()
        call(leaf).sum().backward()
        return leaf.grad

    compiled = torch.compile(lambda x: function(x.t()), backend=backend, fullgraph=True)
    assert torch.allclose(step(compiled), step(lambda x: x.t().sin()))


@pytest.mark.parametrize("backend", ["eager", *BACKENDS])
def test_what_the_function_writes_is_not_lost(backend):
    @expect_layout(x="contiguous", mode="convert")
    def function(x, write):
        if write:
            x.add_(1)
        return x

    for write in (True, False):
        x = torch.zeros(4, 3).t()
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        result = compiled(x, write)
        assert x.unique().tolist() == [float(write)]
        assert result.unique().tolist() == [float(write)]
        leaf = torch.zeros(4, 3, requires_grad=True)
        torch.compile(lambda x, write: function((x * 1).t(), write).sum(), backend=backend)(leaf, write).backward()
        assert leaf.grad.unique().tolist() == [1]
    leaf = torch.zeros(4, 3).t().requires_grad_()
    assert torch.compile(function, backend=backend, fullgraph=True)(leaf, False).sum() == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_are_held(backend):
    def loss(mode, call):
        @expect_layout(grads="contiguous", mode=mode)
        def function(x):
            return x * 2

        compiled = torch.compile(lambda x: call(function(x)), backend=backend, fullgraph=True)
        leaf = torch.arange(12.0).reshape(3, 4).requires_grad_()
        compiled(leaf).sum().backward()
        return leaf.grad

    def transposed(y):
        return y.t().contiguous().square()

    assert torch.equal(loss("raise", lambda y: y @ torch.ones(4, 2)), torch.full((3, 4), 4.0))
    assert torch.equal(loss("convert", transposed), 8 * torch.arange(12.0).reshape(3, 4))
    with pytest.raises(ContractError, match="the gradient of output"):
        loss("raise", transposed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_warn(backend):
    warning = expect_layout(x="contiguous", mode="warn")(lambda x: x * 2)
    compiled = torch.compile(warning, backend=backend, fullgraph=True)
    with pytest.warns(LayoutWarning, match="needs `x` to be contiguous"):
        assert torch.equal(compiled(BAD), BAD * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_as_kinds_and_same_as(backend):
    def is_square(tensor):
        return tensor.size(0) == tensor.size(1)

    held = torch.compile(expect_layout(x=is_square)(lambda x: x * 2), backend=backend, fullgraph=True)
    held(torch.ones(3, 3))
    with pytest.raises(ContractError, match="such that `is_square` holds"):
        held(GOOD)
    alike = torch.compile(expect_layout(w=same_as("x"))(lambda x, w: x + w), backend=backend, fullgraph=True)
    alike(BAD, BAD.clone())
    with pytest.raises(ContractError, match="to be laid out as `x`"):
        alike(BAD, GOOD)

    @expect_layout(w=same_as("x"), mode="convert")
    def flat_alike(x, w):
        return flat(w)

    compiled = torch.compile(flat_alike, backend=backend, fullgraph=True)
    assert torch.equal(compiled(BAD, GOOD), GOOD.t().flatten())


class Convolves(nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.conv = nn.Conv2d(16, 16, 3, padding=1)
        self.kernel = kernel

    def forward(self, x):
        return self.kernel(self.conv(x))


def test_inductor_gives_intermediates_other_strides_and_the_kernel_gets_what_its_contract_says():
    x = torch.randn(2, 16, 8, 8)
    with torch.no_grad():
        plain = Convolves(any_layout)
        torch.compile(plain)(x)
        assert SEEN.pop() == (1024, 1, 128, 16), "inductor lays convolutions out as channels_last"
        for kernel in (flat, any_layout):
            held = Convolves(expect_layout(x="contiguous", mode="convert")(kernel))
            expected = held.conv(x)
            torch._dynamo.reset()
            assert torch.allclose(torch.compile(held, fullgraph=True)(x), expected.flatten(), atol=1e-5)
            assert SEEN.pop() == (1024, 64, 8, 1)


def test_in_a_compiled_module_and_its_class():
    @expect_layout(x="contiguous")
    class Scale(nn.Module):
        def forward(self, x):
            return x * 2

    compiled = torch.compile(Scale(), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(GOOD), GOOD * 2)
    with pytest.raises(ContractError):
        compiled(BAD)
