"""Rows that a check of an exported program answers: strides that are compiled in, copies that vanish, branches."""

import warnings

import pytest
import torch

import stridewise
from stridewise.api import check_export

from .rows import hazard

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # of torch.export, in torch itself
    pytest.mark.filterwarnings("ignore:`torch.jit.*deprecated"),
]


def codes(result):
    return {finding.code for finding in result.findings}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A convolution for an image in its default layout: packages are built in seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        program = torch.export.export(torch.nn.Conv2d(3, 4, 3).eval(), (torch.randn(1, 3, 8, 8),))
        path = tmp_path_factory.mktemp("package") / "conv.pt2"
        return torch._inductor.aoti_compile_and_package(program, package_path=str(path))


@hazard(5, code="SW207")
def test_a_package_reads_images_of_another_memory_format_wrongly(package):
    """AOTInductor compiles strides in, and compares them only where AOTI_RUNTIME_CHECK_INPUTS=1 is set."""
    program = torch._inductor.aoti_load_package(package)
    image = torch.randn(1, 3, 8, 8)
    right, last = program(image), image.contiguous(memory_format=torch.channels_last)
    assert not torch.allclose(program(last), right, atol=0.1), "torch is healed"
    result = check_export(package, image)
    assert codes(result) == {"SW207"}
    (finding,) = result.findings
    has_check = torch.__version__ >= "2.7"
    assert ("unmatched stride value" in finding.evidence[-1]) == has_check
    assert "`input_0.contiguous()`" in finding.advice
    assert torch.equal(program(last.contiguous()), right)
    assert torch.equal(stridewise.guard_artefact(program, result)(last), right)
    assert result.guard_holds


class Flat(torch.nn.Module):
    def forward(self, x):
        return 2 * x.contiguous().view(-1)


@hazard(73, code="SW506")
def test_export_drops_a_contiguous_that_did_nothing():
    """The program is for the layout of the example: for others it raises at a view, where the source copies."""
    x, turned = torch.randn(4, 6), torch.randn(6, 4).t()
    program = torch.export.export(Flat(), (x,))
    assert Flat()(turned).shape == (24,)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        program.module()(turned)
    result = check_export(program, model=Flat())
    assert codes(result) == {"SW506"}
    assert "`contiguous()` in `return 2 * x.contiguous().view(-1)`" in result.findings[0].message

    class Cured(torch.nn.Module):
        def forward(self, x):
            return 2 * x.clone(memory_format=torch.contiguous_format).view(-1)

    cured = torch.export.export(Cured(), (x,))
    assert torch.equal(cured.module()(turned), 2 * turned.reshape(-1))
    assert codes(check_export(cured.run_decompositions(), model=Cured())) == set()


@hazard(73, code="SW506")
def test_reshape_becomes_a_view_once_it_is_decomposed():
    """`run_decompositions` writes what `reshape` was for the example."""

    class Rows(torch.nn.Module):
        def forward(self, x):
            return 2 * x.reshape(-1)

    program = torch.export.export(Rows(), (torch.randn(4, 6),))
    assert codes(check_export(program)) == set()
    assert codes(check_export(program.run_decompositions())) == {"SW506"}


class Scale(torch.nn.Module):
    def forward(self, x):
        if x.is_contiguous():
            return 2 * x
        return 3 * x


@hazard(74, code="SW208")
@pytest.mark.parametrize("how", ["export", "trace"])
def test_a_branch_on_layout_is_fixed(how):
    """torch.export and torch.jit.trace keep the side that the example took; torch.compile compiles again."""
    x, turned = torch.randn(4, 6), torch.randn(6, 4).t()
    program = torch.export.export(Scale(), (x,)) if how == "export" else torch.jit.trace(Scale(), (x,))
    call = program.module() if how == "export" else program
    assert torch.equal(call(turned), 2 * turned)
    assert torch.equal(Scale()(turned), 3 * turned)
    assert torch.equal(torch.compile(Scale(), backend="eager")(turned), 3 * turned)
    result = check_export(program, x, model=Scale())
    assert codes(result) == {"SW208"}
    assert result.findings[0].site.function == "Scale.forward"
    assert codes(check_export(torch.jit.script(Scale()), x, model=Scale())) == set()
