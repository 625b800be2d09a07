"""Copies in kernels that do something else too: what is said of them is right, whatever was logged beside the code."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stridewise.compiled.capture import PROVENANCE, fresh, logged, without_caches
from stridewise.compiled.logs import from_entries
from stridewise.compiled.trace_log import renumbered
from stridewise.results.compiled import Compiled, Copied

from . import fused, programs

READERS = {"run --compiled": 1, "trace --compiled": 0}
"""With the nodes that each kernel computes, and without, as TORCH_TRACE alone writes its files."""


@cache
def compiled(program: str, reader: str) -> Compiled:
    torch.manual_seed(0)
    fn, args, is_trained = fused.programs()[program]
    with without_caches({PROVENANCE: READERS[reader]}, limits=False), logged() as entries:
        result = torch.compile(fresh(fn), dynamic=program == "dynamic" or None)(*args)
        if is_trained:
            result.square().mean().backward()
    return from_entries(renumbered(entries))


def rows(result: Compiled) -> Iterator[tuple[str, Copied]]:
    for graph in result.graphs:
        for copy in graph.copied:
            yield graph.phase, copy


def copies_at(result: Compiled, text: str, phase: str = "forward") -> list[Copied]:
    """The copies of which the site is a line of the programs."""
    lines = Path(fused.__file__).read_text().splitlines()
    line = next(number for number, each in enumerate(lines, 1) if text in each)
    return [copy for of, copy in rows(result) if of == phase and copy.site is not None and copy.site.line == line]


def strides(copy: Copied) -> tuple[object, ...]:
    assert copy.read is not None
    return copy.read.strides


@pytest.mark.parametrize("program", fused.programs())
def test_readers_agree(program: str) -> None:
    """All but the words for what a call or a kernel made, which need what is logged beside the code."""

    def said(reader: str) -> list[tuple[object, ...]]:
        return [
            (
                *(phase, copy.kernel, copy.read, copy.written, copy.change, copy.bytes_moved, copy.feeds, copy.cause),
                copy.source if "result of" not in copy.source else "",
                copy.site and copy.site.line,
            )
            for phase, copy in rows(compiled(program, reader))
        ]

    one, other = map(said, READERS)
    assert one
    assert one == other


@pytest.mark.parametrize("reader", READERS)
def test_a_copy_beside_a_softmax_is_that_of_v(reader: str) -> None:
    result = compiled("windows", reader)
    _, k, v = torch.empty(32, 16, 3, 3, 16).permute(2, 0, 3, 1, 4)
    operands = {"mixed = weights @ v": v, "scores = (q * 0.25) @ k": k.transpose(-2, -1)}
    for text, operand in operands.items():
        found = copies_at(result, text)
        assert len(found) == 2  # one a block
        for copy in found:
            assert copy.read is not None
            assert copy.written is not None
            assert copy.read.sizes == tuple(operand.shape)
            assert copy.read.strides == operand.stride()
            assert copy.written.strides == operand.contiguous().stride()
            assert (copy.change, copy.feeds, copy.cause) == ("reorder", "extern_kernels.bmm", "source")
    if not all("softmax" in copy.kernel for copy in copies_at(result, "mixed = weights @ v")):
        pytest.skip(f"torch {torch.__version__} fuses others")


@pytest.mark.skipif(not programs.EXACT, reason="without the nodes of kernels sites are whole lines")
def test_the_expression_is_the_call_that_takes_the_copy() -> None:
    result = compiled("windows", "run --compiled")
    for text in ("weights @ v", "(q * 0.25) @ k.transpose(-2, -1)"):
        assert {copy.site and copy.site.expression for copy in copies_at(result, f"= {text}")} == {text}


@pytest.mark.parametrize("reader", READERS)
def test_a_backward_copies_what_comes_in_for_its_product(reader: str) -> None:
    found = copies_at(compiled("windows", reader), "mixed = weights @ v", "backward")
    gradient = torch.empty(32, 16, 3, 16).transpose(1, 2)
    assert [strides(copy) for copy in found] == [gradient.stride()] * 2


@pytest.mark.parametrize("reader", READERS)
def test_dynamic_sizes_stand_in_strides(reader: str) -> None:
    (copy,) = copies_at(compiled("dynamic", reader), "mixed = weights @ v")
    assert copy.read is not None
    windows, heads, count, width = copy.read.sizes
    assert (type(windows), heads, type(count), width) == (str, 3, str, 16)
    assert copy.read.strides == (f"144*{count}", 16, 144, 1)
    assert copy.change == "reorder"


@pytest.mark.parametrize("reader", READERS)
def test_copies_of_one_size_are_told_apart(reader: str) -> None:
    result = compiled("copies", reader)
    x: Tensor = torch.empty(16, 16, 16)
    (first,), (second,) = copies_at(result, "first = x", "inference"), copies_at(result, "second = x", "inference")
    assert first.line == second.line  # one kernel
    assert strides(first) == x.transpose(1, 2).stride()
    assert strides(second) == x.transpose(0, 1).stride()


@pytest.mark.parametrize("reader", READERS)
def test_what_is_computed_is_no_copy(reader: str) -> None:
    result = compiled("product", reader)
    assert not copies_at(result, "total = (x * 2)", "inference")
    (copy,) = copies_at(result, "return total, y", "inference")
    assert (copy.source, copy.feeds) == ("input `args[1]`", "extern_kernels.mm")
