"""A sum over the first dimension of a transposed tensor: slow without any copy."""

from stridewise.lab.bench import Bench
from stridewise.lab.copy_in_front import copy_in_front
from stridewise.lab.experiment import Experiment


def run(bench: Bench, batch: int, rows: int, columns: int) -> None:
    """Sums over the first and over the last dimension."""
    dense = bench.randn(batch, rows, columns)
    view = dense.transpose(1, 2)
    first = bench.compare(
        "Sum over the first dimension",
        {
            "dense": lambda: dense.sum(0).t(),
            "transposed": lambda: view.sum(0),
            "transposed, `.contiguous()` in front": lambda: view.contiguous().sum(0),
        },
    )
    last = bench.compare(
        "Sum over the last dimension",
        {
            "transposed": lambda: view.sum(-1),
            "transposed, `.contiguous()` in front": lambda: view.contiguous().sum(-1),
        },
    )
    bench.predict("C88", first.faster("transposed, `.contiguous()` in front", than="transposed"))
    bench.predict("C88", last.faster("transposed, `.contiguous()` in front", than="transposed"))


EXPERIMENT = Experiment(
    name="sum-over-transposed",
    title="Sums over a transposed tensor",
    method="Sums over the first and the last dimension of one transposed tensor, with and without a copy in front; the "
    "recorder counts what is copied.",
    claims={
        "C88": copy_in_front(
            "A strided kernel can be slow without copying anything: a sum over the first dimension of a transposed "
            "tensor on the CPU. Over the last dimension the view is as fast as any. Measure the call.",
        )
    },
    run=run,
    cpu={"batch": 64, "rows": 128, "columns": 256},
    cuda={"batch": 256, "rows": 512, "columns": 512},
    quick={"batch": 32, "rows": 128, "columns": 128},
)
