"""What counts as a copy in the source of a kernel: what is loaded and stored unchanged, and nothing else."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.compiled import kernel_source, output_code
from stridewise.compiled.capture import fresh, logged, without_caches

VECTORS = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       const bfloat16* in_ptr1,
                       float* out_ptr0,
                       float* out_ptr1,
                       bfloat16* out_ptr2)
{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(32L); x0+=static_cast<int64_t>(16L))
    {
        alignas(std::max(std::size_t(16), alignof(float))) float tmp1[16*16];
        for (long x0_inner = 0; x0_inner < static_cast<int64_t>(16); x0_inner++)
        {
            auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 9L*x0 + 9L*x0_inner), 9L);
            tmp0.store(tmp1 + static_cast<int64_t>(9L*x0_inner), static_cast<int64_t>(9L));
        }
        transpose_mxn<float,static_cast<int64_t>(16),static_cast<int64_t>(9L),false>(tmp1, static_cast<int64_t>(9L), \
out_ptr0 + static_cast<int64_t>(x0 + 32L*x1), static_cast<int64_t>(32L));
        auto tmp2 = in_ptr1[static_cast<int64_t>(x0)];
        auto tmp3 = c10::convert<float>(tmp2);
        out_ptr1[static_cast<int64_t>(x0)] = tmp3;
        auto tmp4 = in_ptr1[static_cast<int64_t>(x0)];
        auto tmp5 = decltype(tmp4)(tmp4 + tmp4);
        out_ptr2[static_cast<int64_t>(x0)] = tmp5;
    }
}
"""


def test_transposed_vectors_and_conversions_are_copies() -> None:
    found = kernel_source.moves(VECTORS)
    transposed, converted = found["out_ptr0"], found["out_ptr1"]
    assert transposed is not None
    assert (transposed.source, transposed.cast) == ("in_ptr0", False)
    assert (transposed.read, transposed.written) == ("x1 + 9*x0 + 9*x0_inner", "x0 + 32*x1")
    assert converted is not None
    assert (converted.source, converted.cast) == ("in_ptr1", True)
    assert found["out_ptr2"] is None


TRITON = """
import triton
import triton.language as tl

@triton.jit
def triton_poi_fused_clone_0(in_ptr0, in_ptr1, out_ptr0, out_ptr1, ynumel, xnumel, YBLOCK : tl.constexpr):
    y0 = (yindex % 3)
    y1 = yindex // 3
    tmp0 = tl.load(in_ptr0 + (x2 + 9*y3), xmask & ymask, eviction_policy='evict_last')
    tmp1 = tl.load(in_ptr1 + (x2), xmask).to(tl.float32)
    tmp2 = tmp0 + tmp1
    tl.store(out_ptr0 + (y0 + 3*x2 + 27*y1), tmp0, xmask & ymask)
    tl.store(out_ptr1 + (x2), tmp2, xmask)
"""


def test_triton_kernels_are_read_too() -> None:
    found = kernel_source.moves(TRITON)
    copied = found["out_ptr0"]
    assert copied is not None
    assert (copied.source, copied.read, copied.written) == ("in_ptr0", "x2 + 9*y3", "y0 + 3*x2 + 27*y1")
    assert found["out_ptr1"] is None


def test_variables_that_go_through_several_dimensions_are_sums() -> None:
    source = """
    x0 = (xindex % 16)
    x1 = ((xindex // 16) % 3)
    x2 = xindex // 48
    x3 = xindex
    y0 = (yindex % ks0)
    y1 = ((yindex // (16*ks0)) % 3)
    y2 = yindex
    """
    assert kernel_source.flat_variables(source) == {"x3": "x0 + 16*x1 + 48*x2"}


def test_a_pointer_that_is_read_in_two_ways_has_no_index() -> None:
    source = """
    auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 8L*x0)];
    out_ptr0[static_cast<int64_t>(x0 + 8L*x1)] = tmp0;
    auto tmp1 = in_ptr0[static_cast<int64_t>(%s)];
    out_ptr0[static_cast<int64_t>(64L + x0 + 8L*x1)] = tmp1;
    """
    for index, read in (("x1_tail + 8L*x0 + 64L", "x1 + 8*x0"), ("x1 + 9L*x0", "")):
        moved = kernel_source.moves(source % index)["out_ptr0"]
        assert moved is not None
        assert moved.read == read


@pytest.mark.parametrize(
    "statement",
    [
        "auto tmp0 = in_ptr0[static_cast<int64_t>(tmp7 + 3L*x0)];",  # a gather
        "auto tmp0 = std::max(in_ptr0[static_cast<int64_t>(x0)], 0.0f);",
        "auto tmp0 = -in_ptr0[static_cast<int64_t>(x0)];",
        "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)] + in_ptr1[static_cast<int64_t>(x0)];",
        "auto tmp0 = static_cast<float>(2.0);",
    ],
)
def test_what_computes_is_no_copy(statement: str) -> None:
    found = kernel_source.moves(f"{statement}\nout_ptr0[static_cast<int64_t>(x0)] = tmp0;")
    assert found == {"out_ptr0": None}


BUFFERED = """
auto tmp0 =
[&]
{
    __at_align__ std::array<float, 16> tmpbuf;
    for (long x0_inner = 0; x0_inner < static_cast<int64_t>(16); x0_inner++)
    {
        tmpbuf[x0_inner] = in_ptr0[static_cast<int64_t>(2L*x0 + 2L*x0_inner)];
    }
    return at::vec::Vectorized<float>::loadu(tmpbuf.data(), static_cast<int64_t>(16));
}
()
;
tmp0.store(out_ptr0 + static_cast<int64_t>(x0));
auto tmp1 = at::vec::VectorizedN<double,2>::loadu(in_ptr1 + static_cast<int64_t>(x0 + 27L*x1_tail), 16);
[&]
{
    __at_align__ std::array<double, 16> tmpbuf;
    tmp1.store(tmpbuf.data(), static_cast<int64_t>(16));
    for (long x0_inner = 0; x0_inner < static_cast<int64_t>(16); x0_inner++)
    {
        out_ptr1[static_cast<int64_t>(x1_tail + 2L*x0 + 2L*x0_inner)] = tmpbuf[x0_inner];
    }
}
()
;
auto tmp2 =
[&]
{
    return at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0)) * tmp0;
}
()
;
tmp2.store(out_ptr2 + static_cast<int64_t>(x0));
"""


def test_what_goes_through_a_buffer_is_a_copy_too() -> None:
    found = kernel_source.moves(BUFFERED)
    sources = {name: moved and (moved.source, moved.read) for name, moved in found.items()}
    assert sources == {
        "out_ptr0": ("in_ptr0", "2*x0 + 2*x0_inner"),
        "out_ptr1": ("in_ptr1", "x0 + 27*x1_tail"),
        "out_ptr2": None,
    }


def test_what_is_added_to_memory_is_no_copy() -> None:
    source = "auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];\natomic_add(&out_ptr0[static_cast<int64_t>(x0)], tmp0);"
    assert kernel_source.moves(source)["out_ptr0"] is None


def test_a_pointer_that_is_also_computed_is_no_copy() -> None:
    source = """
    auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
    out_ptr0[static_cast<int64_t>(x0)] = tmp0;
    auto tmp1 = decltype(tmp0)(tmp0 * tmp0);
    out_ptr0[static_cast<int64_t>(x0 + 4L)] = tmp1;
    """
    assert kernel_source.moves(source) == {"out_ptr0": None}


# ---------------------------------------------------------------------------------------------- against real kernels


def copies_of(fn: object, *args: torch.Tensor) -> list[bool]:
    """Of each tensor that the kernels of a function write, whether it is found to be a copy."""
    with torch.no_grad(), without_caches(), logged() as entries:
        torch.compile(fresh(fn))(*args)  # type: ignore[arg-type]
    found = []
    for entry in entries:
        if entry.kind == "inductor_output_code":
            generated = output_code.parse(entry.payload)
            assert generated is not None
            for kernel in generated.kernels.values():
                moves = kernel_source.moves(kernel.source)
                found += [moves[name] is not None for name in sorted(kernel.written)]
    return found


@settings(max_examples=12, deadline=None)
@given(
    order=st.permutations([0, 1, 2]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64, torch.int64]),
    sizes=st.tuples(st.integers(2, 20), st.integers(2, 20), st.integers(2, 20)),
    computes=st.booleans(),
)
def test_kernels_that_inductor_makes(
    order: list[int], dtype: torch.dtype, sizes: tuple[int, int, int], computes: bool
) -> None:
    x = torch.arange(sizes[0] * sizes[1] * sizes[2]).reshape(sizes).to(dtype)
    moved = x.permute(order)
    if computes:
        assert copies_of(lambda x: x.permute(order).contiguous() + 1, x) == [False]
    elif not moved.is_contiguous():
        assert copies_of(lambda x: x.permute(order).contiguous(), x) == [True]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8]
)
@pytest.mark.parametrize("what", ["step", "flip", "expand", "cat"])
def test_copies_of_other_kinds(dtype: torch.dtype, what: str) -> None:
    x = torch.arange(64 * 40).reshape(64, 40).to(dtype)
    copies = {
        "step": lambda x: x[:, ::2].contiguous(),
        "flip": lambda x: x.flip(1),
        "expand": lambda x: x.unsqueeze(0).expand(3, 64, 40).contiguous(),
        "cat": lambda x: torch.cat([x.t(), x.t()]),
    }
    found = copies_of(copies[what], x)
    assert False not in found
    assert found or (what, dtype) == ("cat", torch.int8)  # left to the library
