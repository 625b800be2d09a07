"""Packages of AOTInductor: strides are compiled in, and compared only where that is asked for."""

import pytest
import torch

import stridewise
from stridewise.checks.artefacts.check import check_export

asks = pytest.mark.skipif(
    torch.__version__ < "2.7", reason="packages of torch 2.6 have no check that could be asked for"
)


def codes(result):
    return [(finding.code, finding.severity) for finding in result.findings]


@asks
def test_a_package_reads_its_inputs_by_the_strides_it_was_made_for(package):
    result = check_export(package)
    assert result.kind == "AOTInductor package"
    assert result.versions["platform"]
    assert codes(result) == [("SW207", "error")] * 2
    first, other = result.inputs
    assert (first.name, first.strides, first.sizes) == ("input_0", (4, 1), (24, 4))
    assert (other.name, other.strides, other.sizes) == ("other", (1, 4), (4, 6))
    assert first.checks == other.checks == "only if asked"
    assert first.wrong == result.findings[0].count > 5
    assert other.wrong > 5
    assert "AOTI_RUNTIME_CHECK_INPUTS=1 it raises: RuntimeError: input_handles[0]: unmatched stride" in "".join(
        result.findings[0].evidence
    )
    assert "AOTI_RUNTIME_CHECK_INPUTS=1" in result.findings[0].advice
    assert result.guard_holds
    assert "contiguous" not in result.findings[1].advice  # it was made for columns
    assert "contiguous" in "".join(layout for case in result.cases for layout in case.layouts)


@asks
def test_a_package_that_is_loaded_tells_the_same(package):
    program = torch._inductor.aoti_load_package(package)
    result = check_export(program, torch.randn(24, 4), kwargs={"other": torch.randn(4, 6)})
    assert [row.strides for row in result.inputs] == [(4, 1), (1, 4)]  # not those of the arguments
    assert codes(result) == [("SW207", "error")] * 2
    program(torch.randn(24, 4), other=torch.randn(6, 4).t())
    result = check_export(program, torch.randn(24, 4), kwargs={"other": torch.randn(6, 4).t()})
    assert codes(result) == [("SW207", "error")] * 2  # the variable is read once: it can't be asked any more
    assert "does not tell the strides" in result.notes[0]


@asks
def test_a_package_that_checks_refuses(package, monkeypatch):
    monkeypatch.setenv("AOTI_RUNTIME_CHECK_INPUTS", "1")
    result = check_export(package)
    assert codes(result) == []
    assert [row.checks for row in result.inputs] == ["at run time"] * 2
    assert all(row.refused > 5 and row.wrong == 0 for row in result.inputs)
    assert result.guard_holds


@asks
def test_a_guarded_package_is_right(package):
    program = torch._inductor.aoti_load_package(package)
    result = check_export(package)
    x, other = torch.randn(4, 24).t(), torch.randn(4, 6)
    expected = program(x.contiguous(), other=other.t().contiguous().t())
    found = stridewise.guard_artefact(program, result)(x, other=other)
    assert torch.equal(found["rows"], expected["rows"])
    assert torch.equal(found["other"], expected["other"])
    with pytest.raises(ValueError, match=r"input 0: sizes \(24, 4\) with strides \(1, 24\)"):
        stridewise.guard_artefact(program, result, mode="raise")(x, other=other)


@asks
def test_children_leave_no_files(package, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    check_export(package)
    assert list(tmp_path.iterdir()) == []


def test_a_package_is_silently_wrong_whatever_it_tells(package):
    result = check_export(package, torch.randn(24, 4), kwargs={"other": torch.randn(6, 4).t()})
    assert codes(result) == [("SW207", "error")] * 2
    assert [row.strides for row in result.inputs] == [(4, 1), (1, 4)]
    assert result.guard_holds
