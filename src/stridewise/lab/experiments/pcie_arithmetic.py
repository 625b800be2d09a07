"""The article's arithmetic of copies behind a resize."""

import torch.nn.functional as F

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.results.numbers import byte_count, share

_PCIE_4_X16 = 16e9 * 16 * 128 / 130 / 8
"""Bytes a second, one way: 16 GT/s on each of 16 lanes, 128 of 130 bits are data (PCI Express 4.0)."""


def run(bench: Bench) -> None:
    """The article's own frame."""
    frame = bench.randn(1, 3, 1080, 1920)
    small = F.interpolate(frame, scale_factor=0.5)
    bench.expect(
        "C38",
        "a resized frame (1, 3, 540, 960) takes 6.22 MB",
        tuple(small.shape) == (1, 3, 540, 960) and round(small.nbytes / 1e6, 2) == 6.22,
        f"{small.nbytes:,} B",
    )
    rate = 30 * small.nbytes
    bench.expect("C39", "30 of them a second are more than 180 MB/s", rate > 180e6, f"{byte_count(rate)}/s")
    used = rate / _PCIE_4_X16
    bench.expect(
        "C40",
        "that is 15 % of PCIe 4.0 x16, give or take 5",
        0.1 <= used <= 0.2,
        f"{share(used)} of {byte_count(_PCIE_4_X16)}/s",
    )
    kernels = bench.record(small.transpose(2, 3).contiguous).kernels
    text = "`contiguous()` on the GPU crosses PCIe"
    if kernels:
        crossing = any(way in name.lower() for name in kernels for way in ("htod", "dtoh"))
        bench.expect("C40", text, crossing, ", ".join(kernels))
    else:
        bench.untested("C40", text, "no kernel of a GPU was seen")
    bench.count("30 frames a second, and the bus", "MB/s", {"30 frames": rate / 1e6, "PCIe 4.0 x16": _PCIE_4_X16 / 1e6})


EXPERIMENT = Experiment(
    name="pcie-arithmetic",
    title="A resize and the bus",
    method="The bytes of the article's resized frame, times 30, over what PCIe 4.0 x16 carries one way.",
    claims={
        "C38": Claim(
            "2.3",
            "A frame resized to (1, 3, 540, 960) takes 6.22 MB in float32.",
            "3 * 540 * 960 * 4 bytes.",
        ),
        "C39": Claim(
            "2.3",
            "A copy of each of 30 frames a second is more than 180 MB/s.",
            "6.22 MB times 30; a copy reads and writes, so that memory moves twice that.",
        ),
        "C40": Claim(
            "2.3",
            "That is 15 % of what PCIe 4.0 x16 carries.",
            "It is 0.6 %, of the wrong bus: a copy on the GPU never crosses PCIe.",
        ),
    },
    run=run,
)
