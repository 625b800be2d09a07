"""Which values come from a convolution in the memory format that it worked in: channels_last for one in that format."""

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from stridewise.linter.facts.layers import layer_calls, layer_name
from stridewise.linter.facts.value import Value

if TYPE_CHECKING:
    from stridewise.linter.module import Module, Scope

CONVOLUTIONS = {"Conv2d": 4, "ConvTranspose2d": 4, "Conv3d": 5, "ConvTranspose3d": 5}
"""Layers that give channels_last for channels_last, with the rank of what they give."""
FUNCTIONAL = {"conv2d": 4, "conv_transpose2d": 4, "conv3d": 5, "conv_transpose3d": 5}
KEEPERS = frozenset(
    (
        *("BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "GroupNorm", "LocalResponseNorm"),
        *("MaxPool2d", "MaxPool3d", "AvgPool2d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d"),
        *("ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "Softplus", "Softsign"),
        *("Hardswish", "Hardsigmoid", "Hardtanh", "Sigmoid", "Tanh", "Dropout", "Dropout2d", "Identity"),
        *("Upsample", "ZeroPad2d", "ReflectionPad2d", "ReplicationPad2d"),
    )
)
"""Layers that give channels_last for channels_last, whatever shape they give."""
KEEPING = frozenset(
    (
        *("batch_norm", "group_norm", "local_response_norm", "max_pool2d", "max_pool3d", "avg_pool2d"),
        *("adaptive_avg_pool2d", "adaptive_max_pool2d", "relu", "relu6", "leaky_relu", "elu", "celu", "selu", "gelu"),
        *("silu", "mish", "softplus", "softsign", "hardswish", "hardsigmoid", "hardtanh", "sigmoid", "tanh"),
        *("dropout", "dropout2d", "interpolate"),
    )
)
"""The same of functions and methods."""
_CASTS = ("to", "float", "half", "bfloat16", "double", "clone", "detach")
_POOLS = ("AvgPool2d", "avg_pool2d")
_ADAPTIVE = ("AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d")
_LENGTH = 64
"""How far back it is looked; values of loops and long chains end there."""


class Convolution(NamedTuple):
    """The last convolution behind a value."""

    node: ast.expr
    """The call that runs it."""
    rank: int
    channels: ast.expr | None
    """How many channels it gives, as the source says it."""


class _Step(NamedTuple):
    """One layer or function on the way to a value."""

    name: str
    node: ast.Call
    """The call that runs it."""
    settings: ast.expr
    """What holds its settings: the call that makes the layer, or that of the function."""
    first: int
    """Where these begin in the arguments there."""


def convolution_of(module: "Module", scope: "Scope", value: Value) -> Convolution | None:
    """The convolution that made a value, through what keeps its memory format.

    None if there is none for sure, and where height and width may have become 1, as behind a global pool: such a tensor
    is contiguous in either format.
    """
    found: Convolution | None = None
    for _ in range(_LENGTH):
        for step in reversed(_steps(module, scope, value)):
            rank = CONVOLUTIONS.get(step.name) or FUNCTIONAL.get(step.name)
            if rank is not None:
                if _is_patches(step):
                    return None
                channels = _argument(step, 1, "out_channels") if step.name in CONVOLUTIONS else None
                found = found or Convolution(step.node, rank, channels)
            elif not _keeps(step.name) or _may_give_one_place(step):
                return None if found is None or _may_reduce(step.name) else found
        before = _before(value)
        if before is None:
            return None if _may_reduce(value.op or "") else found
        value = before
    return None


def _keeps(name: str) -> bool:
    return name in KEEPERS or name in KEEPING


def _may_reduce(name: str) -> bool:
    """Whether a function or a layer may leave one place of each channel, going by its name."""
    return any(word in name.lower() for word in ("pool", "mean", "squeeze", "amax", "sum"))


def _steps(module: "Module", scope: "Scope", value: Value) -> Sequence[_Step]:
    """The layers or the function that a value's expression calls, in the order in which they run."""
    call = value.node
    if not isinstance(call, ast.Call):
        return ()
    made = layer_calls(module, scope, call.func)
    if made:
        return _layers(module, call, made[0])
    is_function = module.name(call.func) is not None
    if value.op in FUNCTIONAL and not is_function:
        return ()
    return (_Step(value.op, call, call, int(is_function)),) if value.op in FUNCTIONAL or value.op in KEEPING else ()


def _layers(module: "Module", node: ast.Call, made: ast.expr) -> Sequence[_Step]:
    name = layer_name(module, made) or ""
    if name != "Sequential" or not isinstance(made, ast.Call):
        return (_Step(name, node, made, 0),)
    return [step for argument in made.args for step in _layers(module, node, argument)]


def _before(value: Value) -> Value | None:
    """What went into the expression that made a value, if its memory format comes from there."""
    node = value.node
    if value.op == "operator":
        return None if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) else value.of
    if not isinstance(node, ast.Call):
        return None
    op = value.op or ""
    if op in _CASTS and any(each.arg == "memory_format" and not _is_preserved(each.value) for each in node.keywords):
        return None
    passes = op in CONVOLUTIONS or op in FUNCTIONAL or op in _CASTS or op == "Sequential" or _keeps(op)
    return value.of if passes else None


def _is_preserved(memory_format: ast.expr) -> bool:
    return isinstance(memory_format, ast.Attribute) and memory_format.attr == "preserve_format"


def _is_patches(step: _Step) -> bool:
    """Whether a convolution takes patches that touch, as wide as its step: often the whole of a small image."""
    kernel, stride = _argument(step, 2, "kernel_size"), _argument(step, 3, "stride")
    is_layer = step.name in CONVOLUTIONS
    return is_layer and kernel is not None and stride is not None and ast.dump(kernel) == ast.dump(stride)


def _may_give_one_place(step: _Step) -> bool:
    """Whether a pool may leave one place of each channel: one to that size, or a wide one as used for that."""
    if step.name in _ADAPTIVE:
        size = _argument(step, 0, "output_size")
        sizes = size.elts if isinstance(size, (ast.Tuple, ast.List)) else [size]
        return all(not isinstance(each, ast.Constant) or each.value == 1 for each in sizes)
    if step.name in _POOLS:
        kernel = _argument(step, 0, "kernel_size")
        return not (isinstance(kernel, ast.Constant) and isinstance(kernel.value, int) and kernel.value < 4)
    return False


def _argument(step: _Step, at: int, name: str) -> ast.expr | None:
    call, at = step.settings, at + step.first
    if not isinstance(call, ast.Call):
        return None
    if len(call.args) > at:
        return call.args[at]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
