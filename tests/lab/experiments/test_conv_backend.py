"""Layouts that a convolution is tried with."""

import pytest
import torch

from stridewise.lab.experiments import conv2d_layouts, conv_backend


def test_layouts_differ_and_values_do_not():
    dense = torch.randn(4, 6, 5, 7)
    layouts = conv_backend._layouts(dense)
    expanded = layouts.pop("expanded")
    assert torch.equal(expanded, dense[:1].repeat(4, 1, 1, 1))
    assert all(torch.equal(value, dense) for value in layouts.values())
    strides = [value.stride() for value in (*layouts.values(), expanded)]
    assert len(set(strides)) == len(strides)


def test_a_torch_that_does_not_tell(bench, monkeypatch):
    monkeypatch.delattr(torch._C, "_select_conv_backend")
    conv_backend.run(bench, batch=2, channels=3, side=8)
    assert told(bench) == {"C44": [None], "C45": [None], "C46": [False]}


def test_without_a_library_for_convolutions_strides_are_not_what_is_tested(bench, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    conv_backend.run(bench, batch=2, channels=3, side=8)
    assert told(bench) == {"C44": [None], "C45": [None, None, None], "C46": [None, None]}

    conv2d_layouts.run(bench, batch=1, channels=4, side=8)
    assert [found.came_true for claim, found in bench.predictions if claim == "C48"] == [None, None]


@pytest.mark.parametrize(
    ("strided", "expected"),
    [
        ("Mkldnn", {"C44": [False], "C45": [None, True, False], "C46": [False, False]}),
        ("Slow2d", {"C44": [True], "C45": [None, True, True], "C46": [False, True]}),
    ],
)
def test_what_is_picked_for_strided_operands_decides(bench, monkeypatch, strided, expected):
    monkeypatch.setattr(conv_backend, "_has_library", lambda _: True)
    monkeypatch.setattr(
        conv_backend,
        "_picker",
        lambda: lambda *operands: "Mkldnn" if all(each.is_contiguous() for each in operands) else strided,
    )
    conv_backend.run(bench, batch=2, channels=3, side=8)
    assert told(bench) == expected


def test_a_library_that_is_there_and_not_picked_counts(bench, monkeypatch):
    monkeypatch.setattr(conv_backend, "_has_library", lambda _: True)
    monkeypatch.setattr(conv_backend, "_picker", lambda: lambda *_: "Slow2d")
    conv_backend.run(bench, batch=2, channels=3, side=8)
    assert told(bench) == {"C44": [False], "C45": [None, False, False], "C46": [False, False]}


def told(bench):
    found = {}
    for claim, made in bench.predictions:
        found.setdefault(claim, []).append(made.came_true)
    return dict(sorted(found.items()))
