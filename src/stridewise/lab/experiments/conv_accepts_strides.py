"""conv2d of inputs that are not contiguous."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import Refused, tried


def run(bench: Bench, batch: int, channels: int, side: int) -> None:
    """Every input has the shape (batch, channels, side, side)."""
    weight = bench.randn(2 * channels, channels, 3, 3)
    views = _views(bench, batch, channels, side)
    found = {name: tried(partial(_agrees, view, weight)) for name, view in views.items()}
    refused = [f"{name} {agrees.said}" for name, agrees in found.items() if isinstance(agrees, Refused)]
    wrong = sum(agrees is False for agrees in found.values())
    bench.expect(
        "C42",
        f"`conv2d` takes {len(views)} layouts, and gives what it gives for their copies",
        not refused and wrong == 0,
        "; ".join(refused) or f"{wrong} of them differ by more than rounding",
    )
    view = views["transposed"]
    dense = view.contiguous()
    times = bench.compare(
        "conv2d of a transposed input",
        {
            "conv2d(dense)": lambda: F.conv2d(dense, weight),
            "conv2d(view)": lambda: F.conv2d(view, weight),
        },
    )
    bench.predict("C42", times.copies("conv2d(view)"))
    bench.predict("C42", times.no_slower("conv2d(view)", than="conv2d(dense)", by=2))


def _views(bench: Bench, batch: int, channels: int, side: int) -> dict[str, Tensor]:
    return {
        "transposed": bench.randn(batch, channels, side, side).transpose(2, 3),
        "every second channel": bench.randn(batch, 2 * channels, side, side)[:, ::2],
        "cropped": bench.randn(batch, channels, side + 4, side + 4)[..., 2:-2, 2:-2],
        "batch second": bench.randn(channels, batch, side, side).transpose(0, 1),
        "expanded": bench.randn(batch, 1, side, side).expand(batch, channels, side, side),
        "channels_last": bench.randn(batch, side, side, channels).permute(0, 3, 1, 2),
    }


def _agrees(view: Tensor, weight: Tensor) -> bool:
    found, expected = F.conv2d(view, weight), F.conv2d(view.contiguous(), weight)
    # as rounding in another order may change; TF32, a GPU's default, keeps 10 bits
    return torch.allclose(found, expected, rtol=0, atol=3e-3 * expected.abs().max().item())


EXPERIMENT = Experiment(
    name="conv-accepts-strides",
    title="conv2d takes any strides",
    method="Results for inputs of six layouts against those for their copies, and the time of conv2d of a transposed "
    "input against a contiguous one.",
    claims={
        "C42": Claim(
            "2.3",
            "`nn.Conv2d` takes inputs that are not contiguous, since it reorders inside, and is a bit slower.",
            "It is one hidden copy of the input a call, and none if that is channels_last. Elsewhere the article says "
            "the opposite.",
        )
    },
    run=run,
    cpu={"batch": 8, "channels": 32, "side": 56},
    cuda={"batch": 64, "channels": 64},
    quick={"batch": 1, "channels": 16, "side": 28},
)
