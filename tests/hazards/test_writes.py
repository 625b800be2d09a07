"""Writes to memory that several indices share: what torch lets pass, and that the guard names it."""

import warnings

import pytest
import torch

from stridewise.checks.writes import guard_writes
from stridewise.errors import ContractError

from .rows import hazard


def expanded():
    return torch.arange(3.0).expand(4, 3)


def windows():
    return torch.arange(10.0).unfold(0, 4, 2)


def set_first(x):
    x[0] = 7.0


def set_at(x):
    x[torch.tensor([0, 1]), torch.tensor([0, 0])] = torch.tensor([5.0, 6.0])


WRITES = {
    "add_": lambda x: x.add_(1),
    "mul_": lambda x: x.mul_(2),
    "div_": lambda x: x.div_(x.std(1, keepdim=True)),
    "addcmul_": lambda x: x.addcmul_(torch.ones(x.shape), torch.ones(x.shape)),
    "cumsum_": lambda x: x.cumsum_(1),
    "_foreach_add_": lambda x: torch._foreach_add_([x], 1),
    "masked_fill_": lambda x: x.masked_fill_(torch.eye(*x.shape).bool(), -1),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0]), 9.0),
    "index_add_": lambda x: x.index_add_(0, torch.tensor([0]), torch.ones(1, x.shape[1])),
    "scatter_": lambda x: x.scatter_(0, torch.zeros(1, x.shape[1], dtype=torch.long), 3.0),
    "x[i, j] =": set_at,
    "x[0] =": set_first,
    "add out=": lambda x: torch.add(torch.arange(float(x.numel())).view(x.shape), 1, out=x),
    "mm out=": lambda x: torch.mm(torch.arange(4.0)[:, None], torch.arange(1.0, x.shape[1] + 1)[None], out=x),
}
REFUSED_EXPANDED = (
    *("add_", "mul_", "div_", "addcmul_", "cumsum_", "_foreach_add_", "add out="),
    *("index_add_", "scatter_", "mm out="),
)
"""torch raises for these where stride 0 is written to; the rest warn at best."""


def outcome(write, x):
    """`refused`, or whether what came of it is what comes of a clone: `right` or `wrong`."""
    expected = x.clone()
    write(expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            write(x)
        except RuntimeError:
            return "refused"
    return "right" if torch.equal(x, expected) else "wrong"


def guarded(write, x):
    """The code of what the guard says; nothing may be written."""
    before = x.clone()
    with guard_writes(), pytest.raises(ContractError) as caught:
        write(x)
    assert torch.equal(x, before)
    return caught.value.finding.code


@hazard(29, code="SW205")
@pytest.mark.parametrize("name", WRITES)
def test_overlapping_windows_are_written_without_a_word(name):
    """In place on windows of `unfold`, values run into each other; torch refuses none of these writes."""
    write = WRITES[name]
    assert outcome(write, windows()) == "wrong", "torch is healed"
    assert guarded(write, windows()) == "SW205"
    assert outcome(write, windows().clone()) == "right"


@hazard(29, 45, code="SW205")
@pytest.mark.parametrize("name", WRITES)
def test_expanded_tensors_are_refused_or_written_wrong(name):
    """In place on an expanded tensor, some writes are refused where they are made, others give wrong numbers."""
    write = WRITES[name]
    assert outcome(write, expanded()) == ("refused" if name in REFUSED_EXPANDED else "wrong"), "torch has changed"
    assert guarded(write, expanded()) == "SW205"
    assert outcome(write, expanded().clone()) == "right"


@hazard(45, code="SW205")
def test_the_guard_tells_where_it_was_expanded():
    """torch's message names neither the tensor nor the expand; both lines are needed to cure it."""
    with guard_writes():
        mask = torch.zeros(1, 4).expand(2, 4)
        with pytest.raises(ContractError) as caught:
            mask += 1
    finding = caught.value.finding
    assert finding.origin.expression == "torch.zeros(1, 4).expand(2, 4)"
    assert finding.site.line == finding.origin.line + 2
    assert "`torch.zeros(1, 4).expand(2, 4).clone()`" in finding.advice
