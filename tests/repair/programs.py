"""Small programs, each with a known fault and a known best edit, and traps for whoever edits without thinking."""

from typing import NamedTuple


class Known(NamedTuple):
    """A module with `make()`, and what has to be kept of it."""

    source: str
    kinds: tuple[str, ...]
    """The kinds of the edits that are kept."""
    copies: tuple[float, float] | None
    """Layout copies a step before and after."""
    added: tuple[str, ...] = ()
    """Lines that the diff adds."""
    train: bool = False


HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)
"""

FAULTS = {
    "permuted stream": Known(
        HEAD
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(4))

    def forward(self, x):
        y = x.transpose(1, 2)  # tokens last
        for norm in self.norms:
            y = y + norm(y)
        return y

def make():
    return Net(), (torch.randn(8, 64, 128),)
""",
        ("copy-at-origin",),
        (4, 1),
        ("        y = x.transpose(1, 2).contiguous()  # tokens last",),
    ),
    "operand order": Known(
        HEAD
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(4))

    def forward(self, x, scale):
        y = x.transpose(1, 2) * scale
        for norm in self.norms:
            y = y + norm(y)
        return y

def make():
    return Net(), (torch.randn(8, 64, 128), torch.randn(8, 128, 64))
""",
        ("swap-operands",),
        (4, 0),
        ("        y = scale * x.transpose(1, 2)",),
    ),
    "copied in a loop": Known(
        HEAD
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(256)

    def forward(self, x, table):
        for _ in range(5):
            x = x + self.norm(table)
        return x

def make():
    return Net(), (torch.randn(512, 256), torch.randn(256, 512).t())
""",
        ("hoist",),
        (5, 1),
        ("        table = table.contiguous()",),
    ),
    "needless copy": Known(
        HEAD
        + """
class Net(nn.Module):
    def forward(self, q, k):
        k = k.transpose(1, 2).contiguous()
        return torch.bmm(q, k)

def make():
    return Net(), (torch.randn(4, 128, 64), torch.randn(4, 128, 64))
""",
        ("drop-copy",),
        (1, 0),
    ),
    "channels_last": Known(
        HEAD
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU()
        )

    def forward(self, x):
        return self.layers(x).mean((2, 3))

def make():
    return Net().eval(), (torch.randn(2, 16, 32, 32),)
""",
        ("channels-last-model",),
        None,
        ("    return Net().eval().to(memory_format=torch.channels_last), (torch.randn(2, 16, 32, 32),)",),
    ),
    "gradient copied": Known(
        HEAD
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)

    def forward(self, x):
        return self.norm(x.transpose(1, 2)) * 2

def make():
    return Net(), (torch.randn(8, 64, 128, requires_grad=True),)
""",
        ("copy-at-origin",),
        None,
        ("        return self.norm(x.transpose(1, 2).contiguous()) * 2",),
        train=True,
    ),
}

TRAPS = {
    "a copy that a kernel needs": (
        HEAD
        + """
def first_row(x):
    # Stands for a kernel that takes a pointer: it reads memory as it lies.
    return torch.as_strided(x, (x.shape[1],), (1,), x.storage_offset()).clone()

class Net(nn.Module):
    def forward(self, x):
        y = x.t().contiguous()
        return first_row(y) + y[0]

def make():
    return Net(), (torch.randn(256, 256),)
""",
        "changes results",
    ),
    "a view that is written through": (
        HEAD
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.register_buffer("cache", torch.zeros(64, 128))

    def forward(self, x):
        view = self.cache.t()
        view[0] = x
        return self.norm(view) + self.norm(view * 2)

def make():
    return Net(), (torch.randn(64),)
""",
        "buffer `cache` is no longer written to",
    ),
    "a cost that only moves": (
        HEAD
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(64)

    def forward(self, x):
        return self.norm(x.transpose(1, 2).contiguous())

def make():
    return Net(), (torch.randn(8, 64, 128),)
""",
        "moves the cost elsewhere",
    ),
    "a function that insists on order": (
        HEAD
        + """
def doubled(x):
    if not x.is_contiguous():
        raise ValueError("x has to be contiguous")
    return x * 2

class Net(nn.Module):
    def forward(self, x):
        return doubled(x.transpose(1, 2).contiguous())

def make():
    return Net(), (torch.randn(8, 64, 128),)
""",
        "raises ValueError: x has to be contiguous",
    ),
}

HEALTHY = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

    def forward(self, x):
        return x + self.layers(x)

def make():
    return Net(), (torch.randn(8, 128, 64),)
"""
)
