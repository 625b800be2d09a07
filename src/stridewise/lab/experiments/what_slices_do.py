"""What slices do to strides."""

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def run(bench: Bench) -> None:
    """The article's own shapes."""
    x = bench.randn(4, 32, 32)
    step, tail = x[:, ::2, :], x[..., 1:]
    bench.expect(
        "C25",
        "`x[:, ::2, :]` of (4, 32, 32) has the strides (1024, 64, 1) and the shape (4, 16, 32)",
        (step.stride(), tuple(step.shape)) == ((1024, 64, 1), (4, 16, 32)),
        f"{step.stride()}, {tuple(step.shape)}",
    )
    bench.expect("C25", "it is not contiguous", not step.is_contiguous(), f"is_contiguous() is {step.is_contiguous()}")
    for name, view in {"x[:, ::2]": step, "x[..., 1:]": tail}.items():
        said = f"{x.stride()} and {view.stride()}"
        bench.expect("C26", f"`{name}` has other strides than `x`", view.stride() != x.stride(), said)
    bench.count(
        "Second stride of a slice of (4, 32, 32)",
        "elements",
        {
            name: view.stride(1)
            for name, view in {"x": x, "x[:, ::2]": step, "x[..., 1:]": tail, "x[1:]": x[1:]}.items()
        },
    )


EXPERIMENT = Experiment(
    name="what-slices-do",
    title="Slices",
    method="Strides and shapes of the slices that the article shows.",
    claims={
        "C25": Claim(
            "2.2",
            "`x[:, ::2, :]` of (4, 32, 32) has the strides (1024, 64, 1) with the shape (4, 16, 32), and is not "
            "contiguous.",
            "As it says: `stride(1)` is 64, and only 32 elements lie behind that dimension.",
        ),
        "C26": Claim(
            "2.2",
            "Slices such as `[:, ::2]` and `[..., 1:]` change strides.",
            "A step multiplies a stride. A range without one keeps all strides and changes the size and the offset; "
            "in the first dimension the slice stays contiguous.",
        ),
    },
    run=run,
)
