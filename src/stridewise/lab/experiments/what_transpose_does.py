"""What transpose() and t() do to strides."""

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment


def run(bench: Bench, channels: int, height: int, width: int) -> None:
    """The feature map is (channels, height, width), all different."""
    x = bench.randn(channels, height, width)
    views = {
        "transpose": x.transpose(0, 1),
        "slice": x[:, ::2],
        "permute": x.permute(2, 0, 1),
        "narrow": x.narrow(1, 0, 2),
        "expand": x[:1].expand(channels, height, width),
        "select": x[:, 0],
    }
    born = [
        name
        for name, view in views.items()
        if not view.is_contiguous() and view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    ]
    bench.expect(
        "C19",
        "transpose, slice, permute, narrow, expand and select give tensors that are not contiguous and share memory",
        len(born) == len(views),
        f"{len(born)} of {len(views)} do",
    )
    try:
        shape = str(tuple(x.t().shape))
        same = shape == str((height, channels, width))
    except RuntimeError as error:
        shape, same = f"RuntimeError: {error}", False
    bench.expect("C20", "`x.t()` of (C, H, W) has the shape (H, C, W)", same, shape)
    swapped = x.transpose(0, 1)
    bench.expect(
        "C21",
        f"`x.transpose(0, 1)` has the strides (1, H*W, W), here {(1, height * width, width)}",
        swapped.stride() == (1, height * width, width),
        swapped.stride(),
    )
    bench.expect("C22", f"its last stride is W, here {width}", swapped.stride(-1) == width, swapped.stride(-1))
    bench.count(
        "Strides of x.transpose(0, 1)",
        "elements",
        {f"stride({at})": stride for at, stride in enumerate(swapped.stride())},
    )


EXPERIMENT = Experiment(
    name="what-transpose-does",
    title="transpose() and t()",
    method="Shapes and strides of views of a feature map (C, H, W).",
    claims={
        "C19": Claim(
            "2.2",
            "Tensors that are not contiguous are natural products of views, not faults.",
            "Most views of a part, or in another order, are not contiguous; none of them copies.",
        ),
        "C20": Claim(
            "2.2",
            "`.t()` of a (C, H, W) feature map gives (H, C, W).",
            "`.t()` takes two dimensions at most. `transpose(0, 1)` gives that shape.",
        ),
        "C21": Claim(
            "2.2",
            "The transposed feature map has the strides `(1, H*W, W)` instead of `(H*W, W, 1)`.",
            "`transpose` swaps two strides: `(W, H*W, 1)`. What the claim gives belongs to `permute(2, 0, 1)`.",
        ),
        "C22": Claim(
            "2.2",
            "It is not contiguous because its last stride is W.",
            "Its last stride is 1. It is not contiguous because its first is `W`, where `C*W` would be needed.",
        ),
    },
    run=run,
    cpu={"channels": 3, "height": 5, "width": 7},
)
