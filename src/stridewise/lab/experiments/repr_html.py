"""A _repr_html_ that tells of each tensor whether it is contiguous."""

import torch
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def _html(value: Tensor) -> str:
    """The article's method, in short."""
    word = "CONTIGUOUS" if value.is_contiguous() else "NON-CONTIGUOUS"
    return f"<b>{word}</b><br>{value.shape}, {value.dtype}, {value.device}"


def run(bench: Bench, size: int) -> None:
    """Tensors of each kind that a notebook may end a cell with."""
    x = bench.randn(size, size)
    kinds: dict[str, Tensor] = {
        "a dense tensor": x,
        "a parameter": torch.nn.Parameter(x),
        "a sparse COO tensor": x.to_sparse(),
        "a tensor on meta": x.to("meta"),
        "a sparse CSR tensor": x.to_sparse_csr(),
        "a nested tensor": torch.nested.nested_tensor([x, x[:1]]).transpose(1, 2),
    }
    said = {name: _raised(value) for name, value in kinds.items()}
    for name, error in said.items():
        bench.expect("C144", f"it shows {name}", error is None, error or "shown")
    last = torch.ones(2, 3, 4, 4, device=x.device).to(memory_format=torch.channels_last)
    shown_last = _html(last)
    bench.expect(
        "C144",
        "it shows a channels_last tensor as in order",
        ">CONTIGUOUS" in shown_last,
        shown_last.split("</b>")[0].removeprefix("<b>"),
    )
    shown = list(said.values()).count(None)
    bench.count("Kinds of tensor", "kinds", {"shown": shown, "raise": len(said) - shown})


def _raised(value: Tensor) -> str | None:
    try:
        _html(value)
    except Exception as error:  # whatever a kind of tensor raises is what is to be seen
        return f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
    return None


EXPERIMENT = Experiment(
    name="repr-html",
    title="Contiguity in a notebook",
    method="The article's method, called with tensors of seven kinds; it is not put on `torch.Tensor`.",
    claims={
        "C144": Claim(
            "7",
            "A `_repr_html_` on `torch.Tensor` shows in a notebook of every tensor whether it is contiguous.",
            "Of most. It raises for some kinds (sparse CSR, nested tensors), hides the values, and calls a healthy "
            "channels_last tensor not contiguous: name the layout instead, and fall back on `repr`.",
        ),
    },
    run=run,
    cpu={"size": 8},
)
