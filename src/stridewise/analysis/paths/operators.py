"""Operators that convolve, multiply, normalize, attend and pool, and whose implementation each of them calls.

A library's path shows by the operator that the dispatcher called for it: `aten::conv2d` holds
`aten::cudnn_convolution`, `aten::mkldnn_convolution`, `aten::thnn_conv2d`, … Facts, not guesses:
`tests/analysis/test_paths.py` asks torch for each name, and runs on the CPU what can run there.
"""

from stridewise.results import Family


def _aten(names: str) -> tuple[str, ...]:
    return tuple(f"aten::{name}" for name in names.split())


_ATTENTION_BACKENDS: dict[str, tuple[str, ...]] = {
    "flash attention": _aten(
        """_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
        _flash_attention_forward _flash_attention_backward"""
    ),
    "memory-efficient attention": _aten(
        """_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
        _efficient_attention_forward _efficient_attention_backward"""
    ),
    "cuDNN attention": _aten(
        """_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
        _cudnn_attention_forward _cudnn_attention_backward"""
    ),
    "math attention": _aten("_scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps"),
    "an extension's attention": _aten(
        """_scaled_dot_product_fused_attention_overrideable
        _scaled_dot_product_fused_attention_overrideable_backward"""
    ),
}
_CONVOLUTION_BACKENDS: dict[str, tuple[str, ...]] = {
    "cuDNN": _aten("cudnn_convolution cudnn_convolution_transpose cudnn_convolution_relu cudnn_convolution_add_relu"),
    "MIOpen": _aten(
        """miopen_convolution miopen_convolution_transpose miopen_depthwise_convolution miopen_convolution_relu
        miopen_convolution_add_relu"""
    ),
    "oneDNN": (
        *_aten("mkldnn_convolution"),
        "mkldnn::_convolution_pointwise",
        "mkldnn::_convolution_pointwise_",
        "mkldnn::_convolution_transpose_pointwise",
    ),
    "NNPACK": _aten("_nnpack_spatial_convolution"),
    "ATen": _aten(
        """thnn_conv2d _slow_conv2d_forward _slow_conv2d_backward slow_conv_dilated2d slow_conv_dilated3d slow_conv3d
        slow_conv3d_forward slow_conv_transpose2d slow_conv_transpose3d _conv_depthwise2d conv_depthwise3d conv_tbc"""
    ),
    "an extension": _aten("convolution_overrideable convolution_backward_overrideable"),
}
_NORMALIZATION_BACKENDS: dict[str, tuple[str, ...]] = {
    "cuDNN": _aten("cudnn_batch_norm cudnn_batch_norm_backward"),
    "MIOpen": _aten("miopen_batch_norm miopen_batch_norm_backward"),
}
_POOLING_BACKENDS: dict[str, tuple[str, ...]] = {
    "oneDNN": _aten("mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_adaptive_avg_pool2d")
}
_PRODUCT_BACKENDS: dict[str, tuple[str, ...]] = {
    "oneDNN": (*_aten("mkldnn_linear"), "mkldnn::_linear_pointwise", "mkl::_mkl_linear")
}

BACKENDS: dict[str, str] = {
    operator: backend
    for backends in (
        _ATTENTION_BACKENDS,
        _CONVOLUTION_BACKENDS,
        _NORMALIZATION_BACKENDS,
        _POOLING_BACKENDS,
        _PRODUCT_BACKENDS,
    )
    for backend, operators in backends.items()
    for operator in operators
} | {"mkl::_mkl_linear": "MKL"}
"""Operators that only one implementation calls."""

MATH_ATTENTION = "math attention"
MATH_OPERATORS = frozenset(_ATTENTION_BACKENDS[MATH_ATTENTION])

PRODUCTS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(
        _aten("mm bmm mv dot vdot _int_mm _scaled_mm _grouped_mm _scaled_grouped_mm mkldnn_linear"), (0, 1)
    ),
    **dict.fromkeys(_aten("_weight_int4pack_mm _weight_int8pack_mm"), (0, 1)),
    **dict.fromkeys(_aten("addmm addmm_ baddbmm baddbmm_ addmv addmv_ _addmm_activation _sparse_addmm"), (1, 2)),
    "mkldnn::_linear_pointwise": (0, 1),
    "mkl::_mkl_linear": (0, 1),
}
"""Operators that multiply, and which of their arguments are the operands."""

SPARSE = frozenset(_aten("_sparse_addmm"))

_AROUND_PRODUCTS = _aten("linear matmul linalg_matmul einsum bilinear tensordot addbmm linalg_multi_dot inner")
_AROUND_CONVOLUTIONS = _aten(
    """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution
    _convolution_mode convolution_backward"""
)
_NORMALIZATIONS = _aten(
    """batch_norm instance_norm layer_norm group_norm rms_norm _batch_norm_impl_index _batch_norm_impl_index_backward
    native_batch_norm native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_no_training
    _batch_norm_with_update _batch_norm_no_update batch_norm_backward batch_norm_stats batch_norm_elemt
    batch_norm_gather_stats_with_counts batch_norm_backward_elemt batch_norm_backward_reduce
    native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward
    _fused_rms_norm _fused_rms_norm_backward"""
)
_POOLINGS = _aten(
    """max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    max_pool2d_with_indices_backward max_pool3d_with_indices_backward
    avg_pool1d avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d adaptive_max_pool2d_backward
    adaptive_max_pool3d_backward
    fractional_max_pool2d fractional_max_pool3d fractional_max_pool2d_backward fractional_max_pool3d_backward"""
)

FAMILIES: dict[str, Family] = {
    **dict.fromkeys((*_AROUND_CONVOLUTIONS, *sum(_CONVOLUTION_BACKENDS.values(), ())), "convolution"),
    **dict.fromkeys((*_AROUND_PRODUCTS, *PRODUCTS), "matmul"),
    **dict.fromkeys((*_NORMALIZATIONS, *sum(_NORMALIZATION_BACKENDS.values(), ())), "normalization"),
    **dict.fromkeys(("aten::scaled_dot_product_attention", *sum(_ATTENTION_BACKENDS.values(), ())), "attention"),
    **dict.fromkeys((*_POOLINGS, *sum(_POOLING_BACKENDS.values(), ())), "pooling"),
}
"""What each of these operators computes; one inside another belongs to the outer one."""

OPERANDS: dict[Family, tuple[str, ...]] = {
    "convolution": ("", "weight"),
    "attention": ("query", "key", "value"),
    "normalization": ("",),
    "pooling": ("",),
    "matmul": ("", ""),
}
"""What the first arguments are, forward; the first has no name where it is the only one of its kind."""


def executing(name: str) -> bool:
    """Whether an operator of a family does the work itself, so that its arguments are what a library gets."""
    return name in BACKENDS or name in PRODUCTS or name.removeprefix("aten::") in _EXECUTING


_EXECUTING = frozenset(
    name.removeprefix("aten::")
    for name in (*_NORMALIZATIONS, *_POOLINGS)
    if "native" in name or name.startswith(("aten::_fused", "aten::_adaptive", "aten::batch_norm_"))
) | {
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
}
