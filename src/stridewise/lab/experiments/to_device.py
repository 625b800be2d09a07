"""What .to() does to strides, and what a contiguous() behind it does."""

import torch
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def run(bench: Bench, batch: int, channels: int, image: int) -> None:
    """Strided tensors sent to another device; then what a convnet does with inputs like those that come out of it."""
    target = bench.device.place if bench.on_gpu else "meta"
    dense = torch.randn(6, 4).t()
    gapped = torch.randn(6, 4)[:, ::2].t()
    sent = dense.to(target)
    seen = f"strides {sent.stride()} on {sent.device.type}"
    bench.expect("C98", "a transposed tensor is not contiguous when it arrives", not sent.is_contiguous(), seen)
    for name, value in (("without gaps", dense), ("with gaps", gapped)):
        arrived = value.to(target)
        bench.expect(
            "C99",
            f"a transposed tensor {name} arrives with the strides that it had",
            arrived.stride() == value.stride(),
            f"strides {value.stride()} before, {arrived.stride()} after",
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
    batch = torch.stack([torch.randn(8, 8, 3).permute(2, 0, 1) for _ in range(2)])
    arrived = batch.to(target)
    seen = f"strides {arrived.stride()}"
    bench.expect("C100", "a loader's batch is not contiguous when it arrives", not arrived.is_contiguous(), seen)
    last = batch.to(memory_format=torch.channels_last).to(target).contiguous()
    kept = last.is_contiguous(memory_format=torch.channels_last)
    bench.expect("C100", "a channels_last batch still is after `.contiguous()`", kept, f"strides {last.stride()}")


def _strided(bench: Bench, x: Tensor, channels: int) -> None:
    """How far an input with height and width swapped reaches into a contiguous net."""
    net = _net(channels).to(x.device)
    strided = []
    with torch.no_grad():
        value = x
        for layer in net:
            value = layer(value)
            strided.append(not value.is_contiguous())
    seen = f"{sum(strided)} of {len(strided)} layers"
    bench.expect("C101", "some layer's output is not contiguous", any(strided), seen)
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
