"""Which of many layers pay for one transpose in front of them."""

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.recorded import Recorded
from stridewise.results.numbers import count

Join = Callable[[Tensor, Tensor], Tensor]


def run(bench: Bench, batch: int, tokens: int, width: int, layers: int) -> None:
    """Layers that make a new stream each, and layers that add to one stream, in both orders of the sum."""
    place = bench.device.place
    norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers)).to(place)
    works = nn.ModuleList(nn.Linear(width, width) for _ in range(layers)).to(place)
    attentions = nn.ModuleList(nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(layers)).to(place)
    view = bench.randn(batch, width, tokens).transpose(1, 2)
    dense = view.contiguous()

    def through(value: Tensor, join: Join) -> Tensor:
        for norm, work in zip(norms, works, strict=True):
            value = join(value, work(norm(value)))
        return value

    def attended(value: Tensor) -> Tensor:
        for layer in attentions:
            value = layer(value, value, value, need_weights=False)[0]
        return value

    def added(stream: Tensor, new: Tensor) -> Tensor:
        return stream + new

    chain = bench.compare(
        "Attention layers one behind the other",
        {"dense": lambda: attended(dense), "transposed": lambda: attended(view)},
        timed=False,
    )
    plain = bench.compare(
        "Layers that each make a new stream",
        {
            "dense": lambda: through(dense, lambda _, new: new),
            "transposed": lambda: through(view, lambda _, new: new),
        },
        timed=False,
    )
    residual = bench.compare(
        f"{layers} layers on one residual stream",
        {
            "dense": lambda: through(dense, added),
            "transposed, `x + f(x)`": lambda: through(view, added),
            "transposed, `f(x) + x`": lambda: through(view, lambda stream, new: new + stream),
            "transposed, `.contiguous()` in front": lambda: through(view.contiguous(), added),
        },
    )
    seen_in = {
        "attention layers": (chain, "transposed"),
        "layers that make a new stream": (plain, "transposed"),
        "residual layers, `x + f(x)`": (residual, "transposed, `x + f(x)`"),
        "residual layers, `f(x) + x`": (residual, "transposed, `f(x) + x`"),
    }
    more = {what: _more(compared.records, arm) for what, (compared, arm) in seen_in.items()}
    bench.count(f"Copies more than behind a dense tensor, of {layers} layers", "copies", more)
    each = f"each of {layers} {{}} pays for the transpose with a copy"
    for what in ("attention layers", "layers that make a new stream", "residual layers, `x + f(x)`"):
        compared, arm = seen_in[what]
        said = f"{count(more[what], 'more copy', 'more copies')} in all"
        bench.predict("C24", compared.seen(arm, each.format(what), more[what] >= layers, said))


def _more(records: Mapping[str, Recorded], arm: str) -> int:
    """The copies that nobody asked for, less those of the dense arm."""
    return len(records[arm].hidden) - len(records["dense"].hidden)


EXPERIMENT = Experiment(
    name="residual-stream",
    title="Who pays for one transpose",
    method="Many layers behind one transposed tensor; the copies that nobody asked for are counted, and those behind a "
    "dense tensor taken off.",
    claims={
        "C24": Claim(
            "2.2",
            "Every layer of a ViT pays for the transpose in front of the first: 50 ms in 100 layers.",
            "What an attention or linear layer gives is dense, so only the first one sees the view. But a residual "
            "stream `x + f(x)` keeps the strides of its first operand: there each layer_norm copies, in all layers, "
            "and one `.contiguous()` behind the transpose ends it.",
        )
    },
    run=run,
    cpu={"batch": 8, "tokens": 128, "width": 128, "layers": 24},
    cuda={"batch": 32, "tokens": 256, "width": 768, "layers": 24},
    quick={"batch": 4, "tokens": 64, "width": 64, "layers": 24},
)
