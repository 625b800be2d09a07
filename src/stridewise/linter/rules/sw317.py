"""SW317 view-of-attention: a view of what attention gives works with some of its kernels only.

What it means
    `F.scaled_dot_product_attention(q, k, v).transpose(1, 2).view(b, s, -1)` needs the result to lie in memory as
    (batch, sequence, heads, width). The fused kernels give it the order of `q`, which is that one where `q` was made by
    `.view(b, s, h, d).transpose(1, 2)`. The math kernel gives (batch, heads, sequence, width), and the view raises.
    `nn.MultiheadAttention(batch_first=True)` lies as (sequence, batch, width) too, but for its fast path in evaluation.

Why it happens
    Which kernel runs depends on the device, the dtype, the mask, the dropout, the strides and the version of PyTorch.
    On the CPU dropout in training is enough. The line worked because of the one that ran.

How to fix it
    Write `.reshape(...)` or `.flatten(2)`: the same view where there is one, and a copy where not. Where `.view` raised
    the new line copies and goes on, so no fix is made unasked.

When to ignore it
    When there is one head, or `sdpa_kernel` fixes the kernel and the error is wanted as a check.
"""

import ast
from collections.abc import Iterator, Sequence

from stridewise.linter.facts.layers import layer_calls
from stridewise.linter.facts.value import State, Value
from stridewise.linter.module import Module
from stridewise.linter.reading.chains import renamed
from stridewise.linter.reading.permutation import order_of
from stridewise.linter.reading.sizes import view_sizes
from stridewise.linter.rule import Fires, Problem

SEVERITY = "warning"
WORDS = ("view",)
_FUNCTION, _LAYERS = "scaled_dot_product_attention", "MultiheadAttention"
_CASTS = ("to", "type_as", "float", "half", "bfloat16", "double", "detach", "dropout")
"""What keeps the order of dimensions in memory."""
_LENGTH = 16

FIRES = (
    Fires(
        """
import torch
import torch.nn.functional as F

def attend(x, dropout):
    b, s, e = x.shape
    q = x.view(b, s, 4, e // 4).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, q, q, dropout_p=dropout)
    return out.transpose(1, 2).view(b, s, e)

def program():
    torch.manual_seed(0)
    return attend(torch.ones(2, 5, 16), dropout=0.1)
""",
        fixed="""
import torch
import torch.nn.functional as F

def attend(x, dropout):
    b, s, e = x.shape
    q = x.view(b, s, 4, e // 4).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, q, q, dropout_p=dropout)
    return out.transpose(1, 2).reshape(b, s, e)

def program():
    torch.manual_seed(0)
    return attend(torch.ones(2, 5, 16), dropout=0.1)
""",
    ),
    Fires(
        """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        out, weights = self.attention(x, x, x)
        return out.view(-1, x.shape[-1])

def program():
    torch.manual_seed(0)
    return Block().train()(torch.ones(2, 5, 16))
""",
        fixed="""
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        out, weights = self.attention(x, x, x)
        return out.reshape(-1, x.shape[-1])

def program():
    torch.manual_seed(0)
    return Block().train()(torch.ones(2, 5, 16))
""",
    ),
    Fires(
        """
import torch
from torch.nn.functional import scaled_dot_product_attention

def attend(q, k, v):
    b, h, s, d = q.shape
    return scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3).to(q.dtype).view((b * s, h * d))

def program():
    q = torch.ones(2, 5, 4, 8).transpose(1, 2)
    return attend(q, q, torch.ones(2, 4, 8, 5).transpose(2, 3))
""",
        fixed="""
import torch
from torch.nn.functional import scaled_dot_product_attention

def attend(q, k, v):
    b, h, s, d = q.shape
    return scaled_dot_product_attention(q, k, v).permute(0, 2, 1, 3).to(q.dtype).reshape((b * s, h * d))

def program():
    q = torch.ones(2, 5, 4, 8).transpose(1, 2)
    return attend(q, q, torch.ones(2, 4, 8, 5).transpose(2, 3))
""",
    ),
)
QUIET = (
    """
import torch
import torch.nn.functional as F
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4)

    def forward(self, x):
        out, weights = self.attention(x, x, x)
        out = out.view(-1, x.shape[-1])
        s, b, e = x.shape
        q = x.view(s, b, 4, e // 4).transpose(1, 2)
        heads = F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
        copied = heads.transpose(1, 2).contiguous().view(s, b, e)
        split = heads.transpose(1, 2).view(s, b, 2, 2, -1)
        joined = heads.transpose(1, 2).reshape(s, b, e)
        one = q[:, :1]
        single = F.scaled_dot_product_attention(x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1))
        return out, copied, split, joined, single.transpose(1, 2).view(s, b, e)

def program():
    return Block()(torch.ones(5, 2, 16))
""",
)


_KERNELS = (
    "Fused kernels give it the order of the query; the math kernel, which runs for some masks, dropout, dtypes and "
    "strides, gives (batch, heads, sequence, width): it raises with one of the two."
)
_LAYER = (
    "With `batch_first=True` it lies as (sequence, batch, width) in training, and as (batch, sequence, width) from the "
    "fast path of evaluation: it raises with one of the two."
)


def check(module: Module) -> Iterator[Problem]:
    """Views of what attention gives that join dimensions which not every kernel lays side by side."""
    if not any(name.encode() in module.source.content for name in (_FUNCTION, _LAYERS)):
        return
    for call in module.calls("view"):
        sizes = view_sizes(call)
        if not sizes or len(sizes) > 3 or not isinstance(call.func, ast.Attribute):
            continue
        attention, order = _attention(module.value(call.func.value))
        if attention is None or not isinstance(attention.node, ast.Call):
            continue
        is_layer = attention.op == _LAYERS
        if not is_layer and not (module.name(attention.node.func) or "").startswith("torch."):
            continue
        if is_layer:
            varies = (
                len(sizes) < 3 and order in ((0, 1, 2), (1, 0, 2)) and _is_batch_first(module, call, attention.node)
            )
        else:
            varies = _kernel_matters(attention.of, order)
        if not varies:
            continue
        yield Problem(
            call,
            f"`{module.text(call)}` needs an order in memory which not every kernel gives "
            f"`{module.text(attention.node)}`. {_LAYER if is_layer else _KERNELS}",
            advice="Write `.reshape(...)` or `.flatten(...)`: the same view where there is one, else a copy.",
            edits=(renamed(module, call, "reshape"),),
            origin=attention.node,
        )


def _attention(value: Value) -> tuple[Value | None, Sequence[int] | None]:
    """The attention that gave a value, and which of its dimensions stands where; that is None if it is not sure."""
    steps: list[ast.expr] = []
    for _ in range(_LENGTH):
        if value.op in (_FUNCTION, _LAYERS):
            return value, order_of(steps, 3 if value.op == _LAYERS else 4)
        before = value.of
        if before is None:
            break
        if value.op in ("transpose", "permute", "swapaxes", "swapdims") and value.node is not None:
            steps.insert(0, value.node)
        elif value.op not in _CASTS and not (before.op == _LAYERS and _is_first(value)):
            break
        value = before
    return None, None


def _is_first(value: Value) -> bool:
    """Whether a value is the first of several: `out, weights = self.attention(x, x, x)`, or `[0]` of that."""
    at = value.node.slice if isinstance(value.node, ast.Subscript) else None
    return value.op == "element" or (isinstance(at, ast.Constant) and at.value == 0)


def _kernel_matters(query: Value | None, order: Sequence[int] | None) -> bool:
    """Whether a view that joins dimensions of attention's output, in an order, depends on the kernel.

    Not known to with one head, nor without a permutation where the query was not permuted either.
    """
    if query is None or query.op in ("unsqueeze", "index"):
        return False
    return order == (0, 2, 1, 3) or (order == (0, 1, 2, 3) and query.state is State.PERMUTED)


def _is_batch_first(module: Module, call: ast.Call, attention: ast.Call) -> bool:
    made = layer_calls(module, module.scope(call), attention.func)
    return bool(made) and all(
        any(
            each.arg == "batch_first" and isinstance(each.value, ast.Constant) and each.value.value is True
            for each in one.keywords
        )
        for one in made
    )
