"""What experiments share: layouts, counted graphs, C++ programs, and what DDP says."""

import shutil
import subprocess
import warnings

import pytest
import torch

from stridewise.lab import catalogue, cpp
from stridewise.lab.ddp import said_of_strides
from stridewise.lab.generated import graphs
from stridewise.lab.layouts import every_second, swapped


def test_layouts_hold_the_same_values():
    values = torch.randn(2, 3, 4)
    view = swapped(values, 0, 2)
    assert torch.equal(view, values)
    assert view.stride() == values.transpose(0, 2).contiguous().transpose(0, 2).stride() == (1, 2, 6)
    gapped = every_second(values)
    assert torch.equal(gapped, values)
    assert gapped.stride() == (24, 8, 2)


def test_graphs_are_counted_call_by_call_and_anew_each_time():
    x = torch.randn(3, 3)
    for _ in range(2):
        assert graphs(torch.sin, [(x,), (x,), (x.t(),)]) == [1, 1, 2]


def test_a_copy_in_front_is_one_claim():
    told = {each.claims["C88"].text for each in catalogue.experiments() if "C88" in each.claims}
    assert len(told) == 1


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler")
def test_a_program_is_built(tmp_path):
    program = tmp_path / "program"
    assert cpp.build("int main() { return 7; }", program) is None
    assert subprocess.run([program], check=False).returncode == 7
    assert cpp.build("int main() { return }", program) == "the C++ compiler does not get through it"


def test_warnings_of_strides_alone_are_kept():
    def step():
        warnings.warn("Grad strides do not match bucket view strides.", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    before = torch.is_warn_always_enabled()
    assert said_of_strides(step) == ["Grad strides do not match bucket view strides."]
    assert torch.is_warn_always_enabled() == before
