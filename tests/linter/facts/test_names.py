"""What names stand for by the imports of a file."""

import ast

import pytest

from stridewise.linter.names import Names

IMPORTS = """
import torch, numpy as np
import torch.nn.functional as F
import torch.distributed as dist
import os.path
from torch import nn, Tensor
from torch.nn.modules.conv import Conv2d
from torch.nn import modules
from torch.nn.parameter import Parameter as P
from torch.distributed.distributed_c10d import all_reduce
from .utils import helper
from torch.functional import einsum
try:
    from torch.special import expit
except ImportError:
    from scipy.special import expit
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("torch.cat", "torch.cat"),
        ("torch", "torch"),
        ("np.flip", "numpy.flip"),
        ("F.pad", "torch.nn.functional.pad"),
        ("nn.functional.pad", "torch.nn.functional.pad"),
        ("torch.nn.functional.pad", "torch.nn.functional.pad"),
        ("Tensor", "torch.Tensor"),
        ("Conv2d", "torch.nn.Conv2d"),
        ("modules.Linear", "torch.nn.Linear"),
        ("torch.nn.modules.linear.Linear", "torch.nn.Linear"),
        ("P", "torch.nn.Parameter"),
        ("all_reduce", "torch.distributed.all_reduce"),
        ("dist.distributed_c10d.all_reduce", "torch.distributed.all_reduce"),
        ("einsum", "torch.einsum"),
        ("expit", "torch.special.expit"),
        ("os.path.join", "os.path.join"),
        ("helper.x", ".utils.helper.x"),
        ("x.torch", None),
        ("f().cat", None),
    ],
)
def test_names(text: str, name: str | None) -> None:
    nodes = [*ast.walk(ast.parse(IMPORTS))]
    names = Names(
        (node for node in nodes if isinstance(node, ast.Import)),
        (node for node in nodes if isinstance(node, ast.ImportFrom)),
    )
    assert names.of(ast.parse(text, mode="eval").body) == name
