"""What torch's functions are asked to do with memory, by the names that the call log gives them.

Facts, not guesses: `tests/analysis/test_functions.py` runs every function named here on strided input.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXPLICIT = _names(
    """contiguous clone copy_ to type type_as float double half bfloat16 int long short char byte bool cfloat cdouble
    chalf cpu cuda xpu __setitem__ repeat tile _to_copy copy tensor new_tensor as_tensor asarray permute_copy
    transpose_copy t_copy expand_copy view_copy select_copy slice_copy unsqueeze_copy squeeze_copy narrow_copy
    as_strided_copy diagonal_copy unfold_copy detach_copy alias_copy split_copy split_with_sizes_copy unbind_copy
    view_as_real_copy view_as_complex_copy lift_fresh_copy _reshape_alias_copy"""
)
"""Functions whose caller asks for a copy, or for a cast. `__deepcopy__` is none: it copies the storage as it is."""

IMPLICIT = _names("reshape flatten reshape_as ravel")
"""Functions that give a view where the strides allow it, and else copy. `unflatten` is none: it always gives a view."""

CASTS = _names(
    """to type type_as float double half bfloat16 int long short char byte bool cfloat cdouble chalf
    _to_copy"""
)
"""Functions that can change the dtype of what they are given."""

EXPANDS = _names("expand expand_as broadcast_to broadcast_tensors meshgrid")
"""Functions that make strides of 0."""

VIEWS = _names(
    """permute transpose t numpy_T matrix_H mT mH adjoint expand expand_as broadcast_to slice select narrow unbind split
    split_with_sizes tensor_split chunk hsplit vsplit dsplit movedim moveaxis swapaxes swapdims unfold diagonal
    as_strided squeeze unsqueeze"""
)
"""Operators that make a view, and write its strides down as the arguments of an `aten::as_strided` inside them."""

CONVOLUTIONS = _names("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution")

_NEEDS = {
    "layer_norm": "every normalised row in one piece, row after row",
    "rms_norm": "every normalised row in one piece, row after row",
    "group_norm": "row-major or channels_last input",
    "instance_norm": "row-major input: it folds the batch into the channels",
    "batch_norm": "row-major or channels_last input",
    "softmax": "row-major input",
    "log_softmax": "row-major input",
    "linear": "rows that can be folded into one matrix without a copy",
    "matmul": "batch dimensions that can be folded into one without a copy",
    "bmm": "matrices with a stride of 1 in one of their two dimensions",
    "baddbmm": "matrices with a stride of 1 in one of their two dimensions",
    "mm": "matrices with a stride of 1 in one of their two dimensions",
    "addmm": "matrices with a stride of 1 in one of their two dimensions",
    "einsum": "operands that can be folded into matrices without a copy",
    "scaled_dot_product_attention": "a stride of 1 in the last dimension of query, key and value",
    "multi_head_attention_forward": "projections that can be folded into heads without a copy",
    "index_select": "row-major input where the dimension is not the first",
    "embedding": "row-major indices",
    "cross_entropy": "row-major logits",
    "pad": "row-major or channels_last input",
    "lstm": "row-major input",
    "gru": "row-major input",
    "cat": "operands of one memory format",
}
_CONVOLUTION_NEEDS = "input and weight in one memory format, both row-major or both channels_last"
OTHER_ORDER = "its operand in another memory order"
_POOLING_NEEDS = "row-major or channels_last input"


def short_name(function: str) -> str:
    """A function's own name: `layer_norm` for `torch.nn.functional.layer_norm` and `aten::layer_norm`."""
    parts = function.rpartition("::")[2].split(".")
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:
        return parts[3]
    if parts[-1] in ("__get__", "__set__") and len(parts) > 1:
        return parts[-2]
    return parts[-1]


_ORDER_OPERANDS = _names(
    """einsum tensordot inner lstm gru rnn_tanh rnn_relu multi_head_attention_forward _native_multi_head_attention
    _transformer_encoder_layer_fwd"""
)


def orders_operands(function: str) -> bool:
    """Whether an operator puts the dimensions of its operands in an order that they could have come in.

    Which one its subscripts, its dimensions or `batch_first` say; contiguous operands are copied for it as well.
    """
    return short_name(function) in _ORDER_OPERANDS


def has_needs(function: str) -> bool:
    """Whether an operator is known to copy operands of some strides, so that `need` has words for it."""
    name = short_name(function)
    return name in _NEEDS or name in CONVOLUTIONS or "pool" in name


def need(function: str) -> str:
    """What an operator wants of its operands' memory, in words that go after "needs"."""
    name = short_name(function)
    if name in CONVOLUTIONS:
        return _CONVOLUTION_NEEDS
    if "pool" in name:
        return _POOLING_NEEDS
    return _NEEDS.get(name, OTHER_ORDER)


DECIDE_GRADIENT_ORDER = CONVOLUTIONS | _names(
    """layer_norm group_norm instance_norm batch_norm softmax log_softmax linear matmul bmm baddbmm mm addmm einsum
    scaled_dot_product_attention relu prelu glu cumsum index_select max_pool1d max_pool2d max_pool3d avg_pool1d
    avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"""
)
"""Functions whose backward gives a gradient in the order of what they saved, whatever order it is given one in."""

REORDERS = _names("permute transpose movedim moveaxis swapaxes swapdims t T numpy_T mT mH H matrix_H adjoint")
"""Functions that give a view with the dimensions in another order."""

SPLITS = _names("unbind split split_with_sizes chunk tensor_split hsplit vsplit dsplit __getitem__ select")
"""Functions that give a part of a tensor, or all of its parts."""

COPYING_TO_ORDER = EXPLICIT | IMPLICIT | REORDERS | _names("as_strided view unflatten")
"""Functions whose caller asks for another order, so that losing channels_last in them is no surprise."""
