"""Tensors as the strided tensors that they are made of, and the bits of those."""

import torch
from torch import Tensor

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}
CHUNK = 1 << 20
"""How many integers are multiplied at once: what is made for that stays small."""
_WORD = 1 << 64


def parts_of(tensor: Tensor) -> dict[str, Tensor]:
    """The strided tensors that a tensor is made of: itself under the name "", else those of its kind.

    Of a subclass with a dispatch of its own there are none: its code would run, and its strides say nothing.
    """
    if _is_jagged(type(tensor)):
        named = {name: getattr(tensor, f"_{name}", None) for name in ("values", "offsets", "lengths")}
        return {name: part.detach() for name, part in named.items() if part is not None}
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return {}
    tensor = tensor.detach()
    if tensor.is_nested:
        return {f"part {number}": part for number, part in enumerate(tensor.unbind())}
    if tensor.is_meta and tensor.layout is not torch.strided:
        return {}
    if tensor.is_quantized:
        return _of_quantized(tensor)
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return {"indices": tensor.indices(), "values": tensor.values()}
    if tensor.layout in _COMPRESSED:
        return {name: getattr(tensor, name)() for name in (*_COMPRESSED[tensor.layout], "values")}
    return {"": tensor if tensor.layout is torch.strided else tensor.to_dense()}


def _is_jagged(kind: type[Tensor]) -> bool:
    """Whether it is torch's own class, of a private module, for nested tensors of the jagged layout (2.6 to 2.13)."""
    return kind.__module__ == "torch.nested._internal.nested_tensor"


def _of_quantized(tensor: Tensor) -> dict[str, Tensor]:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        scale = torch.tensor([tensor.q_scale(), tensor.q_zero_point()], dtype=torch.float64)
        return {"integers": tensor.int_repr(), "scale and zero point": scale}
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return {"integers": tensor.int_repr(), "scales": scales, "zero points": zeros}


def kind_of(tensor: Tensor) -> str:
    """Sizes, dtype and, where it isn't strided, what else it is."""
    kind = type(tensor)
    if kind.__torch_dispatch__ is not Tensor.__torch_dispatch__ and not _is_jagged(kind):
        return kind.__name__
    made = f"{tensor.layout}, ".replace("torch.", "") if tensor.layout is not torch.strided else ""
    sizes = "nested" if tensor.is_nested else tuple(tensor.shape)
    return f"{made}{str(tensor.dtype).removeprefix('torch.')} {sizes}" + (" on meta" if tensor.is_meta else "")


def bits(tensor: Tensor) -> Tensor:
    """The values of a strided tensor as integers of the same size."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.complex128:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_INTEGERS[tensor.element_size()])


def checksum(tensor: Tensor) -> int:
    """A number that another value anywhere in a strided tensor would change, whatever its layout is.

    Each integer is multiplied by an odd number of its own: one that changes always shows.
    """
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.size(dim) > 1:
            tensor = tensor.narrow(dim, 0, 1)
    held = tensor.untyped_storage().nbytes() // tensor.element_size()
    if tensor.numel() > held:  # windows that overlap: the memory once
        tensor = tensor.as_strided((held,), (1,), 0)
    return _sum(_packed(bits(tensor).contiguous().reshape(-1)))


def _packed(flat: Tensor) -> Tensor:
    """Eight bytes in one integer, where they add up: by the number of bytes alone, not by where they lie."""
    each = 8 // flat.element_size()
    if each == 1 or flat.numel() % each:
        return flat
    aligned = flat if flat.storage_offset() % each == 0 else flat.clone()
    return aligned.view(torch.int64)


def _sum(flat: Tensor) -> int:
    weights = torch.arange(min(CHUNK, flat.numel()), device=flat.device) * 0x5851F42D4C957F2C + 1
    sums = [(chunk * weights[: chunk.numel()]).sum() for chunk in flat.split(CHUNK) if chunk.numel()]
    total = 0
    for found in torch.stack(sums).tolist() if sums else ():
        total = (total * 0x2545F4914F6CDD1D + found) % _WORD
    return total
