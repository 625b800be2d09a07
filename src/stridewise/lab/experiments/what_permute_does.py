"""What permute() does to strides, and narrow() behind it."""

from itertools import permutations

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def run(bench: Bench, batch: int, length: int, width: int) -> None:
    """Every order of three dimensions of different sizes."""
    x = bench.randn(batch, length, width)
    orders = list(permutations(range(3)))
    kept = [order for order in orders if x.permute(order).is_contiguous()]
    bench.expect(
        "C30",
        "every order of the dimensions of a contiguous tensor is contiguous",
        len(kept) == len(orders),
        f"{len(kept)} of {len(orders)} are: {', '.join(map(str, kept))}",
    )
    permuted = x.permute(0, 2, 1)
    narrowed = permuted.narrow(1, 0, width // 4)
    bench.expect(
        "C31",
        "`x.permute(0, 2, 1)` is contiguous",
        permuted.is_contiguous(),
        f"is_contiguous() is {permuted.is_contiguous()}, strides {permuted.stride()}",
    )
    bench.expect(
        "C31",
        "narrow() behind it changes what `is_contiguous()` says",
        narrowed.is_contiguous() != permuted.is_contiguous(),
        f"is_contiguous() is {narrowed.is_contiguous()}, strides {narrowed.stride()}",
    )
    bench.count(
        "Orders of three dimensions", "orders", {"contiguous": len(kept), "not contiguous": len(orders) - len(kept)}
    )


EXPERIMENT = Experiment(
    name="what-permute-does",
    title="permute()",
    method="`is_contiguous()` of all orders of three dimensions, and of the article's `permute` and `narrow` together.",
    claims={
        "C30": Claim(
            "2.2",
            "`permute()` alone does not break contiguity; it only reorders strides.",
            "Reordered strides are what makes a tensor not contiguous. Only where all dimensions larger than 1 stay "
            "in their order does the tensor stay contiguous.",
        ),
        "C31": Claim(
            "2.2",
            "`x.permute(0, 2, 1)` is contiguous, and `.narrow(1, 0, 16)` behind it breaks that.",
            "It was not contiguous before. What `narrow` takes from it is that it is packed.",
        ),
    },
    run=run,
    cpu={"batch": 4, "length": 32, "width": 64},
)
