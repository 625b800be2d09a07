"""Linear of a strided input: the bias is added in a pass of its own."""

from torch import nn

from stridewise.lab.bench import Bench
from stridewise.lab.copy_in_front import copy_in_front
from stridewise.lab.experiment import Experiment
from stridewise.lab.layouts import swapped

_PRODUCTS = ("aten::addmm", "aten::mm", "aten::bmm", "aten::baddbmm", "aten::add_", "aten::add", "aten::copy_")


def run(bench: Bench, batch: int, tokens: int, width: int) -> None:
    """A weight that can be trained and a frozen one: torch folds the batch differently for the two."""
    trained, frozen = (nn.Linear(width, width).to(bench.device.place) for _ in range(2))
    frozen.load_state_dict(trained.state_dict())
    frozen.requires_grad_(False)
    dense = bench.randn(batch, tokens, width)
    view = swapped(dense, 1, 2)
    times = bench.compare(
        "Linear of 3-D inputs",
        {
            "contiguous": lambda: trained(dense),
            "transposed": lambda: trained(view),
            "transposed, `.contiguous()` in front": lambda: trained(view.contiguous()),
            "transposed, frozen weight": lambda: frozen(view),
        },
    )
    ran = {name: [op for op in seen.ops if op in _PRODUCTS] for name, seen in times.records.items()}
    bench.count("Operators that do the work of one Linear", "operators", {name: len(ops) for name, ops in ran.items()})
    alone = any(op.startswith("aten::add") and op != "aten::addmm" for op in ran["transposed"])
    said = ", ".join(op.removeprefix("aten::") for op in ran["transposed"])
    text = "without a copy in front, the bias is added in a pass of its own"
    bench.predict("C88", times.seen("transposed", text, alone, said))
    bench.predict("C88", times.faster("transposed, `.contiguous()` in front", than="transposed"))


EXPERIMENT = Experiment(
    name="linear-bias",
    title="Linear's bias behind a transpose",
    method="One Linear of a contiguous and of a transposed 3-D input, with the operators that run for each.",
    claims={
        "C88": copy_in_front(
            "Linear adds the bias inside the product of a 3-D input only if that is contiguous; the pass that a "
            "strided one costs more is about as long as the copy that avoids it.",
        )
    },
    run=run,
    cpu={"batch": 16, "tokens": 128, "width": 256},
    cuda={"batch": 64, "tokens": 512, "width": 1024},
    quick={"batch": 4, "tokens": 128, "width": 256},
)
