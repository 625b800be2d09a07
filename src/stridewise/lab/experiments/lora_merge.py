"""What merging a LoRA adapter leaves."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import linear

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.peer import needed
from stridewise.lab.refusal import Refused, tried

_LEFT = "the model that `merge_and_unload()` returns has a `lora_A` that is not contiguous"
_STRIDED = "a weight that an adapter was merged into is not contiguous"
_CALLABLE = "the model that `merge_and_unload()` returns has a `lora_A` to call it on"
_OTHER = "in a model that is not merged, `lora_A.weight.contiguous()` gives another tensor than the weight"


def run(bench: Bench, rows: int, width: int, rank: int) -> None:
    """The arithmetic of an adapter, and a model whose layers keep their weights as (out, in) and as (in, out)."""
    x, weight = bench.randn(rows, width), bench.randn(width, width)
    a, b = bench.randn(rank, width), bench.randn(width, rank)
    merged = weight + b @ a
    bench.compare(
        "A linear layer with an adapter of low rank",
        {
            "linear(x, W) + linear(linear(x, A), B)": lambda: linear(x, weight) + linear(linear(x, a), b),
            "the same with A.contiguous()": lambda: linear(x, weight) + linear(linear(x, a.contiguous()), b),
            "linear(x, merged)": lambda: linear(x, merged),
        },
    )
    predictions = (("C65", _LEFT), ("C66", _STRIDED), ("C67", _CALLABLE), ("C67", _OTHER))
    found = needed(bench, predictions, "peft", "transformers.pytorch_utils")
    if found is None:
        return
    peft, layers = found
    _of_peft(bench, peft, nn.Sequential(nn.Linear(width, width), layers.Conv1D(width, width)), rank)


def _of_peft(bench: Bench, peft: Any, net: nn.Sequential, rank: int) -> None:
    """Adapters on both layers of a net, and their merge."""
    config = peft.LoraConfig(r=rank, target_modules=["0", "1"], init_lora_weights=False)
    adapted = peft.get_peft_model(net.to(bench.device.place), config)
    first = _adapters(adapted)
    other = [name for name, value in first.items() if value.contiguous() is not value]
    unloaded = tried(adapted.merge_and_unload)
    if isinstance(unloaded, Refused):
        for claim, text in (("C65", _LEFT), ("C66", _STRIDED), ("C67", _CALLABLE)):
            bench.expect(claim, text, False, f"merging {unloaded.said}")
    else:
        _of_merged(bench, unloaded)
    if first:
        bench.expect("C67", _OTHER, bool(other), ", ".join(other) or "it gives the weight itself")
    else:
        bench.untested("C67", _OTHER, "it has no `lora_A`")


def _of_merged(bench: Bench, unloaded: nn.Module) -> None:
    """What is left of adapters, and what has become of the weights."""
    left = _adapters(unloaded)
    said = ", ".join(f"{name}: strides {value.stride()}" for name, value in left.items()) or "it has none"
    bench.expect("C65", _LEFT, any(not value.is_contiguous() for value in left.values()), said)
    weights = {name: value for name, value in unloaded.named_parameters() if name.endswith("weight")}
    strides = ", ".join(f"{name}: strides {value.stride()}" for name, value in weights.items())
    if weights:
        bench.expect("C66", _STRIDED, any(not value.is_contiguous() for value in weights.values()), strides)
    else:
        bench.untested("C66", _STRIDED, "the model that comes back has no weight")
    bench.expect("C67", _CALLABLE, bool(left), said)


def _adapters(model: nn.Module) -> dict[str, Tensor]:
    """First factors, by name."""
    return {name: value for name, value in model.named_parameters() if "lora_A" in name}


EXPERIMENT = Experiment(
    name="lora-merge",
    title="LoRA, merged",
    method="peft's adapters on a layer that keeps its weight as (out, in) and on one that keeps it as (in, out), "
    "merged and unloaded, where peft can be imported. The arms are the arithmetic alone, without peft.",
    claims={
        "C65": Claim(
            "3.3",
            "After `merge_and_unload()` the weight of `lora_A` is not contiguous.",
            "After it there is no `lora_A`: peft 0.21 gives the model's own layers back.",
        ),
        "C66": Claim(
            "3.3",
            "Merging an adapter leaves weights that are not contiguous.",
            "peft 0.21 adds in place, so that a weight keeps its strides, even where what is added is transposed.",
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
