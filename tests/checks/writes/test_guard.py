"""The guard raises before a shared element is written, and changes nothing else."""

import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from stridewise.checks.writes import check_write, guard_writes
from stridewise.errors import ContractError, LayoutWarning, UsageError


def expanded() -> Tensor:
    return torch.arange(3.0).expand(4, 3)


def windows() -> Tensor:
    return torch.arange(10.0).unfold(0, 4, 2)


def ones(x: Tensor) -> Tensor:
    return torch.ones(x.shape)


def set_first(x: Tensor) -> None:
    x[0] = 7.0


def set_slice(x: Tensor) -> None:
    x[1:3, 0] = torch.ones(2, dtype=torch.int32)


def set_at(x: Tensor) -> None:
    x[torch.tensor([0, 1]), torch.tensor([0, 0])] = torch.tensor([5.0, 6.0])


def set_mask(x: Tensor) -> None:
    x[x > 1] = 0.0


def add_at_once(x: Tensor) -> None:
    x += 1


def into_data(x: Tensor) -> None:
    x.data.copy_(ones(x))


def step(x: Tensor, **options: bool) -> None:
    parameter = nn.Parameter(x)
    parameter.grad = ones(x)
    torch.optim.AdamW([parameter], **options).step()


WRITES: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda x: x.add_(1),
    "+=": add_at_once,
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(ones(x)),
    "data.copy_": into_data,
    "masked_fill_": lambda x: x.masked_fill_(ones(x).bool(), 0),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0]), 9.0),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0]), torch.ones(1, x.shape[1])),
    "scatter_": lambda x: x.scatter_(0, torch.zeros(1, x.shape[1], dtype=torch.long), 3.0),
    "normal_": lambda x: x.normal_(),
    "cumsum_": lambda x: x.cumsum_(1),
    "x[0] =": set_first,
    "x[1:3, 0] =": set_slice,
    "x[i, j] =": set_at,
    "x[mask] =": set_mask,
    "mm out=": lambda x: torch.mm(torch.ones(4, 2), torch.ones(2, x.shape[1]), out=x),
    "add out=": lambda x: torch.add(ones(x), 1, out=x),
    "sort out=": lambda x: torch.sort(ones(x), out=(x, torch.empty(x.shape, dtype=torch.long))),
    "_foreach_add_": lambda x: torch._foreach_add_([torch.zeros(2), x], 1),
    "relu_": torch.relu_,
    "dropout": lambda x: nn.functional.dropout(x, 0.5, True, True),
    "init": lambda x: nn.init.uniform_(x),
    "clip_grad": lambda x: nn.utils.clip_grad_norm_(_with_gradient(x), 0.1),
    "AdamW": step,
    "AdamW foreach": lambda x: step(x, foreach=True),
    "AdamW fused": lambda x: step(x, fused=True),
}


def _with_gradient(gradient: Tensor) -> Tensor:
    leaf = torch.zeros(gradient.shape, requires_grad=True)
    leaf.grad = gradient
    return leaf


@pytest.mark.parametrize("make", [expanded, windows])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_it_raises_before_anything_is_written(write: Callable[[Tensor], object], make: Callable[[], Tensor]) -> None:
    x = make()
    before = x.clone()
    with pytest.raises(ContractError) as caught, guard_writes():
        write(x)
    assert caught.value.finding is not None
    assert caught.value.finding.code == "SW205"
    assert caught.value.finding.site.file is not None
    assert caught.value.finding.site.file.endswith("test_guard.py")
    assert torch.equal(x, before)


@pytest.mark.parametrize("make", [expanded, windows])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_it_lets_a_clone_be_written(write: Callable[[Tensor], object], make: Callable[[], Tensor]) -> None:
    """The advised edit."""
    torch.manual_seed(0)
    write(bare := make().clone())
    torch.manual_seed(0)
    with guard_writes():
        write(guarded := make().clone())
    assert torch.equal(bare, guarded)


def test_it_says_what_is_written_where_and_since_when() -> None:
    with guard_writes():
        rows = torch.arange(3.0).expand(4, 3)
        with pytest.raises(ContractError) as caught:
            rows.masked_fill_(rows > 1, 0.0)
    finding = caught.value.finding
    assert finding is not None
    assert finding.message == (
        "`rows.masked_fill_(rows > 1, 0.0)` writes to expanded, (4, 3) with strides (0, 1): "
        "its 12 indices address 3 elements."
    )
    assert finding.severity == "error"
    assert finding.origin is not None
    assert finding.origin.expression == "torch.arange(3.0).expand(4, 3)"
    assert finding.advice is not None
    assert finding.advice.startswith("`torch.arange(3.0).expand(4, 3).clone()`")
    assert len(str(caught.value).splitlines()) == 3


def test_a_part_of_a_tensor_with_shared_elements() -> None:
    with guard_writes():
        rows = torch.arange(3.0).expand(4, 3)
        first = rows[0]
        with pytest.raises(ContractError, match="a part of a tensor that is expanded"):
            first.view(3).add_(1)
        del rows  # nobody is left to see the other indices
        first.add_(1)
    assert first.tolist() == [1.0, 2.0, 3.0]


def test_a_part_that_shares_no_element() -> None:
    base = torch.zeros(10)
    with guard_writes():
        view = base.unfold(0, 4, 2)
        view[0, :2] = 1.0
        with pytest.raises(ContractError):
            view[0, 1:3] = 2.0
    assert base.tolist() == [1.0, 1.0] + [0.0] * 8


def test_legal_writes_are_let_through() -> None:
    base, table = torch.arange(10.0), torch.zeros(4, 3)
    with guard_writes():
        view = base.unfold(0, 4, 2)
        assert view.sum() == 72
        (view * 2).add_(1)
        base[2:].add_(1)
        base.add_(1)
        torch.zeros(4, 1, 3).expand(4, 1, 3).add_(1)
        torch.zeros(0).expand(4, 0).add_(1)
        table.t()[:, ::2].add_(1)
        table.index_put_((torch.tensor([0, 0]),), torch.ones(2, 3), accumulate=True)
        view.t_().unsqueeze_(0)  # sizes and strides are written, no element
    assert view.shape == (1, 4, 4)
    assert table[0].tolist() == [3.0, 3.0, 3.0]


def test_sparse_and_nested_tensors_are_let_through() -> None:
    with guard_writes():
        torch.eye(3).to_sparse().mul_(2)
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged).mul(2)


def test_operators_of_the_program(request: pytest.FixtureRequest) -> None:
    """What it writes is read from its schema."""
    name = "stridewise_guard_test::scale_"

    @torch.library.custom_op(name, mutates_args=("x",))
    def scale_(x: Tensor, by: float) -> None:
        x.mul_(by)

    scale_(dense := torch.ones(3), 2.0)
    assert dense.tolist() == [2.0] * 3
    with pytest.raises(ContractError) as caught, guard_writes():
        scale_(windows(), 2.0)
    assert caught.value.finding is not None
    assert caught.value.finding.evidence[0].startswith(name)


def test_warn_goes_on_and_warns_once_a_site() -> None:
    x = windows()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with guard_writes("warn"):
            for value in range(3):
                x[0] = float(value)
            x.zero_()
    assert [warning.category for warning in caught] == [LayoutWarning] * 2
    assert all(warning.filename.endswith("test_guard.py") for warning in caught)
    assert x.sum() == 0


def test_another_mode() -> None:
    with pytest.raises(UsageError, match="mode 'convert'"), guard_writes("convert"):  # type: ignore[arg-type]
        pass


def test_as_a_decorator_and_nested() -> None:
    @guard_writes()
    def write(x: Tensor) -> None:
        x.add_(1)

    with pytest.raises(ContractError):
        write(expanded())
    with guard_writes(), pytest.raises(ContractError):
        write(windows())
    write(torch.ones(3))
    windows().add_(1)  # no guard is left


def test_backward_is_seen() -> None:
    class Spoils(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
            gradient.unfold(0, 2, 1).add_(1)
            return gradient

    x = torch.ones(3, requires_grad=True)
    with guard_writes(), pytest.raises(ContractError):
        Spoils.apply(x).mul(2).sum().backward()


def test_expanded_gradients_accumulate() -> None:
    x = torch.ones(3, requires_grad=True)
    with guard_writes():
        for _ in range(3):
            (x.sum() + x.expand(4, 3).sum()).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [15.0] * 3


def test_other_threads_are_not_seen() -> None:
    x = windows()
    with guard_writes():
        thread = threading.Thread(target=x.zero_)
        thread.start()
        thread.join()
    assert x.sum() == 0


def test_compiled_functions_stay_compiled() -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend, fullgraph=True)
    def double(x: Tensor) -> Tensor:
        return x.add_(1) * 2

    with guard_writes():
        assert double(torch.ones(3)).tolist() == [4.0] * 3
        with pytest.raises(ContractError):
            double(windows())
    assert graphs
    torch._dynamo.reset()


class Operators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def train(model: nn.Module, x: Tensor, guarded: bool) -> tuple[list[str], list[Tensor]]:
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters())
    with Operators() as operators:
        for _ in range(2):
            if guarded:
                with guard_writes():
                    model(x).pow(2).mean().backward()
                    optimizer.step()
            else:
                model(x).pow(2).mean().backward()
                optimizer.step()
            optimizer.zero_grad()
    return operators.seen, [parameter.detach().clone() for parameter in model.parameters()]


MODELS = {
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Flatten(), nn.Dropout(0.1)),
        (2, 3, 6, 6),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_training_runs_the_same_operators_to_the_same_bits(name: str) -> None:
    make, sizes = MODELS[name]
    results = []
    for guarded in (False, True):
        torch.manual_seed(0)
        model = make()
        results.append(train(model, torch.randn(sizes), guarded))
    (bare, values), (seen, guarded_values) = results
    assert seen == bare
    assert all(torch.equal(a, b) for a, b in zip(values, guarded_values, strict=True))


def test_the_fast_path_of_a_transformer_is_kept() -> None:
    model, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.randn(2, 5, 8)
    with torch.no_grad(), Operators() as operators, guard_writes():
        model(x)
    assert "aten._transformer_encoder_layer_fwd.default" in operators.seen


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=4))
def test_check_write_is_exact(dimensions: list[tuple[int, int]]) -> None:
    """Against the addresses of all elements."""
    sizes, strides = [size for size, _ in dimensions], [stride for _, stride in dimensions]
    addresses = torch.arange(200).as_strided(sizes, strides)
    shared = addresses.unique().numel() < addresses.numel()
    assert (check_write(addresses) is not None) == shared
