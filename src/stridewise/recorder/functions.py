"""What the functions that a program calls are named, and which of them run no operator."""

from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

DIRECT = -1
"""Runs no operator and never warns: handed straight on."""
DIMENSIONS = -3
"""`Tensor.dim`, which modules with a fast path ask before they choose it."""
UNLOGGED = -2
"""Runs no operator worth a row in the log, but may warn."""


def functions_without_ops() -> dict[Any, int]:
    """Functions that run no operator and make no tensor of their own, each with one of the numbers above."""
    keep = {"data", "T", "mT", "H", "mH", "real", "imag"}
    found: dict[Any, int] = {}
    for owner in (torch.Tensor, torch._C.TensorBase):
        for name, attribute in vars(owner).items():
            if type(attribute).__name__ in ("getset_descriptor", "property"):
                if name not in keep:
                    found[attribute.__get__] = UNLOGGED if name in ("grad", "names") else DIRECT
                if name not in ("data", "grad"):
                    found[attribute.__set__] = DIRECT
    names = (
        "size dim stride numel is_contiguous storage_offset element_size data_ptr __len__ is_floating_point "
        "is_complex nelement ndimension get_device untyped_storage __hash__ is_signed _is_view is_inference "
        "is_pinned is_shared requires_grad_ retain_grad register_hook is_same_size has_names is_conj is_neg "
        "is_coalesced sparse_dim dense_dim __format__ register_post_accumulate_grad_hook"
    )
    found |= dict.fromkeys(
        (getattr(torch.Tensor, name) for name in names.split() if hasattr(torch.Tensor, name)), DIRECT
    )
    found[torch.Tensor.storage] = UNLOGGED
    found[torch.Tensor.dim] = DIMENSIONS
    more: list[Any] = [torch.is_floating_point, torch.numel, torch.is_complex, torch.is_tensor, torch.is_signed]
    more += [torch.is_inference, torch.result_type, torch._C._set_grad_enabled]
    found |= dict.fromkeys(more, DIRECT)
    for name in ("_record_function_enter", "_record_function_enter_new", "_record_function_exit"):
        if packet := getattr(torch.ops.profiler, name, None):
            found[packet] = DIRECT
            found |= dict.fromkeys((getattr(packet, overload) for overload in packet.overloads()), DIRECT)
    return found


def may_be_kept(function: Any) -> bool:
    """Whether holding a function until the recording ends keeps nothing of the program's alive."""
    kind = type(function)
    if kind is FunctionType:
        return function.__closure__ is None and function.__module__.partition(".")[0] == "torch"
    if kind is BuiltinFunctionType:
        return function.__self__ is None or isinstance(function.__self__, (ModuleType, type))
    if kind is MethodWrapperType:  # `__get__` of a property of Tensor
        return type(function.__self__).__name__ in ("getset_descriptor", "property")
    return kind in (MethodDescriptorType, WrapperDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket)


def function_name(function: Any) -> str:
    """The name that people know a function by: `torch.Tensor.add`, `torch.nn.functional.linear`."""
    name = getattr(function, "__name__", None) or type(function).__name__
    owner = getattr(function, "__self__", None)
    if name in ("__get__", "__set__") and owner is not None:
        return f"torch.Tensor.{getattr(owner, '__name__', '?')}.{name}"
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{function}"
    objclass = getattr(function, "__objclass__", None)
    if objclass is not None and issubclass(torch.Tensor, objclass):
        return f"torch.Tensor.{name}"
    qualname = getattr(function, "__qualname__", name)
    module = getattr(function, "__module__", None) or "torch"
    if qualname.startswith(("_VariableFunctionsClass.", "TensorBase.")):
        return f"torch.{name}" if qualname.startswith("_V") else f"torch.Tensor.{name}"
    return f"{_PUBLIC.get(module, module)}.{qualname if '<locals>' not in qualname else name}"


_PUBLIC = {
    "torch._C._nn": "torch.nn.functional",
    "torch._C._linalg": "torch.linalg",
    "torch._C._special": "torch.special",
    "torch._C._fft": "torch.fft",
    "torch._tensor": "torch",
    "torch._VF": "torch",
    "torch.functional": "torch",
}
