"""contiguous().view() against reshape(), over shapes that programs ask for."""

from functools import partial

from torch import Tensor

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.refusal import Refused, tried


def _cases(bench: Bench, batch: int, length: int, heads: int, width: int) -> dict[str, tuple[Tensor, tuple[int, ...]]]:
    """Common strided tensors, and the shape that is made of each."""
    model = heads * width
    tokens = bench.randn(batch, length, model)
    image = bench.randn(batch, heads, width, width)
    return {
        "heads split off a packed projection": (
            bench.randn(batch, length, 3 * model).chunk(3, dim=-1)[0],
            (batch, length, heads, width),
        ),
        "heads split off every other token": (tokens[:, ::2], (batch, -1, heads, width)),
        "channels split after a transpose": (tokens.transpose(1, 2), (batch, heads, width, length)),
        "a channels_last image flattened": (image.permute(0, 2, 3, 1), (batch, width * width, heads)),
        "patches cut out of a crop": (image[..., 2:, :], (batch, heads, -1, 2, width)),
        "a mask broadcast over heads": (tokens[:, :, 0].unsqueeze(1).expand(-1, heads, -1), (batch, heads, 1, length)),
        "batch and time of a transposed sequence split": (tokens.transpose(0, 1), (length, batch, heads, width)),
        "heads merged after attention": (
            bench.randn(batch, heads, length, width).transpose(1, 2),
            (batch, length, model),
        ),
    }


def run(bench: Bench, batch: int, length: int, heads: int, width: int) -> None:
    """The article's own small tensor, then eight cases."""
    x = bench.randn(2, 3, 4).transpose(0, 1)
    small = bench.compare(
        "24 elements, copied either way",
        {"x.reshape(6, 4)": lambda: x.reshape(6, 4), "x.contiguous().view(6, 4)": lambda: x.contiguous().view(6, 4)},
    )
    bench.predict("C125", small.faster("x.contiguous().view(6, 4)", than="x.reshape(6, 4)", by=1.5))

    cases = _cases(bench, batch, length, heads, width)
    strided = {name: case for name, case in cases.items() if not case[0].is_contiguous()}
    made = {name: tried(partial(value.reshape, shape)) for name, (value, shape) in strided.items()}
    in_place = {
        name: each.data_ptr() == strided[name][0].data_ptr()
        for name, each in made.items()
        if not isinstance(each, Refused)
    }
    views = sum(in_place.values())
    split = {"reshape is a view": views, "reshape copies": len(in_place) - views}
    bench.count("Reshapes of strided tensors", "cases", split)
    bench.expect_of_all(
        "C126",
        "in no case does `contiguous().view()` copy what `reshape()` leaves in place",
        [not stays for stays in in_place.values()],
        f"it does in {views} of {len(in_place)}",
        none="`reshape` takes none of them",
    )
    packed, shape = cases["heads split off a packed projection"]
    bench.compare(
        "Heads split off a packed projection",
        {
            "x.reshape(b, s, h, d)": lambda: packed.reshape(shape),
            "x.contiguous().view(b, s, h, d)": lambda: packed.contiguous().view(shape),
        },
    )


EXPERIMENT = Experiment(
    name="contiguous-view",
    title="contiguous().view() or reshape()",
    method="Both on the article's tensor of 24 elements, where both copy, and on eight strided tensors that programs "
    "reshape; a result at the source's address is a view.",
    claims={
        "C125": Claim(
            "6.1",
            "Of a small transposed tensor `reshape` takes 1.2 µs, `contiguous().view()` 0.8.",
            "Both make the same copy; `reshape` is one call instead of two, and faster.",
        ),
        "C126": Claim(
            "6.1",
            "`contiguous().view()` is always to be preferred to `reshape()`.",
            "It copies whatever is not contiguous, `reshape()` only what it must, which is less. Where a copy is to be "
            "an error, `view()` alone makes it one.",
        ),
    },
    run=run,
    cpu={"batch": 16, "length": 256, "heads": 8, "width": 32},
    cuda={"batch": 64, "length": 1024, "heads": 16, "width": 64},
    quick={"batch": 2, "length": 32},
)
