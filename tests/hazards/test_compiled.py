"""Rows about what torch.compile makes of layouts: fake kernels that promise other strides, and what was healed."""

import pytest
import torch
from torch import Tensor, nn

import stridewise
from stridewise.results.compiled import Compiled

from ..compiled import programs
from .rows import hazard

pytestmark = pytest.mark.skipif(
    not programs.EXACT, reason="which of these faults are there, and which are healed, is told of torch 2.13 and later"
)


def explained(fn, *args, **options) -> Compiled:
    options.setdefault("compare", False)
    options.setdefault("try_without", False)
    return stridewise.explain_compile(fn, *args, **options)


def named(result: Compiled) -> set[str]:
    return {finding.code for finding in result.findings if finding.severity != "note"}


def compiled(fn, *args):
    with torch.no_grad():
        return torch.compile(fn)(*args)


@hazard(75, code="SW504")
def test_batch_norm_promises_other_strides_than_it_gives():
    """The fake kernel keeps the strides of its input, the real one gives contiguous: a view behind it fails."""
    model, x = programs.NormThenView().eval(), torch.randn(2, 4, 3).transpose(1, 2)
    model(x)
    with pytest.raises(Exception, match=r"view|stride"):
        compiled(model, x)
    result = explained(model, x)
    (finding,) = result.findings
    assert (finding.code, finding.severity) == ("SW504", "error")
    assert "native_batch_norm" in finding.message
    assert "`reshape`" in str(finding.advice)

    cured = programs.NormThenReshape().eval()
    assert torch.equal(compiled(cured, x), cured(x))
    assert not named(explained(programs.NormThenView().eval(), x.contiguous()))


@hazard(76, code="SW504")
def test_a_compiled_transformer_expects_strides_that_never_come():
    """The fused encoder layer promises the strides of its input, and gives contiguous ones."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(3, 16, 5).transpose(1, 2)
    with pytest.raises(AssertionError, match="expected size"):
        compiled(layer, x)
    result = explained(layer, x)
    assert named(result) == {"SW504"}
    assert "_transformer_encoder_layer_fwd" in result.findings[0].evidence[0]

    assert not named(explained(layer, x.contiguous()))
    torch.testing.assert_close(compiled(layer, x.contiguous()), layer(x.contiguous()))


@torch.library.custom_op("hazards_compiled::promises_like", mutates_args=())
def promises_like(x: Tensor) -> Tensor:
    return (x * 2).contiguous()


@promises_like.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("hazards_compiled::promises_contiguous", mutates_args=())
def promises_contiguous(x: Tensor) -> Tensor:
    return (x * 2).contiguous()


@promises_contiguous.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@hazard(77, code="SW504")
def test_a_fake_kernel_that_promises_the_strides_of_its_input():
    """The program fails for a transposed input only, and inductor says `expected size .. stride ..`."""
    assert torch.equal(compiled(lambda x: promises_like(x) + 1, torch.ones(4, 6)), torch.full((4, 6), 3.0))
    strided = torch.randn(6, 4).t()
    with pytest.raises(AssertionError, match="expected size"):
        compiled(lambda x: promises_like(x) + 1, strided)
    assert "promises_like" in explained(lambda x: promises_like(x) + 1, strided).findings[0].message
    assert named(explained(lambda x: promises_like(x) + 1, strided)) == {"SW504"}
    assert not named(explained(lambda x: promises_contiguous(x) + 1, strided))


@hazard(78, code="SW403")
def test_opcheck_sees_a_broken_promise_only_if_its_sample_is_strided():
    """It compares strides on the CPU today, of the one sample that it is given; `check_op` brings the layouts."""
    contiguous, strided = torch.randn(4, 6), torch.randn(6, 4).t()
    torch.library.opcheck(promises_like, (contiguous,), test_utils="test_faketensor")
    with pytest.raises(Exception, match=r"[Ss]tride"):
        torch.library.opcheck(promises_like, (strided,), test_utils="test_faketensor")
    found = {finding.code: finding.severity for finding in stridewise.check_op(promises_like, contiguous).findings}
    assert found["SW403"] == "error"
    assert stridewise.check_op(promises_contiguous, contiguous).ok


@torch.library.custom_op("hazards_compiled::halved_strides", mutates_args=())
def halved_strides(x: Tensor) -> Tensor:
    """Right where all strides are scaled by one factor, as torch's own generator of strided samples makes them."""
    step = x.stride(-1) if x.dim() else 1
    flat = torch.as_strided(x, (x.numel(),), (step,), x.storage_offset())
    return (flat * 2).reshape(x.shape)


@halved_strides.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@hazard(79, code="SW401")
def test_samples_whose_strides_are_only_doubled_miss_transposed_views():
    """A kernel that passes opcheck, also for a tensor with every second element, is wrong for a view of split."""
    for sample in (torch.randn(4, 6), torch.randn(4, 12)[:, ::2]):
        torch.library.opcheck(halved_strides, (sample,))
    wide = torch.arange(24.0).reshape(4, 6)
    assert not torch.equal(halved_strides(wide[:, :3]), wide[:, :3] * 2)
    assert "SW401" in {finding.code for finding in stridewise.check_op(halved_strides, torch.randn(4, 6)).findings}


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (torch.pixel_shuffle, lambda: (torch.randn(1, 8, 3, 3).to(memory_format=torch.channels_last), 2)),
        (lambda x: x.view(torch.int32) + 1, lambda: (torch.randn(3, 4, 2).transpose(0, 1),)),
        (lambda x: torch.empty_strided(x.shape, (1, x.shape[0])).copy_(x) * 2, lambda: (torch.randn(3, 4),)),
        (nn.functional.conv1d, lambda: (torch.randn(2, 3, 8), torch.randn(4, 2, 3).transpose(1, 2))),
    ],
    ids=["pixel_shuffle", "view of another dtype", "empty_strided", "conv1d with NLC weights"],
)
@hazard(80, code=None)
def test_fake_strides_that_were_healed(fn, make):
    """Compiled, these gave other strides or failed; they do not any more, and nothing is said of them."""
    args = make()
    result = explained(fn, *args)
    assert all(output.same for output in result.outputs)
    assert "SW504" not in named(result)


@hazard(81, code=None)
def test_gradients_of_convolutions_lie_as_in_eager_mode_on_the_cpu():
    """On CUDA the gradient of an image came back channels_last; here only strides of size 1 differ."""
    image = torch.randn(2, 4, 8, 8, requires_grad=True)
    result = explained(nn.Conv2d(4, 8, 1), image, train=True)
    names = [output.name for output in result.outputs]
    assert "gradient of `weight`" in names
    assert "gradient of `input`" in names
    assert all(output.same for output in result.outputs)
    assert any(output.eager.strides != output.compiled.strides for output in result.outputs)


@hazard(82, code=None)
def test_strides_of_size_1_are_no_difference():
    """`contiguous` and `to` give one channel other strides as channels_last; compiled or not, it is one layout."""
    image = torch.randn(2, 1, 5, 5)
    by_contiguous = image.contiguous(memory_format=torch.channels_last)
    by_to = image.to(memory_format=torch.channels_last)
    assert by_contiguous.stride() != by_to.stride()
    assert by_contiguous.is_contiguous(memory_format=torch.channels_last)
    assert by_to.is_contiguous(memory_format=torch.channels_last)
    for fn in (
        lambda x: x.contiguous(memory_format=torch.channels_last) + 1,
        lambda x: x.to(memory_format=torch.channels_last) + 1,
    ):
        assert all(output.same for output in explained(fn, image).outputs)
