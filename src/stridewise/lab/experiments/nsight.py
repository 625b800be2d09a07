"""What NVIDIA's profilers are for, and what shows a layout copy in front of a convolution."""

import shutil
import subprocess

import torch

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import Refused, tried


def run(bench: Bench, batch: int, channels: int, image: int) -> None:
    """One convolution, its input in three layouts; `nsys` is asked for its name where it is installed."""
    x, weight = bench.randn(batch, channels, image, image), bench.randn(channels, channels, 3, 3)
    last, last_weight = (each.to(memory_format=torch.channels_last) for each in (x, weight))
    recorded = {
        "contiguous": tried(lambda: bench.record(lambda: torch.conv2d(x, weight))),
        "channels_last": tried(lambda: bench.record(lambda: torch.conv2d(last, last_weight))),
        "height and width swapped": tried(lambda: bench.record(lambda: torch.conv2d(x.transpose(2, 3), weight))),
    }
    copies = {name: len(found.copies) for name, found in recorded.items() if not isinstance(found, Refused)}
    bench.count("Copies that the recorder sees in conv2d, by the layout of its input", "copies", copies)

    name = _nsys()
    text = "`nsys` says that it is Nsight Compute"
    if name is None:
        bench.untested("C84", text, "no nsys answers here; NVIDIA's manuals call it Nsight Systems")
    else:
        bench.expect("C84", text, "compute" in name.lower(), name)
    no_window = "no window of Nsight can be opened from here"
    text = "the window lists `cudnnConvolutionForward`"
    bench.untested("C85", text, f"{no_window}, and no other trace names the library's functions")
    bench.untested("C85", "a column of it says `Non-contiguous`", no_window)
    bench.untested("C143", "nsys has a view that shows a path of cuDNN in green", no_window)


def _nsys() -> str | None:
    """The first line in which Nsight's command line says its name; None where it is not installed or doesn't answer."""
    path = shutil.which("nsys")
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return next((line.strip() for line in said.splitlines() if "nsight" in line.lower()), None)


EXPERIMENT = Experiment(
    name="nsight",
    title="Layouts in a profiler",
    method="`nsys --version`, where it is installed; the copies that the recorder sees in a convolution of three "
    "layouts. What Nsight's windows show is not tested.",
    claims={
        "C84": Claim(
            "4.1",
            "Nsight Compute is started with `nsys profile`.",
            "`nsys` is Nsight Systems, which shows a timeline; Nsight Compute, which looks into one kernel, is `ncu`.",
        ),
        "C85": Claim(
            "4.1",
            "Its window lists `cudnnConvolutionForward` with a column that says whether the input is contiguous.",
            "No such column is documented. What shows is the copy beside the convolution: a kernel named "
            "`nchwToNhwc…` or an elementwise copy; in torch's profiler `aten::copy_` inside `aten::conv2d`, with its "
            "sizes.",
        ),
        "C143": Claim(
            "7",
            "Before a release, look at nsys until the path of cuDNN is all green.",
            "nsys documents no such view. Look for copy and layout kernels next to those that compute.",
        ),
    },
    run=run,
    cpu={"batch": 4, "channels": 16, "image": 32},
    cuda={"batch": 32, "channels": 64, "image": 56},
    quick={"batch": 4},
)
