"""Which layers hand strides on to the next one."""

from functools import partial

import torch
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.layouts import every_second, swapped
from stridewise.lab.refusal import Refused, tried


def run(bench: Bench, batch: int, channels: int, side: int) -> None:
    """One strided feature map in front of a convnet, and in front of layers that work element by element."""
    place = bench.device.place
    net = nn.ModuleList(
        (
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
        )
    ).to(place)
    pointwise = nn.ModuleList((nn.ReLU(), nn.GELU(), nn.Hardtanh(), nn.Dropout(0.0), nn.Sigmoid())).to(place)
    dense = bench.randn(batch, channels, side, side)
    maps = {
        "height and width swapped": swapped(dense, 2, 3),
        "cropped": bench.randn(batch, channels, side + 8, side + 8)[..., :side, :side].copy_(dense),
        "every second column": every_second(dense),
    }
    times = bench.compare(
        "A small convnet behind one feature map",
        {
            "NCHW": lambda: _through(net, dense),
            "height and width swapped": lambda: _through(net, maps["height and width swapped"]),
        },
    )
    with torch.no_grad():
        behind = {name: _strided(net, value) for name, value in maps.items()}
        carried = {name: _strided(pointwise, value) for name, value in maps.items()}
    bench.count("Layers of a convnet whose output is strided, behind one strided map", "layers", _numbers(behind))
    bench.count("Of a chain of pointwise layers", "layers", _numbers(carried))

    bench.expect(
        "C51",
        "a strided map makes what later layers of a convnet get strided",
        any(behind.values()),
        _said(behind, net),
    )
    copied = len(times.records["height and width swapped"].hidden) - len(times.records["NCHW"].hidden)
    text = "each layer of the convnet pays with a copy"
    bench.predict("C51", times.seen("height and width swapped", text, copied >= len(net), f"{copied} of {len(net)}"))


def _through(layers: nn.ModuleList, value: Tensor) -> Tensor:
    for layer in layers:
        value = layer(value)
    return value


def _strided(layers: nn.ModuleList, value: Tensor) -> list[str]:
    """The layers whose output is neither row-major nor channels_last, each behind the one before it."""
    found = []
    for layer in layers:
        given = tried(partial(layer, value))
        if isinstance(given, Refused):  # no layer behind it is given anything
            break
        value = given
        if not value.is_contiguous() and not value.is_contiguous(memory_format=torch.channels_last):
            found.append(type(layer).__name__)
    return found


def _numbers(found: dict[str, list[str]]) -> dict[str, float]:
    return {name: len(layers) for name, layers in found.items()}


def _said(found: dict[str, list[str]], layers: nn.ModuleList) -> str:
    return "; ".join(f"{name}: {len(strided)} of {len(layers)}" for name, strided in found.items())


EXPERIMENT = Experiment(
    name="domino",
    title="Which layers hand strides on",
    method="A map that is neither NCHW nor channels_last goes into a chain of layers; strides are read behind each.",
    claims={
        "C51": Claim(
            "3.1",
            "One feature map that is not contiguous slows down all of cuDNN's layers behind it, like dominoes.",
            "A convolution, a normalization, pooling or a matmul makes a dense output, whatever it was given: the "
            "first of these pays. Only what works element by element hands strides on.",
        )
    },
    run=run,
    cpu={"batch": 4, "channels": 32, "side": 32},
)
