"""Wrappers around C kernels, right and wrong in the ways that public reports tell of."""

import ctypes
import functools
import hashlib
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("kernels.c")


@functools.cache
def library() -> ctypes.CDLL:
    """The kernels, built once for all processes of this machine."""
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"stridewise-kernels-{name}.so"
    if not built.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "kernels.so"
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(SOURCE), "-o", str(made)], check=True)
            made.replace(built) if made.stat().st_dev == built.parent.stat().st_dev else built.write_bytes(
                made.read_bytes()
            )
    return ctypes.CDLL(str(built))


def address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def count(tensor: Tensor) -> ctypes.c_long:
    return ctypes.c_long(tensor.numel())


def sample() -> tuple[Tensor]:
    return (torch.arange(1.0, 13).reshape(3, 4),)


# ------------------------------------------------------------------------------------------------------ right ones


def copies_first(x: Tensor) -> Tensor:
    x = x.contiguous()
    y = torch.empty(x.shape)
    library().twice(address(x), address(y), count(x))
    return y


def takes_strides(x: Tensor) -> Tensor:
    y = torch.empty(x.shape)
    library().twice_strided(address(x), address(y), *map(ctypes.c_long, (*x.shape, *x.stride())))
    return y


def refuses(x: Tensor) -> Tensor:
    if not x.is_contiguous():
        raise ValueError(f"x must be contiguous, and has strides {x.stride()}")
    return copies_first(x)


def refuses_darkly(x: Tensor) -> Tensor:
    if not x.is_contiguous():
        raise ValueError("invalid argument")
    return copies_first(x)


# ------------------------------------------------------------------------------------------------------ wrong values


def assumes_contiguous(x: Tensor) -> Tensor:
    y = torch.empty(x.shape)
    library().twice(address(x), address(y), count(x))
    return y


def empty_like_of_the_original(x: Tensor) -> Tensor:
    """Half a fix: the output keeps the strides of the strided input, and is written flat."""
    dense = x.contiguous()
    y = torch.empty_like(x)
    library().twice(address(dense), address(y), count(x))
    return y


def both_flat(x: Tensor) -> Tensor:
    """Right for transposed operands by luck: the output has their strides too."""
    y = torch.empty_like(x)
    library().twice(address(x), address(y), count(x))
    return y


def address_of_temporary(x: Tensor) -> Tensor:
    y = torch.empty(x.shape)
    library().twice(address(x.contiguous()), address(y), count(x))
    return y


def check_without_call(x: Tensor) -> Tensor:
    assert x.is_contiguous
    return assumes_contiguous(x)


def discards_contiguous(x: Tensor) -> Tensor:
    x.contiguous()
    return assumes_contiguous(x)


def reads_beyond(x: Tensor) -> Tensor:
    x = x.contiguous() if x.storage_offset() == 0 and not x.is_contiguous() else x
    y = torch.empty(x.shape)
    library().smooth(address(x), address(y), count(x))
    return y


# ------------------------------------------------------------------------------------------------ writes, or none


def into_flat_output(x: Tensor, out: Tensor) -> Tensor:
    x = x.contiguous()
    library().twice(address(x), address(out), count(x))
    return out


def writes_beyond(x: Tensor, out: Tensor) -> Tensor:
    x = x.contiguous()
    library().twice_beyond(address(x), address(out), count(x))
    return out


def in_place_on_copy(x: Tensor) -> Tensor:
    dense = x.contiguous()
    library().twice_inplace(address(dense), count(dense))
    return x


def in_place_flat(x: Tensor) -> Tensor:
    library().twice_inplace(address(x), count(x))
    return x


# ------------------------------------------------------------------------------------------------------- gradients


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return copies_first(x)

    @staticmethod
    def backward(ctx, gradient):
        return copies_first(gradient)


class _FlatBackward(_Twice):
    @staticmethod
    def backward(ctx, gradient):
        return assumes_contiguous(gradient)


class _ExpandedBackward(_Twice):
    """Wrong for gradients with stride 0 only."""

    @staticmethod
    def backward(ctx, gradient):
        return assumes_contiguous(gradient) if 0 in gradient.stride() else copies_first(gradient)


RightBackward = _Twice
FlatBackward = _FlatBackward
ExpandedBackward = _ExpandedBackward


# ---------------------------------------------------------------------------------------------- operators of torch


@functools.cache
def operators() -> dict[str, torch.library.CustomOpDef]:
    """Operators of torch.library: with a right fake kernel, and with two that promise other strides."""

    # Programs import this file under another name: a second operator of one name would take the first one's place.
    space = f"stridewise_{__name__.replace('.', '_')}"

    def define(name, kernel, fake):
        made = torch.library.custom_op(f"{space}::{name}", mutates_args=(), schema="(Tensor x) -> Tensor")(kernel)
        made.register_fake(fake)
        return made

    def like_input(x: Tensor) -> Tensor:
        return torch.empty_like(x).copy_(2 * x)

    return {
        "right_fake": define("right_fake", copies_first, lambda x: x.new_empty(x.shape)),
        "fake_like_input": define("fake_like_input", copies_first, torch.empty_like),
        "fake_contiguous": define("fake_contiguous", like_input, lambda x: x.new_empty(x.shape)),
        "right_by_luck": define("right_by_luck", both_flat, torch.empty_like),
    }
