"""narrow(), crops, and what Conv1d makes of a narrowed input."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment

_LESS = 1 / 0.7
"""How much slower a thing is that has 30 % less throughput."""


def run(bench: Bench, batch: int, channels: int, length: int) -> None:
    """Conv1d's input is the article's: permuted, then narrowed."""
    _crops(bench)
    _narrowed(bench)
    conv = nn.Conv1d(channels, channels, 3).to(bench.device.place)
    view = bench.randn(batch, length, 2 * channels).permute(0, 2, 1).narrow(1, 0, channels)
    dense, before = view.contiguous(), conv.weight.stride()
    times = bench.compare(
        "Conv1d of a narrowed input",
        {
            "conv(view)": lambda: F.conv1d(view, conv.weight),
            "conv(dense)": lambda: F.conv1d(dense, conv.weight),
            "conv(view.contiguous())": lambda: F.conv1d(view.contiguous(), conv.weight),
        },
    )
    bench.expect(
        "C32",
        "the weight is not contiguous once a narrowed input has been through",
        not conv.weight.is_contiguous(),
        f"strides {before} before, {conv.weight.stride()} after",
    )
    more = sorted(set(times.records["conv(view)"].ops) - set(times.records["conv(view.contiguous())"].ops))
    bench.expect(
        "C33",
        "`conv(view)` runs other operators than `conv(view.contiguous())`",
        bool(more),
        ", ".join(more) or "the same operators",
    )
    bench.predict("C33", times.slower("conv(view)", than="conv(view.contiguous())", by=_LESS))


def _crops(bench: Bench) -> None:
    image = bench.randn(3, 40, 50)
    batch = torch.stack([_center_crop(image, 32, 32), _center_crop(image + 1, 32, 32)])
    whole = _center_crop(image, 40, 50)
    for name, crop in {"a crop of an image to its own size": whole, "a batch stacked of crops": batch}.items():
        bench.expect("C27", f"{name} is not contiguous", not crop.is_contiguous(), f"strides {crop.stride()}")
    crop = _center_crop(image, 32, 32)
    bench.expect(
        "C28",
        "a crop made by slices, without narrow(), is contiguous",
        crop.is_contiguous(),
        f"strides {crop.stride()} for the shape {tuple(crop.shape)}",
    )


def _center_crop(image: Tensor, height: int, width: int) -> Tensor:
    """What torchvision's CenterCrop does to a tensor: `crop` in `transforms/_functional_tensor.py` slices it."""
    top, left = (image.shape[-2] - height) // 2, (image.shape[-1] - width) // 2
    return image[..., top : top + height, left : left + width]


def _narrowed(bench: Bench) -> None:
    x = bench.randn(8, 6, 4)
    told = {f"narrow({dim}, 0, 2)": x.narrow(dim, 0, 2).is_contiguous() for dim in range(3)}
    said = ", ".join(f"{name}: {answer}" for name, answer in told.items())
    bench.expect("C29", "narrow() gives some tensor that is not contiguous", not all(told.values()), said)


EXPERIMENT = Experiment(
    name="narrow-and-crop",
    title="narrow() and crops",
    method="Layouts of narrowed and cropped tensors, and the times of Conv1d of a permuted and narrowed input, of a "
    "contiguous one, and with a copy made first. The crop slices as that of torchvision 0.28 does.",
    claims={
        "C27": Claim(
            "2.2",
            "What torchvision's `CenterCrop` gives is never contiguous along the batch.",
            "A crop that cuts something off one tensor is a strided view. A crop to the same size is not, and a batch "
            "that is stacked of crops is contiguous.",
        ),
        "C28": Claim(
            "2.2",
            "The reason is that `CenterCrop` uses `narrow()`.",
            "It slices. Slices and `narrow()` give the same view, so that `narrow()` is not the reason.",
        ),
        "C29": Claim(
            "2.2",
            "`narrow()` does not promise a contiguous result.",
            "Only in the first dimension, or behind dimensions of size 1, does it keep a tensor contiguous.",
        ),
        "C32": Claim(
            "2.2",
            "`narrow()` on the way to `Conv1d` makes the weight of `Conv1d` not contiguous.",
            "A view of the input can't change another tensor.",
        ),
        "C33": Claim(
            "2.2",
            "That leads `Conv1d` to a fallback of cuBLAS, which takes 30 % of the throughput.",
            "Convolution copies a strided input once and then does what it always does. There is no fallback; where "
            "channels are few, that copy alone may take such a share.",
        ),
    },
    run=run,
    cpu={"batch": 8, "channels": 256, "length": 512},
    quick={"batch": 2, "channels": 64, "length": 256},
)
