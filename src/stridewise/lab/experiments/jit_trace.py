"""What torch.jit.trace keeps of its inputs' layout."""

from functools import partial

import torch
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.layouts import every_second, swapped
from stridewise.lab.refusal import Refused, tried


class _Net(nn.Module):
    """A convolution, something elementwise, a reduction."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.relu(self.conv(x))
        return (y * 2).mean(dim=1)


def run(bench: Bench, batch: int, channels: int, image: int) -> None:
    """Traces of one net with a contiguous and with a strided input, each run on both."""
    x = bench.randn(batch, 3, image, image)
    inputs = {
        "contiguous": x,
        "channels_last": x.to(memory_format=torch.channels_last),
        "height and width swapped": swapped(x, 2, 3),
        "gapped": every_second(x),
    }
    net = _Net(channels).to(x.device).eval()
    with torch.no_grad():
        tries = {name: tried(partial(torch.jit.trace, net, value, check_trace=False)) for name, value in inputs.items()}
        traces = {name: trace for name, trace in tries.items() if not isinstance(trace, Refused)}
        expected = net(x)
        agreeing = {
            name: [other for other, value in inputs.items() if _close(tried(partial(trace, value)), expected)]
            for name, trace in traces.items()
        }
        crop = x[1:, :, 2:]
        smaller = _close(tried(lambda: traces["contiguous"](crop)), net(crop.contiguous()))
    named = [word for word in ("data_ptr", str(x.data_ptr())) if word in str(traces["contiguous"].inlined_graph)]
    bench.expect("C138", "the address of the input is in the graph", bool(named), ", ".join(named) or "not in it")
    text = "the trace does not serve an input of other sizes and strides"
    bench.expect("C138", text, not smaller, f"{'right' if smaller else 'wrong'} for a crop of it")
    fine = agreeing["contiguous"]
    text = "a trace with a contiguous input fails, or computes something else, with a strided one"
    bench.expect("C139", text, len(fine) < len(inputs), f"right for {len(fine)} of {len(inputs)} layouts")

    nodes = {name: _contiguous_nodes(trace) for name, trace in traces.items()}
    strided = sum(count for name, count in nodes.items() if name != "contiguous")
    bench.count("aten::contiguous in the graph, by the layout it was traced with", "nodes", nodes)
    has, serves = (
        "a trace with a strided input has `aten::contiguous` in it",
        "a trace with a strided input does not serve other layouts",
    )
    bound = [len(found) for name, found in agreeing.items() if name != "contiguous"]
    if not bound:
        for text in (has, serves):
            bench.untested("C140", text, "none can be made")
        return
    bench.expect("C140", has, strided > 0, f"{strided} nodes")
    bench.expect("C140", serves, min(bound) < len(inputs), f"right for {min(bound)} of {len(inputs)} layouts")


def _close(one: Tensor | Refused, other: Tensor) -> bool:
    """As close as convolutions in TF32 come; elements in another order would be far off."""
    return not isinstance(one, Refused) and one.shape == other.shape and torch.allclose(one, other, rtol=0.0, atol=1e-2)


def _contiguous_nodes(trace: torch.jit.ScriptModule) -> int:
    return sum(node.kind() == "aten::contiguous" for node in trace.inlined_graph.nodes())


EXPERIMENT = Experiment(
    name="jit-trace",
    title="Layouts in torch.jit.trace",
    method="One small convnet traced with inputs of four layouts, each trace run on all of them and compared with the "
    "net itself; what the graphs hold is read from the graphs.",
    claims={
        "C138": Claim(
            "6.5",
            "A trace records the address and the strides of its input.",
            "The graph shows types with strides as a remark; no address is in it, and other sizes and strides run.",
        ),
        "C139": Claim(
            "6.5",
            "A net that was traced with a contiguous input expects contiguous inputs.",
            "Its operators take any strides, as before.",
        ),
        "C140": Claim(
            "6.5",
            "A trace with a strided input has fixed `contiguous()` calls put into it.",
            "None is put in; one that the program calls stays a call. What a trace does fix is a Python branch on "
            "`x.is_contiguous()`.",
        ),
    },
    run=run,
    cpu={"batch": 2, "channels": 8, "image": 16},
)
