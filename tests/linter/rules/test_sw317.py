"""In which order attention's kernels lay out what they give, and what SW317 makes of it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from stridewise.linter.rules import sw317

from ..texts import findings, fixed, run

EXAMPLES = [pytest.param(example.source, id=str(at)) for at, example in enumerate(sw317.FIRES)]


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_view_raises_with_another_kernel_and_the_fix_does_not(text: str) -> None:
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        run(text)["program"]()
    assert run(fixed(text, "SW317"))["program"]().is_contiguous()


@pytest.mark.parametrize("text", sw317.QUIET)
def test_quiet_examples_run(text: str) -> None:
    run(text)["program"]()


def _output(backend: SDPBackend) -> torch.Tensor:
    query = torch.ones(2, 5, 4, 8).transpose(1, 2)
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(query, query, query)


def test_the_kernels_differ() -> None:
    assert _output(SDPBackend.FLASH_ATTENTION).transpose(1, 2).is_contiguous()
    assert _output(SDPBackend.MATH).is_contiguous()


def test_dropout_takes_the_math_kernel_on_the_cpu() -> None:
    attend = run(sw317.FIRES[0].source)["attend"]
    assert attend(torch.ones(2, 5, 16), dropout=0.0).shape == (2, 5, 16)


SDPA = """
import torch
import torch.nn.functional as F

def attend(q, k, v, b, s, h, d):
    q = q.view(b, s, h, d).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, k, v)
    return {0}
"""


@pytest.mark.parametrize(
    ("expression", "depends"),
    [
        ("out.transpose(1, 2).view(b, s, -1)", True),
        ("out.transpose(1, 2).view((b, s, h * d))", True),
        ("out.transpose(-3, -2).view(b * s, -1)", True),
        ("out.permute(0, 2, 1, 3).to(torch.float64).view(b, s, h * d)", True),
        ("out.view(b * h, s, d)", True),
        ("out.view(b, -1)", True),
        ("out.transpose(1, 2).contiguous().view(b, s, -1)", False),
        ("out.transpose(1, 2).reshape(b, s, -1)", False),
        ("out.transpose(1, 2).view(b, s, h, d)", False),
        ("out.view(b, h, s, 2, -1)", False),
        ("out.transpose(1, 2).flatten(2)", False),
        ("out.permute(2, 0, 1, 3).contiguous().view(s * b, h * d)", False),
    ],
)
def test_it_finds_what_depends_on_the_kernel(expression: str, depends: bool) -> None:
    text = SDPA.format(expression)
    assert bool(findings(text, "SW317")) == depends
    raised = []
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        flat, heads = torch.ones(2, 5, 32), torch.ones(2, 5, 4, 8).transpose(1, 2)
        with sdpa_kernel(backend):
            try:
                run(text)["attend"](flat, heads, heads, 2, 5, 4, 8)
            except RuntimeError as error:
                raised.append(str(error)[:9])
    assert raised == ["view size"] * depends  # with one of the two, or with none


@pytest.mark.parametrize(
    "expression",
    [
        "F.scaled_dot_product_attention(k, k, v).view(b * h, s, d)",  # nothing is known of how `k` lies
        "F.scaled_dot_product_attention(k[:, None], k, v).transpose(1, 2).view(b, s, d)",
        "F.scaled_dot_product_attention(k.unsqueeze(1), k, v).transpose(1, 2).view(b, s, d)",
        "out.transpose(1, 2).view(torch.int32)",
        "d.scaled_dot_product_attention(q, k, v).transpose(1, 2).view(b, s, -1)",
        "F.scaled_dot_product_attention(q, k, v)[0].view(s, -1)",
    ],
)
def test_it_is_quiet_where_it_is_not_sure(expression: str) -> None:
    assert findings(SDPA.format(expression), "SW317") == ()


MHA = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2{0})

    def forward(self, x):
        {1}
"""


@pytest.mark.parametrize(
    ("options", "body", "depends"),
    [
        (", batch_first=True", "return self.attention(x, x, x)[0].view(-1, 8)", True),
        (", batch_first=True", "out, _ = self.attention(x, x, x); return out.view(len(x), -1)", True),
        (", batch_first=True", "out, _ = self.attention(x, x, x); return out.transpose(0, 1).view(-1, 8)", True),
        (", batch_first=True", "return self.attention(x, x, x)[0].view(2, 5, 8)", False),
        (", batch_first=True", "return self.attention(x, x, x)[0].view(2, 5, 2, 4)", False),
        (", batch_first=True", "_, weights = self.attention(x, x, x); return weights.view(len(x), -1)", False),
        (", batch_first=False", "return self.attention(x, x, x)[0].view(-1, 8)", False),
        ("", "return self.attention(x, x, x)[0].view(-1, 8)", False),
    ],
)
def test_multihead_attention(options: str, body: str, depends: bool) -> None:
    text = MHA.format(options, body)
    assert bool(findings(text, "SW317")) == depends
    block: nn.Module = run(text)["Block"]()
    raised = []
    for training in (True, False):
        try:
            with torch.no_grad():
                block.train(training)(torch.ones(2, 5, 8))
        except RuntimeError as error:
            raised.append(str(error)[:9])
    assert raised == ["view size"] * depends  # in training, in evaluation, or in neither


@pytest.mark.parametrize(
    "made",
    [
        "(y := F.scaled_dot_product_attention(q, q, q, dropout_p=0.1).transpose(1, 2))",
        "(F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)\n        .transpose(1, 2))",
        "F.scaled_dot_product_attention(  # heads\n        q, q, q, dropout_p=0.1).transpose(1, 2)",
    ],
)
def test_the_fix_renames_the_method_and_no_more(made: str) -> None:
    text = (
        "import torch\nimport torch.nn.functional as F\n\ndef f(x):\n    q = x.view(2, 5, 4, 4).transpose(1, 2)\n"
        f"    return {made}.view(2, 5, -1)\n"
    )
    head, _, tail = text.rpartition(".view")
    assert fixed(text, "SW317") == f"{head}.reshape{tail}"
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        run(text)["f"](torch.ones(2, 5, 16))
    assert run(fixed(text, "SW317"))["f"](torch.ones(2, 5, 16)).shape == (2, 5, 16)
