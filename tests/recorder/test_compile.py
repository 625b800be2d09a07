"""`torch.compile`, export and tracing: what they compile, guard on and trace is the same with and without recording."""

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

import stridewise
from stridewise.recording.model import COMPILED

from .both import bits, calls_of, recorded

# Torch's own warnings are its own; the one that global module hooks would cause is ours.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:.*global hooks")]


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.last = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x)))).transpose(0, 1).contiguous()


def whole_module(net: Net, backend: Any) -> Callable[[Tensor], Tensor]:
    return torch.compile(net, backend=backend, fullgraph=True)


def function(net: Net, backend: Any) -> Callable[[Tensor], Tensor]:
    return torch.compile(lambda x: net(x) * 2, backend=backend)


def in_place(net: Net, backend: Any) -> Callable[[Tensor], Tensor]:
    net.compile(backend=backend)
    return net


def part(net: Net, backend: Any) -> Callable[[Tensor], Tensor]:
    net.norm = torch.compile(net.norm, backend=backend)
    return net


def with_breaks(net: Net, backend: Any) -> Callable[[Tensor], Tensor]:
    @torch._dynamo.disable
    def not_compiled(y: Tensor) -> Tensor:
        return y.sin() + 1

    def forward(x: Tensor) -> Tensor:
        y = net.first(x)
        torch._dynamo.graph_break()
        return net.last(net.norm(not_compiled(y))).t()

    return torch.compile(forward, backend=backend)


def nested(net: Net, backend: Any) -> Callable[[Tensor], Tensor]:
    inner = torch.compile(lambda y: net.norm(y), backend=backend)
    return torch.compile(lambda x: net.last(inner(net.first(x))), backend=backend)


def changing_sizes(net: Net, backend: Any) -> Callable[[Tensor], Tensor]:
    compiled = torch.compile(net, backend=backend, dynamic=True)
    return lambda x: compiled(x) + compiled(x[:3]).sum() + compiled(x[:4]).sum()


FORMS = [whole_module, function, in_place, part, with_breaks, nested, changing_sizes]
CASES = [(form, backend) for form in FORMS for backend in ("eager", "aot_eager")]
# It takes long, and what is before it is the same.
has_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++")
CASES += [pytest.param(form, "inductor", marks=has_compiler) for form in (whole_module, with_breaks)]
STEPS = [pytest.param((1, 2, 1), id="compiled-before"), pytest.param((0, 2, 1), id="compiled-inside")]


def train(form: Any, backend: str, *, steps: tuple[int, int, int], record: bool, compiled_step: bool = False) -> Any:
    """Losses, and what was compiled, of some steps before, during and after a recording."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    net, x = Net(), torch.randn(6, 8)
    counter = CompileCounterWithBackend(backend)
    model = form(net, counter)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend=counter) if compiled_step else optimizer.step
    losses, compiled, recording = [], [], None

    def run(times: int) -> None:
        for _ in range(times):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            step()
            losses.append(loss.item())
        compiled.append((counter.frame_count, counter.op_count, sum(counters["graph_break"].values())))

    before, during, after = steps
    run(before)
    if record:
        with stridewise.record() as recording:
            run(during)
    else:
        run(during)
    run(after)
    return losses, compiled, recording


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(("form", "backend"), CASES)
def test_a_compiled_program_computes_and_compiles_the_same(form, backend, steps):
    losses, compiled, _ = train(form, backend, steps=steps, record=False)
    during, compiled_during, recording = train(form, backend, steps=steps, record=True)
    assert during == losses
    assert compiled_during == compiled
    regions = {part: 2, changing_sizes: 6}.get(form, 2)
    assert calls_of(recording).count(COMPILED) == regions
    log = recording.trace.log
    assert not [name for name in log.functions if "linear" in name] or form is part, "all of the model is in the region"
    assert len(recording.trace.steps) == 2


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_optimizer_step(backend, steps):
    plain = train(whole_module, backend, steps=steps, record=False, compiled_step=True)
    during = train(whole_module, backend, steps=steps, record=True, compiled_step=True)
    assert during[:2] == plain[:2]
    assert calls_of(during[2]).count(COMPILED) == 4
    assert len(during[2].trace.steps) == 2


def test_the_region_has_the_site_that_called_it_and_all_of_its_operators():
    model = torch.compile(Net(), backend="aot_eager")
    x = torch.randn(6, 8)
    model(x)

    def program():
        y = model(x)
        y.sum().backward()

    _, recording = recorded(program)
    trace = recording.trace
    assert calls_of(recording) == [COMPILED, "torch.Tensor.sum", "torch.Tensor.backward"]
    assert trace.site(0).expression == "model(x)"
    assert trace.module_path(trace.log.calls[0].module_call) == "OptimizedModule"
    forward = [op for op in trace.ops if op.name == "aten::addmm" and op.node < 0]
    assert len(forward) == 2
    assert {op.call for op in forward} == {0}
    backward = [op for op in trace.ops if op.node >= 0 and op.name == "aten::mm"]
    assert backward
    assert {op.call for op in backward} == {-1}, "they belong to the node, which belongs to the region"


def test_an_exception_inside_a_compiled_region():
    @torch.compile(backend="eager")
    def fails(x: Tensor) -> Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        if y.sum() > 0:
            raise ValueError("mine")
        return y

    def program():
        try:
            fails(torch.ones(2))
        except ValueError as error:
            return str(error), error.__context__, torch.overrides._get_current_function_mode_stack()[:-1]

    program()
    during, recording = recorded(lambda: (program(), program(), torch.ones(2) * 3))
    assert during[0] == during[1] == program()
    assert calls_of(recording)[-1] == "torch.Tensor.mul"


def test_an_interrupt_inside_a_compiled_region():
    @torch._dynamo.disable
    def interrupt() -> None:
        raise KeyboardInterrupt

    @torch.compile(backend="eager")
    def fails(x: Tensor) -> Tensor:
        y = x + 1
        interrupt()
        return y

    with stridewise.record() as recording:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                fails(torch.ones(2))
        nn.ReLU()(torch.ones(2))
    assert calls_of(recording)[-1] == "torch.nn.functional.relu"


def test_a_recording_that_starts_and_ends_in_functions_that_are_not_compiled():
    recorder = stridewise.record()

    @torch._dynamo.disable
    def start() -> None:
        recorder.start()

    @torch._dynamo.disable
    def stop() -> None:
        recorder.stop()

    starts = torch.compile(lambda x: (start(), x + 1)[1], backend="eager")
    stops = torch.compile(lambda x: (stop(), x * 2)[1], backend="eager")
    assert starts(torch.ones(1)).item() == 2
    torch.ones(2) - 1
    assert stops(torch.ones(1)).item() == 2
    assert torch.overrides._get_current_function_mode_stack() == []
    assert not nn.modules.module._global_forward_hooks
    assert "torch.Tensor.sub" in calls_of(recorder.recording)


def test_a_mode_of_the_program_around_a_compiled_region_is_left_as_it_was():
    from .programs import Functions

    compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")

    def program():
        with torch.device("cpu"):
            compiled(torch.ones(2))
            y = torch.ones(2)
        mode = Functions()
        with mode:
            torch.ones(1)
        return y, mode.seen, torch.ones(3)

    before = bits(program())
    assert bits(recorded(program)[0]) == before


def test_compiled_autograd():
    import torch._dynamo.compiled_autograd as compiled_autograd

    def program():
        x = torch.randn(3, 4, requires_grad=True)
        y = x.sin().t().contiguous()
        with compiled_autograd._enable(torch.compile(backend="eager")):
            y.sum().backward()
        return x.grad

    torch.manual_seed(0)
    before = bits(program())
    torch._dynamo.reset()
    during, recording = recorded(program)
    assert bits(during) == before
    assert "torch.Tensor.backward" in calls_of(recording)


def test_dynamo_that_is_imported_during_recording():
    code = """
        import sys, torch, stridewise
        assert "torch._dynamo.eval_frame" not in sys.modules
        net = torch.nn.Linear(4, 4)
        with stridewise.record() as recording:
            compiled = torch.compile(net, backend="eager", fullgraph=True)
            first = compiled(torch.ones(2, 4))
            second = compiled(torch.ones(2, 4))
        third = compiled(torch.ones(2, 4))
        assert torch.equal(first, second) and torch.equal(second, third)
        assert not any(type(each).__module__.startswith("stridewise") for each in sys.meta_path)
        from torch._dynamo.utils import counters
        assert counters["stats"]["unique_graphs"] == 1, counters["stats"]
        log = recording.trace.log
        names = [log.functions[call.function] for call in log.calls]
        assert names.count("compiled region") == 2, names
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stderr) == (0, "")


# -- export and tracing -----------------------------------------------------------------------------------------------


def metadata(graph: torch.fx.GraphModule) -> Any:
    return [
        (node.format_node(), node.meta.get("stack_trace"), str(node.meta.get("torch_fn")), sorted(node.meta))
        for node in graph.graph.nodes
    ]


def small(x: Tensor) -> Tensor:
    return torch.softmax(x.sin().t().reshape(-1), -1) + x.shape[0]


def exported(**options: Any) -> Callable[[], Any]:
    def run() -> Any:
        torch.manual_seed(0)
        program = torch.export.export(Net().eval(), (torch.ones(6, 8),), **options)
        return str(program), metadata(program.graph_module), bits(program.module()(torch.ones(6, 8)))

    return run


def symbolic() -> Any:
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
    return graph.code, metadata(graph), metadata(torch.fx.symbolic_trace(lambda x: x.sin().t().reshape(-1) + 1))


def made(mode: str, **options: Any) -> Callable[[], Any]:
    def run() -> Any:
        from torch.fx.experimental.proxy_tensor import make_fx

        graph = make_fx(small, tracing_mode=mode, **options)(torch.ones(2, 3))
        return graph.code, metadata(graph)

    return run


def traced() -> Any:
    graph = torch.jit.trace(small, torch.ones(2, 3))
    net = torch.jit.trace(Net().eval(), torch.ones(6, 8))
    return str(graph.graph), graph.code, net.code


def traced_fast_path() -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        return torch.jit.trace(layer, torch.ones(1, 2, 8), check_trace=False).code


def scripted() -> Any:
    torch.manual_seed(0)
    net = torch.jit.script(Net())
    attention = torch.jit.script(nn.MultiheadAttention(8, 2))
    x = torch.ones(2, 1, 8)
    return net.code, attention.code, bits(net(torch.ones(6, 8))), bits(attention(x, x, x)[0])


def functionalized() -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(torch.func.functionalize(lambda x: small(x.clone().t_().add_(1))))(torch.ones(2, 3))
    return graph.code, metadata(graph)


def exported_by_dynamo() -> Any:
    graph, _ = torch._dynamo.export(small)(torch.ones(2, 3))
    return graph.code


TRACERS = {
    "export-strict": exported(strict=True),
    "export": exported(strict=False),
    "export-dynamic": exported(strict=False, dynamic_shapes=({0: torch.export.Dim("batch")},)),
    "symbolic_trace": symbolic,
    "make_fx": made("real"),
    "make_fx-fake": made("fake"),
    "make_fx-symbolic": made("symbolic"),
    "make_fx-pre-dispatch": made("real", pre_dispatch=True),
    "jit.trace": traced,
    "jit.trace-fast-path": traced_fast_path,
    "jit.script": scripted,
    "functionalize": functionalized,
    "dynamo.export": exported_by_dynamo,
}


@pytest.mark.parametrize("name", TRACERS)
def test_a_traced_program_is_the_same(name):
    tracer = TRACERS[name]
    tracer()
    torch._dynamo.reset()
    before = tracer()
    torch._dynamo.reset()
    during, recording = recorded(tracer)
    assert during == before
    recording.trace.log.check()


def test_recording_compiles_nothing_where_a_stance_forbids_it():
    compiled = torch.compile(lambda x: x.mT.exp() + 1, backend="eager")
    x = torch.ones(2, 3)
    wanted = compiled(x)
    with torch.compiler.set_stance("fail_on_recompile"):
        got, _ = recorded(lambda: compiled(x))
    assert torch.equal(got, wanted)
