"""Small programs that once changed, or could, when a function mode, module hooks and a profiler are on."""

import asyncio
import contextlib
import copy
import io
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, jvp, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

PROGRAMS: dict[str, Callable[[], Any]] = {}
OPS_VARY = {"threads", "pool", "attention_in_threads"}
"""Programs whose operators have no order."""


def program(function: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[function.__name__] = function
    return function


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 4))


def gradients(module: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in module.parameters()]


# -- training --------------------------------------------------------------------------------------------------------


@program
def convolutions() -> Any:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 5)
    )
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8)
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), torch.tensor([1, 2]))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, list(model.state_dict().values())


@program
def optimizers() -> Any:
    results = []
    for make in (
        lambda p: torch.optim.Adam(p, fused=True),
        lambda p: torch.optim.AdamW(p, foreach=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
        lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
        lambda p: torch.optim.LBFGS(p, max_iter=3),
    ):
        model, x = net(), torch.randn(5, 6)
        optimizer = make(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

        def closure(model: nn.Module = model, x: Tensor = x, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
            scheduler.step()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        results.append([list(model.parameters()), gradients(model)])
    return results


@program
def autocast() -> Any:
    model, x = net(), torch.randn(5, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x)
        with torch.autocast("cpu", enabled=False):
            z = model(x)
    (y.float().sum() + z.sum()).backward()
    return y, z, gradients(model)


@program
def checkpoints() -> Any:
    results = []
    for reentrant in (False, True):
        model, x = net(), torch.randn(5, 6, requires_grad=True)
        y = checkpoint(model, x, use_reentrant=reentrant)
        y = y + checkpoint_sequential(model, 2, x, use_reentrant=reentrant)
        y = y + checkpoint(lambda x, model=model: F.dropout(model(x), 0.5), x, use_reentrant=reentrant)
        y.square().sum().backward()
        results.append([y, x.grad, gradients(model)])
    return results


@program
def double_backward() -> Any:
    x = torch.randn(3, 4, requires_grad=True)
    (first,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    first.square().sum().backward()
    return first, x.grad, torch.autograd.functional.hessian(lambda v: (v**3).sum(), torch.randn(3))


@program
def tensor_hooks() -> Any:
    seen = []
    x = torch.randn(3, 4, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: (seen.append(g.t().contiguous()), g * 3)[1])
    y.retain_grad()
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad + 1))
    y.grad_fn.register_hook(lambda *a: seen.append(a[0][0]))
    y.sum().backward()
    return x.grad, y.grad, seen


@program
def module_hooks() -> Any:
    model, seen = net(), []
    model[0].register_forward_pre_hook(lambda m, a: (a[0] * 2,))
    model[1].register_forward_hook(lambda m, a, o: o + 1)
    model[2].register_full_backward_hook(lambda m, i, o: seen.append(i[0]))
    model[3].register_full_backward_pre_hook(lambda m, o: (o[0] * 2,))
    handles = [
        nn.modules.module.register_module_forward_pre_hook(lambda m, a: seen.append(type(m).__name__)),
        nn.modules.module.register_module_forward_hook(lambda m, a, o: o * 1.5 if isinstance(m, nn.ReLU) else None),
    ]
    y = model(torch.randn(5, 6))
    for handle in handles:
        handle.remove()
    y.sum().backward()
    return y, seen, gradients(model)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.t().contiguous().t() * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 2 + x.t().contiguous().t() * 0


@program
def own_function() -> Any:
    x = torch.randn(3, 4, requires_grad=True)
    y = Double.apply(x).sin()
    y.sum().backward()
    return y, x.grad


@program
def saved_tensors_hooks() -> Any:
    packed = []

    def pack(x: Tensor) -> Tensor:
        packed.append(x)
        return x.clone()

    x = torch.randn(3, 4, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        y = (x.exp() * x).sum()
    y.backward()
    return x.grad, packed, len(packed)


@program
def anomaly() -> Any:
    x = torch.randn(3, 4, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            (x * 2).sum().backward()
            with contextlib.suppress(RuntimeError):
                (torch.zeros(2, requires_grad=True).sqrt() * 0).sum().backward()
    return x.grad


# -- fast paths ------------------------------------------------------------------------------------------------------


def _fast(make: Callable[[], nn.Module], call: Callable[[nn.Module, Tensor], Any]) -> Callable[[], Any]:
    def run() -> Any:
        results = []
        for train in (False, True):
            for enabled in (False, True):
                for frozen in ("none", "all", "some"):
                    model = make().train(train)
                    for index, parameter in enumerate(model.parameters()):
                        parameter.requires_grad_(frozen == "none" or (frozen == "some" and index == 3))
                    x = torch.randn(2, 5, 8)
                    with torch.set_grad_enabled(enabled):
                        y = call(model, x)
                        results.append(y)
                        if isinstance(y, Tensor) and y.requires_grad:
                            y.sum().backward()
                            results.append(gradients(model))
        return results

    return run


def _layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


MASK = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
PROGRAMS["attention"] = _fast(
    lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda m, x: m(x, x, x, need_weights=False)[0]
)
PROGRAMS["attention_weights"] = _fast(
    lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda m, x: m(x, x, x, key_padding_mask=MASK)
)
PROGRAMS["attention_of_others"] = _fast(
    lambda: nn.MultiheadAttention(8, 2, kdim=8, vdim=8), lambda m, x: m(x, x + 1, x + 2)[0]
)
PROGRAMS["encoder_layer"] = _fast(_layer, lambda m, x: m(x))
PROGRAMS["encoder_layer_first"] = _fast(lambda: _layer(norm_first=True, activation="gelu"), lambda m, x: m(x))
PROGRAMS["encoder"] = _fast(lambda: nn.TransformerEncoder(_layer(), 2), lambda m, x: m(x))
PROGRAMS["encoder_padded"] = _fast(
    lambda: nn.TransformerEncoder(_layer(dropout=0.0), 2), lambda m, x: m(x, src_key_padding_mask=MASK)
)
PROGRAMS["attention_by_forward"] = _fast(
    lambda: nn.MultiheadAttention(8, 2, batch_first=True), lambda m, x: m.forward(x, x, x, need_weights=False)[0] + 1
)
PROGRAMS["encoder_layer_by_forward"] = _fast(_layer, lambda m, x: m.forward(x) + 1)
PROGRAMS["encoder_by_forward"] = _fast(
    lambda: nn.TransformerEncoder(_layer(dropout=0.0), 2), lambda m, x: m.forward(x, src_key_padding_mask=MASK) + 1
)
PROGRAMS["transformer"] = _fast(lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True), lambda m, x: m(x, x))


class MyAttention(nn.MultiheadAttention):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)[0] * 2


PROGRAMS["attention_of_mine"] = _fast(lambda: MyAttention(8, 2, batch_first=True), lambda m, x: m(x, x, x))


@program
def encoder_with_layers_in_other_states() -> Any:
    results = []
    for outer, inner in ((True, False), (False, True)):
        model = nn.TransformerEncoder(_layer(dropout=0.0), 2).train(inner)
        model.training = outer
        with torch.no_grad():
            results.append(model(torch.randn(2, 5, 8), src_key_padding_mask=MASK))
    return results


@program
def attention_by_functional_call() -> Any:
    model = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    x = torch.randn(2, 5, 8)
    return functional_call(model, state, (x, x, x))


@program
def attention_in_threads() -> Any:
    model, x = nn.TransformerEncoder(_layer(), 2).eval(), torch.randn(2, 5, 8)
    with torch.no_grad(), ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: model(x)).result()


# -- transforms and kinds of tensors ---------------------------------------------------------------------------------


@program
def transforms() -> Any:
    model, x = net(), torch.randn(5, 6)
    parameters = dict(model.named_parameters())

    def loss(p: Any, v: Tensor) -> Tensor:
        return functional_call(model, p, (v,)).square().mean()

    per_sample = vmap(grad(loss), (None, 0))(parameters, x)
    value, tangent = jvp(lambda v: model(v).t().contiguous(), (x,), (torch.ones_like(x),))
    return per_sample, value, tangent, jacrev(model)(x[0]), vmap(lambda v: v.t().reshape(-1))(torch.randn(3, 4, 5))


@program
def forward_mode() -> Any:
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(torch.randn(3), torch.ones(3))
        return list(torch.autograd.forward_ad.unpack_dual(x.sin() * x))


@program
def kinds() -> Any:
    dense = torch.randn(4, 5)
    sparse = dense.relu().to_sparse()
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
    jagged = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    quantized = torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)
    complex_ = torch.randn(3, 4, dtype=torch.complex64)
    opaque = dense.to_mkldnn()
    meta = torch.empty(2, 3, device="meta")
    return [
        (sparse @ dense.t(), sparse.to_sparse_csr().to_dense(), torch.sparse.mm(sparse, dense.t())),
        nested * 2,
        [part + 1 for part in nested.unbind()],
        (jagged * 2).values(),
        (quantized.dequantize(), quantized.t().contiguous()),
        (complex_.conj().t() @ complex_, complex_.imag, complex_.mH.contiguous(), torch.view_as_real(complex_)),
        opaque.relu().to_dense(),
        (meta.t() @ meta, meta.expand(4, 2, 3).reshape(-1)),
        torch.randn(0, 3).t().contiguous(),
        torch.tensor([[1, 2], [3, 4]]).half().double(),
        torch.ones(3, dtype=torch.bool) & torch.tensor([True, False, True]),
    ]


@program
def fake_tensors() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    results = []
    for env in (None, ShapeEnv()):
        with FakeTensorMode(shape_env=env) as mode:
            x = mode.from_tensor(torch.randn(3, 4))
            y = vmap(lambda v: v.sin().reshape(-1))(x.t() @ x)
            results.append([tuple(int(size) for size in y.shape), str(y.dtype)])
        results.append(0 if env is None else len(env.guards))
    return results


@program
def inference() -> Any:
    model, x = net(), torch.randn(5, 6)
    with torch.inference_mode():
        y = model(x)
        z = y.t().contiguous() + 1
        z += 1
    with torch.no_grad():
        return y.clone(), z.clone(), model(x), y.is_inference()


@program
def lazy_modules() -> Any:
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    return model(torch.randn(5, 6)), [tuple(p.shape) for p in model.parameters()]


@program
def parametrizations() -> Any:
    import torch.nn.utils.prune as prune
    from torch.nn.utils.parametrizations import spectral_norm, weight_norm

    model = nn.Sequential(weight_norm(nn.Linear(6, 8)), spectral_norm(nn.Linear(8, 8)), nn.Linear(8, 2))
    prune.l1_unstructured(model[2], "weight", 0.5)
    y = model(torch.randn(5, 6))
    y.sum().backward()
    return y, gradients(model)


@program
def recurrent() -> Any:
    model = nn.LSTM(4, 6, 2, batch_first=True, bidirectional=True)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 5, 4), torch.tensor([5, 3, 2]), batch_first=True)
    y, (h, c) = model(packed)
    y.data.sum().backward()
    return y.data, h, c, gradients(model)


# -- the program's own subclasses and modes --------------------------------------------------------------------------


class Counting(Tensor):
    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


class CountingParameter(nn.Parameter):
    seen: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


class Wrapper(Tensor):
    """Decides by a dispatch of its own what operators do."""

    seen: ClassVar[list[str]] = []
    policy: str | None = None
    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Wrapper":
        options: Any = {"dispatch_sizes_strides_policy": cls.policy} if cls.policy else {}
        wrapper = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, **options)
        wrapper.inner = inner
        return wrapper

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(str(func))
        unwrapped = [arg.inner if isinstance(arg, Wrapper) else arg for arg in args]
        result = func(*unwrapped, **(kwargs or {}))
        return cls(result) if isinstance(result, Tensor) else result


class Sized(Wrapper):
    """And is asked for its sizes and strides."""

    policy = "sizes"


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def work(x: Tensor) -> Tensor:
    y = (x.t() @ x).reshape(-1).view(5, 5)[:, ::2]
    y = torch.cat([y, y], out=torch.empty(0)) if type(x) is Tensor and not x.requires_grad else torch.cat([y, y])
    return F.softmax(y.contiguous() + y.shape[0], -1)


@program
def subclasses() -> Any:
    results = []
    for kind in (Counting, CountingParameter):
        kind.seen.clear()
        x = torch.randn(4, 5).as_subclass(Counting) if kind is Counting else CountingParameter(torch.randn(4, 5))
        y = work(x)
        y.sum().backward() if y.requires_grad else None
        results.append([y, list(kind.seen), len(kind.seen)])
    linear = nn.Linear(5, 2)
    linear.weight = CountingParameter(torch.randn(2, 5))
    y = linear(torch.randn(3, 5))
    y.sum().backward()
    return results, y, linear.weight.grad, list(CountingParameter.seen)


def dispatch(kind: type[Wrapper]) -> Any:
    kind.seen.clear()
    x = kind(torch.randn(4, 5))
    y = nn.Identity()((x.t() @ x).sin()).contiguous()
    return y.inner, list(kind.seen)


@program
def wrapper_subclass() -> Any:
    return dispatch(Wrapper)


@program
def function_modes() -> Any:
    outer, inner = Functions(), Functions()
    x = torch.randn(4, 5)
    with outer:
        y = work(x)
        with inner:
            y = y + work(x).sum()
        z = net()(torch.randn(2, 6))
        z.sum().backward()
    return y, outer.seen, inner.seen


@program
def dispatch_modes() -> Any:
    mode = Dispatches()
    with mode:
        x = torch.randn(4, 5, requires_grad=True)
        work(x).sum().backward()
        net()(torch.randn(2, 6))
    return x.grad, mode.seen


@program
def default_devices() -> Any:
    results = []
    with torch.device("meta"):
        results.append(torch.empty(2, 3))
        model = net()
        with torch.device("cpu"):
            results.append(torch.zeros(2))
    torch.set_default_device("meta")
    results.append(torch.empty(2))
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float64)
    results.append(torch.ones(2))
    torch.set_default_dtype(torch.float32)
    return results, next(model.parameters()).device.type, torch.get_default_device()


# -- state, files, and threads ---------------------------------------------------------------------------------------


@program
def copies_of_objects() -> Any:
    model = net()
    model(torch.randn(2, 6)).sum().backward()
    twin = copy.deepcopy(model)
    again = pickle.loads(pickle.dumps(model))
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "x": torch.randn(3, 4).t()}, buffer)
    content = buffer.getvalue()
    loaded = torch.load(io.BytesIO(content), weights_only=True)
    copied = copy.deepcopy(torch.randn(3, 4).t()), copy.copy(torch.randn(2))
    return list(twin.parameters()), gradients(twin), list(again.parameters()), content, loaded, copied


@program
def changes_in_place() -> Any:
    x = torch.randn(4, 6)
    results = [x.stride()]
    x.t_()
    results.append(x.contiguous())
    x.transpose_(0, 1).unsqueeze_(0).squeeze_(0)
    x.data = torch.randn(3, 2).t()
    results.append(x.contiguous())
    x.resize_(4, 4)
    x.set_(torch.arange(6.0).view(2, 3))
    results.append(x.t().contiguous())
    x.as_strided_((3, 2), (1, 3))
    x[:, 0] = 1
    x[1] += 2
    results.append(x.contiguous())
    model = net()
    model.to(torch.float64).to(torch.float32)
    return results, model(torch.randn(2, 6))


@program
def out_and_lists() -> Any:
    x, out = torch.randn(4, 5), torch.empty(5, 4)
    torch.mul(x.t(), 2, out=out)
    parts = torch.split(x, 2)
    values = torch.topk(x, 2)
    torch._foreach_mul_(list(parts), 2.0)
    eigen = torch.linalg.eigh(x @ x.t())
    return out, list(parts), values.values, values.indices, eigen.eigenvalues, torch.block_diag(*parts), x.tolist()


@program
def indexing() -> Any:
    x = torch.randn(4, 5, 6)
    y = x[1:3, None, ..., [0, 2]], x[x > 0], x[torch.tensor([1, 0])], x[..., -1], x[True]
    x[0, 1:3] = torch.ones(2, 6)
    x[x < 0] = 0
    del x
    return list(y)


@program
def numpy_and_back() -> Any:
    import numpy

    x = torch.randn(3, 4)
    array = numpy.asarray(x.t()) + 1
    y = torch.from_numpy(array)
    return (
        y,
        float(x.sum()),
        int(y.argmax()),
        bool((x == x).all()),
        repr(x.round()),
        f"{x[0, 0]:.3f}",
        numpy.sqrt(y.abs()),
    )


@program
def random_state() -> Any:
    before = torch.get_rng_state()
    x = F.dropout(torch.ones(100), 0.5), torch.rand(3), torch.randperm(5), nn.Linear(3, 3).weight
    with torch.random.fork_rng():
        torch.manual_seed(1)
        y = torch.randn(2)
    return x, y, before, torch.get_rng_state()


@program
def modules_within() -> Any:
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor, depth: int = 3) -> dict[str, Any]:
            if depth == 0:
                return {"x": self.inner(x), "depth": [depth, (x, None)]}
            return self(x, depth=depth - 1)

    model = nn.ModuleDict({"a": Recursive()})
    return model["a"](torch.randn(2, 3))


@program
def generators() -> Any:
    class Stream(nn.Module):
        def forward(self, x: Tensor) -> Iterator[Tensor]:
            for _ in range(3):
                x = x.t().contiguous()
                yield x

    first, second = Stream()(torch.randn(3, 3)), Stream()(torch.randn(2, 3))
    interleaved = [next(first), next(second), next(first), next(second)]
    first.close()
    return interleaved, list(second)


@program
def coroutines() -> Any:
    model = net()

    async def one(x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + model(x).mean()
            await asyncio.sleep(0)
        return x

    async def main() -> list[Tensor]:
        return await asyncio.gather(*(one(torch.full((2, 6), float(i))) for i in range(3)))

    return asyncio.run(main())


@program
def threads() -> Any:
    model, results = net(), {}

    def one(index: int) -> None:
        x = torch.full((3, 6), float(index), requires_grad=True)
        model(x).t().contiguous().sum().backward()
        results[index] = x.grad

    workers = [threading.Thread(target=one, args=(index,)) for index in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [results[index] for index in range(4)]


@program
def pool() -> Any:
    model = net()
    with ThreadPoolExecutor(3) as executor:
        return list(executor.map(lambda i: model(torch.full((2, 6), float(i))), range(6)))
