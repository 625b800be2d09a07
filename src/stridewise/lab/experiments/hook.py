"""A forward hook that asks every module's output whether it is contiguous."""

import contextlib
import io
import re
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.generated import graphs
from stridewise.lab.refusal import tried
from stridewise.results.numbers import count

_WARNED = re.compile(r"^\[warned\] (\w+)$", re.MULTILINE)
_FRAME = re.compile(r'^ *File "(.+)", line \d+, in (\S+)$', re.MULTILINE)


def _hook(module: nn.Module, _: Any, output: Any) -> None:
    if isinstance(output, Tensor) and not output.is_contiguous():
        print(f"[warned] {type(module).__name__}")  # noqa: T201 -- as the article's does
        traceback.print_stack(limit=3)


class Calls(nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        """What the function gives."""
        return self.function(x)


class Swap(Calls):
    """The module that another layout comes from."""

    def __init__(self) -> None:
        super().__init__(lambda x: x.transpose(1, 2))


class Chain(nn.Module):
    """Modules one after the other; the article leaves `nn.Sequential` itself out."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.steps = nn.ModuleList(modules)

    def forward(self, x: Tensor) -> Tensor:
        """What the last module gives."""
        for step in self.steps:
            x = step(x)
        return x


def run(bench: Bench, batch: int, channels: int, image: int) -> None:
    """A net for each way in which a hook can see too little or too much, and a channels_last net."""
    x = bench.randn(2, 4, 6)
    outputs: dict[str, Callable[[Tensor], Any]] = {
        "in a tuple": lambda x: (x.transpose(1, 2), x),
        "in a dict": lambda x: {"y": x.transpose(1, 2)},
        "of a function that a module calls": lambda x: x.transpose(1, 2) @ x,
    }
    for where, function in outputs.items():
        seen, _ = _warned(Calls(function), x)
        bench.expect("C75", f"it warns of a strided result {where}", bool(seen), _names(seen))

    seen, frames = _warned(Chain(Swap(), nn.ReLU()), x)
    text = "its first warning is of the module that changed the layout"
    bench.expect("C76", text, seen[:1] == ["Swap"], _names(seen))
    bench.expect("C76", "it warns of no other module", len(seen) == 1, _names(seen))
    own = [name for file, name in frames if file == __file__ and name != _hook.__name__]
    text = "a frame that it prints is of the program, not of torch or of the hook"
    if frames:
        said = f"frames printed: {', '.join(dict.fromkeys(name for _, name in frames))}"
        bench.expect("C78", text, bool(own), said)
    else:
        bench.untested("C78", text, "it printed none")
    _compiled(bench, x)
    _channels_last(bench, len(seen), batch, channels, image)


def _compiled(bench: Bench, x: Tensor) -> None:
    quiet, loud = (_graphs(Chain(*steps), x) for steps in ((nn.ReLU(), nn.Tanh()), (nn.ReLU(), Swap(), nn.Tanh())))
    bench.expect(
        "C79", "a hooked net compiles to one graph where no output is strided", quiet == 1, count(quiet, "graph")
    )
    bench.expect("C79", "a hooked net compiles to one graph where the hook warns", loud == 1, count(loud, "graph"))


def _channels_last(bench: Bench, swaps: int, batch: int, channels: int, image: int) -> None:
    images = bench.randn(batch, 3, image, image)
    net = _convolutions(channels).to(images.device)
    last = _convolutions(channels).to(images.device)
    last.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    last.load_state_dict(net.state_dict())
    nhwc = images.to(memory_format=torch.channels_last)
    times = bench.compare(
        "A small convnet in two memory formats",
        {"net(x)": lambda: net(images), "net(x), channels_last": lambda: last(nhwc)},
    )
    bench.predict("C77", times.copies("net(x), channels_last"))
    bench.predict("C77", times.slower("net(x), channels_last", than="net(x)"))
    warned, _ = _warned(last, nhwc)
    bench.count(
        "Modules that the hook warns of",
        "modules",
        {"net(x)": len(_warned(net, images)[0]), "net(x), channels_last": len(warned), "a swap and a ReLU": swaps},
    )


def _convolutions(channels: int) -> nn.Module:
    return Chain(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)).eval()


def _hooked(net: nn.Module) -> list[Any]:
    return [each.register_forward_hook(_hook) for each in net.modules() if not isinstance(each, nn.ModuleList)]


def _warned(net: nn.Module, x: Tensor) -> tuple[list[str], list[tuple[str, str]]]:
    """Which modules the hook warns of, and file and function of each frame that it prints."""
    hooks = _hooked(net)
    printed, stacks = io.StringIO(), io.StringIO()
    with torch.no_grad(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(stacks):
        tried(lambda: net(x))  # what comes behind a layer that refuses its input is not warned of
    for hook in hooks:
        hook.remove()
    return _WARNED.findall(printed.getvalue()), _FRAME.findall(stacks.getvalue())


def _graphs(net: nn.Module, x: Tensor) -> int:
    """How many graphs torch.compile makes of a hooked net."""
    _hooked(net)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return graphs(net, [(x,)])[-1]


def _names(seen: list[str]) -> str:
    return f"warned of {', '.join(seen)}" if seen else "no warning"


EXPERIMENT = Experiment(
    name="hook",
    title="A hook that tests is_contiguous",
    method="The article's forward hook on small nets: one output it can't see, one change of layout, a channels_last "
    "convnet. Graphs are counted by a backend of torch.compile that compiles nothing.",
    claims={
        "C75": Claim(
            "4.1",
            "A forward hook on every module shows all outputs that are not contiguous.",
            "It sees outputs of modules that are bare tensors. Results of functions inside forward, and tensors in "
            "tuples and dicts, pass by.",
        ),
        "C76": Claim(
            "4.1",
            "The hook points at the place that a strided tensor comes from.",
            "The first warning does, if a module is the place. Those that carry the layout on are warned of too.",
        ),
        "C77": Claim(
            "4.1",
            "What the hook warns of is a fault to be mended.",
            "It warns of every layer of a healthy channels_last net. A dense layout is a fault only where an operator "
            "copies it.",
        ),
        "C78": Claim(
            "4.1",
            "`traceback.print_stack(limit=3)` in the hook shows the line that is to blame.",
            "The three innermost frames are the hook and two of torch that called it; torch's have to be left out "
            "first.",
        ),
        "C79": Claim(
            "4.1",
            "The hook belongs in every model while it is developed.",
            "Under torch.compile each warning breaks the graph: the net with the hook is not the net that ships.",
        ),
    },
    run=run,
    cpu={"batch": 4, "channels": 32, "image": 64},
    cuda={"batch": 64, "channels": 64, "image": 224},
    quick={"batch": 1, "channels": 16, "image": 40},
)
