"""Programs that are called, named, branched or broken in unusual ways: what is said of them is right all the same."""

import os
from collections import UserDict
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import stridewise
from stridewise.checks.artefacts.arguments import paths
from stridewise.checks.artefacts.judge import copies_in_line

from .models import IS_OLD


class Module(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.function = forward

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def skips(x):
    """Walks by the strides that it was traced with."""
    return x.as_strided((x.shape[0], 3), (x.stride(0), 2 * x.stride(1))) * 2


class Two(nn.Module):
    def forward(self, a, b):
        return skips(a) + 3 * skips(b)


class OfDict(nn.Module):
    def forward(self, batch):
        return skips(batch["a"]) + 3 * skips(batch["b"])


A, B = torch.randn(4, 6), torch.randn(6, 4).t()


def strides(result):
    return {row.name: row.strides for row in result.inputs}


def codes(result):
    return {finding.code for finding in result.findings}


def test_keywords_in_another_order_keep_their_strides():
    traced = torch.jit.trace(Two(), (A, B))
    result = stridewise.check_export(traced, kwargs={"b": B, "a": A}, model=Two())
    assert strides(result) == {"a": (6, 1), "b": (1, 4)}
    assert not any("differs from the program even" in note for note in result.notes)


def test_keys_in_another_order_keep_their_strides():
    exported = torch.export.export(OfDict(), ({"b": B, "a": A},))
    result = stridewise.check_export(exported, {"b": B, "a": A}, model=OfDict())
    assert sorted(strides(result).values()) == [(1, 4), (6, 1)]
    assert next(value for name, value in strides(result).items() if "a" in name.partition("batch")[2]) == (6, 1)


@dataclass
class Pair:
    first: Tensor
    second: Tensor


torch.export.register_dataclass(Pair, serialized_type_name="artefact_attacks.Pair")


class OfPair(nn.Module):
    def forward(self, pair):
        return pair.first * 2 + pair.second


@pytest.mark.skipif(IS_OLD, reason="torch 2.6 can't export a function of a registered dataclass")
def test_registered_containers_are_looked_into():
    given = ({"k": [A]}, UserDict(v=B), (A, None)), {"pair": Pair(A, B)}
    assert [path for path, _ in paths(given)] == ["0.k.0", "1.v", "2.0", "pair.first", "pair.second"]
    exported = torch.export.export(OfPair(), (Pair(A, B),))
    result = stridewise.check_export(exported, Pair(A, B), model=OfPair())
    assert result.ok
    assert sorted(strides(result).values()) == [(1, 4), (6, 1)]


class AtOffset(nn.Module):
    def forward(self, x):
        return x * 2 if x.storage_offset() == 0 else x * 3


class Again(nn.Module):
    def forward(self, x):
        return x.as_strided(x.shape, x.stride(), x.storage_offset()) * 2


@pytest.mark.skipif(IS_OLD, reason="torch 2.6 can't export a call of storage_offset")
@pytest.mark.parametrize("model", [AtOffset(), Again()], ids=["a branch", "as_strided"])
def test_an_offset_that_was_fixed_is_a_branch_that_was(model):
    result = stridewise.check_export(torch.export.export(model, (A,)), A, model=model)
    assert "SW208" in codes(result)
    assert "SW207" not in codes(result)
    assert not any("differs from the program even" in note for note in result.notes)


class OfAddress(nn.Module):
    def forward(self, x):
        return x * 2 if x.reshape(-1).data_ptr() == x.data_ptr() else x * 3


def test_a_branch_on_an_address_is_told():
    traced = torch.jit.trace(OfAddress(), (A,), check_trace=False)
    result = stridewise.check_export(traced, A, model=OfAddress())
    (finding,) = [finding for finding in result.findings if finding.code == "SW208"]
    assert finding.severity == "error"
    assert "data_ptr" in finding.message


def aborts(x):
    return x * 2 if x.is_contiguous() else os.abort()


def exits(x):
    return x * 2 if x.is_contiguous() else os._exit(3)


@pytest.mark.parametrize("model", [aborts, exits])
def test_a_model_that_ends_the_process_is_not_the_programs_fault(model):
    exported = torch.export.export(Module(lambda x: x * 2), (A,))
    result = stridewise.check_export(exported, A, model=model)
    assert [row.verdict for row in result.inputs] == ["honours strides"]
    assert "SW207" not in codes(result)


class ViewsAnother(nn.Module):
    def forward(self, x, y):
        y = y.contiguous()
        return x.view(-1) + y.sum()


class NeverCopies(nn.Module):
    def forward(self, x):
        if x.dim() == 9:
            x = x.contiguous()
        return x.view(-1) * 2


class InAComment(nn.Module):
    def forward(self, x):
        return x.view(-1) * 2  # not .reshape(-1)


@pytest.mark.parametrize(
    ("model", "args"),
    [(ViewsAnother(), (A, A)), (NeverCopies(), (A,)), (InAComment(), (A,))],
    ids=["another tensor", "never", "a comment"],
)
def test_a_view_that_fails_in_eager_mode_too_lost_no_copy(model, args):
    assert "SW506" not in codes(stridewise.check_export(torch.export.export(model, args), *args))


@pytest.mark.parametrize(
    ("line", "copies"),
    [
        ("return x.reshape(-1) * 2", True),
        ("return torch.relu(x.contiguous().view(-1))", True),
        ("return x.view(-1) + y.reshape(-1)", False),
        ("return x.view(-1)  # .reshape(-1)", False),
        ("if x.flatten().sum():", True),
        ("x.t().reshape(", False),
        ("", False),
    ],
)
def test_lines_that_copy(line, copies):
    assert copies_in_line(line) is copies


def test_an_error_of_the_interpreter_is_as_clear_as_what_was_raised():
    traced = torch.jit.trace(Module(lambda x: x.view(-1) * 2), (A,))
    result = stridewise.check_export(traced, A)
    (row,) = result.inputs
    assert (row.failed, row.wrong) == (0, 0)
    assert row.refused > 0


class CallsItselfS(nn.Module):
    def forward(s, x):
        return x * 2


def test_an_input_has_its_name_whatever_self_is_called():
    result = stridewise.check_export(torch.jit.script(CallsItselfS()), A)
    assert [row.name for row in result.inputs] == ["x"]


def test_what_was_not_tried_is_told_in_the_sentence():
    exported = torch.export.export(Module(lambda x: x * 2), (A,))
    result = stridewise.check_export(exported, A, time_limit=0.05)
    assert result.left
    assert "every layout" not in str(result)
