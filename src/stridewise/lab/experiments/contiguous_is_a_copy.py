"""What contiguous() gives."""

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def run(bench: Bench, rows: int, width: int) -> None:
    """Of a contiguous tensor, and of its transpose."""
    dense = bench.randn(rows, width)
    view = dense.t()
    strides, made = view.stride(), view.contiguous()
    bench.expect(
        "C9",
        "`view` has the same strides after `made = view.contiguous()`",
        view.stride() == strides and not view.is_contiguous(),
        f"{strides} before, {view.stride()} after",
    )
    shared = made.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()
    bench.expect("C9", "`made` lies in memory of its own", not shared, "shared" if shared else "not shared")
    bench.expect("C10", "`made` shares the storage of `view`", shared, "shared" if shared else "not shared")
    made.add_(1)
    seen = bool((made == view).all())
    bench.expect("C10", "`view` sees a write to `made`", seen, "seen" if seen else "not seen")
    itself = dense.contiguous().data_ptr() == dense.data_ptr()
    bench.count(
        "Memory that contiguous() takes",
        "B",
        {"of a contiguous tensor": 0 if itself else dense.nbytes, "of its transpose": 0 if shared else made.nbytes},
    )


EXPERIMENT = Experiment(
    name="contiguous-is-a-copy",
    title="contiguous() is a copy or nothing",
    method="`contiguous()` of a transposed view: its strides before and after, where the result lies, and whether a "
    "write to the result is seen in the view.",
    claims={
        "C9": Claim(
            "2.1",
            "`contiguous()` does not tidy up a tensor's memory in place.",
            "The tensor stays as it was; the result is another tensor.",
        ),
        "C10": Claim(
            "2.1",
            "`contiguous()` is an operation of the view protocol, which forces an alignment.",
            "It returns the tensor itself if that is contiguous, and a copy otherwise; never a view.",
        ),
    },
    run=run,
    cpu={"rows": 64, "width": 48},
)
