"""MultiheadAttention behind the transpose of a patch embedding."""

from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def run(bench: Bench, batch: int, tokens: int, width: int) -> None:
    """In training mode, which torch's fused kernel for inference does not take."""
    attention = nn.MultiheadAttention(width, 4, batch_first=True).to(bench.device.place)
    patches = bench.randn(batch, width, tokens)
    view = patches.transpose(1, 2)
    dense = view.contiguous()

    def attend(value: Tensor) -> Tensor:
        attended: Tensor = attention(value, value, value, need_weights=False)[0]
        return attended

    times = bench.compare(
        "MultiheadAttention of one input",
        {
            "dense": lambda: attend(dense),
            "transposed": lambda: attend(view),
            "transposed, `.contiguous()` in front": lambda: attend(view.contiguous()),
        },
    )
    made = {name: len(seen.hidden) for name, seen in times.records.items()}
    bench.count("Copies that nobody asked for", "copies", made)
    bench.predict("C23", times.copies("transposed"))
    said = f"{made['transposed']}, and {made['dense']} of a dense input"
    text = "its copies are more than those of a dense input"
    bench.predict("C23", times.seen("transposed", text, made["transposed"] > made["dense"], said))
    if bench.on_gpu:
        bench.predict("C23", times.slower("transposed", than="dense"))
    else:
        bench.untested("C23", "it takes 0.5 ms more", "the figure is of a GPU; the CPU's are in the table")


EXPERIMENT = Experiment(
    name="qkv-projection",
    title="Attention behind a patch embedding",
    method="One MultiheadAttention of (batch, tokens, width) that is dense, and that is the transpose of (batch, "
    "width, tokens).",
    claims={
        "C23": Claim(
            "2.2",
            "In a ViT, `x.transpose(1, 2)` in front of `MultiheadAttention` makes it copy q, k and v: 0.5 ms more.",
            "It copies them in any case, after its own projection, whatever the strides of its input were.",
        )
    },
    run=run,
    cpu={"batch": 8, "tokens": 196, "width": 192},
    cuda={"batch": 64, "tokens": 196, "width": 768},
    quick={"batch": 4, "tokens": 64, "width": 64},
)
