"""Layouts that a convolution is tried with."""

import torch

from stridewise.lab.experiments import conv_backend


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
    told = {claim: [found.came_true for name, found in bench.predictions if name == claim] for claim in ("C44", "C46")}
    assert told == {"C44": [None], "C46": [False]}
