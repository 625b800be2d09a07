"""narrow(), crops, and what Conv1d makes of a narrowed input."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.peer import needed
from stridewise.lab.refusal import tried

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
    text = "`conv(view)` runs other operators than `conv(view.contiguous())`"
    bench.predict("C33", times.seen("conv(view)", text, bool(more), ", ".join(more) or "the same operators"))
    bench.predict("C33", times.slower("conv(view)", than="conv(dense)", by=_LESS))


def _crops(bench: Bench) -> None:
    image = bench.randn(3, 40, 50)
    sliced = image[..., 4:36, 9:41]
    said = f"strides {sliced.stride()} for the shape {tuple(sliced.shape)}"
    bench.expect("C28", "a crop made by slices, without narrow(), is contiguous", sliced.is_contiguous(), said)
    bench.expect_of(
        "C27",
        "a batch stacked of crops is not contiguous",
        tried(lambda: torch.stack([sliced, sliced + 1])),
        lambda batch: not batch.is_contiguous(),
        lambda batch: f"strides {batch.stride()}",
    )

    whole, narrows = "a `CenterCrop` to the image's own size is not contiguous", "`CenterCrop` calls `narrow()`"
    found = needed(bench, (("C27", whole), ("C28", narrows)), "torchvision.transforms")
    if found is None:
        return
    (transforms,) = found
    kept: Tensor = transforms.CenterCrop(image.shape[-2:])(image)
    bench.expect("C27", whole, not kept.is_contiguous(), f"strides {kept.stride()}")
    ops = bench.record(lambda: transforms.CenterCrop((32, 32))(image)).ops
    bench.expect("C28", narrows, "aten::narrow" in ops, ", ".join(dict.fromkeys(ops)))


def _narrowed(bench: Bench) -> None:
    x = bench.randn(8, 6, 4)
    told = {f"narrow({dim}, 0, 2)": x.narrow(dim, 0, 2).is_contiguous() for dim in range(3)}
    said = ", ".join(f"{name}: {answer}" for name, answer in told.items())
    bench.expect("C29", "narrow() gives some tensor that is not contiguous", not all(told.values()), said)


EXPERIMENT = Experiment(
    name="narrow-and-crop",
    title="narrow() and crops",
    method="Layouts of narrowed and cropped tensors, and the times of Conv1d of a permuted and narrowed input, of a "
    "contiguous one, and with a copy made first. torchvision's `CenterCrop` is run where torchvision can be imported.",
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
            "torchvision 0.28 slices (`crop` in transforms/_functional_tensor.py). Slices and `narrow()` give the same "
            "view, so that `narrow()` is not the reason.",
        ),
        "C29": Claim(
            "2.2",
            "`narrow()` does not promise a contiguous result.",
            "Only in the first dimension, behind dimensions of size 1, or over the whole length does it keep a tensor "
            "contiguous.",
        ),
        "C32": Claim(
            "2.2",
            "`narrow()` on the way to `Conv1d` makes the weight of `Conv1d` not contiguous.",
            "A view of the input can't change another tensor.",
        ),
        "C33": Claim(
            "2.2",
            "That leads `Conv1d` to a fallback of cuBLAS, which takes 30 % of the throughput.",
            "Convolution copies a strided input once and then does what it always does: there is no fallback. The "
            "more channels, the smaller the copy's share; with few it may be 30 %.",
        ),
    },
    run=run,
    cpu={"batch": 8, "channels": 256, "length": 512},
    quick={"batch": 2, "channels": 64, "length": 256},
)
