"""What merging a LoRA adapter leaves."""

from torch import Tensor, nn
from torch.nn.functional import linear

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


class Adapted(nn.Module):
    """A linear layer with an adapter beside it, as peft wraps one."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.lora_A = nn.Linear(base.in_features, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's result and the adapter's."""
        adapted: Tensor = self.base(x) + self.lora_B(self.lora_A(x))
        return adapted

    def delta(self) -> Tensor:
        """What the adapter adds to the weight."""
        return self.lora_B.weight @ self.lora_A.weight

    def merge_and_unload(self) -> nn.Linear:
        """The layer alone, which does what both did."""
        self.base.weight.data += self.delta().detach()
        return self.base


def run(bench: Bench, rows: int, width: int, rank: int) -> None:
    """Merge an adapter into a linear layer, and one into a weight that is kept as (in, out)."""
    place = bench.device.place
    x = bench.randn(rows, width)
    adapted = Adapted(nn.Linear(width, width), rank).to(place)
    adapter = adapted.lora_A.weight
    merged = Adapted(nn.Linear(width, width), rank).to(place)
    merged.load_state_dict(adapted.state_dict())
    unloaded = merged.merge_and_unload()
    turned = bench.randn(width, width)
    turned += adapted.delta().detach().T
    bench.compare(
        "A linear layer with an adapter of low rank",
        {
            "base(x) + lora_B(lora_A(x))": lambda: adapted(x),
            "the same with lora_A.weight.contiguous()": lambda: (
                adapted.base(x) + adapted.lora_B(linear(x, adapter.contiguous()))
            ),
            "merged and unloaded": lambda: unloaded(x),
        },
    )
    there, why = (
        "the model that `merge_and_unload()` returns has a `lora_A`",
        "it takes peft, which gives the model's own layers back",
    )
    bench.untested("C65", there, why)
    kept = merged.lora_A.weight
    text = "the `lora_A` that was merged is not contiguous"
    bench.expect("C65", text, not kept.is_contiguous(), f"its strides are {kept.stride()}")
    for name, weight in {"(out, in)": unloaded.weight, "(in, out)": turned}.items():
        text = f"a weight of {name} is not contiguous once the adapter is merged into it"
        bench.expect("C66", text, not weight.is_contiguous(), f"its strides are {weight.stride()}")
    bench.untested("C67", f"{there} to call it on", why)
    text = "`lora_A.weight.contiguous()` gives another tensor than the weight"
    other = adapter.contiguous() is not adapter
    bench.expect("C67", text, other, "it does" if other else "it gives the weight itself")


EXPERIMENT = Experiment(
    name="lora-merge",
    title="LoRA, merged",
    method="A linear layer with an adapter, merged and unloaded as peft does it: the product of both factors is added "
    "in place to the layer's weight, and the layer alone is given back. The code here is a stand-in for peft's.",
    claims={
        "C65": Claim(
            "3.3",
            "After `merge_and_unload()` the weight of `lora_A` is not contiguous.",
            "After it there is no `lora_A`: the model has its own layers back. Merging reads the adapter and changes "
            "nothing of it.",
        ),
        "C66": Claim(
            "3.3",
            "Merging an adapter leaves weights that are not contiguous.",
            "It adds in place, so that a weight keeps its strides, even where what is added is transposed.",
        ),
        "C67": Claim(
            "3.3",
            "`self.lora_A.weight.contiguous()` in forward mends it.",
            "After `merge_and_unload()` there is nothing to call it on. Before, it gives the weight itself back.",
        ),
    },
    run=run,
    cpu={"rows": 256, "width": 512, "rank": 8},
    cuda={"rows": 4096, "width": 4096, "rank": 16},
    quick={"rows": 64, "width": 256},
)
