"""The arguments that a TorchScript module was traced with."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_RECORD = "traced_inputs.pkl"


def traced_of(program: Any) -> dict[str, Any]:
    """Of a module in memory, by method; empty if it was not traced, or was loaded from a file."""
    retrieve = getattr(getattr(program, "_c", None), "_retrieve_traced_inputs", None)
    try:
        return {method: _plain(inputs) for method, inputs in dict(retrieve()).items()} if retrieve else {}
    except (RuntimeError, TypeError, ValueError):
        return {}


def traced_in(path: Path) -> dict[str, Any]:
    """Of a file, by method: it has sizes, strides and dtypes, and no values, which are drawn; integers are 0."""
    with zipfile.ZipFile(path) as archive:
        name = next((name for name in archive.namelist() if name.partition("/")[2] == _RECORD), None)
        data = archive.read(name) if name is not None else b""
    try:
        found = _Reader(io.BytesIO(data)).load() if data else {}
        return {method: _plain(inputs) for method, inputs in found.items()}
    except (pickle.UnpicklingError, AttributeError, TypeError, ValueError, EOFError, IndexError, RuntimeError):
        return {}  # another version's


class _Reader(pickle.Unpickler):
    """Reads what torch writes there, and calls nothing else."""

    def find_class(self, module: str, name: str, /) -> Any:
        import torch

        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name.endswith("Storage"):
            return getattr(torch, name).dtype
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if module == "torch.jit._pickle":
            return lambda value, *_: value  # lists of one type, and tags of types
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: Any, /) -> Any:
        return pid[1]


def _tensor(dtype: Any, offset: int, sizes: tuple[int, ...], strides: tuple[int, ...], *_: object) -> Tensor:
    import torch

    count = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) if all(sizes) else 0
    source = torch.Generator().manual_seed(0)
    values = torch.randn(count, generator=source) if dtype.is_floating_point else torch.zeros(count)
    return values.to(dtype).as_strided(sizes, strides)


def _plain(value: Any) -> Any:
    """Lists and dicts of TorchScript as Python's."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return [_plain(entry) for entry in value] if isinstance(value, list) else value
