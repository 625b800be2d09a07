"""Operators that refuse strided operands: a refusal is something seen, and no end of an experiment."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch.overrides import TorchFunctionMode

from stridewise.lab import catalogue, session
from stridewise.lab.bench import Bench
from stridewise.lab.refusal import Refused, tried


class Refuse(TorchFunctionMode):
    """One function raises for operands that are not contiguous."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__ == self.name and not all(each.is_contiguous() for each in tensors((args, kwargs))):
            raise RuntimeError(f"{self.name} wants contiguous operands")
        return func(*args, **(kwargs or {}))


def tensors(given: Any) -> Iterator[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        yield given
    elif isinstance(given, (list, tuple)):
        for each in given:
            yield from tensors(each)
    elif isinstance(given, dict):
        yield from tensors(list(given.values()))


NO, PART, YES, UNTESTED = "does not hold", "holds in part", "holds", "cannot be tested here"


@pytest.mark.parametrize(
    ("name", "function", "expected"),
    [
        ("conv-accepts-strides", "conv2d", {"C42": NO}),
        ("sdpa-last-stride", "scaled_dot_product_attention", {"C88": NO}),
        ("linear-strides", "linear", {"C2": YES}),
        ("linear-bias", "linear", {"C88": NO}),
        ("attention-matmul", "matmul", {"C88": NO}),
        ("reshape-cost", "reshape", {"C92": PART, "C93": NO}),
        ("reductions-order", "softmax", {"C4": PART}),
        ("library-strides", "conv2d", {"C5": NO, "C14": YES}),
        ("collate", "stack", {"C7": NO, "C80": NO, "C81": NO}),
        ("interpolate", "interpolate", {"C41": NO, "C142": UNTESTED}),
        ("bmm-strides", "bmm", {"C59": NO, "C60": PART}),
        ("bmm-transposed", "bmm", {"C58": NO, "C88": UNTESTED}),
        ("domino", "conv2d", {"C51": NO}),
        ("residual-stream", "layer_norm", {"C24": NO}),
        ("narrow-and-crop", "conv1d", {"C32": NO, "C33": NO}),
        ("narrow-and-crop", "stack", {"C27": NO}),
        ("contiguity-condition", "conv2d", {"C3": PART, "C16": NO}),
        ("conv-backend", "conv2d", {"C46": NO}),
        ("copy-cost", "mean", {"C87": NO}),
        ("copy-once", "layer_norm", {"C91": UNTESTED}),
        ("autocast-weights", "linear", {"C61": NO, "C62": PART}),
        ("autocast-gradients", "linear", {"C64": NO}),
        ("index-select", "index_select", {"C94": PART, "C96": NO, "C97": NO}),
        ("to-device", "to", {"C98": NO, "C99": NO}),
        ("device-and-strides", "to", {"C1": NO, "C8": PART}),
        ("views-drag-storage", "stack", {"C86": PART, "C102": PART}),
        ("view-errors", "reshape", {"C122": NO, "C123": NO, "C124": NO}),
        ("contiguous-view", "reshape", {"C126": UNTESTED}),
        ("register-buffer", "mul", {"C135": YES, "C137": NO}),
        ("jit-trace", "conv2d", {"C139": NO, "C140": UNTESTED}),
        ("hook", "matmul", {"C75": NO}),
    ],
)
def test_a_refusal_is_judged(bench, name, function, expected):
    (experiment,) = catalogue.selected([name])

    def run(bench: Bench, **sizes: int) -> None:
        with Refuse(function):
            experiment.run(bench, **sizes)

    found = session.run_one(replace(experiment, run=run), bench)
    assert found.failed is None
    assert {claim.number: claim.verdict for claim in found.claims if claim.number in expected} == expected


def refuse() -> None:
    raise RuntimeError("operands must be contiguous\nException raised from check")


def test_an_arm_that_is_refused_has_no_time_and_what_was_predicted_of_it_was_not_seen(bench):
    x = torch.ones(4)
    found = bench.compare("sums", {"fine": x.sum, "refused": refuse, "other": x.sum})
    said = "`refused` raises RuntimeError: operands must be contiguous"
    made = [
        found.faster("refused", than="fine"),
        found.slower("refused", than="fine"),
        found.no_slower("refused", than="fine"),
        found.copies("refused"),
        found.copies_nothing("refused"),
        found.agree("refused"),
        found.seen("refused", "it is seen", True, "seen"),
    ]
    assert [(each.came_true, each.measured) for each in made] == [(False, said)] * len(made)
    without = found.faster("fine", than="refused")
    assert (without.came_true, without.unclear) == (None, False)
    assert without.measured.startswith(said)
    assert [arm.name for arm in found.comparison().arms] == ["fine", "other"]
    assert [(each.title, each.values) for each in bench.counted] == [("Calls that raise: sums", {"refused": 1})]


def test_the_first_arm_may_be_the_one_that_is_refused(bench):
    x = torch.ones(4)
    found = bench.compare("sums", {"refused": refuse, "fine": x.sum, "other": x.sum})
    first, other = found.comparison().arms
    assert (first.name, first.ratio, other.name) == ("fine", None, "other")
    assert other.ratio is not None
    assert found.agree("fine").came_true is None


def test_where_all_arms_are_refused_nothing_is_learnt_of_operands(bench):
    with pytest.raises(RuntimeError, match="must be contiguous"):
        bench.compare("sums", {"one": refuse, "other": refuse})


def raising(error: Exception):
    def run() -> None:
        raise error

    return run


def test_a_refusal_is_told_in_a_line():
    found = tried(raising(NotImplementedError("no  strides\nbacktrace")))
    assert isinstance(found, Refused)
    assert found.said == "raises NotImplementedError: no strides"
    assert tried(lambda: 3) == 3


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes"),
        ValueError("a defect"),
    ],
    ids=["of a GPU", "of the CPU", "a defect"],
)
def test_what_says_nothing_of_operands_goes_through(error):
    with pytest.raises(type(error)):
        tried(raising(error))
