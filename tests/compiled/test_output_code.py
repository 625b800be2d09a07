"""Code as inductor writes it: in other versions, for devices that are not here, in parts, and what is no such code."""

import pytest

from stridewise.compiled import affine, output_code
from stridewise.compiled.output_code import Generated
from stridewise.compiled.read import read
from stridewise.compiled.trace_log import Entry
from stridewise.results.compiled import Change, Strides

CUDA = '''
# AOT ID: ['4_inference']
import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
async_compile = AsyncCompile()

triton_poi_fused_convolution_0 = async_compile.triton('triton_poi_fused_convolution_0', """
import triton
import triton.language as tl

@triton.jit
def triton_poi_fused_convolution_0(in_ptr0, out_ptr0, ynumel, xnumel, YBLOCK : tl.constexpr, XBLOCK : tl.constexpr):
    ynumel = 6
    x2 = xindex
    y3 = yindex
    y0 = (yindex % 3)
    y1 = yindex // 3
    tmp0 = tl.load(in_ptr0 + (x2 + 64*y3), xmask & ymask, eviction_policy='evict_last')
    tl.store(out_ptr0 + (y0 + 3*x2 + 192*y1), tmp0, xmask & ymask)
""", device_str='cuda')

triton_poi_fused_convolution_relu_1 = async_compile.triton('triton_poi_fused_convolution_relu_1', """
@triton.jit
def triton_poi_fused_convolution_relu_1(in_out_ptr0, in_ptr0, xnumel, XBLOCK : tl.constexpr):
    x2 = xindex
    x0 = (xindex % 4)
    tmp0 = tl.load(in_out_ptr0 + (x2), None)
    tmp1 = tl.load(in_ptr0 + (x0), None, eviction_policy='evict_last')
    tmp2 = tmp0 + tmp1
    tmp4 = triton_helpers.maximum(tmp3, tmp2)
    tl.store(in_out_ptr0 + (x2), tmp4, None)
""", device_str='cuda')

async_compile.wait(globals())

class Runner:
    def call(self, args):
        arg0_1, arg1_1, arg2_1 = args
        args.clear()
        assert_size_stride(arg0_1, (4, 3, 1, 1), (3, 1, 1, 1))
        assert_size_stride(arg1_1, (4, ), (1, ))
        assert_size_stride(arg2_1, (2, 3, 8, 8), (192, 64, 8, 1))
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            buf0 = empty_strided_cuda((2, 3, 8, 8), (192, 1, 24, 3), torch.float16)
            # Topologically Sorted Source Nodes: [input_1], Original ATen: [aten.convolution]
            # [Provenance debug handles] triton_poi_fused_convolution_0:1
            stream0 = get_raw_stream(0)
            triton_poi_fused_convolution_0.run(arg2_1, buf0, 6, 64, stream=stream0)
            del arg2_1
            # Topologically Sorted Source Nodes: [input_1], Original ATen: [aten.convolution]
            # [Provenance debug handles] extern_kernels.convolution:2
            buf1 = extern_kernels.convolution(buf0, arg0_1, stride=(1, 1), padding=(0, 0), groups=1, bias=None)
            assert_size_stride(buf1, (2, 4, 8, 8), (256, 1, 32, 4), 'torch.ops.aten.convolution.default')
            del arg0_1
            buf2 = buf1; del buf1  # reuse
            # Topologically Sorted Source Nodes: [input_1, input_2], Original ATen: [aten.convolution, aten.relu]
            # [Provenance debug handles] triton_poi_fused_convolution_relu_1:3
            stream0 = get_raw_stream(0)
            triton_poi_fused_convolution_relu_1.run(buf2, arg1_1, 512, stream=stream0)
            del arg1_1
        return (buf2, )

runner = Runner()
call = runner.call
'''


def parsed(code: str) -> Generated:
    found = output_code.parse(code)
    assert found is not None
    return found


def test_code_for_a_device_is_read_without_one() -> None:
    found = parsed(CUDA)
    assert [(line.kind, line.name) for line in found.lines] == [
        ("kernel", "triton_poi_fused_convolution_0"),
        ("extern", "extern_kernels.convolution"),
        ("kernel", "triton_poi_fused_convolution_relu_1"),
    ]
    assert "extern_kernels.convolution:2" in found.lines[1].comment
    assert "triton_poi_fused_convolution_0:1" in found.lines[0].comment
    assert found.strides["buf0"] == Strides((2, 3, 8, 8), (192, 1, 24, 3), "float16")
    assert found.inputs == ("arg0_1", "arg1_1", "arg2_1")


def test_a_graph_for_a_device_has_its_copy() -> None:
    (graph,) = read([Entry("inductor_output_code", {}, "0/0", 0, CUDA)]).graphs
    assert (graph.phase, graph.kernels, graph.externs, graph.copies, graph.language) == ("inference", 2, 1, 1, "Triton")
    (copy,) = graph.copied
    assert (copy.change, copy.feeds, copy.cause) == ("reorder", "extern_kernels.convolution", "required")
    assert copy.bytes_moved == 2 * 2 * 3 * 8 * 8 * 2
    assert copy.read == Strides((2, 3, 8, 8), (192, 64, 8, 1), None)
    assert copy.written == Strides((2, 3, 8, 8), (192, 1, 24, 3), "float16")


OLD = """
# AOT ID: ['0_forward']
cpp_fused_clone_0 = async_compile.cpp_pybinding(['const float*', 'float*', 'const int64_t'], '''
extern "C"  void kernel(const float* in_ptr0,
                       float* out_ptr0,
                       const int64_t ks0)
{
    auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + ks0*x0)];
    out_ptr0[static_cast<int64_t>(x0 + 8L*x1)] = tmp0;
}
''')

def call(args):
    primals_1, primals_2 = args
    args.clear()
    s0 = primals_1
    assert_size_stride(primals_2, (8, s0), (s0, 1))
    buf0 = empty_strided_cpu((s0, 8), (8, 1), torch.float32)
    cpp_fused_clone_0(primals_2, buf0, s0)
    del primals_2
    buf1 = empty_strided_cpu((s0, s0), (s0, 1), torch.float32)
    extern_kernels.mm(buf0, reinterpret_tensor(buf0, (8, s0), (1, 8), 0), out=buf1)
    return (reinterpret_tensor(buf1, (s0, s0), (1, s0), 0), )
"""


def test_code_of_older_versions_and_of_dynamic_sizes() -> None:
    (graph,) = read([Entry("inductor_output_code", {}, "0/0", 0, OLD)]).graphs
    assert (graph.phase, graph.kernels, graph.externs, graph.copies) == ("forward", 1, 1, 1)
    (copy,) = graph.copied
    assert copy.bytes_moved is None
    assert graph.bytes_moved is None
    assert copy.written == Strides(("s0", 8), (8, 1), "float32")
    assert copy.read is not None
    assert copy.read.strides == (1, "s0")
    assert copy.change == "reorder"
    assert parsed(OLD).outputs[0].strides == Strides(("s0", "s0"), (1, "s0"), None)


PARTS = """
def partition_0(args):
    arg0_1, = args
    assert_size_stride(arg0_1, (4, 4), (4, 1))
    buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg0_1, out=buf0)
    return (buf0, )

def call(args):
    arg0_1, = args
    args.clear()
    (buf0,) = partition_0([arg0_1])
    buf1 = torch.ops.aten.sort.default(buf0)
    buf2 = buf1[0]
    return (buf2, )
"""


def test_code_in_parts() -> None:
    assert [line.name for line in parsed(PARTS).lines] == ["extern_kernels.mm", "torch.ops.aten.sort.default"]


@pytest.mark.parametrize("code", ["#include <torch/csrc/inductor/cpp_prefix.h>\nint main() {}", "\x00", "(" * 3000])
def test_what_is_no_python_is_said_to_be_left_out(code: str) -> None:
    found = read([Entry("inductor_output_code", {}, "0/0", 0, code)])
    assert not found.graphs
    assert any("C++" in text for text in found.missing)


@pytest.mark.parametrize("code", ["", "x = 1", "def call(args): return ()", "def call(args):\n    f(*args)"])
def test_odd_code_is_no_error(code: str) -> None:
    read([Entry("inductor_output_code", {}, "0/0", 0, code)])


# --------------------------------------------------------------------------------------------------------- what changes


@pytest.mark.parametrize(
    ("read_index", "written_index", "change"),
    [
        ("x1 + 256*x0", "x0 + 32*x1", "reorder"),
        ("2*x0", "x0", "pack"),
        ("x0", "2*x0", "unpack"),
        ("x1", "x1 + 8*x0", "materialize"),
        ("x1 + 8*x0", "x1 + 8*x0", "none"),
        ("x1 + 8*x0 + 64", "x1 + 8*x0", "none"),
        ("x2 + 9*x0 + 9*x0_inner", "x0 + 32*x2", "reorder"),
        ("c10::div_floor_integer(x0, 3L)", "x0", None),
        ("x0*x1", "x0", None),
    ],
)
def test_what_changes_between_two_indices(read_index: str, written_index: str, change: Change | None) -> None:
    assert affine.change(None, None, read_index, written_index) == change


@pytest.mark.parametrize(
    ("written", "read_index", "written_index", "strides"),
    [
        (((4, 3, 2), (6, 2, 1)), "96 + x2 + 2*x0 + 8*x1", "x2 + 2*x1 + 6*x0", (2, 8, 1)),
        (((4, 3, 2), (6, 2, 1)), "x1 + 4*x0", "x1 + 2*x0", (12, 4, 1)),  # the outer two are one loop
        (((4, 3, 2), (6, 2, 1)), "x1", "x1 + 2*x0", (0, 0, 1)),
        (((4, 1, 2), (2, 2, 1)), "x0 + 4*x1", "x1 + 2*x0", (1, 2, 4)),  # of size 1, as it is written
        (((8, 2), (2, 1)), "x1_tail + 16*x0 + 16*x0_inner", "x1_tail + 2*x0 + 2*x0_inner", (16, 1)),
        ((("s0", 3, "s1"), ("3*s1", "s1", 1)), "3*x2 + x1 + 3*ks0*x0", "x2 + ks0*x1 + 3*ks0*x0", ("3*s1", 1, 3)),
        ((("s1", "s1"), ("s1", 1)), "x0 + ks0*x1", "x1 + ks0*x0", (1, "s1")),
        (((3, 4), (1, 3)), "x2 + 4*y3", "y0 + 3*x2", (4, 1)),
        (((4, 3, 2), (6, 2, 1)), "x0 + (x1 % 3)", "x1 + 2*x0", None),
        (((4, 3, 2), (6, 2, 1)), "x1 + 4*x0 + x9", "x1 + 2*x0", None),
        (((4, 6), (6, 1)), "x2 + 2*x1 + 9*x0", "x2 + 2*x1 + 6*x0", None),  # one dimension, two loops
        (((4, 6), (6, 1)), "", "x1 + 6*x0", None),
    ],
)
def test_strides_are_read_from_indices(
    written: tuple[tuple[int | str, ...], ...], read_index: str, written_index: str, strides: tuple[int, ...] | None
) -> None:
    names = {"ks0": "s1", "y3": "y0"}
    assert affine.read_through(Strides(*written), read_index, written_index, names) == strides


def test_dynamic_strides_that_are_written_in_other_ways_are_the_same() -> None:
    one, other = Strides(("s0*3", 2), ("2*s1*s1", 1)), Strides(("3*s0", 2), ("2*s1**2", 1))
    assert affine.same_sizes(one, other)
    assert not affine.differ(one, other)
    assert affine.change(one, other, "", "") == "none"
    assert affine.change(Strides(("s0", "s1"), ("s1", 1)), Strides(("s0", "s1"), (1, "s0")), "", "") == "reorder"
    assert affine.change(Strides(("s0", "s1"), ("s2 + 1", 1)), Strides(("s0", "s1"), ("s1", 1)), "", "") is None


REORDERED = """
def call(args):
    arg0_1, arg1_1 = args
    assert_size_stride(arg0_1, (4, 8), (8, 1))
    assert_size_stride(arg1_1, (4, 8), (8, 1))
    buf0 = empty_strided_cpu((8, 8), (8, 1), torch.float32)
    extern_kernels.mm(reinterpret_tensor(arg1_1, (8, 4), (1, 8), 0), arg1_1, out=buf0)
    buf1 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
    extern_kernels.mm(arg0_1, reinterpret_tensor(arg0_1, (8, 4), (1, 8), 0), out=buf1)
    buf2 = empty_strided_cpu((8, 8), (8, 1), torch.float32)
    extern_kernels.mm(reinterpret_tensor(arg0_1, (8, 4), (1, 8), 0), arg0_1, out=buf2)
    return (buf1, buf2, buf0)
"""
PRODUCTS = """
class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 8][8, 1]cpu", arg1_1: "f32[4, 8][8, 1]cpu"):
        # File: model.py:1 in forward, code: first
        permute: "f32[8, 4][1, 8]cpu" = torch.ops.aten.permute.default(arg0_1, [1, 0])
        mm: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mm.default(arg0_1, permute)
        # File: model.py:2 in forward, code: second
        mm_1: "f32[8, 8][8, 1]cpu" = torch.ops.aten.mm.default(permute, arg0_1);  permute = None
        # File: model.py:3 in forward, code: third
        permute_1: "f32[8, 4][1, 8]cpu" = torch.ops.aten.permute.default(arg1_1, [1, 0])
        mm_2: "f32[8, 8][8, 1]cpu" = torch.ops.aten.mm.default(permute_1, arg1_1);  permute_1 = None
        return (mm, mm_1, mm_2)
"""


def test_calls_in_another_order_are_known_by_their_operands() -> None:
    entries = [
        Entry("inductor_post_grad_graph", {}, "0/0", 0, PRODUCTS),
        Entry("inductor_output_code", {}, "0/0", 0, REORDERED),
    ]
    (graph,) = read(entries).graphs
    assert [[site.line for site in launch.sites] for launch in graph.launches] == [[3], [1], [2]]


AGAIN = """
cpp_fused_clone_0 = async_compile.cpp_pybinding(['const float*', 'float*'], '''
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0)
{
    auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + 8L*x0)];
    out_ptr0[static_cast<int64_t>(x0 + 8L*x1)] = tmp0;
}
''')
cpp_fused_relu_1 = async_compile.cpp_pybinding(['float*'], '''
extern "C"  void  kernel(float* in_out_ptr0)
{
    auto tmp0 = in_out_ptr0[static_cast<int64_t>(x0)];
    auto tmp1 = tmp0 * tmp0;
    in_out_ptr0[static_cast<int64_t>(x0)] = tmp1;
}
''')

def call(args):
    arg0_1, = args
    assert_size_stride(arg0_1, (8, 8), (8, 1))
    buf0 = empty_strided_cpu((8, 8), (8, 1), torch.float32)
    cpp_fused_clone_0(arg0_1, buf0)
    buf1 = buf0; del buf0  # reuse
    cpp_fused_relu_1(buf1)
    buf2 = empty_strided_cpu((8, 8), (8, 1), torch.float32)
    extern_kernels.mm(buf1, arg0_1, out=buf2)
    return (buf2, )
"""


def test_memory_that_is_used_again_is_another_tensor() -> None:
    (graph,) = read([Entry("inductor_output_code", {}, "0/0", 0, AGAIN)]).graphs
    (copy,) = graph.copied
    assert (copy.feeds, copy.feeds_extern, copy.cause) == ("cpp_fused_relu_1", False, "other")


def test_known_strides_count_before_indices() -> None:
    one, other = Strides((2, 3), (3, 1), "float32"), Strides((2, 3), (1, 2), "float32")
    assert affine.change(one, other, "x0", "x0") == "reorder"
    assert affine.change(one, one, "x0", "2*x0") == "none"
    assert affine.moved_bytes(one, other) == 48
    assert affine.moved_bytes(Strides((2, 3), (0, 1), "bool"), one) == 3 + 24
    assert affine.moved_bytes(one, Strides((2, "s0"), (1, 2), "float32")) is None


def test_strides_of_size_1_make_no_difference() -> None:
    assert not affine.differ(Strides((4, 1), (1, 1)), Strides((4, 1), (1, 4)))
    assert affine.differ(Strides((4, 2), (2, 1)), Strides((4, 2), (1, 4)))
    assert not affine.differ(Strides((4, 0), (1, 1)), Strides((4, 0), (0, 7)))
