"""Names of device kernels: real ones, each with where it comes from, and hostile ones."""

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.analysis.kernel_names import (
    LAYOUT_KERNELS,
    Implementation,
    implementation,
    layout_kernel,
    project_pattern,
)
from stridewise.analysis.kernel_names.text import LENGTH, function_name
from stridewise.errors import UsageError

TRACES = Path(__file__).parents[3] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"the real traces are not in {TRACES.name}/ beside this")

# -- kernels that change layout ----------------------------------------------------------------------------------------

TO_NHWC, TO_NCHW = "NCHW to NHWC", "NHWC to NCHW"
DIRECT_COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::"
    "{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&, …)::{lambda(int)#1}>(int, …)"
)

LAYOUT = [
    # HolisticTraceAnalysis, traces of A100
    (
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>"
        "(cudnn::ops::nchw2nhwc_params_t<float>, float const*, float*)",
        ("cuDNN", "transpose", TO_NHWC),
    ),
    (
        "void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false, (cudnnKernelDataType_t)0>"
        "(cudnn::ops::nhwc2nchw_params_t<float>, float const*, float*)",
        ("cuDNN", "transpose", TO_NCHW),
    ),
    # TraceLens, trace of H100
    (
        "void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true, "
        "(cudnnKernelDataType_t)0>(cudnn::engines_precompiled::nchw2nhwc_params_t<float>, __nv_bfloat16 const*, …)",
        ("cuDNN", "transpose", TO_NHWC),
    ),
    # published nvprof output (cuDNN 7), and a mangled name from a published test
    ("void nhwcToNchwKernel<__half, __half, float, bool=1, bool=0, …>(int, int, …)", ("cuDNN", "transpose", TO_NCHW)),
    ("_ZN5cudnn19engines16nchwToNhwcKernel", ("cuDNN", "transpose", TO_NHWC)),
    # HolisticTraceAnalysis, hta/utils/utils.py, and other published lists
    ("void nchwToFoldedNhwcKernel<float>", ("cuDNN", "transpose", TO_NHWC)),
    ("void cudnn::ops::nhwcToFoldedNhwcKernel<float>", ("cuDNN", "transpose", None)),
    ("genericTranspose_kernel", ("cuDNN", "transpose", None)),
    ("void tensorTransformGeneric<float, float, float, true, false, false, 4, 1>(…)", ("cuDNN", "possible", None)),
    (
        "void cudnn::ops::convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)2>(…)",
        ("cuDNN", "possible", None),
    ),
    ("void cudnn::engines_precompiled::nhwcAddPaddingKernel<__half>(…)", ("cuDNN", "possible", None)),
    # published TensorFlow profiles
    (
        "_Z36transpose_readWrite_alignment_kernelIffLi1ELb0ELi6ELi5ELi3EEv21cublasTransposeParamsIT0_EPKT_PS3_PKS1_",
        ("cuBLAS", "transpose", None),
    ),
    # CUTLASS, tools/util/include/cutlass/util
    ("void cutlass::nchw_to_nhwc_kernel<cutlass::half_t>(cutlass::half_t*, …)", ("CUTLASS", "transpose", TO_NHWC)),
    (
        "void cutlass::nhwc_to_nchw_kernel<float>(float*, float const*, int, int, int, int)",
        ("CUTLASS", "transpose", TO_NCHW),
    ),
    # published profiles of TensorRT engines
    (
        "void CUTENSOR_NAMESPACE::permutationKernelPLC3<CUTENSOR_NAMESPACE::VectorWrite2D",
        ("cuTENSOR", "transpose", None),
    ),
    (
        "void cuInt8::nhwcTonchw<__half, (int)32, (int)32, (int)2>(const __half *, …)",
        ("TensorRT", "transpose", TO_NCHW),
    ),
    ("void cuInt8::nchwToNhwcKernel<float>(int, int, int, int, int, int, …)", ("TensorRT", "transpose", TO_NHWC)),
    ("void cuInt8::nchwTonhwc<float, 32, 32, 2>(…)", ("TensorRT", "transpose", TO_NHWC)),
    ("void genericReformat::copyPackedKernel<float, float, (bool)1, (bool)1, …>", ("TensorRT", "transpose", None)),
    ("void genericReformat::copyVectorizedKernel<double, __half, __half, (bool)1, …>", ("TensorRT", "transpose", None)),
    ("void genericReformat::copyVectorizedKernel<double, float, __half, (bool)1, …>", ("TensorRT", "possible", None)),
    ("__myl_TraRes_0x78d7a9345f6dcc42cd792b32565e643a", ("TensorRT", "generated", None)),
    ("__myl_TranReshMove_myl3_3", ("TensorRT", "generated", None)),
    # TraceLens, trace of MI300, and ROCm/MIOpen, src/kernels
    ("batched_transpose_16x32_half", ("MIOpen", "transpose", None)),
    ("batched_transpose_64x32_pack_4x2_ediv_2x1_half", ("MIOpen", "transpose", None)),
    ("transpose_NCHW2CNHW_V2_2D_WG_off64", ("MIOpen", "transpose", "NCHW to CNHW")),
    ("transpose_CNHW2NCHW_V2_2D_WG_off64", ("MIOpen", "transpose", "CNHW to NCHW")),
    ("transpose_packed_MN2NM", ("MIOpen", "transpose", None)),
    ("general_4d_reorder_1x256_dword_r0231", ("MIOpen", "transpose", None)),
    # ROCm/composable_kernel
    ("void ck::kernel_elementwise_dual<ck::GridwiseElementwise<…> >(…)", ("CK", "possible", None)),
    # oneDNN, src/gpu
    ("generic_reorder", ("oneDNN", "possible", None)),
    # Transformer Engine
    ("transpose_optimized_kernel(float const*, …)", ("Transformer Engine", "transpose", None)),
    (
        "cast_transpose_optimized_kernel(hip_bfloat16 const*, float const*, te_hip_fp8_e4m3*, te_hip_fp8_e4m3*, …)",
        ("Transformer Engine", "possible", None),
    ),
    ("_Z31cast_transpose_optimized_kernelPKfS0_P6__halfS2_S0_Pfmm", ("Transformer Engine", "possible", None)),
    # TraceLens, traces of H100; pytorch/pytorch issue 70171; torch-xpu-ops
    (DIRECT_COPY, ("ATen", "copy", None)),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda("
        "at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int, …)",
        ("ATen", "copy", None),
    ),
    (
        "_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_21copy_device_to_deviceERNS_14TensorIteratorEbENKUlvE0_clEv",
        ("ATen", "copy", None),
    ),
    ("at::native::xpu::UnrolledElementwiseKernel<at::native::xpu::CopyScalarFunc<float>, …>", ("ATen", "copy", None)),
    # output code that people published
    ("triton_poi_fused_clone_20", ("inductor", "generated", None)),
    ("triton_poi_fused__unsafe_view_clone_slice_view_2", ("inductor", "generated", None)),
    ("triton_poi_fused_clone_transpose_view_201", ("inductor", "generated", None)),
    ("triton_poi_fused_copy__3", ("inductor", "generated", None)),
    ("triton_poi_fused_clone_4_0d1d2de", ("inductor", "generated", None)),
    ("triton_poi_fused_convolution_9", ("inductor", "possible", None)),
    ("triton_poi_fused__to_copy_permute_3", ("inductor", "possible", None)),
    ("triton_poi_fused__to_copy_convolution_view_7", ("inductor", "possible", None)),
    # kernels that people wrote
    ("permute_nchw_to_nhwc_kernel", ("unknown", "possible", None)),
    ("void transpose_nchw_to_nhwc_kernel(float const*, float*, int, int, int, int)", ("unknown", "possible", None)),
    ("void batched_transpose_kernel<float>(float const*, float*, int, int, int)", ("unknown", "possible", None)),
    ("_Z15transposeKernelPfS_ii", ("unknown", "possible", None)),
    ("void myBatchedTransposeKernel<float>(…)", ("unknown", "possible", None)),
]

WORK = [
    # the traces
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous namespace)::"
    "OpaqueType<4u>, unsigned int, 1, 128, 1>(…)",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2>(…)",
    "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<…> >(…)",
    "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_"
    "tensor16x8x8_alignc4_execute_kernel_cudnn",
    "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(…)",
    "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 32, true, 1, true>(cudnnTensorStruct, …)",
    "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*, …)",
    "SubTensorOpWithScalar1d",
    "SubTensorOpWithCastTensor1d",
    "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0",
    "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8_ws1x1",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(…)",
    # published elsewhere
    "void at::native::batch_norm_transform_input_channels_last_kernel<float, float, float, 4>(…)",
    "void gemm_transpose_kernel<float>(…)",
    "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT",
    "void conv_transpose2d_kernel<float>(…)",
    "void softmax_transpose_kernel<float>(…)",
    "void group_norm_silu_nchw_to_nhwc_kernel<__half>(…)",
    "void fbgemm_gpu::permute_pooled_embs_kernel<float>(…)",
    "void permute_2D_lengths_kernel<int, long>(…)",
    "void transpose_bias_gelu<float>(…)",
    "void winograd_nonfused::winogradForwardFilter4x4<float, float>(…)",
    "void at::native::transform_bias_rescale_qkv_kernel<float, float, true>(…)",
    # its arguments name a transpose, and it is none
    "void my_library::reduce<cutlass::layout::TransposeView, 4>(transpose_params)",
    # generated for more than layout
    "triton_poi_fused_add_permute_3",
    "triton_poi_fused_clone_mul_45",
    "triton_poi_fused_clone_native_group_norm_silu_3",
    "triton_poi_fused_clone_embedding_0",
    "triton_poi_fused__unsafe_view_clone_mul_squeeze_sum_transpose_view_8",
    "triton_poi_fused__to_copy_0",
    "triton_poi_fused__to_copy_view_1",
    "triton_poi_fused_convolution_permute_relu_18",
    "triton_poi_fused_cat_3",
    "triton_red_fused_clone_view_3",
    "triton_tem_fused_flex_attention_backward_split_transpose_0",
    "triton_",
    "triton__0d1d2de",
    "__myl_TranReshMulAddReshMoveTranReluMaxr_myl3_19",
    "__myl_Move_myl0_21",
    "",
]


@pytest.mark.parametrize(("name", "expected"), LAYOUT)
def test_a_layout_kernel_is_known_by_its_name(name: str, expected: tuple[str, str, str | None]) -> None:
    found = layout_kernel(name)
    assert found is not None
    assert (found.vendor, found.cause, found.makes) == expected


@pytest.mark.parametrize("name", WORK)
def test_a_kernel_that_computes_is_no_layout_kernel(name: str) -> None:
    assert layout_kernel(name) is None


@pytest.mark.parametrize("pattern", LAYOUT_KERNELS, ids=lambda pattern: pattern.pattern[:40])
def test_every_pattern_has_a_name_that_it_alone_finds(pattern: object) -> None:
    assert pattern in [layout_kernel(name) for name, _ in LAYOUT]


def test_every_pattern_says_where_it_comes_from() -> None:
    assert all(pattern.source and pattern.vendor for pattern in LAYOUT_KERNELS)


def test_the_projects_patterns_go_first() -> None:
    ours = project_pattern("nchwToNhwc", "possible")
    assert layout_kernel("void cudnn::ops::nchwToNhwcKernel<float>", (ours,)) is ours
    assert layout_kernel("my_shuffle", (project_pattern("^my_shuffle$", "transpose"),)) is not None
    assert layout_kernel("my_shuffle") is None


@pytest.mark.parametrize(
    ("pattern", "cause", "words"),
    [
        ("(", "transpose", "no regular expression"),
        ("a{99999999999}", "transpose", "no regular expression"),
        ("", "transpose", "empty"),
        ("  ", "transpose", "empty"),
        (".*", "transpose", "fits every name"),
        ("relayout", "transposed", "no cause"),
    ],
)
def test_a_pattern_that_is_none_is_a_usage_error(pattern: str, cause: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        project_pattern(pattern, cause)


# -- implementations ---------------------------------------------------------------------------------------------------

XMMA = "tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_execute_kernel"
IMPLEMENTATIONS = [
    # the traces
    (
        f"sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_{XMMA}_cudnn",
        "cuDNN convolution tf32 NHWC",
    ),
    ("cudnn_infer_ampere_scudnn_128x64_relu_xregs_large_nn_v1", "cuDNN convolution f32"),
    (
        "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8>(…)",
        "cuDNN convolution bf16 NHWC 8",
    ),
    (
        "void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_256x64_16x4_nhwc_unity_stride_"
        "align4>(…)",
        "cuDNN convolution tf32 NHWC 4",
    ),
    (
        "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemm"
        "MultistageINS_4gemm9GemmShapeILi128ELi128ELi32EEENS4_52Conv2dWgradOutputGradientTileAccessIteratorOptimizedINS_"
        "11MatrixShapeILi128ELi32EEENS_10tfloat32_tE",
        "cuDNN convolution tf32",
    ),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 32, true, 1, true>(…)", "cuDNN normalization f32 NCHW"),
    ("void fft2d_r2c_32x32<float, false, 5u, true>(float2*, float const*, …)", "cuDNN convolution f32"),
    ("ampere_gcgemm_64x64_nt", "cuDNN convolution"),
    ("void cask_cudnn::computeOffsetsKernel<false, false>(cask_cudnn::ComputeOffsetsParams)", "cuDNN"),
    ("ampere_sgemm_32x32_sliced1x4_tn", "cuBLAS matmul f32 TN"),
    (
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(…)",
        "cuBLAS matmul bf16 TN 8",
    ),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4>(…)", "cuBLAS matmul tf32 NT 4"),
    ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(…)", "cuBLAS matmul f32 NN 1"),
    (
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_"
        "kernel__5x_cublas",
        "cuBLAS matmul bf16 TN",
    ),
    (
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, "
        "__nv_bfloat16, float, false, true, true, false, 7, false, cublasGemvParamsEx<int, …> >(…)",
        "cuBLAS matmul bf16",
    ),
    (
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, true, false>(…)",
        "cuBLASLt matmul f32",
    ),
    (
        "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, cublasLtEpilogue_t, …)",
        "cuBLASLt matmul f32",
    ),
    (
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, "
        "cutlass::bfloat16_t, …> >(pytorch_flash::Flash_fwd_params)",
        "flash attention attention bf16",
    ),
    (
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, …)",
        "ATen normalization bf16",
    ),
    ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int, …)", "ATen pooling f32 NCHW"),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*, …)", "ATen"),
    (DIRECT_COPY, "ATen"),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt64x128x32_wt32x32x8_ws1x1_wr2x1", "MIOpen convolution bf16 NHWC"),
    ("batched_transpose_16x32_half", "MIOpen"),
    ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0", "Tensile matmul bf16 NN"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT16x16x256_MI16x16x1_SN", "hipBLASLt matmul bf16 TN"),
    ("Cijk_Ailk_Bjlk_BBS_BH_Bias_HAS_SAV_UserArgs_MT64x32x64_MI16x16x1_SN", "hipBLASLt matmul bf16 NT"),
    (
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_28GridwiseGemm_xdl_"
        "cshuffle_v3INS_13tensor_layout4gemm8RowMajorENS6_11ColumnMajorES7_ttfttNS0_12element_wise11PassThroughE",
        "CK convolution bf16",
    ),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "NCCL"),
    # published profiles
    (f"sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_{XMMA}", "cuDNN convolution tf32 NHWC"),
    (f"sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_{XMMA}_trt", "TensorRT convolution f32 NCHW"),
    (f"sm80_xmma_dgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_{XMMA}__5x_cudnn", "cuDNN convolution f16 NHWC"),
    ("volta_fp16_s884cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1", "cuDNN convolution f16 NHWC"),
    ("trt_turing_h1688cudnn_256x128_ldg8_relu_exp_small_nhwc_tn_v1", "TensorRT convolution f16 NHWC"),
    ("void implicit_convolve_sgemm<__half, __half, (int)1024, (int)5, (int)5>(…)", "cuDNN convolution f16"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x", "cuDNN attention attention"),
    (
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, …>::Params)",
        "memory-efficient attention attention f32",
    ),
    ("fmha_cutlassB_bf16_aligned_128x128_k128_sm80(…)", "memory-efficient attention attention bf16"),
    (
        "void flash::compute_attn_ws<Flash_fwd_kernel_traits<192, 128, 128, 12, 2, false, 1, cutlass::bfloat16_t, …> >",
        "flash attention attention bf16",
    ),
    (
        "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::…> >(…)",
        "CK attention attention",
    ),
    ("aiter::fmha_fwd_hd192_hd128_bf16_causal_group", "AITER attention attention bf16"),
    ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", "cuBLAS matmul bf16 TN"),
    ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "cuBLAS matmul f16 NN"),
    ("nvjet_sm100_tst_64x8_64x16_2x4_h_bz_splitK_TNT", "cuBLAS matmul bf16 TN"),
    ("nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT", "cuBLAS matmul fp8 TN"),
    ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nt_v1", "cuBLAS matmul f16 NT"),
    ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_relu_f2f_stages_64x6_tn", "cuBLAS matmul f16 TN"),
    (
        "_ZN7cutlass7Kernel2I55cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x4_tn_align8EEvNT_6ParamsE",
        "cuBLAS matmul f16 TN 8",
    ),
    ("void cutlass::Kernel<cutlass_tensorop_s1688tf32gemm_256x128_16x3_nn_align4>(…)", "CUTLASS matmul tf32 NN 4"),
    (
        "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_bf16_bf16_128x128x64_2x1x1_0_ntn_align8_warpspecialized",
        "CUTLASS matmul bf16 NT 8",
    ),
    (
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 2, 2, true, cublasGemvTensorStridedBatched<float const> >(…)",
        "cuBLAS matmul f32 TN",
    ),
    ("naive_conv_ab_nonpacked_fwd_nchw_ushort_double_ushort_0", "MIOpen convolution bf16 NCHW"),
    ("naive_conv_ab_nonpacked_fwd_nchw_float_double_float", "MIOpen convolution f32 NCHW"),
    ("miopenSp3AsmConv_v21_1_3_gfx9_fp32_f2x3_stride1", "MIOpen convolution f32"),
    ("miopenSp3AsmConvRage_v4_6_1_gfx9", "MIOpen convolution"),
    ("Custom_Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_NTD_SK3_UserArgs_MT256x256x64_MI16x16x1", "hipBLASLt matmul bf16 TN"),
    ("Cijk_Alik_Bljk_SB_MT128x128x16_SE_AMAS3", "Tensile matmul f32 TN"),
    (
        "void at::native::batch_norm_transform_input_channels_last_kernel<float, float, float, 4>(…)",
        "ATen normalization f32 NHWC",
    ),
    ("triton_tem_fused__to_copy_addmm_gelu_t_view_9", "Triton matmul"),
    ("triton_tem_fused_bmm_7", "Triton matmul"),
    ("triton_tem_fused__to_copy_convolution_repeat_unsqueeze_view_2", "Triton convolution"),
    ("triton_tem_fused_flex_attention_backward_split_transpose_0", "Triton attention"),
    ("triton_per_fused_add_native_layer_norm_3", "Triton normalization"),
    ("triton_poi_fused_convolution_9", "Triton"),
    ("triton__0d1d2de", "Triton"),
]


def told(found: Implementation | None) -> str:
    if found is None:
        return ""
    rest = (found.family, found.dtype, found.format, found.transposes, found.alignment)
    return " ".join([found.backend, *(str(part) for part in rest if part is not None)])


@pytest.mark.parametrize(("name", "expected"), IMPLEMENTATIONS)
def test_a_name_tells_the_library_and_what_it_ran(name: str, expected: str) -> None:
    found = implementation(name)
    assert told(found) == expected
    assert found is not None
    assert found.evidence in name or found.evidence == function_name(name) or found.evidence in function_name(name)


@pytest.mark.parametrize("name", ["", "my_kernel", "void my::kernel<at_native>(int)", "Memcpy DtoD"])
def test_an_unknown_name_tells_nothing(name: str) -> None:
    assert implementation(name) is None


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("void (anonymous namespace)::softmax_warp_forward<float, 10>(float*, int)", "softmax_warp_forward"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, (bool)1>(…)", "internal::gemvx::kernel"),
        ("_ZN2ck6device12_GLOBAL__N_14kernINS_5TupleIJEEEEvPKT_", "ck::device::kern"),
        ("_Z31cast_transpose_optimized_kernelPKfS0_P6__half", "cast_transpose_optimized_kernel"),
        ("void cut::off<at::native::x<float, (anonymous", "cut::off"),
        ("batched_transpose_16x32_half", "batched_transpose_16x32_half"),
    ],
)
def test_the_functions_own_name(name: str, own: str) -> None:
    assert function_name(name) == own


# -- hostile names -----------------------------------------------------------------------------------------------------

FRAGMENTS = """
    triton_poi_fused _clone _copy_ __unsafe_view _t _12 void :: < > ( ) _ZN 5cudnn 999999 nchwTo Nhwc Kernel
    cutlass_ 80_
    tensorop_ bf16_ s16816gemm_ tn_ align8 sm90_xmma_ gemm_ fprop_implicit_gemm_ bf16bf16_ nhwc _trt nvjet_ TNT Cijk_
    Ailk_ Bljk_ BBS_ UserArgs at::native:: transpose Transpose igemm_fwd_gtc __myl_ Tran Resh ck:: kernel_
    genericReformat::copy
"""


@given(st.one_of(st.text(), st.lists(st.sampled_from(FRAGMENTS.split()), max_size=60).map("".join)))
def test_no_name_is_too_odd(name: str) -> None:
    pattern, found = layout_kernel(name), implementation(name)
    assert pattern is None or pattern in LAYOUT_KERNELS
    if found is not None:
        assert found.evidence
        assert found.transposes in (None, "NN", "NT", "TN", "TT")
        assert found.dtype in (None, "f16", "bf16", "tf32", "f32", "f64", "fp8", "int8")


@pytest.mark.timeout(20)  # a search that is not near linear would take years
@pytest.mark.parametrize(
    "part",
    [
        *FRAGMENTS.split(),
        "a",
        " ",
        "1a",
        "cutlass_80_tensorop_",
        "cudnn",
        "cutlass",
        "cutlass_s1fprop_",
        "ampere_sgemm_",
        "_copy__unsafe_view",
        "_copy__reshape_alias",
        "_view_as_strided",
        "_split_with_sizes",
    ],
)
def test_long_names_take_no_long(part: str) -> None:
    for start in (
        "",
        "void ",
        "_ZN",
        "triton_poi_fused",
        "__myl_",
        "at::native::",
        "nvjet_x_",
        "cutlass_tensorop_s1fprop_",
    ):
        name = start + part * (100_000 // len(part))
        layout_kernel(name)
        implementation(name)


@given(st.text(max_size=40))
def test_only_the_beginning_is_read(end: str) -> None:
    name = "void cudnn::ops::kernel<" + "float, " * LENGTH
    assert layout_kernel(name + end) == layout_kernel(name + "nchwToNhwcKernel")
    assert implementation(name + end) == implementation(name)


# -- real traces -------------------------------------------------------------------------------------------------------


@cache
def kernels_of(trace: str) -> Counter[str]:
    with gzip.open(TRACES / f"{trace}.json.gz") as file:
        events = json.load(file)["traceEvents"]
    return Counter(event["name"] for event in events if event.get("cat", "").lower() == "kernel")


REAL = {
    "h100_vit_nsfw": {"nchwToNhwcKernel": 2, "nhwcToNchwKernel": 1},
    "h100_timesformer": {"nchwToNhwcKernel": 2, "nhwcToNchwKernel": 1, "direct_copy_kernel_cuda": 122},
    "h100_owlv2": {
        "nchwToNhwcKernel": 10,
        "nhwcToNchwKernel": 5,
        "direct_copy_kernel_cuda": 755,
        "bfloat16_copy_kernel_cuda": 5,
    },
    "mi300_resnet_train": {"batched_transpose_": 943, "transpose_NCHW2CNHW": 28, "transpose_CNHW2NCHW": 28},
    "a100_alexnet": {"nchwToNhwcKernel": 12},
    "a100_train_nccl_noshapes": {"nchwToNhwcKernel": 474, "nhwcToNchwKernel": 159},
}
"""Substrings of names, and how many kernels have them: counted with gzip and json alone."""


@needs_traces
@pytest.mark.parametrize("trace", REAL)
def test_layout_kernels_of_real_traces(trace: str) -> None:
    kernels = kernels_of(trace)
    counted = {part: sum(count for name, count in kernels.items() if part in name) for part in REAL[trace]}
    assert counted == REAL[trace]
    found: Counter[str] = Counter()
    for name, count in kernels.items():
        if pattern := layout_kernel(name):
            found[pattern.cause] += count
    copies = sum(count for part, count in counted.items() if "copy_kernel" in part)
    assert found["copy"] == copies
    assert found["transpose"] == sum(counted.values()) - copies
    assert found["possible"] == found["generated"] == 0


@needs_traces
@pytest.mark.parametrize("trace", REAL)
def test_every_kernel_of_real_traces_has_an_implementation(trace: str) -> None:
    for name in kernels_of(trace):
        found = implementation(name)
        assert found is not None, name
        if found.family == "matmul" and "reduce" not in name.lower() and "cublas" not in name.lower():
            assert found.transposes is not None, name
        if found.family is not None and "gcgemm" not in name:
            assert found.dtype is not None, name
