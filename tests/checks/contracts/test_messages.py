"""What people read: three lines at most, with the place where the tensor left its layout; warnings at the caller."""

import warnings

import pytest
import torch
from torch import nn

import stridewise
from stridewise.checks.contracts import expect_layout
from stridewise.errors import ContractError, LayoutWarning

IMAGE = torch.zeros(2, 3, 4, 5)
CASES = {
    "contiguous, permuted": ("contiguous", IMAGE.transpose(1, 2)),
    "contiguous, a slice": ("contiguous", IMAGE[..., 1:]),
    "contiguous, expanded": ("contiguous", torch.zeros(3, 1).expand(3, 4)),
    "channels_last": ("channels_last", IMAGE),
    "channels_last, other rank": ("channels_last", IMAGE[0]),
    "channels_last_3d": ("channels_last_3d", IMAGE[None]),
    "dense, steps": ("dense", IMAGE[:, :, ::2]),
    "last_stride_1": ("last_stride_1", IMAGE[..., ::2]),
    "last_stride_1, size 1": ("last_stride_1", torch.empty_strided((4, 1), (1, 2))),
    "non_overlapping, windows": ("non_overlapping", torch.zeros(9).unfold(0, 3, 1)),
    "non_overlapping, expanded": ("non_overlapping", torch.zeros(3, 1).expand(3, 4)),
    "same_as, strides": ("same_as=other", IMAGE.to(memory_format=torch.channels_last)),
    "same_as, sizes": ("same_as=other", IMAGE[:1]),
    "a function": (torch.is_complex, IMAGE),
    "sparse": ("contiguous", torch.eye(3).to_sparse()),
}


@pytest.mark.parametrize("case", CASES)
def test_messages(case, snapshot):
    kind, tensor = CASES[case]

    @expect_layout(x=kind)
    def kernel(x, other=IMAGE):
        raise AssertionError("must not run")

    with pytest.raises(ContractError) as caught:
        kernel(tensor)
    lines = str(caught.value).splitlines()
    assert len(lines) <= 3
    assert lines == snapshot


def test_the_message_of_a_gradient(snapshot):
    @expect_layout(grads="contiguous")
    def kernel(x):
        return x * 2, x * 3

    first, second = kernel(torch.zeros(3, 4, requires_grad=True))
    with pytest.raises(ContractError) as caught:
        (first.t().contiguous().sum() + (second * torch.ones(3, 4)).sum()).backward()
    assert str(caught.value).splitlines() == snapshot


def test_the_finding():
    @expect_layout(x="contiguous")
    def kernel(x):
        return x

    with pytest.raises(ContractError) as caught:
        kernel(IMAGE.mT)
    finding = caught.value.finding
    assert finding.code == "SW408"
    assert finding.severity == "error"
    assert finding.site.file.endswith("test_messages.py")
    assert finding.site.expression == "kernel(IMAGE.mT)"
    assert finding.origin is None
    assert finding.fingerprint
    assert str(caught.value).splitlines() == [finding.message, finding.evidence[0], finding.advice]


@expect_layout(x="contiguous")
def contiguous(x):
    return x


@expect_layout(x="channels_last")
def channels_last(x):
    return x


def origin_of(call, tensor):
    with pytest.raises(ContractError) as caught:
        call(tensor)
    return caught.value


def test_a_recording_shows_where_a_tensor_left_its_layout():
    x = torch.randn(3, 4)
    with stridewise.record():
        left = (x + 1).t()
        carried = (left * 2).relu()[None]
        error = origin_of(contiguous, carried)
    assert error.finding.origin.expression == "(x + 1).t()"
    assert error.finding.origin.file.endswith("test_messages.py")
    assert f"It left that layout at {error.finding.origin.where}: `(x + 1).t()`." in str(error)
    assert len(str(error).splitlines()) == 3


def test_a_tensor_that_a_call_made_in_another_layout():
    with stridewise.record():
        image = torch.empty(2, 3, 4, 4)
        error = origin_of(channels_last, image.relu())
        assert error.finding.origin.expression == "torch.empty(2, 3, 4, 4)"
        last = image.to(memory_format=torch.channels_last)
        error = origin_of(channels_last, last.relu().contiguous().sigmoid())
    assert error.finding.origin.expression == "last.relu().contiguous()"


def test_the_first_call_that_takes_what_came_from_outside_is_named():
    class Model(nn.Module):
        def forward(self, x):
            return contiguous(x.relu())

    x = torch.randn(3, 4).t()
    with stridewise.record():
        error = origin_of(Model(), x)
    where = error.finding.site.where.rpartition(":")[0]
    assert error.finding.origin.expression.startswith(f"the input of `x.relu()` at {where}:")
    assert "Already the input of `x.relu()` at " in str(error)


def test_without_a_recording_or_a_call_that_saw_it_there_is_no_origin():
    outside = torch.randn(3, 4).t()
    with stridewise.record():
        error = origin_of(contiguous, outside)
    assert error.finding.origin is None
    assert origin_of(contiguous, outside).finding.origin is None


def test_a_look_at_the_recording_changes_nothing_in_it():
    x = torch.randn(3, 4)
    calls = []
    for look in (False, True):
        with stridewise.record() as recording:
            y = x.t()
            if look:
                origin_of(contiguous, y)
            _ = y + 1
        log = recording.trace.log
        calls.append([log.functions[call.function] for call in log.calls])
    assert calls[0] == calls[1]


def test_a_warning_stands_at_the_line_of_the_caller_and_comes_once():
    @expect_layout(x="contiguous", mode="warn")
    def kernel(x):
        return x * 2

    class Model(nn.Module):
        def forward(self, x):
            return kernel(x)  # the line

    tensor = torch.randn(3, 4).t()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert torch.equal(Model()(tensor), tensor * 2)
        Model()(torch.randn(4, 5).t())
    assert [warning.category for warning in caught] == [LayoutWarning]
    assert caught[0].filename == __file__
    with open(__file__) as file:
        assert "# the line" in file.readlines()[caught[0].lineno - 1]
    assert "needs `x` to be contiguous" in str(caught[0].message)
    with pytest.warns(LayoutWarning):
        kernel(tensor)  # another place
