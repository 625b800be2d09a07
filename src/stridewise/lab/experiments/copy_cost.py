"""What one `.contiguous()` costs."""

from functools import partial

from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.results.numbers import byte_count


def run(bench: Bench, smallest: int, sizes: int, width: int) -> None:
    """Copies of transposed tensors, each four times as large as the one before."""
    tensors = [bench.randn(smallest << 2 * step, width).view(-1, width, width).transpose(1, 2) for step in range(sizes)]
    bench.compare(
        "One `.contiguous()` of a transposed tensor",
        {byte_count(4 * tensor.numel()): partial(_copied, tensor) for tensor in tensors},
    )
    why = "the article gives the time of an A100, and no size; the table has several"
    bench.untested("C89", "`.contiguous()` in front of a call takes 0.05 to 0.2 ms", why)

    view = tensors[-1]
    used = bench.compare(
        "Mean over the rows of a transposed tensor",
        {"as it is": lambda: view.mean(-1), "`.contiguous()` in front": lambda: view.contiguous().mean(-1)},
    )
    copies = {name: len(seen.copies) for name, seen in used.records.items()}
    more = copies["`.contiguous()` in front"] > copies["as it is"]
    said = f"{copies['`.contiguous()` in front']} with it, {copies['as it is']} without"
    text = "`.contiguous()` in front of a call that reads any strides adds a copy"
    bench.predict("C87", used.seen("as it is", text, more, said))


def _copied(tensor: Tensor) -> None:
    """Nothing comes back: copies of different tensors are not to be compared."""
    tensor.contiguous()


EXPERIMENT = Experiment(
    name="copy-cost",
    title="What one copy costs",
    method="Copies of transposed tensors of growing sizes, and one in front of a call that needs none.",
    claims={
        "C87": Claim(
            "4.2",
            "`contiguous()` everywhere adds copies that nothing needs.",
            "It does. Ask a recording which calls pay, and copy there.",
        ),
        "C89": Claim(
            "4.2",
            "One `contiguous()` in front of a call costs 0.05 to 0.2 ms on an A100.",
            "It costs the bytes that it reads and writes, over the memory's bandwidth: any time, by the tensor's size.",
        ),
    },
    run=run,
    cpu={"smallest": 64, "sizes": 6, "width": 64},
    cuda={"smallest": 16384, "sizes": 5, "width": 64},
    quick={"sizes": 5},
)
