"""interpolate of frames that are not contiguous, and copies around it."""

import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.compared import Compared
from stridewise.lab.cudnn import operators
from stridewise.lab.experiment import Claim, Experiment
from stridewise.results.numbers import count

_SLOW = 28 / 12
"""Frames a second with the article's edit, over those without."""


def run(bench: Bench, batch: int, height: int, width: int) -> None:
    """A frame (batch, 3, height, width) is halved; the view is a frame that was stored with its sides swapped."""
    view = bench.randn(batch, 3, width, height).transpose(2, 3)
    dense = view.contiguous()

    def resize(frame: Tensor) -> Tensor:
        return F.interpolate(frame, scale_factor=0.5, mode="bilinear")

    copies = len(bench.record(lambda: resize(dense).contiguous()).copies) - len(
        bench.record(lambda: resize(dense)).copies
    )
    bench.expect(
        "C41",
        "`resize(frame).contiguous()` copies more than `resize(frame)`",
        copies > 0,
        f"{count(copies, 'copy', 'copies')} more",
    )
    times = bench.compare(
        "Halving a frame by bilinear interpolation",
        {
            "resize(view)": lambda: resize(view),
            "resize(view).contiguous()": lambda: resize(view).contiguous(),
            "resize(view.contiguous())": lambda: resize(view.contiguous()),
            "resize(dense)": lambda: resize(dense),
        },
    )
    _fallback(bench, times)
    refused = times.refusal("resize(view)")
    if refused is not None:  # both arms would be refused
        bench.untested("C142", "a copy behind it makes it faster", refused)
        return
    weight = bench.randn(8, 3, 3, 3)
    after = bench.compare(
        "Halving a transposed frame, and a convolution of what that gives",
        {
            "conv(resize(view))": lambda: F.conv2d(resize(view), weight),
            "conv(resize(view).contiguous())": lambda: F.conv2d(resize(view).contiguous(), weight),
        },
    )
    bench.predict("C142", after.faster("conv(resize(view).contiguous())", than="conv(resize(view))", by=_SLOW))


def _fallback(bench: Bench, times: Compared) -> None:
    """Whether cuDNN takes part at all, and how slow a strided frame is."""
    cudnn, text = operators(), "torch has an operator for cuDNN's interpolation"
    if cudnn:
        resizing = [name for name in cudnn if any(word in name for word in ("upsample", "interpolate", "resize"))]
        bench.expect("C141", text, bool(resizing), ", ".join(resizing) or f"none of {len(cudnn)} for cuDNN is")
    else:
        bench.untested("C141", text, "this torch does not list its operators")
    if bench.on_gpu:
        bench.predict("C141", times.slower("resize(view)", than="resize(dense)", by=_SLOW))
    else:
        text = "a strided frame is resized several times slower"
        bench.untested("C141", text, "the figure is of a GPU; the CPU's are in the table")
    kernels, text = times.records["resize(view)"].kernels, "a kernel of cuDNN resizes"
    if kernels:
        bench.expect("C141", text, any("cudnn" in name.lower() for name in kernels), ", ".join(kernels))
    else:
        bench.untested("C141", text, "no kernel of a GPU was seen")


EXPERIMENT = Experiment(
    name="interpolate",
    title="Resizing frames",
    method="Bilinear interpolation of a transposed frame, with `.contiguous()` behind it, with one in front, and of a "
    "contiguous frame: times and copies. Torch's list of operators, which holds those of every device, is searched for "
    "cuDNN's interpolation; and a convolution comes behind, with and without `.contiguous()` between.",
    claims={
        "C41": Claim(
            "2.3",
            "Every resize would need a copy if torch kept tensors contiguous.",
            "`interpolate` writes a new tensor: contiguous for a contiguous frame, channels_last for a channels_last "
            "one. `contiguous()` behind the former does nothing.",
        ),
        "C141": Claim(
            "7",
            "In the cuDNN of a V100, bilinear `interpolate` has a very slow fallback for an input that is not "
            "contiguous.",
            "torch has kernels of its own for `interpolate`, which take strides, and one for channels_last. cuDNN has "
            "no part in it.",
        ),
        "C142": Claim(
            "7",
            "`x = x.contiguous()` behind `interpolate` mended it: from 12 to 28 frames a second.",
            "A copy behind an operator can't change what the operator does; only one in front could.",
        ),
    },
    run=run,
    cpu={"batch": 1, "height": 540, "width": 960},
    cuda={"batch": 16},
    quick={"height": 80, "width": 128},
)
