"""SW312: channels_last is there for free, its takers take it, and `contiguous` copies it away."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stridewise.linter.rules.sw312 import TAKERS

from ..texts import findings, rule_of, run
from .layouts import copies

Layer = Callable[[torch.Tensor], torch.Tensor]
MAKERS: dict[int, dict[str, Callable[[], Layer]]] = {
    4: {
        "Conv2d": lambda: nn.Conv2d(4, 4, 3),
        "ConvTranspose2d": lambda: nn.ConvTranspose2d(4, 4, 3),
        "BatchNorm2d": lambda: nn.BatchNorm2d(4),
        "GroupNorm": lambda: nn.GroupNorm(2, 4),
        "MaxPool2d": lambda: nn.MaxPool2d(2),
        "AvgPool2d": lambda: nn.AvgPool2d(2),
        "AdaptiveAvgPool2d": lambda: nn.AdaptiveAvgPool2d(2),
        "Upsample": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
        "PixelShuffle": lambda: nn.PixelShuffle(2),
        "conv2d": lambda: lambda x: F.conv2d(x, torch.ones(4, 4, 3, 3)),
        "conv_transpose2d": lambda: lambda x: F.conv_transpose2d(x, torch.ones(4, 4, 3, 3)),
        "batch_norm": lambda: lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
        "group_norm": lambda: lambda x: F.group_norm(x, 2),
        "max_pool2d": lambda: lambda x: F.max_pool2d(x, 2),
        "avg_pool2d": lambda: lambda x: F.avg_pool2d(x, 2),
        "adaptive_avg_pool2d": lambda: lambda x: F.adaptive_avg_pool2d(x, 2),
        "interpolate": lambda: lambda x: F.interpolate(x, scale_factor=2),
        "pixel_shuffle": lambda: lambda x: F.pixel_shuffle(x, 2),
    },
    5: {
        "Conv3d": lambda: nn.Conv3d(4, 4, 3),
        "ConvTranspose3d": lambda: nn.ConvTranspose3d(4, 4, 3),
        "BatchNorm3d": lambda: nn.BatchNorm3d(4),
        "GroupNorm": lambda: nn.GroupNorm(2, 4),
        "MaxPool3d": lambda: nn.MaxPool3d(2),
        "Upsample": lambda: nn.Upsample(scale_factor=2, mode="trilinear"),
        "conv3d": lambda: lambda x: F.conv3d(x, torch.ones(4, 4, 3, 3, 3)),
        "conv_transpose3d": lambda: lambda x: F.conv_transpose3d(x, torch.ones(4, 4, 3, 3, 3)),
        "batch_norm": lambda: lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
        "group_norm": lambda: lambda x: F.group_norm(x, 2),
        "max_pool3d": lambda: lambda x: F.max_pool3d(x, 2),
        "interpolate": lambda: lambda x: F.interpolate(x, scale_factor=2),
    },
}
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def batch(rank: int) -> torch.Tensor:
    return torch.rand(2, *([8] * (rank - 2)), 4).permute(0, rank - 1, *range(1, rank - 1))


@pytest.mark.parametrize("rank", TAKERS)
def test_every_taker_is_tried(rank: int) -> None:
    assert set(MAKERS[rank]) == set(TAKERS[rank])


@pytest.mark.parametrize(("rank", "name"), [(rank, name) for rank, names in TAKERS.items() for name in names])
def test_a_taker_takes_channels_last_and_gives_it(rank: int, name: str) -> None:
    layer, x = MAKERS[rank][name](), batch(rank)
    with torch.no_grad(), torch.profiler.profile(record_shapes=True) as profile:
        result = layer(x)
    copied = [event.input_shapes[0] for event in profile.events() if event.name == "aten::copy_"]
    assert list(x.shape) not in copied
    assert result.is_contiguous(memory_format=FORMATS[rank])
    assert torch.allclose(result, layer(x.contiguous()), atol=1e-5)


@pytest.mark.parametrize("example", rule_of("SW312").fires)
def test_the_copy_is_there_and_goes(example: object) -> None:
    program = run(example.source)["program"]  # type: ignore[attr-defined]
    without = run(example.source.replace(".contiguous()", ""))["program"]  # type: ignore[attr-defined]
    assert copies(program) == copies(without) + 1
    torch.manual_seed(0)
    expected = program()
    torch.manual_seed(0)
    assert torch.allclose(without(), expected, atol=1e-5)
    assert without().is_contiguous(memory_format=torch.channels_last)
    assert not program().is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "permuted",
    [
        "x.permute((0, 3, 1, 2))",
        "x.permute([0, -1, 1, 2])",
        "torch.permute(x, (0, 3, -3, -2))",
        "rearrange(x, 'b h w c -> b c h w')",
        "einops.rearrange(x, 'n y x k -> n k y x')",
    ],
)
def test_it_knows_the_ways_to_write_it(permuted: str) -> None:
    text = f"""
import einops, torch
import torch.nn.functional as F
from einops import rearrange
def program(x):
    y = {permuted}
    return F.interpolate(y.contiguous(), scale_factor=2)
"""
    (finding,) = findings(text, "SW312")
    assert [edit.safety for edit in finding.edits] == ["display"]
    assert "`F.interpolate`, which gets it, takes channels_last as it is" in finding.message


@pytest.mark.parametrize(
    "permuted",
    [
        "x.permute(0, 2, 3, 1)",
        "x.permute(3, 0, 1, 2)",
        "x.permute(dims)",
        "torch.rand(2, 8, 8, 8)[..., ::2].permute(0, 3, 1, 2)",
        "rearrange(x, 'b (h w) k c -> b c h w')",
        "rearrange(x, pattern)",
    ],
)
def test_it_is_quiet_about_other_orders(permuted: str) -> None:
    text = f"""
import torch
import torch.nn.functional as F
from einops import rearrange
def program(x, dims, pattern):
    return F.interpolate({permuted}.contiguous(), scale_factor=2)
"""
    assert findings(text, "SW312") == ()


def test_videos_are_channels_last_3d() -> None:
    text = """
import torch.nn.functional as F
def program(x):
    return F.max_pool3d(x.permute(0, 4, 1, 2, 3).contiguous(), 2)
"""
    (finding,) = findings(text, "SW312")
    assert "into NCDHW order what is channels_last_3d already, without a copy, if the NDHWC batch" in finding.message
    assert batch(5).is_contiguous(memory_format=torch.channels_last_3d)


@pytest.mark.parametrize(
    ("permuted", "layer", "shape"),
    [
        ("x.movedim(-1, 1)", "nn.Conv2d(3, 4, 3)", (2, 8, 8, 3)),
        ("x.moveaxis(-1, 1)", "nn.Conv3d(3, 4, 3)", (2, 8, 8, 8, 3)),
        ("x.transpose(1, 3).transpose(2, 3)", "nn.Conv2d(3, 4, 3)", (2, 8, 8, 3)),
        ("x.transpose(-1, 1).swapaxes(-1, -2)", "nn.Conv2d(3, 4, 3)", (2, 8, 8, 3)),
    ],
)
def test_other_ways_to_permute(permuted: str, layer: str, shape: tuple[int, ...]) -> None:
    text = f"""
import torch
from torch import nn

class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = {layer}

    def forward(self, x):
        return self.conv({permuted}.contiguous())
"""
    assert len(findings(text, "SW312")) == 1
    stem = run(text)["Stem"]()
    x = eval(permuted, {"x": torch.rand(shape)})
    assert x.is_contiguous(memory_format=FORMATS[len(shape)])
    assert stem.conv(x).is_contiguous(memory_format=FORMATS[len(shape)])
    assert torch.allclose(stem.conv(x), stem(torch.permute(x, (0, *range(2, len(shape)), 1))), atol=1e-5)


@pytest.mark.parametrize("permuted", ["x.movedim(1, -1)", "x.transpose(1, 3)", "x.transpose(2, 3).transpose(1, 3)"])
def test_other_orders_are_let_be(permuted: str) -> None:
    body = f"    return F.max_pool2d({permuted}.contiguous(), 2)\n"
    text = f"import torch\nimport torch.nn.functional as F\ndef f(x):\n{body}"
    assert findings(text, "SW312") == ()
    assert not eval(permuted, {"x": torch.rand(2, 4, 5, 3)}).is_contiguous(memory_format=torch.channels_last)


def test_what_takes_any_rank_does_not_tell_that_it_is_an_image() -> None:
    """A sequence of features has no channels_last, and its copy is one that has to be made."""
    body = "    return F.group_norm(x.movedim(-1, 1).contiguous(), 2)\n"
    text = f"import torch\nimport torch.nn.functional as F\ndef f(x):\n{body}"
    assert findings(text, "SW312") == ()
    assert run(text)["f"](torch.rand(2, 5, 4)).shape == (2, 4, 5)
