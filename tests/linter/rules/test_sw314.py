"""Which views of a convolution's output raise under channels_last, and which of them SW314 finds."""

import pytest
import torch
from torch import nn

from stridewise.linter.reading import convolutions
from stridewise.linter.rules import sw314

from ..texts import findings, fixed, run

EXAMPLES = [pytest.param(example.source, id=str(at)) for at, example in enumerate(sw314.FIRES)]


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_view_raises_and_the_fix_does_not(text: str) -> None:
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        run(text)["program"]()
    mended = run(fixed(text, "SW314"))["program"]()
    assert mended.is_contiguous()
    torch.testing.assert_close(mended, run(_contiguous(text))["program"]())


@pytest.mark.parametrize("text", sw314.QUIET)
def test_quiet_examples_run(text: str) -> None:
    run(text)["program"]()


def _contiguous(text: str) -> str:
    """The example as it was written for: with nothing in channels_last."""
    for change in (".to(memory_format=torch.channels_last)", ".permute(0, 3, 1, 2)"):
        text = text.replace(change, "")
    return text.replace("torch.ones(2, 8, 8, 3)", "torch.ones(2, 3, 8, 8)")


@pytest.mark.parametrize(
    ("sizes", "raises"),
    [
        ("-1", True),
        ("n, -1", True),
        ("(n, -1)", True),
        ("x.size(0), -1", True),
        ("x.shape[0], -1", True),
        ("-1, 8 * h * w", True),
        ("n, c * h * w", True),
        ("n * c, -1", True),
        ("n * c, h, w", True),
        ("x.size(0) * x.size(1), h, w", True),
        ("1, n * c, h, w", True),
        ("n, c * h, w", True),
        ("-1, h, w", True),
        ("n, -1, w", True),
        ("n, -1, c", True),
        ("n, c, -1", False),
        ("n, c, h * w", False),
        ("n, -1, h * w", False),
        ("n, 2, c // 2, -1", False),
        ("n, 2, -1, h, w", False),
        ("1, n, c, h, w", False),
        ("n, c, h, w", False),
        ("n, c, 2, -1, w", False),
        ("*x.shape[:2], -1", False),
    ],
)
def test_it_finds_the_views_that_raise(sizes: str, raises: bool) -> None:
    text = (
        "import torch\nimport torch.nn.functional as F\n\ndef f(images, weight):\n    x = F.conv2d(images, weight)\n"
        f"    n, c, h, w = x.shape\n    return x.view({sizes})\n"
    )
    assert bool(findings(text, "SW314")) == raises
    images, weight = torch.ones(2, 3, 6, 4), torch.ones(8, 3, 1, 1)
    view = run(text)["f"]
    view(images, weight)
    images = images.to(memory_format=torch.channels_last)
    if raises:
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            view(images, weight)
    else:
        view(images, weight)


IN_2D = torch.ones(2, 4, 8, 8).to(memory_format=torch.channels_last)
IN_3D = torch.ones(2, 4, 8, 8, 8).to(memory_format=torch.channels_last_3d)
LAYERS = {
    "PReLU": (),
    "Conv2d": (4, 4, 3),
    "Conv3d": (4, 4, 3),
    "ConvTranspose2d": (4, 4, 3),
    "ConvTranspose3d": (4, 4, 3),
    "BatchNorm2d": (4,),
    "BatchNorm3d": (4,),
    "SyncBatchNorm": (4,),
    "GroupNorm": (2, 4),
    "LocalResponseNorm": (2,),
    "AdaptiveAvgPool2d": (3,),
    "AdaptiveMaxPool2d": (3,),
    "Upsample": (None, 2),
    **dict.fromkeys(("MaxPool2d", "MaxPool3d", "AvgPool2d"), (2,)),
    **dict.fromkeys(("ZeroPad2d", "ReflectionPad2d", "ReplicationPad2d"), (1,)),
}
FUNCTIONS = {
    "conv2d": (torch.ones(4, 4, 3, 3),),
    "conv_transpose2d": (torch.ones(4, 4, 3, 3),),
    "conv3d": (torch.ones(4, 4, 3, 3, 3),),
    "conv_transpose3d": (torch.ones(4, 4, 3, 3, 3),),
    "batch_norm": (torch.zeros(4), torch.ones(4)),
    "group_norm": (2,),
    "local_response_norm": (2,),
    "interpolate": (None, 2),
    **dict.fromkeys(("adaptive_avg_pool2d", "adaptive_max_pool2d"), (3,)),
    **dict.fromkeys(("max_pool2d", "max_pool3d", "avg_pool2d"), (2,)),
}


def _is_channels_last(value: torch.Tensor) -> bool:
    memory_format = torch.channels_last if value.dim() == 4 else torch.channels_last_3d
    return value.is_contiguous(memory_format=memory_format) and not value.is_contiguous()


@pytest.mark.parametrize("name", sorted({*convolutions.CONVOLUTIONS, *convolutions.KEEPERS}))
def test_layers_pass_channels_last_on(name: str) -> None:
    layer = getattr(nn, name)(*LAYERS.get(name, ())).eval()
    assert _is_channels_last(layer(IN_3D if "3d" in name else IN_2D))


@pytest.mark.parametrize("name", sorted({*convolutions.FUNCTIONAL, *convolutions.KEEPING}))
def test_functions_pass_channels_last_on(name: str) -> None:
    function = getattr(nn.functional, name)
    value = IN_3D if "3d" in name else IN_2D
    assert _is_channels_last(function(value, *FUNCTIONS.get(name, ())))


@pytest.mark.parametrize("name", sorted({*convolutions.CONVOLUTIONS}))
def test_ranks(name: str) -> None:
    layer = getattr(nn, name)(4, 4, 3)
    assert layer(IN_3D if "3d" in name else IN_2D).dim() == convolutions.CONVOLUTIONS[name]


def test_one_place_of_each_channel_is_contiguous_in_both_formats() -> None:
    pooled = nn.AdaptiveAvgPool2d(1)(IN_2D)
    assert pooled.is_contiguous()
    assert nn.functional.avg_pool2d(IN_2D, 8).view(2, -1).shape == (2, 4)


NET = """
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 5)
        self.conv2 = nn.Conv2d(width, 16, 5)
        self.norm = nn.BatchNorm2d(16)
        self.drop = nn.Dropout2d()
        self.pool = nn.MaxPool2d(2, 2)
        self.average = nn.AvgPool2d(7)
        self.one = nn.AdaptiveAvgPool2d((1, 1))
        self.patches = nn.Conv2d(3, config.width, kernel_size=config.patch, stride=config.patch)
        self.mask = nn.Conv2d(16, 1, 1)
        self.instance = nn.InstanceNorm2d(16)
        self.features = nn.Sequential(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.Sequential(nn.MaxPool2d(2)))
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 5), nn.AdaptiveAvgPool2d(1))

    def forward(self, x, y):
        {0}
"""


@pytest.mark.parametrize(
    "line",
    [
        "return self.pool(F.relu(self.conv2(self.pool(F.relu(self.conv1(x)))))).view(-1, 16 * 5 * 5)",
        "x = F.max_pool2d(F.relu(self.conv1(x)), 2); return x.view(x.size(0), -1)",
        "return self.drop(self.norm(self.conv1(x))).view(x.shape[0], -1)",
        "return (self.conv1(x) + y).relu().view(len(x), -1)",
        "return self.features(x).view(len(x), -1)",
        "return self.conv1(x).float().view(x.size(0), -1)",
    ],
)
def test_it_follows_what_passes_the_format_on(line: str) -> None:
    assert findings(NET.format(line), "SW314")


@pytest.mark.parametrize(
    "line",
    [
        "return self.one(self.conv1(x)).view(x.size(0), -1)",
        "return self.stem(x).view(x.size(0), -1)",
        "return self.average(self.conv1(x)).view(x.size(0), -1)",
        "return self.conv2(self.one(self.conv1(x))).view(x.size(0), -1)",
        "return self.conv2(x.mean((2, 3), keepdim=True)).view(x.size(0), -1)",
        "return self.conv2(self.global_pool(x)).view(x.size(0), -1)",
        "return self.patches(x).view(-1, self.width)",
        "return self.mask(x).view(x.size(0), -1)",
        "return self.instance(self.conv2(x)).view(x.size(0), -1)",
        "return self.conv1(x).contiguous().view(x.size(0), -1)",
        "return self.conv1(x).view(x.size(0), y)",
        "return self.conv1(x).view(torch.int32)",
        "return self.conv1(x).view(y)",
        "return self.conv1(x).view(-1, width)",
    ],
)
def test_it_is_quiet_where_the_view_may_be_right(line: str) -> None:
    assert findings(NET.format(line), "SW314") == ()


@pytest.mark.parametrize("cast", ["to", "float", "clone"])
def test_a_conversion_to_another_format_ends_it(cast: str) -> None:
    text = (
        "import torch\nimport torch.nn.functional as F\n\ndef f(images, weight):\n    y = F.conv2d(images, weight)\n"
        "    y = y.{0}(memory_format=torch.{1})\n    return y.view(y.size(0), -1)\n"
    )
    images = torch.ones(2, 3, 6, 4).to(memory_format=torch.channels_last)
    contiguous, kept = text.format(cast, "contiguous_format"), text.format(cast, "preserve_format")
    run(contiguous)["f"](images, torch.ones(8, 3, 1, 1))
    assert findings(contiguous, "SW314") == ()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        run(kept)["f"](images, torch.ones(8, 3, 1, 1))
    assert len(findings(kept, "SW314")) == 1


@pytest.mark.parametrize(
    "made",
    [
        "(F.conv2d(x, w) * 2)",
        "(-F.conv2d(x, w))",
        "(F.conv2d(x, w) + x[:, :1])",
        "(y := F.conv2d(x, w))",
        "(F.conv2d(x, w))",
        "(F.conv2d(x, w)\n        .relu())",
        "(  # scores\n        F.conv2d(x, w)  # of places\n    )",
        "F.conv2d(  # scores\n        x, w)\\\n        ",
    ],
)
def test_the_fix_renames_the_method_and_no_more(made: str) -> None:
    text = f"import torch\nimport torch.nn.functional as F\n\ndef f(x, w):\n    return {made}.view(x.size(0), -1)\n"
    assert fixed(text, "SW314") == text.replace(".view", ".reshape")
    contiguous, weight = torch.rand(2, 3, 6, 4), torch.rand(8, 3, 1, 1)
    images = contiguous.to(memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        run(text)["f"](images, weight)
    torch.testing.assert_close(run(fixed(text, "SW314"))["f"](images, weight), run(text)["f"](contiguous, weight))


def test_what_it_says() -> None:
    (found,) = findings(sw314.FIRES[1].source, "SW314")
    assert found.message.startswith(
        "`features.view(-1, 8 * 3 * 3)` joins the channels of what `self.features(x)` gives"
    )
    assert found.origin is not None
    assert found.origin.expression == "self.features(x)"
    assert [edit.safety for edit in found.edits] == ["unsafe"]
