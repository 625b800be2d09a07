"""The points of torch that are not all public: each is taken away, and contracts go on."""

import pytest
import torch

from stridewise.checks.contracts import expect_layout, private
from stridewise.errors import ContractError

GOOD = torch.arange(12.0).reshape(3, 4)


def test_without_the_stack_of_dispatch_modes(monkeypatch):
    monkeypatch.delattr(torch._C, "_len_torch_dispatch_stack", raising=False)
    is_watched = private.tracing_probe()
    assert is_watched() is False


def test_without_the_tracing_state(monkeypatch):
    monkeypatch.delattr(torch._C, "_get_tracing_state", raising=False)
    assert private.tracing_probe()() is False


def test_before_torch_told_export_from_compiling(monkeypatch):
    monkeypatch.delattr(torch.compiler, "is_exporting", raising=False)
    assert private.is_exporting() is False
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert private.is_exporting() is True


def test_contracts_hold_without_any_of_them(monkeypatch):
    monkeypatch.delattr(torch._C, "_len_torch_dispatch_stack", raising=False)
    monkeypatch.delattr(torch._C, "_get_tracing_state", raising=False)
    monkeypatch.delattr(torch.compiler, "is_exporting", raising=False)
    held = expect_layout(x="contiguous")(lambda x: x)
    assert held(GOOD) is GOOD
    with pytest.raises(ContractError):
        held(GOOD.t())


def test_the_points_exist_here():
    assert callable(private.dynamo_probe())
    assert private.dynamo_probe()() is False
    assert private.is_scripted() is False
    assert private.is_drawn() is False
    assert hasattr(torch._C, "_len_torch_dispatch_stack")
