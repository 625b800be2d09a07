"""nn.Linear of inputs with all kinds of strides."""

from functools import partial

import torch
from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import Refused, tried


def run(bench: Bench, rows: int, width: int) -> None:
    """Every input has the shape (rows, width)."""
    layer = nn.Linear(width, width).to(bench.device.place)
    accepted = refused = 0
    worst = 0.0
    for view in _views(bench, rows, width).values():
        with torch.no_grad():
            expected = layer(view.contiguous())
            found = tried(partial(layer, view))
        if isinstance(found, Refused):
            refused += 1
            continue
        accepted += 1
        worst = max(worst, (found - expected).abs().max().item())
    bench.expect(
        "C2",
        "`nn.Linear` refuses some strides",
        refused > 0,
        f"it refuses {refused} of {accepted + refused} layouts; results differ from those of copies by at most "
        f"{worst:.1g}",
    )
    bench.count("Layouts of an input that nn.Linear is given", "layouts", {"accepted": accepted, "refused": refused})


def _views(bench: Bench, rows: int, width: int) -> dict[str, Tensor]:
    return {
        "contiguous": bench.randn(rows, width),
        "transposed": bench.randn(width, rows).t(),
        "every second row": bench.randn(2 * rows, width)[::2],
        "every second column": bench.randn(rows, 2 * width)[:, ::2],
        "some columns": bench.randn(rows, width + 5)[:, 3 : width + 3],
        "one row, expanded": bench.randn(1, width).expand(rows, width),
        "one column, expanded": bench.randn(rows, 1).expand(rows, width),
        "overlapping windows": bench.randn(rows + width).as_strided((rows, width), (1, 1)),
    }


EXPERIMENT = Experiment(
    name="linear-strides",
    title="nn.Linear and strides",
    method="A layer is given inputs of one shape in eight layouts: contiguous, transposed, sliced, expanded, "
    "overlapping. Each result is compared with that of a contiguous copy.",
    claims={
        "C2": Claim(
            "1",
            "`nn.Linear` raises `expected stride to be a multiple of ...` until `.contiguous()` is called.",
            "`nn.Linear` takes any strides, and torch has no such message.",
        )
    },
    run=run,
    cpu={"rows": 64, "width": 32},
)
