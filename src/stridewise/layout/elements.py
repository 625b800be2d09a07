"""Views that change what an element is: another dtype over the same bytes, a complex number as two reals."""

from __future__ import annotations

from stridewise.layout.errors import LayoutError
from stridewise.layout.model import Layout


def view_dtype(layout: Layout, source_itemsize: int, itemsize: int) -> Layout:
    """Read the same bytes as elements of another size, as `Tensor.view(dtype)`; item sizes in bytes.

    The last dimension shrinks or grows. Raises `LayoutError` unless its stride is 1, even if its size is 1
    (`compute_strides_for_view_dtype_downsize` and `_upsize` in TensorConversions.cpp), and unless larger
    elements fit its size, the other strides and the offset.
    """
    if source_itemsize == itemsize:
        return layout
    if not layout.ndim:
        raise LayoutError("a tensor without dimensions has no last one to hold elements of another size")
    if layout.strides[-1] != 1:
        raise LayoutError(f"the last dimension has stride {layout.strides[-1]}, elements of another size need 1")
    numbers = (*layout.strides[:-1], layout.sizes[-1], layout.offset)
    if any(number * source_itemsize % itemsize for number in numbers):
        raise LayoutError(f"elements of {itemsize} bytes fit not all of {layout}")
    *strides, size, offset = (number * source_itemsize // itemsize for number in numbers)
    return Layout((*layout.sizes[:-1], size), (*strides, 1), offset)


def view_as_real(layout: Layout) -> Layout:
    """Read each complex number as a new last dimension of two reals, as `torch.view_as_real`."""
    return Layout((*layout.sizes, 2), (*(2 * stride for stride in layout.strides), 1), 2 * layout.offset)


def view_as_complex(layout: Layout) -> Layout:
    """Read a last dimension of two reals as one complex number, as `torch.view_as_complex`.

    Raises `LayoutError` unless that dimension has stride 1 and everything else is even. A dimension of
    size 1 may have an odd stride, which is then rounded down.
    """
    if not layout.ndim or layout.sizes[-1] != 2:
        raise LayoutError(f"complex numbers need a last dimension of size 2, not sizes {layout.sizes}")
    sizes, strides = layout.sizes[:-1], layout.strides[:-1]
    odd = any(size != 1 and stride % 2 for size, stride in zip(sizes, strides, strict=True))
    if layout.strides[-1] != 1 or odd or layout.offset % 2:
        raise LayoutError(f"complex numbers need a last stride of 1 and all else even, which {layout} has not")
    return Layout(sizes, tuple(stride // 2 for stride in strides), layout.offset // 2)
