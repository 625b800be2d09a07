"""The layouts of operands as a library gets them, in words."""

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import pairwise

from stridewise.analysis.paths.operators import OPERANDS, PRODUCTS
from stridewise.analysis.paths.tensors import Tensor, Tensors
from stridewise.analysis.paths.units import Unit
from stridewise.layout import Layout, classes, is_contiguous, name
from stridewise.recording.trace import Ops

COPIED = "copied first"


class Operands:
    """What the units of a trace work on."""

    def __init__(self, ops: Ops, tensors: Tensors) -> None:
        self.ops = ops
        self.tensors = tensors
        self.copies = ops.named("aten::copy_")
        self._known: dict[Hashable, tuple[str, ...]] = {}

    def words(self, unit: Unit) -> tuple[str, ...]:
        """The operands of a unit; empty for a trace without strides."""
        leaf = self.ops.text(unit.leaf)
        given = self.tensors.of(unit.leaf)
        copied = tuple(_copied(self.ops, self.tensors, unit, self.copies))
        places = PRODUCTS.get(leaf, (0, 1))
        cloned = tuple(self._cloned(unit, given, places)) if unit.family == "matmul" else ()
        key = (unit.family, leaf, id(given), copied, cloned)  # equal arguments are one object
        if key not in self._known:
            if unit.family == "matmul":
                matrices = [given[place] if place < len(given) else None for place in places]
                self._known[key] = matrix_words(matrices, copied, cloned)
            else:
                names = OPERANDS[unit.family]
                if "backward" in leaf:
                    names = ("gradient", names[0] or "input", *names[1:])
                words = attention_words if unit.family == "attention" else image_words
                self._known[key] = words(names, given, copied)
        return self._known[key]

    def _cloned(self, unit: Unit, given: Sequence[Tensor | None], places: Sequence[int]) -> Iterator[int]:
        """Which of two matrices the operator itself copied."""
        inside = [self.tensors.of(copy) for copy in _between(self.copies, unit.leaf, unit.leaf_end)]
        for letter, place in enumerate(places):
            if inside and place < len(given) and any(_is_of(given[place], copy) for copy in inside):
                yield letter


def _copied(ops: Ops, tensors: Tensors, unit: Unit, copies: Sequence[int]) -> list[int]:
    """Which arguments of the outer operator were copied, in the same dtype, before the inner one got them."""
    outer = next(
        (inside for inside, around in pairwise(unit.chain) if ops.text(inside) == ops.text(around)), unit.chain[-1]
    )
    before = [tensors.of(copy) for copy in _between(copies, outer, unit.leaf)]
    found = [
        place for place, tensor in enumerate(tensors.of(outer)[:3]) if any(_is_of(tensor, copy) for copy in before)
    ]
    if unit.family in ("normalization", "pooling"):  # these copy inside the operator that works
        inside = [tensors.of(copy) for copy in _between(copies, unit.leaf, unit.leaf_end)]
        given = tensors.of(unit.leaf)[:3]
        found += [place for place, tensor in enumerate(given) if any(_is_of(tensor, copy) for copy in inside)]
    return found


def _between(positions: Sequence[int], first: int, end: int) -> Sequence[int]:
    return positions[bisect_left(positions, first) : bisect_left(positions, end)]


def _is_of(tensor: Tensor | None, copy: Sequence[Tensor | None]) -> bool:
    """Whether a copy reads a tensor, or one matrix of a batch, and changes nothing but its layout."""
    if tensor is None or tensor.strides is None or len(copy) < 2 or copy[0] is None or copy[1] is None:
        return False
    made, source = copy[0], copy[1]
    if made.dtype != source.dtype or made.strides == source.strides:
        return False
    rank = len(source.sizes)
    return (tensor.sizes[-rank:], tensor.strides[-rank:]) == (source.sizes, source.strides) and rank > 1


def image_words(names: Sequence[str], given: Sequence[Tensor | None], copied: Collection[int]) -> tuple[str, ...]:
    """Layout classes of images and weights, and which were copied for it; those like the first are left out."""
    words = []
    first: Layout | None = None
    for place, label in enumerate(names):
        shape = _layout(given, place)
        if shape is None or not shape.sizes:
            continue
        is_like_first = first is not None and not set(classes(shape)).isdisjoint(classes(first))
        if is_like_first and place not in copied:
            continue
        first = first or shape
        words.append(" ".join(filter(None, (label, name(shape), f"({COPIED})" if place in copied else ""))))
    return tuple(words)


def attention_words(names: Sequence[str], given: Sequence[Tensor | None], copied: Collection[int]) -> tuple[str, ...]:
    """What fused attention looks at: the stride of the last dimension, and beside it the layout class."""
    del copied  # what attention copies it makes itself
    words: dict[str, list[str]] = {}
    for place, label in enumerate(names):
        if (shape := _layout(given, place)) is not None and shape.sizes:
            unit = "" if shape.strides[-1] == 1 else f", last stride {shape.strides[-1]}"
            words.setdefault(f"{name(shape)}{unit}", []).append(label)
    if len(words) == 1:
        return tuple(words)
    return tuple(f"{_listed(labels)} {text}" for text, labels in words.items())


def _listed(labels: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))


def matrix_words(given: Sequence[Tensor | None], copied: Collection[int], clones: Collection[int]) -> tuple[str, ...]:
    """Both operands of a product as BLAS is told of them: `N, lda 512` is row-major, `T, ldb 64` column-major.

    That is for a row-major result, which torch asks of a column-major library by handing both over swapped:
    `prepare_matrix_for_cublas` in aten/src/ATen/native/cuda/cuBlasCommonArgs.h, `prepare_batch_matrix_for_cublas` in
    Blas.cpp beside it, and `addmm_impl_cpu_` in native/LinearAlgebra.cpp all take a matrix with a stride of 1 as it is
    and copy any other. `copied` before the operator, or inside it (`clones`).
    """
    words = []
    for place, letter in enumerate("ab"):
        shape = _layout(given, place)
        if shape is None or not shape.sizes:
            continue
        text = _matrix(shape, letter) or (COPIED if place in clones else "no stride of 1")
        words.append(f"{text} ({COPIED})" if place in copied and text != COPIED else text)
    return tuple(words)


def is_blas_matrix(shape: Layout) -> bool:
    """Whether BLAS takes a matrix, or a batch of them, as it is."""
    return _matrix(shape, "a") is not None


def _matrix(shape: Layout, letter: str) -> str | None:
    if shape.ndim == 1:
        return f"stride {shape.strides[0]}"
    (rows, columns), (across, along) = shape.sizes[-2:], shape.strides[-2:]
    spread = ", broadcast" if any(size > 1 and not stride for size, stride in _batch(shape)) else ""
    if is_contiguous(Layout((rows, columns), (across, along))):
        return f"N, ld{letter} {max(across, columns, 1)}{spread}"
    if along == 1 and across >= max(1, columns):
        return f"N, ld{letter} {across}{spread}"
    if across == 1 and along >= max(1, rows):
        return f"T, ld{letter} {along}{spread}"
    return None


def _batch(shape: Layout) -> list[tuple[int, int]]:
    return list(zip(shape.sizes[:-2], shape.strides[:-2], strict=True))


def _layout(given: Sequence[Tensor | None], place: int) -> Layout | None:
    tensor = given[place] if place < len(given) else None
    return None if tensor is None else tensor.layout
