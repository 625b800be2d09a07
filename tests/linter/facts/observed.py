"""What torch does to layout, seen by running it: the effects that are true of a sample call."""

import itertools
import types
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily

from stridewise.linter.facts.effects import Effect

SIZES = (2, 4, 6, 8)
DTYPES = (torch.float32, torch.int64)
OTHERS = {"y", "big", "mask", "row", "chan", "ids", "lin", "right"}
"""Names of samples that stand for tensors which may be strided."""
_REFUSED = object()


class Seen(NamedTuple):
    """One result of one run."""

    memory: str
    """`same`, `view`, `fresh` or `host`."""
    all_plain: bool
    """Whether each tensor that went in was contiguous, with the strides that a new tensor has.

    Those of dimensions of size 1 may differ from these. Kernels take some for channels_last then.
    """
    in_plain: bool
    """Whether the tensor was."""
    in_contiguous: bool
    out_contiguous: bool
    out_plain: bool
    in_layout: tuple[tuple[int, int], ...]
    """Its sizes and strides, size-1 dimensions left out."""
    out_layout: tuple[tuple[int, int], ...]


def layouts(rank: int, dtype: torch.dtype, device: str) -> Iterator[torch.Tensor]:
    """Tensors of a rank in all kinds of layouts."""
    sizes = SIZES[:rank]

    def new(*shape: int) -> torch.Tensor:
        if device != "cpu":
            return torch.empty(shape, dtype=dtype, device=device)
        generator = torch.Generator().manual_seed(0)
        return (torch.rand(shape, generator=generator) * 4).to(dtype)

    yield new(*sizes)
    if rank > 1:
        yield new(*reversed(sizes)).permute(*reversed(range(rank)))
        yield new(sizes[1], sizes[0], *sizes[2:]).transpose(0, 1)
        yield new(*sizes, 2)[..., 0].transpose(0, -1).contiguous().transpose(0, -1)
        yield new(1, *sizes[1:]).expand(sizes)
        yield new(1, *sizes[1:])
        yield new(sizes[0], 1, *sizes[2:])
    if rank > 2:  # the channels of an image come last
        yield new(*sizes[:-3], *sizes[-2:], sizes[-3]).movedim(-1, -3)
        yield new(*sizes[:-3], *sizes[-2:], 1).movedim(-1, -3)
    yield new(*sizes[:-1], sizes[-1] + 2)[..., 1:-1]
    yield new(*sizes[:-1], 2 * sizes[-1])[..., ::2]
    yield new(*[2 * sizes[0], *sizes[1:]])[::2]
    yield new(*[sizes[0] + 1, *sizes[1:]])[1:]


def surroundings(x: torch.Tensor, strided: bool) -> dict[str, Any]:
    """What samples name: the tensor, and others that are contiguous, or not."""
    device = x.device

    def lay(tensor: torch.Tensor) -> torch.Tensor:
        if not strided or tensor.ndim == 0:
            return tensor.to(device)
        if tensor.ndim == 1:
            return torch.stack([tensor, tensor], 1).to(device)[:, 0]
        order = [*reversed(range(tensor.ndim))]
        return tensor.permute(order).contiguous().permute(order).to(device)

    def lin(*shape: int) -> torch.Tensor:
        return lay(torch.linspace(-1, 1, int(torch.Size(shape).numel())).reshape(shape).to(x.dtype))

    return {
        "torch": torch,
        "F": torch.nn.functional,
        "x": x,
        "y": lin(*x.shape),
        "big": lin(3, *x.shape),
        "mask": lay(torch.arange(x.numel()).reshape(x.shape) % 2 == 0),
        "row": lin(x.shape[-1]),
        "chan": lin(x.shape[1] if x.ndim > 1 else 1),
        "ids": lay(torch.tensor([[0, 1, 1], [1, 0, 1]])),
        "lin": lin,
        "right": lambda t: lin(*t.shape[:-2], t.shape[-1], 3),
        "square": lambda t: (t @ t.mT + torch.eye(t.shape[-2])).mT,
        "eye": lambda t: torch.eye(t.shape[-1]).expand(*t.shape[:-2], -1, -1) * 2,
    }


def watch(call: str, dtypes: tuple[torch.dtype, ...] = DTYPES) -> list[Seen]:
    """What is seen of a call in each layout that it takes."""
    code = compile(call, call, "eval")
    with_others = not OTHERS.isdisjoint(code.co_names)
    seen: list[Seen] = []
    shown: set[torch.dtype] = set()
    for rank, dtype in itertools.product((4, 3, 2, 1), dtypes):
        if dtype in shown and dtype is not dtypes[0]:
            continue  # the same kernels, with other numbers of dimensions
        taken = False
        for at, (x, strided, names) in enumerate(_inputs(rank, dtype)):
            if at > 3 and not taken:
                break
            result = _attempt(code, names) if with_others or not strided else _REFUSED
            if result is not _REFUSED:
                taken = True
                shown.add(dtype)
                seen += _results(x, strided, result)
    return seen


def watch_briefly(call: str) -> list[Seen]:
    """The same of one dtype, with other tensors that are contiguous."""
    code = compile(call, call, "eval")
    seen: list[Seen] = []
    for rank in (4, 3, 2):
        for x, strided, names in _inputs(rank, torch.float32):
            result = _REFUSED if strided else _attempt(code, names | {"several": torch.tensor([0.1, 0.2])})
            seen += _results(x, strided, result) if result is not _REFUSED else ()
            if not seen:
                break  # the first is refused where all are
    return seen


def watch_pretended(call: str) -> list[Seen]:
    """The same, of tensors without content: on the meta device, and such as torch's compiler has for a GPU's."""
    code = compile(call, call, "eval")
    seen: list[Seen] = []
    with FakeTensorMode() as mode:
        for device, rank in itertools.product(("meta", "cuda"), (4, 3, 2, 1)):
            before = len(seen)
            for at, meta in enumerate(_meta(rank)):
                x = FakeTensor(mode, meta, torch.device("cuda", 0)) if device == "cuda" else meta
                with nullcontext() if device == "cuda" else unset_fake_temporarily():
                    result = _attempt(code, surroundings(x, False))
                if result is _REFUSED and at == 1:
                    break
                if result is not _REFUSED:
                    seen += _results(x, False, result)
            if len(seen) > before:
                break
    return seen


@cache
def _meta(rank: int) -> tuple[torch.Tensor, ...]:
    with unset_fake_temporarily():
        return tuple(layouts(rank, torch.float32, "meta"))


@cache
def _inputs(rank: int, dtype: torch.dtype) -> list[tuple[torch.Tensor, bool, dict[str, Any]]]:
    pairs = itertools.product(layouts(rank, dtype, "cpu"), (False, True))
    return [(x, strided, surroundings(x, strided)) for x, strided in pairs]


def forget_inputs() -> None:
    """Let go of all tensors that were made."""
    _meta.cache_clear()
    _inputs.cache_clear()
    FakeTensorMode.cache_clear()


def _attempt(code: types.CodeType, names: dict[str, Any]) -> Any:
    try:
        return eval(code, names)
    except (RuntimeError, TypeError, IndexError, ValueError, NotImplementedError, AssertionError, AttributeError):
        return _REFUSED


def _results(x: torch.Tensor, strided: bool, result: Any) -> Iterator[Seen]:
    for each in result if isinstance(result, (tuple, list)) and not isinstance(result, torch.Size) else [result]:
        if isinstance(each, torch.Tensor):
            if each.numel() == 0:
                continue
            memory = "same" if each is x else "view" if _shares(each, x) else "fresh"
            plain = is_plain(x)
            yield Seen(
                memory,
                plain and not strided,
                plain,
                x.is_contiguous(),
                each.is_contiguous(),
                is_plain(each),
                _layout(x),
                _layout(each),
            )
        else:
            yield Seen("host", True, True, True, True, True, (), ())


def is_plain(x: torch.Tensor) -> bool:
    """Whether a tensor has the strides that a new one of its shape has, those of dimensions of size 1 included."""
    return [*x.stride()] == [prod(x.shape[dim + 1 :]) for dim in range(x.ndim)]


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.device.type == other.device.type == "cpu":  # a storage that came by way of numpy is another object
        start = other.untyped_storage().data_ptr()
        return start <= one.data_ptr() < start + other.untyped_storage().nbytes()
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


def _layout(x: torch.Tensor) -> tuple[tuple[int, int], ...]:
    return tuple((size, stride) for size, stride in zip(x.shape, x.stride(), strict=True) if size != 1)


def _fresh(seen: list[Seen]) -> bool:
    return all(each.memory == "fresh" for each in seen)


def _view(seen: list[Seen]) -> bool:
    return all(each.memory in ("view", "same") for each in seen)


HOLDS: dict[Effect, Callable[[list[Seen]], bool]] = {
    Effect.HOST: lambda seen: all(each.memory == "host" for each in seen),
    Effect.SAME: lambda seen: all(each.memory == "same" for each in seen),
    Effect.FRESH: lambda seen: _fresh(seen) and all(each.out_contiguous for each in seen),
    Effect.FOLLOWS: lambda seen: _fresh(seen) and all(each.out_contiguous for each in seen if each.in_plain),
    Effect.LIKE: lambda seen: _fresh(seen) and all(each.out_contiguous for each in seen if each.all_plain),
    Effect.ANY: _fresh,
    Effect.RESHAPED: lambda seen: _view(seen) and all(each.out_contiguous == each.in_contiguous for each in seen),
    Effect.PERMUTED: lambda seen: (
        _view(seen) and all(sorted(each.out_layout) == sorted(each.in_layout) for each in seen)
    ),
    Effect.EXPANDED: lambda seen: _view(seen) and all(any(s == 0 for _, s in each.out_layout) for each in seen),
    Effect.NEGATIVE: lambda seen: _view(seen) and all(any(s < 0 for _, s in each.out_layout) for each in seen),
    Effect.PART: _view,
    Effect.MAYBE: lambda seen: (
        all(each.memory != "host" for each in seen)
        and len({each.memory for each in seen}) > 1
        and all(each.out_contiguous for each in seen if each.in_plain)
    ),
    Effect.TENSOR: lambda seen: all(each.memory != "host" for each in seen),
}
"""Whether an effect is true of all that was seen, the strongest first."""


def holds_regular(effect: Effect, seen: list[Seen]) -> bool:
    """Whether what an effect says is contiguous has the strides of a new tensor, at dimensions of size 1 too."""
    if effect is Effect.FRESH:
        return all(each.out_plain for each in seen)
    if effect is Effect.LIKE:
        return all(each.out_plain for each in seen if each.all_plain)
    follows = effect in (Effect.FOLLOWS, Effect.MAYBE, Effect.RESHAPED, Effect.SAME)
    return not follows or all(each.out_plain for each in seen if each.in_plain)


def strongest(seen: list[Seen]) -> Effect | None:
    return next((effect for effect, holds in HOLDS.items() if holds(seen)), None)


def watch_array(call: str, *, flat: bool = True) -> list[Seen]:
    """What is seen of numpy in a call with an array `a`; `b` is one of its shape.

    `flat` tells whether `a` may have dimensions of size 1 or stride 0.
    """
    code = compile(call, call, "eval")
    seen: list[Seen] = []
    for x in (*layouts(3, torch.float64, "cpu"), *layouts(2, torch.float64, "cpu")):
        if not flat and not {0, 1}.isdisjoint({*x.shape, *x.stride()[:-1]}):
            continue
        a, b = x.numpy(), np.linspace(0, 1, x.numel()).reshape(x.shape)
        try:
            result = eval(code, {"numpy": np, "a": a, "b": b})
        except (ValueError, TypeError):
            continue
        for each in result if isinstance(result, (tuple, list)) and "tolist" not in call else [result]:
            if isinstance(each, np.ndarray) and each.size == 0:
                continue
            if not isinstance(each, np.ndarray):
                seen.append(Seen("host", True, True, True, True, True, (), ()))
                continue
            memory = "same" if each is a else "view" if np.may_share_memory(each, a) else "fresh"
            plain = a.flags.c_contiguous
            laid = each.flags.c_contiguous
            out_plain = [*each.strides] == [prod(each.shape[dim + 1 :]) * each.itemsize for dim in range(each.ndim)]
            seen.append(Seen(memory, plain, plain, plain, laid, out_plain, _array_layout(a), _array_layout(each)))
    return seen


def _array_layout(a: np.ndarray[Any, Any]) -> tuple[tuple[int, int], ...]:
    return tuple((size, stride) for size, stride in zip(a.shape, a.strides, strict=True) if size != 1)


def watch_layout(call: str) -> Iterator[bool]:
    """Whether each result of a call has the strides of the tensor that went in, dense and permuted; others are not."""
    code = compile(call, call, "eval")
    for x in (*_inputs(4, torch.float32), *_inputs(2, torch.float32)):
        tensor, strided, names = x
        layout = _layout(tensor)
        is_dense = (
            sorted(stride for _, stride in layout)[0] == 1 and tensor.numel() == tensor.untyped_storage().nbytes() / 4
        )
        if strided or not is_dense or len(layout) < tensor.ndim:
            continue
        result = _attempt(code, names)
        for each in result if isinstance(result, tuple) else (result,):
            if isinstance(each, torch.Tensor):
                yield _layout(each) == layout
