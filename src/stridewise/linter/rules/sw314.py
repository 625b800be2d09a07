"""SW314 view-of-convolution: a view joins a convolution's channels with their places.

What it means
    `x.view(x.size(0), -1)` on what a convolution gives works while that lies contiguous. In channels_last the
    channels of one place lie side by side, so no view can put all of one channel first: it raises "view size is not
    compatible with input tensor's size and stride".

Why it happens
    A convolution gives channels_last when its input or its weight is channels_last, and normalisation, activations and
    pools pass that on. The line works until somebody moves the model to channels_last, which is the first thing to try
    for speed, or feeds it a batch that was permuted from NHWC. Height and width may be joined, and channels may be
    split: `x.view(n, c, -1)` works in both formats.

How to fix it
    Write `.flatten(1)` or `.reshape(...)`: they give the same view where one can be made, and a copy where not. Where
    `.view` raised the new line copies and goes on, so no fix is made unasked.

When to ignore it
    When height and width are 1 there, or the error is wanted as a check of the layout.
"""

import ast
from collections.abc import Iterator, Sequence

from stridewise.linter.module import Module
from stridewise.linter.reading.chains import renamed
from stridewise.linter.reading.convolutions import Convolution, convolution_of
from stridewise.linter.reading.sizes import Sizes, is_product, is_rest, spelling, view_sizes
from stridewise.linter.rule import Fires, Problem

SEVERITY = "warning"
WORDS = ("view",)

FIRES = (
    Fires(
        """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 6 * 6, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.view(x.size(0), -1))

def program():
    torch.manual_seed(0)
    model = Net().eval().to(memory_format=torch.channels_last)
    return model(torch.ones(2, 3, 8, 8))
""",
        fixed="""
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 6 * 6, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(x.reshape(x.size(0), -1))

def program():
    torch.manual_seed(0)
    model = Net().eval().to(memory_format=torch.channels_last)
    return model(torch.ones(2, 3, 8, 8))
""",
    ),
    Fires(
        """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        features = self.features(x)
        return features.view(-1, 8 * 3 * 3)

def program():
    torch.manual_seed(0)
    return Net()(torch.ones(2, 8, 8, 3).permute(0, 3, 1, 2))
""",
        fixed="""
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        features = self.features(x)
        return features.reshape(-1, 8 * 3 * 3)

def program():
    torch.manual_seed(0)
    return Net()(torch.ones(2, 8, 8, 3).permute(0, 3, 1, 2))
""",
    ),
    Fires(
        """
import torch
import torch.nn.functional as F

def program():
    images, weight = torch.ones(2, 3, 8, 8).to(memory_format=torch.channels_last), torch.ones(8, 3, 1, 1)
    n, c, h, w = F.conv2d(images, weight).shape
    return F.conv2d(images, weight).view(n * c, h, w)
""",
        fixed="""
import torch
import torch.nn.functional as F

def program():
    images, weight = torch.ones(2, 3, 8, 8).to(memory_format=torch.channels_last), torch.ones(8, 3, 1, 1)
    n, c, h, w = F.conv2d(images, weight).shape
    return F.conv2d(images, weight).reshape(n * c, h, w)
""",
    ),
)
QUIET = (
    """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.mask = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        x = self.conv(x)
        n, c, h, w = x.shape
        tokens, groups = x.view(n, c, -1), x.view(n, 2, c // 2, h, w)
        mask = self.mask(x)
        scores = mask.view(n, -1)
        pooled = self.pool(x)
        return tokens, groups, scores, pooled.view(n, -1), x.flatten(1)

def program():
    return Net().to(memory_format=torch.channels_last)(torch.ones(2, 3, 8, 8))
""",
    """
import torch
from torch import nn

class Squeeze(nn.Module):
    def __init__(self):
        super().__init__()
        self.reduce = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        gate = x.mean((2, 3), keepdim=True)
        gate = self.reduce(gate)
        return gate.view(x.size(0), -1)

def program():
    return Squeeze()(torch.ones(2, 8, 4, 4).to(memory_format=torch.channels_last))
""",
)


def check(module: Module) -> Iterator[Problem]:
    """Views of what convolutions give that join channels with what is around them."""
    if b"conv" not in module.source.content.lower():
        return
    for call in module.calls("view"):
        sizes = view_sizes(call)
        if not sizes or not _may_join(sizes) or not isinstance(call.func, ast.Attribute):
            continue
        function = module.function(call)
        if function is None:
            continue
        convolution = convolution_of(module, function, module.value(call.func.value))
        if convolution is None or not _joins_channels(sizes, convolution, Sizes(function)):
            continue
        yield Problem(
            call,
            f"`{module.text(call)}` joins the channels of what `{module.text(convolution.node)}` gives with other "
            "dimensions. That raises where the model or its input is channels_last: the channels of one place then lie "
            "side by side, and no view has the order that is asked for.",
            advice="Write `.flatten(1)` or `.reshape(...)`: a view where there is one, else a copy.",
            edits=(renamed(module, call, "reshape"),),
            origin=convolution.node,
        )


def _may_join(sizes: Sequence[ast.expr]) -> bool:
    """Whether the sizes of a view may join dimensions; what it is a view of is not looked at."""
    return len(sizes) < 3 or any(is_product(size) for size in sizes) or any(is_rest(size) for size in sizes[:2])


def _joins_channels(sizes: Sequence[ast.expr], convolution: Convolution, names: Sizes) -> bool:
    """Whether a view of a convolution's output joins its channels with another dimension, for sure."""
    rank = convolution.rank
    channels = convolution.channels
    if isinstance(channels, ast.Constant) and channels.value == 1:
        return False
    if len(sizes) <= 2:
        if channels is not None and spelling(sizes[-1]) == spelling(channels):
            return False  # one place in each channel
        # Two plain sizes, as `x.view(n, c)`, are those of such a tensor too.
        return len(sizes) == 1 or any(is_rest(size) or is_product(size) for size in sizes)
    dimensions = [names.dimensions(size, rank) for size in sizes]
    if any(1 in joined and len(joined) > 1 for joined in dimensions):
        return True
    if len(sizes) != 3 or rank != 4:
        return False
    first, second, last = dimensions
    if is_rest(sizes[1]):
        return first == {0} and last in ({1}, {3})
    return is_rest(sizes[0]) and (second, last) == ({2}, {3})
