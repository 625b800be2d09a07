"""scaled_dot_product_attention of heads whose last dimension has a step."""

import torch.nn.functional as F
from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.copy_in_front import copy_in_front
from stridewise.lab.experiment import Experiment
from stridewise.lab.layouts import swapped


def run(bench: Bench, batch: int, heads: int, tokens: int, width: int) -> None:
    """The fused kernels want a last stride of 1, and nothing else of strides."""
    dense = [bench.randn(batch, heads, tokens, width) for _ in range(3)]
    split = [swapped(value, 1, 2) for value in dense]
    stepped = [swapped(value, 2, 3) for value in dense]

    def attend(values: list[Tensor]) -> Tensor:
        q, k, v = values
        return F.scaled_dot_product_attention(q, k, v)

    def copied(values: list[Tensor]) -> Tensor:
        return attend([value.contiguous() for value in values])

    times = bench.compare(
        "Attention of q, k and v in several layouts",
        {
            "dense": lambda: attend(dense),
            "split heads": lambda: attend(split),
            "split heads, `.contiguous()` in front": lambda: copied(split),
            "last stride not 1": lambda: attend(stepped),
            "last stride not 1, `.contiguous()` in front": lambda: copied(stepped),
        },
    )
    left = "_math" in _kernel(times.records["last stride not 1"].ops)
    text = "without a copy in front, attention leaves its fused kernel for a last stride that isn't 1"
    said = ", ".join(f"{name}: {_kernel(times.records[name].ops)}" for name in ("dense", "last stride not 1"))
    bench.predict("C88", times.seen("last stride not 1", text, left, said))
    bench.predict("C88", times.faster("last stride not 1, `.contiguous()` in front", than="last stride not 1"))
    bench.predict("C88", times.faster("split heads, `.contiguous()` in front", than="split heads"))


def _kernel(ops: list[str]) -> str:
    """The operator that attention was handed to."""
    inner = [op.removeprefix("aten::") for op in ops if op.startswith("aten::_scaled_dot_product")]
    return inner[0] if inner else "none"


EXPERIMENT = Experiment(
    name="sdpa-last-stride",
    title="Attention and its last stride",
    method="One attention of dense q, k and v, of split heads, and of heads whose last dimension has a step.",
    claims={
        "C88": copy_in_front(
            "`scaled_dot_product_attention` reads split heads as they are. With a last stride other than 1 it leaves "
            "its fused kernel without a word: there a copy pays.",
        )
    },
    run=run,
    cpu={"batch": 4, "heads": 8, "tokens": 256, "width": 64},
    cuda={"batch": 16, "heads": 16, "tokens": 1024, "width": 64},
    quick={"batch": 2, "heads": 4, "tokens": 256, "width": 64},
)
