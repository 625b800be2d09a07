"""reshape of a permuted tensor: it works where view raises, and copies there."""

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def run(bench: Bench, batch: int, rows: int, columns: int) -> None:
    """`x.permute(0, 2, 1)` has two dimensions that no single stride can walk."""
    x = bench.randn(batch, rows, columns)
    permuted = x.permute(0, 2, 1)
    dense = permuted.contiguous()
    try:
        permuted.view(batch, -1)
        raised = "no error"
    except RuntimeError as error:
        raised = str(error).split(".")[0]
    bench.expect("C92", "`view` of the permuted tensor raises", raised != "no error", raised)
    times = bench.compare(
        "Two dimensions made one",
        {
            "permuted.contiguous().view(b, -1)": lambda: permuted.contiguous().view(batch, -1),
            "permuted.reshape(b, -1)": lambda: permuted.reshape(batch, -1),
            "dense.view(b, -1)": lambda: dense.view(batch, -1),
        },
    )
    bench.predict("C92", times.agree("permuted.reshape(b, -1)", bits=True))
    bench.predict("C93", times.copies_nothing("permuted.reshape(b, -1)"))
    bench.predict("C93", times.no_slower("permuted.reshape(b, -1)", than="dense.view(b, -1)"))


EXPERIMENT = Experiment(
    name="reshape-cost",
    title="reshape after permute",
    method="Rows and columns of a permuted tensor made one dimension: by `view`, by `reshape`, and by `reshape`'s two "
    "parts; beside them the view of a tensor that is not permuted.",
    claims={
        "C92": Claim(
            "4.2",
            "After `permute` or `transpose`, `reshape` does what `view` refuses.",
            "`view` raises where no strides describe the new shape; `reshape` copies there.",
        ),
        "C93": Claim(
            "4.2",
            "That `reshape` costs nothing.",
            "It is a view where one is possible, and else a copy of the whole tensor.",
        ),
    },
    run=run,
    cpu={"batch": 32, "rows": 256, "columns": 256},
    cuda={"batch": 256},
    quick={"batch": 4},
)
