"""Contracts on classes of `autograd.Function`: arguments before `apply`, gradients before `backward`."""

import pytest
import torch
from torch.autograd import Function

from stridewise.checks.contracts import expect_layout
from stridewise.errors import ContractError, UsageError

pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo does it

SEEN = []


def note(*tensors):
    if not torch.compiler.is_compiling():  # Dynamo takes no such side effects in a backward
        SEEN.append(all(tensor.is_contiguous() for tensor in tensors))


def double(old_style=True, **options):
    """A function that says how its tensors lie, decorated; in the old style, or with `setup_context`."""
    if old_style:

        class Double(Function):
            @staticmethod
            def forward(ctx, x, factor=2):
                note(x)
                ctx.save_for_backward(x)
                ctx.factor = factor
                return x * x * factor

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                note(x, grad)
                return grad * 2 * x * ctx.factor, None

    else:

        class Double(Function):
            @staticmethod
            def forward(x, factor=2):
                note(x)
                return x * x * factor

            @staticmethod
            def setup_context(ctx, inputs, output):
                x, *rest = inputs
                ctx.save_for_backward(x)
                ctx.factor = rest[0] if rest else 2

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                note(x, grad)
                return grad * 2 * x * ctx.factor, None

    return expect_layout(**options)(Double)


@pytest.fixture(params=[True, False], ids=["old style", "setup_context"])
def old_style(request):
    SEEN.clear()
    return request.param


def test_forward_is_held(old_style):
    kept = double(old_style, x="contiguous")
    assert issubclass(kept, Function)
    x = torch.randn(3, 4)
    assert torch.equal(kept.apply(x, 3), x * x * 3)
    with pytest.raises(ContractError, match=r"`Double.forward` needs `x` to be contiguous"):
        kept.apply(x.t(), 3)
    assert SEEN == [True]


def test_backward_is_held(old_style):
    kept = double(old_style, grads="contiguous")
    x = torch.randn(3, 4, requires_grad=True)
    (kept.apply(x, 2) * torch.ones(3, 4)).sum().backward()
    with pytest.raises(
        ContractError, match=r"`Double.backward` needs the gradient of output to be contiguous"
    ) as caught:
        kept.apply(x, 2).sum().backward()
    assert caught.value.finding.code == "SW408"


def test_convert(old_style):
    kept = double(old_style, x="contiguous", grads="contiguous", mode="convert")
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    kept.apply(x.t(), 2).sum().backward()
    assert SEEN == [True, True]
    assert torch.allclose(x.grad, 4 * x)
    assert torch.autograd.gradcheck(lambda x: kept.apply(x.t(), 2), x)
    assert torch.autograd.gradgradcheck(lambda x: kept.apply(x.t(), 2), x)


def test_several_outputs_and_none_as_gradient():
    @expect_layout(grads="contiguous")
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            assert first is None
            return second * 3

    x = torch.randn(3, 4, requires_grad=True)
    (Two.apply(x)[1] * torch.ones(3, 4)).sum().backward()
    with pytest.raises(ContractError, match="the gradient of output 1"):
        Two.apply(x)[1].sum().backward()


def test_an_input_that_is_written_to():
    @expect_layout(x="contiguous", mode="convert")
    class AddOne(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.add_(1)

        @staticmethod
        def backward(ctx, grad):
            return grad

    x = torch.zeros(4, 3).t()
    assert AddOne.apply(x) is x
    assert x.unique().tolist() == [1]
    leaf = torch.zeros(4, 3, requires_grad=True)
    AddOne.apply((leaf * 1).t()).sum().backward()
    assert leaf.grad.unique().tolist() == [1]


def test_vmap_and_grad_through_a_function_with_setup_context():
    @expect_layout(x="contiguous", mode="convert")
    class Square(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 2 * grad * x

    x = torch.randn(5, 3, 4)
    assert torch.equal(torch.vmap(lambda x: Square.apply(x.t()))(x), (x * x).mT)
    assert torch.allclose(torch.func.grad(lambda x: Square.apply(x.t()).sum())(x[0]), 2 * x[0])


def test_subclasses_of_the_class_are_held_too():
    class Other(double(x="contiguous")):
        pass

    with pytest.raises(ContractError):
        Other.apply(torch.randn(3, 4).t())


def test_an_argument_that_forward_does_not_have():
    with pytest.raises(UsageError, match=r"`Double.forward` has no argument 'ctx'"):
        double(ctx="contiguous")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(old_style, backend):
    torch._dynamo.reset()
    kept = double(old_style, x="contiguous", grads="contiguous", mode="convert")
    plain = double(old_style, x=lambda tensor: True)

    def step(function):
        x = torch.arange(12.0).reshape(3, 4).requires_grad_()
        function(x).square().sum().backward()
        return x.grad

    compiled = torch.compile(lambda x: kept.apply(x.t(), 2), backend=backend, fullgraph=True)
    assert torch.allclose(step(compiled), step(lambda x: plain.apply(x.t(), 2)))
    strict = double(old_style, x="contiguous")
    compiled = torch.compile(lambda x: strict.apply(x, 2), backend=backend, fullgraph=True)
    x = torch.randn(3, 4)
    assert torch.allclose(compiled(x), 2 * x * x)
    with pytest.raises(ContractError, match=r"`Double.forward` needs `x`"):
        compiled(x.t())


def test_gradients_under_compile_are_seen_when_the_graph_runs():
    torch._dynamo.reset()
    kept = double(grads="contiguous")
    compiled = torch.compile(lambda x: kept.apply(x, 2), backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 4, requires_grad=True)
    (compiled(x) * torch.ones(3, 4)).sum().backward()
    transposed = torch.compile(lambda x: kept.apply(x, 2).t().contiguous().sin(), backend="aot_eager", fullgraph=True)
    with pytest.raises(ContractError, match="the gradient of output"):
        transposed(x).sum().backward()
