"""Tensors without memory, on `meta` or fake ones: copies of theirs move nothing, and cost nothing."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import stridewise
from stridewise.results import Report

layer_norm = torch.nn.functional.layer_norm


def requested() -> None:
    torch.ones(8, 6, device="meta").t().contiguous()


def hidden() -> None:
    layer_norm(torch.ones(4, 16, 8, device="meta").transpose(1, 2), (16,))


def onto_meta() -> None:
    torch.ones(8, 6).t().to("meta", memory_format=torch.contiguous_format)
    torch.ones(6, 8, device="meta").copy_(torch.ones(8, 6).t())


def backward() -> None:
    x = torch.ones(4, 16, 8, device="meta", requires_grad=True)
    layer_norm(x.transpose(1, 2).contiguous(), (16,)).transpose(1, 2).reshape(-1).sum().backward()


def module() -> None:
    with torch.device("meta"):
        layer = torch.nn.TransformerEncoderLayer(16, 2)
        layer(torch.ones(5, 3, 16)).sum().backward()


def fake() -> None:
    with FakeTensorMode():
        layer = torch.nn.TransformerEncoderLayer(16, 2)
        layer(torch.ones(5, 3, 16)).sum().backward()
        torch.ones(8, 6).t().contiguous()


def fake_of_real() -> None:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    real = torch.ones(8, 6)
    with mode:
        (mode.from_tensor(real) @ real.t()).t().contiguous()


def symbolic() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    given = mode.from_tensor(torch.ones(8, 6), static_shapes=False)
    with mode:
        given.t().contiguous()
        layer_norm(given.t(), (8,))


def report_of(*programs) -> Report:
    with stridewise.record() as recording:
        for program in programs:
            program()
        recording.step()
    return stridewise.analyze(recording)


@pytest.mark.parametrize(
    "program", [requested, hidden, onto_meta, backward, module, fake, fake_of_real, symbolic], ids=lambda f: f.__name__
)
def test_their_copies_are_none(program):
    report = report_of(program)
    assert (report.totals.copies, report.totals.bytes_moved, report.findings, report.copies) == (0, 0, (), ())


def test_those_of_real_tensors_beside_them_are():
    real = torch.ones(8, 6)

    def copy() -> None:
        real.t().contiguous()

    report = report_of(requested, copy, fake, fake_of_real, copy)
    assert report.totals.copies == 2
    assert [finding.site.expression for finding in report.findings] == ["real.t().contiguous()"]
