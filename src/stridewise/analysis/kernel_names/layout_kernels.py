"""Device kernels that only change layout, by their names."""

import re
from functools import lru_cache
from typing import get_args

from msgspec import Struct

from stridewise.analysis.kernel_names.text import LENGTH, function_name
from stridewise.errors import UsageError
from stridewise.results import Cause

TO_NHWC, TO_NCHW = "NCHW to NHWC", "NHWC to NCHW"


class LayoutPattern(Struct, frozen=True):
    """Names of kernels that change layout."""

    pattern: str
    """A regular expression that is searched in the name; for cause `possible`, in the function's own name."""
    vendor: str
    """Whose kernel it is: `cuDNN`, `MIOpen`, `ATen`, …"""
    cause: Cause
    source: str
    """Where the name comes from."""
    makes: str | None = None
    """Which order it makes of which, where the name tells."""


# Where names come from. Of closed libraries there are only profiles that people published.
_CUTLASS = "https://github.com/NVIDIA/cutlass, tools/util/include/cutlass/util/device_nchw_to_nhwc.h and its inverse"
_HTA = "https://github.com/facebookresearch/HolisticTraceAnalysis, hta/utils/utils.py (tensor transforms)"
_CUDNN = "seen in traces of A100 and H100 of HolisticTraceAnalysis and https://github.com/AMD-AGI/TraceLens"
_TRANSFORM = "https://docs.nvidia.com/deeplearning/cudnn, cudnnTransformTensor: it may scale, pad and fold as well"
_MIOPEN = "https://github.com/ROCm/MIOpen, src/kernels/"
_CK = "https://github.com/ROCm/composable_kernel, device_grouped_conv_fwd_multiple_abd_xdl_cshuffle_v3.hpp"
_TENSORRT = "https://docs.nvidia.com/deeplearning/tensorrt (profiling DLA), and published profiles of engines"
_TE = "https://github.com/NVIDIA/TransformerEngine, transformer_engine/common/transpose/"
_ONEDNN = "https://github.com/uxlfoundation/oneDNN, src/gpu/intel/ocl/generic_reorder.cl"
_ATEN = "https://github.com/pytorch/pytorch, aten/src/ATen/native/cuda/Copy.cu"
_ATEN_OLD = "https://github.com/pytorch/pytorch/issues/70171 (torch 1.10)"
_XPU = "https://github.com/intel/torch-xpu-ops, src/ATen/native/xpu/sycl/CopyKernel.cpp"
_INDUCTOR = "https://github.com/pytorch/pytorch, torch/_inductor/utils.py, get_fused_kernel_name: operators, sorted"

# Operators that compute nothing. No name may read as two lists of these words, or a search takes time without end:
# with `_reshape_alias`, `copy__reshape_alias` would.
_ORDER_WORDS = "permute|transpose|t|clone|contiguous|movedim|moveaxis|swapaxes|swapdims"
_VIEW_WORDS = (
    "_unsafe_view|view|view_as|reshape|reshape_as|copy_?|expand|expand_as|squeeze|unsqueeze|flatten|unflatten|slice|"
    "split|split_with_sizes|unsafe_split|chunk|select|unbind|narrow|as_strided|alias|detach"
)
_INDUCTOR_END = r"_\d+(?:_[\dcde]+)?$"  # torch 2.0 and 2.1 append what Triton specialised on: `_0d1d2de`

_WORK = (
    "gemm|matmul|conv(?!ert)|grad|attention|attn|fmha|mha|sdpa|flash|softmax|norm|pool|concat|cat(?![a-z])|index|"
    "indices|gather|scatter|emb|lookup|sort|radix|reduce|scan|quant|bias|relu|gelu|silu|swiglu|rope|rotary|dropout|fft|"
    "winograd|moe|expert|token|route|routing|topk|rnn|lstm|sparse|csr|jagged|lengths|solve|nccl|triton_[a-z]{3}_fused|"
    "_add|add_|mul_"
)
_WORDS = "transpose|permute|permutation|relayout|reformat|layout_?transform|transform_?layout|(?:nchw|nhwc)_?(?:to|2)"
_CAMEL_WORDS = "Transpose|Permut|Relayout|Reformat|LayoutTransform|TransformLayout|N[Cc][Hh][Ww]To|N[Hh][Ww][Cc]To"

LAYOUT_KERNELS = (
    # -- cuDNN, cuBLAS, CUTLASS, cuTENSOR, TensorRT --
    LayoutPattern(r"cuInt8::nchwTo[Nn]hwc", "TensorRT", "transpose", _TENSORRT, TO_NHWC),
    LayoutPattern(r"cuInt8::nhwcTo[Nn]chw", "TensorRT", "transpose", _TENSORRT, TO_NCHW),
    LayoutPattern(r"nchwTo(?:Folded)?NhwcKernel", "cuDNN", "transpose", _CUDNN, TO_NHWC),
    LayoutPattern(r"(?:nhwc|foldedNhwc)ToNchwKernel", "cuDNN", "transpose", _CUDNN, TO_NCHW),
    LayoutPattern(r"nhwcToFoldedNhwcKernel|foldedNhwcToNhwcKernel", "cuDNN", "transpose", _HTA),
    LayoutPattern(r"(?:genericTranspose|transposeBlock|transposeWarp)_kernel", "cuDNN", "transpose", _HTA),
    LayoutPattern(r"tensorTransformGeneric|convertTensor_kernel", "cuDNN", "possible", _TRANSFORM),
    LayoutPattern(r"(?:nchw|nhwc)AddPaddingKernel", "cuDNN", "possible", _HTA),
    LayoutPattern(r"transpose_readWrite_alignment_kernel", "cuBLAS", "transpose", "published TensorFlow profiles"),
    LayoutPattern(r"cutlass(?:::|\d+)nchw_to_nhwc_kernel", "CUTLASS", "transpose", _CUTLASS, TO_NHWC),
    LayoutPattern(r"cutlass(?:::|\d+)nhwc_to_nchw_kernel", "CUTLASS", "transpose", _CUTLASS, TO_NCHW),
    LayoutPattern(r"(?:CUTENSOR_NAMESPACE|cutensor\w*)::permutationKernel", "cuTENSOR", "transpose", _TENSORRT),
    # The first types are those of source and destination: where they differ it may be a cast and nothing else.
    LayoutPattern(r"genericReformat::copyPackedKernel<(\w+), ?\1,", "TensorRT", "transpose", _TENSORRT),
    LayoutPattern(r"genericReformat::copyVectorizedKernel<\w+, ?(\w+), ?\1,", "TensorRT", "transpose", _TENSORRT),
    LayoutPattern(r"genericReformat::", "TensorRT", "possible", _TENSORRT),
    # Myelin names a kernel after its parts, cut short.
    LayoutPattern(
        r"^__myl_(?:bb\d+_\d+_)?(?:Resh?|Move?)*Tran?(?:Tran?|Resh?|Move?)*_", "TensorRT", "generated", _TENSORRT
    ),
    # -- MIOpen, Composable Kernel --
    # 16x32 is the tile and `half` any element of two bytes; MIOpen asks for it as NCHW to NHWC and back alike.
    LayoutPattern(r"^batched_transpose_\d+x\d+_\w*(?:dword|half|byte)", "MIOpen", "transpose", _MIOPEN),
    LayoutPattern(r"^general_\dd_reorder_", "MIOpen", "transpose", _MIOPEN),
    LayoutPattern(r"^transpose_NCHW2CNHW", "MIOpen", "transpose", _MIOPEN, "NCHW to CNHW"),
    LayoutPattern(r"^transpose_CNHW2NCHW", "MIOpen", "transpose", _MIOPEN, "CNHW to NCHW"),
    LayoutPattern(r"^transpose_packed_MN2NM", "MIOpen", "transpose", _MIOPEN),
    LayoutPattern(r"^ck::.*kernel_elementwise_dual", "CK", "possible", _CK),
    # -- oneDNN on a GPU, Transformer Engine --
    LayoutPattern(r"^generic_reorder\b", "oneDNN", "possible", _ONEDNN),
    LayoutPattern(r"(?<![a-z_])transpose_(?:optimized|general)_kernel", "Transformer Engine", "transpose", _TE),
    LayoutPattern(r"(?<![a-z_])cast_transpose_(?:optimized|general)_kernel", "Transformer Engine", "possible", _TE),
    # -- ATen: the operator says whether the strides differ, or the dtype --
    LayoutPattern(r"(?:direct|float8|float16|bfloat16)_copy_kernel_cuda", "ATen", "copy", _ATEN),
    LayoutPattern(r"copy_device_to_device", "ATen", "copy", _ATEN_OLD),
    LayoutPattern(r"xpu::CopyScalarFunc", "ATen", "copy", _XPU),
    # -- inductor --
    LayoutPattern(
        rf"^triton_poi_fused(?:_(?:{_ORDER_WORDS}|{_VIEW_WORDS}))+{_INDUCTOR_END}", "inductor", "generated", _INDUCTOR
    ),
    # A convolution's operands in the order that it wants, or its bias; a cast in the same pass.
    LayoutPattern(
        rf"^triton_poi_fused(?=\w*_(?:convolution|{_ORDER_WORDS})_)"
        rf"(?:_(?:convolution|_to_copy|{_ORDER_WORDS}|{_VIEW_WORDS}))+{_INDUCTOR_END}",
        "inductor",
        "possible",
        _INDUCTOR,
    ),
    # -- anyone's --
    LayoutPattern(
        rf"(?s)^(?!.*(?i:{_WORK})).*(?:(?<![A-Za-z])(?i:{_WORDS})|(?<=[a-z])(?:{_CAMEL_WORDS}))",
        "unknown",
        "possible",
        "the words of the name",
    ),
)
"""The first that fits holds."""


def layout_kernel(name: str, extra: tuple[LayoutPattern, ...] = ()) -> LayoutPattern | None:
    """Whether a kernel of that name only changes layout, or may. None for one that computes.

    A kernel of cause `copy` or `generated` does so only if the operator that launched it says so. `extra` goes first.
    """
    text = name[:LENGTH]
    own = function_name(text)
    for pattern in extra:
        if _compiled(pattern.pattern).search(text):
            return pattern
    for pattern in LAYOUT_KERNELS:
        if _compiled(pattern.pattern).search(own if pattern.cause == "possible" else text):
            return pattern
    return None


def project_pattern(pattern: str, cause: str) -> LayoutPattern:
    """Make a pattern of what a project's configuration says. Raises `UsageError` for what is none."""
    causes = {known: known for known in get_args(Cause)}
    if cause not in causes:
        raise UsageError(f"{cause!r} is no cause for {pattern!r}", expected=f"one of {', '.join(causes)}")
    if not pattern.strip():
        raise UsageError("the pattern of a kernel's name is empty", expected="a regular expression")
    try:
        fits_all = re.compile(pattern).search("") is not None
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from error
    if fits_all:
        raise UsageError(f"{pattern!r} fits every name", expected="a regular expression that some names do not fit")
    return LayoutPattern(pattern, "project", causes[cause], "the project's configuration")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
