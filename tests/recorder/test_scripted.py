"""Calls of scripted and traced code: one call each, at its line, with the operators and operands inside."""

import warnings
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stridewise

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
STRIDED = torch.randn(2, 16, 8).transpose(1, 2)
OTHER = torch.ones(16)


class Normalised(nn.Module):
    def forward(self, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (16,)) * scale


def twice(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (16,)) + x.contiguous()


def plain(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (16,))


def fails(x: torch.Tensor) -> torch.Tensor:
    return x.view(3, 7)


def scripted(thing: object) -> Callable[..., torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(thing)


def traced(thing: object, *args: torch.Tensor) -> Callable[..., torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(thing, args)


def report_of(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> stridewise.Report:
    with stridewise.record() as recording:
        function(*args)
    return stridewise.analyze(recording)


@pytest.mark.parametrize("make", [scripted, lambda thing: traced(thing, OTHER, STRIDED)], ids=["script", "trace"])
def test_a_module_is_told_by_its_call_and_the_operator_inside(make) -> None:
    report = report_of(make(Normalised()), OTHER, STRIDED)
    (finding,) = report.findings
    operand = "input 1 of `Normalised.forward` (TorchScript), (2, 8, 16) with strides (128, 1, 8)"
    assert finding.message.startswith(f"`layer_norm` copies {operand}: it needs every normalised row in one piece")
    assert (finding.payers[0].op, finding.payers[0].operand) == ("aten::layer_norm", operand)
    assert finding.site.expression == "function(*args)"
    assert "of its own" not in (finding.advice or "")
    assert not finding.inferred
    assert "1 call of TorchScript: what runs inside has no lines, so its copies stand at the call." in report.notes


@pytest.mark.parametrize("make", [scripted, lambda thing: traced(thing, STRIDED)], ids=["script", "trace"])
def test_a_function_is_told_by_its_name(make) -> None:
    report = report_of(make(plain), STRIDED)
    assert [row.kind for row in report.copies] == ["hidden"]
    assert report.findings[0].message.startswith("`layer_norm` copies input 0 of `plain` (TorchScript), ")


def test_a_copy_that_scripted_code_asks_for_is_no_hidden_one() -> None:
    report = report_of(scripted(twice), STRIDED)
    assert sorted((row.kind, row.op) for row in report.copies) == [
        ("explicit", "aten::contiguous"),
        ("hidden", "aten::layer_norm"),
    ]


def test_the_stream_goes_through_a_scripted_call() -> None:
    function = scripted(plain)
    with stridewise.record() as recording:
        function(torch.randn(2, 16, 8).transpose(1, 2))
    (finding,) = stridewise.analyze(recording).findings
    assert finding.origin is not None
    assert finding.origin.expression == "torch.randn(2, 16, 8).transpose(1, 2)"


def test_the_result_and_the_types_are_as_before() -> None:
    before = [vars(kind)["__call__"] for kind in (torch._C.ScriptMethod, torch._C.ScriptFunction)]
    module, function = scripted(Normalised()), scripted(plain)
    expected = module(OTHER, STRIDED), function(STRIDED)
    with stridewise.record():
        found = module(scale=OTHER, x=STRIDED), function(STRIDED)
    assert all(map(torch.equal, found, expected))
    assert [vars(kind)["__call__"] for kind in (torch._C.ScriptMethod, torch._C.ScriptFunction)] == before


def test_an_error_inside_is_the_programs_and_keeps_nothing_alive() -> None:
    function = scripted(fails)
    tensor = torch.randn(2, 3)
    kept = weakref.ref(tensor)
    with stridewise.record() as recording:
        with pytest.raises(RuntimeError, match="shape") as caught:
            function(tensor)
        del tensor
        assert kept() is None
    assert caught.value.__traceback__ is not None
    assert not any("could not be logged" in note for note in stridewise.analyze(recording).notes)


def test_compiled_code_calls_it_as_without_a_recording() -> None:
    function = scripted(plain)
    compiled = torch.compile(lambda x: function(x) + 1, backend="eager")
    expected = compiled(STRIDED)
    with stridewise.record() as recording:
        assert torch.equal(compiled(STRIDED), expected)
    assert not any("could not be logged" in note for note in stridewise.analyze(recording).notes)


class Rows(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return plain(STRIDED)


@pytest.mark.parametrize("workers", [0, 1])
def test_workers_of_a_loader_are_told_of(workers: int) -> None:
    with stridewise.record() as recording:
        list(torch.utils.data.DataLoader(Rows(), 2, num_workers=workers))
    report = stridewise.analyze(recording)
    note = "A DataLoader had workers: what they copy is not in the recording. With `num_workers=0` it is."
    assert (note in report.notes) == (workers > 0)
    assert (report.totals.copies == 0) == (workers > 0)
