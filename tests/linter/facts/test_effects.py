"""What the tables say of torch's functions, against torch: each entry is run over layouts, and may claim no more."""

import ast
import gc
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from stridewise.linter.facts.effects import (
    ARRAY_FUNCTIONS,
    ARRAY_METHODS,
    ATTRIBUTES,
    CONTIGUOUS_STAYS,
    FUNCTIONS,
    IN_PLACE,
    IRREGULAR,
    METHODS,
    OF_ANYTHING,
    ORDERED,
    RELAYOUTS,
    SEVERAL,
    SOMETIMES_SEVERAL,
    Effect,
)
from stridewise.linter.facts.value import UNKNOWN

from . import samples
from .observed import (
    DTYPES,
    HOLDS,
    Seen,
    forget_inputs,
    holds_regular,
    strongest,
    surroundings,
    watch,
    watch_array,
    watch_briefly,
    watch_layout,
    watch_pretended,
)
from .reading import value_of

WEAKER = {
    **dict.fromkeys(
        ("torch.conv1d", "torch.conv2d", "torch.conv3d"),
        "a weight in channels_last makes the result so where cuDNN runs it",
    ),
    **dict.fromkeys(
        (f"torch.nn.functional.conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)),
        "a weight in channels_last makes the result so where cuDNN runs it",
    ),
    **dict.fromkeys(
        (f"torch.nn.functional.{name}pool{rank}d" for name in ("max_", "avg_", "lp_") for rank in (1, 3)),
        "kernels of other devices keep channels_last",
    ),
    **dict.fromkeys(
        (f"torch.nn.functional.adaptive_{name}_pool{rank}d" for name in ("max", "avg") for rank in (1, 3)),
        "kernels of other devices keep channels_last",
    ),
    **dict.fromkeys(
        (
            *("torch.layer_norm", "torch.nn.functional.layer_norm", "torch.nn.functional.instance_norm"),
            *("torch.nn.functional.grid_sample", "torch.nn.functional.pixel_shuffle"),
        ),
        "kernels of other devices may keep the order",
    ),
    "torch.nn.functional.scaled_dot_product_attention": "each of its kernels has an order of its own",
    "torch.nn.functional.gumbel_softmax": "a sum of tensors, that no kernel promises",
    **dict.fromkeys(
        samples.names("cat concat concatenate stack hstack vstack dstack column_stack row_stack"),
        "which of the tensors decides is promised nowhere",
    ),
    **dict.fromkeys(("torch.complex", "torch.polar", "addr", "kron", "ldexp"), "its tensors are alike"),
    **dict.fromkeys(
        ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"), "its tensors are alike"
    ),
    "torch.atleast_1d": "a tensor without dimensions gives a view",
    "torch.linalg.matrix_power": "the power 1 gives what went in",
    "cuda": "there may be no device to see it on",
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "fftn", "fftshift"), "libraries differ"),
}
"""Entries that say less than what was seen, by full or last name, and why."""


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Other tests look at the tensors that there are; one without content warns when it is looked at."""
    yield
    forget_inputs()
    gc.collect()


def _calls() -> dict[str, tuple[str, ...]]:
    """By the name of an entry (a method's starts with a dot), the expressions that show it."""
    calls: dict[str, tuple[str, ...]] = {}
    for name, each in samples.CALLS.items():
        calls[f".{name}"] = tuple(f"x.{name}({arguments})" for arguments in each)
        calls[f"torch.{name}"] = tuple(f"torch.{name}(x, {arguments})" for arguments in each)
    for name, each in samples.FUNCTIONAL.items():
        calls[f"torch.nn.functional.{name}"] = tuple(f"F.{name}(x, {arguments})" for arguments in each)
    for name, each in samples.FULL.items():
        calls[name] = tuple(f"{name}({arguments})" for arguments in each)
    return calls | samples.EXPRESSIONS


CALLS = _calls()
ENTRIES = {f".{name}": effect for name, effect in METHODS.items()} | FUNCTIONS


def _exists(entry: str) -> bool:
    """Whether this torch has it: the table knows some that others have."""
    found: object = torch.Tensor if entry.startswith(".") else torch
    for part in entry.removeprefix(".").removeprefix("torch.").split("."):
        found = getattr(found, part, None)
    return callable(found)


def _seen(entry: str) -> list[Seen]:
    last = entry.rpartition(".")[2]
    dtypes = DTYPES + tuple(getattr(torch, name) for name in samples.DTYPES.get(last, ()))
    # A function that is a method as well runs the same kernels: one dtype shows that it does.
    if entry.startswith("torch.") and f".{last}" in ENTRIES:
        dtypes = (dtypes[0], *dtypes[len(DTYPES) :])
    seen = []
    for call in CALLS[entry]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's about losses of unequal sizes, `.T` of many dimensions, ...
            found = watch(call, dtypes) or watch(call, (torch.bool, torch.complex64, torch.int64))
            seen += found
            if ENTRIES[entry] is not Effect.HOST and (entry.startswith(".") or f".{last}" not in ENTRIES):
                seen += watch_pretended(call)
        assert found, f"{call} can't be run"
    return seen


@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_an_entry_is_true_and_says_all_that_is(entry: str) -> None:
    if not _exists(entry):
        pytest.skip("this torch has none")
    effect = ENTRIES[entry]
    if entry == ".cuda":
        assert effect is ENTRIES[".cpu"]
        return
    seen = _seen(entry)
    assert HOLDS[effect](seen), f"{entry} is {strongest(seen)}"
    last = entry.rpartition(".")[2]
    assert last in IRREGULAR or holds_regular(effect, seen), f"{entry} has other strides at dimensions of size 1"
    if last in CONTIGUOUS_STAYS and effect is not Effect.LIKE:
        assert all(each.out_contiguous for each in seen if each.in_contiguous)
    if entry not in WEAKER and last not in WEAKER:
        assert strongest(seen) is effect
    else:
        assert strongest(seen) is not effect or effect is Effect.ANY, f"{entry}: its reason for less is not needed"


@pytest.mark.parametrize("arguments", samples.VARIANTS)
def test_other_arguments(arguments: str) -> None:
    """What is sure to be contiguous, whatever goes in, is so for arguments that the samples have not."""
    ran = 0
    for entry, effect in ENTRIES.items():
        if effect not in (Effect.FRESH, Effect.LIKE) or not _exists(entry):
            continue
        function = entry.replace("torch.nn.functional.", "F.")
        call = f"x{entry}({arguments})" if entry.startswith(".") else f"{function}(x, {arguments})"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen = [each for each in watch_briefly(call) if each.memory != "host"]
        value = value_of(f"last({call})", ast.unparse(ast.parse(call, mode="eval"))) if seen else UNKNOWN
        ran += bool(seen)
        assert not value.is_contiguous or all(each.out_contiguous for each in seen), call
        assert not value.regular or all(each.out_plain for each in seen), call
    assert ran


@pytest.mark.parametrize(
    "call", ["x + 1", "1 - x", "x.clamp(0, 1)", "x > 0", "x + x", "torch.maximum(x, x)", "x.type_as(x)"]
)
def test_what_stays_contiguous_whatever_the_strides_of_single_places(call: str) -> None:
    value = value_of(f"x = x.contiguous()\nlast({call})", call)
    assert value.is_contiguous
    assert not value.regular
    code = compile(call, call, "eval")
    for sizes in ((1, 2, 3), (2, 1, 3), (2, 3, 1), (2, 1, 4, 4), (1, 1, 2, 2), (3, 1, 1, 2), (1, 1), (2, 1, 1)):
        plain = torch.zeros(sizes)
        for odd in (1, 2, 5, 16):
            strides = [odd if size == 1 else stride for size, stride in zip(sizes, plain.stride(), strict=True)]
            x = torch.as_strided(plain, sizes, strides)
            assert x.is_contiguous()
            assert eval(code, {"torch": torch, "x": x}).is_contiguous()


@pytest.mark.parametrize("name", ["max", "min"])
def test_what_reduces_one_tensor_gives_new_memory(name: str) -> None:
    """Entered as what takes the larger of two; the interpreter tells the two by their arguments."""
    assert (
        strongest([seen for call in ("", "-1", "0, keepdim=True") for seen in watch(f"x.{name}({call})")])
        is Effect.FRESH
    )


@pytest.mark.parametrize("name", sorted(ORDERED - {"operator", "data", "cuda"}))
def test_what_keeps_the_memory_order(name: str) -> None:
    calls = [call for entry in ENTRIES if entry.rpartition(".")[2] == name and _exists(entry) for call in CALLS[entry]]
    # Of a bigger tensor the order is another, and so are the sizes.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kept = [each for call in calls if "big" not in call for each in watch_layout(call)]
    assert kept
    assert all(kept)


def test_what_is_no_sign_of_a_tensor() -> None:
    """Whatever else has methods of these names: one of them does not make its receiver a tensor."""
    others = (np.ndarray, np.random.Generator, str, bytes, list, dict, set, tuple, int, float, re.Pattern, Path)
    modules = (torch.nn.Module, torch.nn.ParameterList, torch.optim.Optimizer, torch.Size, torch.distributions.Normal)
    names = {name for each in (*others, *modules, torch.UntypedStorage, torch.Generator) for name in dir(each)}
    assert (METHODS.keys() | IN_PLACE) & names <= OF_ANYTHING
    assert METHODS.keys() | IN_PLACE >= OF_ANYTHING


def test_samples_are_of_entries() -> None:
    """A sample without an entry shows nothing."""
    unused = {name.rpartition(".")[2] for name in CALLS if _exists(name) and name not in ENTRIES}
    assert unused == {"requires_grad_", "numpy", "relu_", "leaky_relu_", "sigmoid_"}


def test_this_torch_has_nearly_all_of_them() -> None:
    missing = [entry for entry in ENTRIES if not _exists(entry)]
    assert len(missing) < len(ENTRIES) / 20, missing


@pytest.mark.parametrize("name", samples.ATTRIBUTES)
def test_attributes(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = watch(f"x.{name}", (torch.complex64,) if name in ("real", "imag") else DTYPES)
    assert HOLDS[ATTRIBUTES[name]](seen)
    assert strongest(seen) is ATTRIBUTES[name]


def test_what_gives_several() -> None:
    """Names in `SEVERAL` always give several tensors; others never, but for those in `SOMETIMES_SEVERAL`."""
    x = torch.rand(4, 4)
    sometimes = Counter[str]()
    for entry, calls in CALLS.items():
        last = entry.rpartition(".")[2]
        if not _exists(entry) or not any(name in entry for name in (".", "torch")):
            continue
        results = [result for call in calls for result in _some_results(call, x)]
        several = [
            isinstance(result, (tuple, list)) and last not in ("size", "stride", "tolist", "dim_order")
            for result in results
        ]
        if any(several):
            assert last in SEVERAL or last in SOMETIMES_SEVERAL, entry
            assert last not in SEVERAL or all(several), entry
            sometimes[last] += 1
    assert SEVERAL - sometimes.keys() == {"array_split", "unique_consecutive"}  # numpy's; with counts
    assert SOMETIMES_SEVERAL - sometimes.keys() <= {"where", "nonzero", "unique"}


def _some_results(call: str, x: torch.Tensor) -> list[object]:
    found = []
    for each in (x, x.reshape(2, 2, 2, 2), x.reshape(2, 2, 4), x[0]):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(eval(call, surroundings(each, False)))
        except (RuntimeError, TypeError, IndexError, ValueError, AssertionError):
            continue
    return found


def test_in_place_methods_keep_the_layout() -> None:
    """Whatever ends in an underscore leaves sizes and strides as they are, or is listed."""
    ran = set()
    for name in (name for name in dir(torch.Tensor) if name.endswith("_") and not name.startswith("_")):
        for arguments in _ARGUMENTS:
            x = torch.rand(4, 4).t()
            before = x.shape, x.stride()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = eval(f"x.{name}({arguments})", {"x": x, "torch": torch})
            except (RuntimeError, TypeError, IndexError, ValueError, AttributeError, NotImplementedError):
                continue
            ran.add(name)
            assert name in IN_PLACE | RELAYOUTS, name
            assert name in RELAYOUTS or (result is x and (x.shape, x.stride()) == before), name
    assert len(ran) > 100
    assert {name for name in RELAYOUTS if name.endswith("_")} <= ran


_ARGUMENTS = ("", "1", "x.clone()", "0, 1", "1, 1", "x > 0, 1", "x > 0, x", "x, x", "(2, 2)", "(2, 2), (1, 1)", "x, 1")


@pytest.mark.parametrize("entry", sorted(ARRAY_FUNCTIONS | ARRAY_METHODS))
def test_arrays(entry: str) -> None:
    effect = (ARRAY_FUNCTIONS | ARRAY_METHODS)[entry]
    name = entry if entry in ARRAY_FUNCTIONS else f"a.{entry}"
    with np.errstate(all="ignore"):
        seen = [
            each
            for arguments in samples.ARRAYS[entry]
            for each in watch_array(f"{name}({arguments})", flat=effect is not Effect.NEGATIVE)
        ]
    arrays = [each for each in seen if each.memory != "host"] if effect is not Effect.HOST else seen
    assert arrays
    assert HOLDS[effect](arrays)
    assert effect is Effect.LIKE or strongest(arrays) is effect
