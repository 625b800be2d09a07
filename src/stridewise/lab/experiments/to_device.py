"""What .to() does to strides, and what a contiguous() behind it does."""

from functools import partial

import torch
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import tried


def run(bench: Bench, batch: int, channels: int, image: int) -> None:
    """Strided tensors sent to another device; then what a convnet does with inputs like those that come out of it."""
    target = bench.device.place if bench.on_gpu else "meta"
    dense = torch.randn(6, 4).t()
    gapped = torch.randn(6, 4)[:, ::2].t()
    bench.expect_of(
        "C98",
        "a transposed tensor is not contiguous when it arrives",
        tried(lambda: dense.to(target)),
        lambda sent: not sent.is_contiguous(),
        lambda sent: f"strides {sent.stride()} on {sent.device.type}",
    )
    for name, value in (("without gaps", dense), ("with gaps", gapped)):
        before = value.stride()
        bench.expect_of(
            "C99",
            f"a transposed tensor {name} arrives with the strides that it had",
            tried(partial(value.to, target)),
            lambda arrived, before=before: arrived.stride() == before,  # type: ignore[misc]
            lambda arrived, before=before: f"strides {before} before, {arrived.stride()} after",  # type: ignore[misc]
        )
    _batches(bench, target)

    images = bench.randn(batch, 3, image, image)
    last = images.to(memory_format=torch.channels_last)
    weight = bench.randn(channels, 3, 3, 3).to(memory_format=torch.channels_last)
    formats = bench.compare(
        "A convolution whose batch and weight are channels_last",
        {
            "conv2d(x, w)": lambda: torch.conv2d(last, weight),
            "conv2d(x.contiguous(), w)": lambda: torch.conv2d(last.contiguous(), weight),
        },
    )
    bench.predict("C100", formats.faster("conv2d(x.contiguous(), w)", than="conv2d(x, w)"))
    _strided(bench, images.transpose(2, 3), channels)


def _batches(bench: Bench, target: str) -> None:
    """What `.contiguous()` behind `.to()` does to batches that a loader gives."""
    images = [torch.randn(8, 8, 3).permute(2, 0, 1) for _ in range(2)]
    bench.expect_of(
        "C100",
        "a loader's batch is not contiguous when it arrives",
        tried(lambda: torch.stack(images).to(target)),
        lambda arrived: not arrived.is_contiguous(),
        lambda arrived: f"strides {arrived.stride()}",
    )
    last = torch.stack([each.contiguous() for each in images]).to(memory_format=torch.channels_last)
    bench.expect_of(
        "C100",
        "a channels_last batch still is after `.contiguous()`",
        tried(lambda: last.to(target).contiguous()),
        lambda sent: sent.is_contiguous(memory_format=torch.channels_last),
        lambda sent: f"strides {sent.stride()}",
    )


def _strided(bench: Bench, x: Tensor, channels: int) -> None:
    """How far an input with height and width swapped reaches into a contiguous net."""
    net = _net(channels).to(x.device)
    strided: list[bool] = []

    def through() -> None:
        value = x
        for layer in net:
            value = layer(value)
            strided.append(not value.is_contiguous())

    with torch.no_grad():
        found = tried(through)
    text = "some layer's output is not contiguous"
    bench.expect_of("C101", text, found, lambda _: any(strided), lambda _: f"{sum(strided)} of {len(strided)} layers")
    bench.count(
        "Layers of a convnet with a strided input", "layers", {"give strided": sum(strided), "all": len(strided)}
    )
    first = net[0]
    times = bench.compare(
        "A convnet's first layer, whose input has height and width swapped",
        {"layer(x.contiguous())": lambda: first(x.contiguous()), "layer(x)": lambda: first(x)},
    )
    bench.predict("C101", times.slower("layer(x)", than="layer(x.contiguous())"))


def _net(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 10),
    ).eval()


EXPERIMENT = Experiment(
    name="to-device",
    title="Strides through .to()",
    method="Strides of what arrives on the GPU; without one on the meta device, which takes the same way through torch "
    "and holds no data. Then convolutions of such inputs, with and without `.contiguous()` in front.",
    claims={
        "C98": Claim(
            "4.3",
            "`.to('cuda')` does not make a tensor contiguous.",
            "It preserves the format: what was permuted stays permuted.",
        ),
        "C99": Claim(
            "4.3",
            "`.to()` copies the strides as they are.",
            "It keeps the order of the dimensions; gaps and stride 0 are not taken along.",
        ),
        "C100": Claim(
            "4.3",
            "`.to('cuda')` should always be followed by `.contiguous()`.",
            "A loader's batch is contiguous already, and a channels_last batch is turned back. For a convnet write "
            "`.to('cuda', memory_format=torch.channels_last)`.",
        ),
        "C101": Claim(
            "4.3",
            "Without it a strided `x` spoils the whole model.",
            "The first layer that isn't elementwise gives a layout of its own: a convolution copies `x` once, and "
            "nothing behind it is strided.",
        ),
    },
    run=run,
    cpu={"batch": 8, "channels": 32, "image": 64},
    cuda={"batch": 64, "channels": 64, "image": 224},
    quick={"batch": 2, "channels": 16, "image": 32},
)
