"""Faster paths that only the layout of an operand kept an operator from.

Each was found by running torch with nothing changed but strides (`tests/analysis/test_paths.py`). What runs as fast on
another path is none: on the CPU a `linear` that adds its bias in a pass of its own takes as long as the fused one.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from stridewise.analysis.paths.operators import MATH_OPERATORS, PRODUCTS
from stridewise.analysis.paths.tensors import Tensor, Tensors
from stridewise.analysis.paths.units import Unit
from stridewise.layout import Layout, is_contiguous
from stridewise.recording.dtypes import ITEM_SIZES
from stridewise.recording.trace import Ops

Path = Literal["fused attention", "contiguous kernel", "fused bias", "no transposes", "aligned loads"]

_NAMES = ("query", "key", "value")


class Missed(Struct, frozen=True):
    """A faster path that an operator did not take because of layout."""

    path: Path
    text: str
    operands: tuple[int, ...] = ()
    """Which arguments of the outermost operator kept it from it."""
    inferred: bool = False
    """What else could have kept it from it was not recorded."""


def suspects(ops: Ops) -> frozenset[int]:
    """Operators whose unit may have missed a path that a program can get back by other strides."""
    found = ops.named(*MATH_OPERATORS, "aten::native_batch_norm")
    for product in ops.named("aten::mm", "aten::bmm"):
        outer = next((op for op in ops.around(product) if ops.text(op) == "aten::linear"), None)
        if outer is not None:
            found.append(product)
    return frozenset(found)


def missed(ops: Ops, tensors: Tensors, unit: Unit, transposes: int, alignment: int | None) -> Missed | None:
    """The faster path that a unit missed because of layout; None where there is none, or nothing shows it.

    `transposes` is how many of its kernels only change layout, `alignment` what its product's kernel is made for.
    """
    if unit.family == "attention":
        return _missed_attention(ops, tensors, unit)
    if unit.family == "normalization":
        return _missed_contiguous_kernel(ops, tensors, unit)
    if unit.family == "matmul":
        return _missed_fused_bias(ops, tensors, unit) or _missed_alignment(ops, tensors, unit, alignment)
    if unit.family == "convolution" and transposes:
        return _missed_channels_last(tensors, unit, transposes)
    return None


def chose_math(ops: Ops, tensors: Tensors, unit: Unit) -> bool:
    """Whether attention took the math path although its operands suit a fused kernel: something else forbids that."""
    return (
        ops.text(unit.leaf) in MATH_OPERATORS
        and _suits_fused_attention(ops, tensors, unit)
        and not _strided_last(tensors.of(unit.leaf))
    )


def _missed_attention(ops: Ops, tensors: Tensors, unit: Unit) -> Missed | None:
    """`check_last_dim_stride_equals_1_dense` in aten/src/ATen/native/transformers/sdp_utils_cpp.h."""
    if ops.text(unit.leaf) not in MATH_OPERATORS or not _suits_fused_attention(ops, tensors, unit):
        return None
    given = tensors.of(unit.leaf)
    strided = _strided_last(given)
    if not strided:
        return None
    strides = ", ".join(f"{_NAMES[place]} {_last_stride(given[place])}" for place in strided)
    has_mask = len(given) > 3 and given[3] is not None  # which might require a gradient
    return Missed(
        "fused attention",
        f"fused attention: last stride of {strides} instead of 1",
        strided,
        has_mask or bool(unit.events),
    )


def _strided_last(given: Sequence[Tensor | None]) -> tuple[int, ...]:
    return tuple(place for place, tensor in enumerate(given[:3]) if _last_stride(tensor) not in (None, 1))


def _last_stride(tensor: Tensor | None) -> int | None:
    return tensor.strides[-1] if tensor is not None and tensor.strides else None


def _suits_fused_attention(ops: Ops, tensors: Tensors, unit: Unit) -> bool:
    """Whether a fused kernel would take such a call if its operands had a last stride of 1.

    What `use_flash_attention_cpp` in sdp_utils_cpp.h wants on the CPU, and on a device `use_flash_attention` or
    `use_mem_efficient_attention` in transformers/cuda/sdp_utils.cpp.
    """
    given = tensors.of(unit.leaf)
    operands = [tensor for tensor in given[:3] if tensor is not None and len(tensor.sizes) == 4]
    if len(operands) < 3:
        return False
    query, key, value = operands
    depth, dtype = query.sizes[-1], query.dtype
    alike = depth == key.sizes[-1] == value.sizes[-1] and {key.dtype, value.dtype} == {dtype}
    same_batch = query.sizes[0] == key.sizes[0] == value.sizes[0]
    heads = query.sizes[1] == key.sizes[1] == value.sizes[1]
    if not (alike and same_batch and heads and all(size for tensor in operands for size in tensor.sizes)):
        return False
    if unit.events:
        return (dtype in ("float16", "bfloat16") and depth % 8 == 0) or (dtype == "float32" and depth % 4 == 0)
    mask = given[3] if len(given) > 3 else None
    if mask is not None and len(mask.sizes) not in (2, 4):
        return False
    return dtype in ("float32", "float64", "float16", "bfloat16") and not _dropout(ops, unit)


def _dropout(ops: Ops, unit: Unit) -> bool:
    """Whether `dropout_p`, the fifth argument, is or may be more than 0."""
    concrete = ops.args[unit.leaf].concrete
    return len(concrete) > 4 and concrete[4] not in ("", "0", "0.", "0.0")


def _missed_contiguous_kernel(ops: Ops, tensors: Tensors, unit: Unit) -> Missed | None:
    """`batch_norm_cpu` in aten/src/ATen/native/Normalization.cpp: its kernel for dense images, or a generic one.

    The generic one shows by `aten::as_strided`: it spreads statistics over the input's dimensions.
    """
    if ops.text(unit.leaf) != "aten::native_batch_norm" or unit.events:
        return None
    given = tensors.of(unit.leaf)
    image = given[0].layout if given and given[0] is not None else None
    if image is None or image.is_empty or _is_in_a_format(image):
        return None
    if not any(ops.text(op) == "aten::as_strided" for op in range(unit.leaf + 1, unit.leaf_end)):
        return None
    return Missed("contiguous kernel", "ATen's kernel for contiguous and channels_last images", (0,))


def _is_in_a_format(image: Layout) -> bool:
    return is_contiguous(image) or is_contiguous(image, "channels_last") or is_contiguous(image, "channels_last_3d")


def _missed_fused_bias(ops: Ops, tensors: Tensors, unit: Unit) -> Missed | None:
    """`linear` in aten/src/ATen/native/Linear.cpp: one `addmm` with its bias, if the input is contiguous.

    Only a device's kernels add the bias in the product's own pass, so only there it is a loss.
    """
    outer = unit.chain[-1]
    # Under autocast the inner of two runs.
    for inside, around in pairwise(unit.chain):
        if ops.text(inside) == ops.text(around) == "aten::linear":
            outer = inside
            break
    if ops.text(outer) != "aten::linear" or ops.text(unit.leaf) not in ("aten::mm", "aten::bmm"):
        return None
    given = tensors.of(outer)
    if len(given) < 3 or given[2] is None or not unit.events:
        return None
    shape = given[0].layout if given[0] is not None else None
    if shape is None or shape.ndim < 3 or is_contiguous(shape):
        return None
    adds = [op for op in range(unit.leaf_end, unit.end) if ops.text(op) in ("aten::add_", "aten::add")]
    if not any(ops.parent[op] == outer for op in adds):
        return None
    return Missed("fused bias", "one product with its bias: the input is not contiguous", (0,))


def _missed_channels_last(tensors: Tensors, unit: Unit, transposes: int) -> Missed | None:
    """A library that works in channels_last and is given other images transposes them."""
    given = tensors.of(unit.leaf)
    image = given[0].layout if given and given[0] is not None else None
    if image is not None and not is_contiguous(image):
        return None
    text = f"channels_last: {transposes} of its {len(unit.events)} kernels transpose"
    return Missed("no transposes", text, (0,), inferred=image is None)


def _missed_alignment(ops: Ops, tensors: Tensors, unit: Unit, alignment: int | None) -> Missed | None:
    """Tensor cores are fed in pieces of 16 bytes, if all rows begin at a multiple of them.

    CUTLASS builds its kernels for less as well, and says so in their names (`align1`; include/cutlass/gemm/device,
    `kAlignmentA`).
    """
    if alignment is None or ops.text(unit.leaf) not in PRODUCTS:
        return None
    given = tensors.of(unit.leaf)
    matrices = [given[place] if place < len(given) else None for place in PRODUCTS[ops.text(unit.leaf)]]
    full = 16 // ITEM_SIZES.get((matrices[0].dtype if matrices[0] else None) or "", 16)
    if alignment >= full:
        return None
    for letter, rows in zip("abc", _leading(matrices), strict=False):
        if rows % full:
            return Missed("aligned loads", f"loads of 16 bytes: ld{letter} {rows} is no multiple of {full}")
    return None


def _leading(matrices: Sequence[Tensor | None]) -> Iterator[int]:
    """The leading dimensions of both operands, then of the row-major result."""
    for matrix in matrices:
        if matrix is not None and matrix.strides and len(matrix.sizes) > 1:
            yield max(matrix.strides[-2:])
        else:
            yield 0
    if matrices[-1] is not None and len(matrices[-1].sizes) > 1:
        yield matrices[-1].sizes[-1]
