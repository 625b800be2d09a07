"""The reader of oneDNN's verbose text: each form that was ever printed, and all that may stand between the lines."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stridewise.recorder.onednn_capture import VerboseCapture
from stridewise.recording import onednn
from stridewise.recording.onednn import Primitive, Reader, Reorder, padded_sizes, read, strides_of_tag

TEMPLATE = (
    "onednn_verbose,v1,primitive,info,template:{}operation,engine,primitive,implementation,prop_kind,"
    "memory_descriptors,attributes,auxiliary,problem_desc,exec_time\n"
)
HEADER = (
    "onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80afa71049cd69a3df32adcccb623b12cd7baa22)\n"
    "onednn_verbose,v1,info,cpu,isa:Intel AVX 10.1\n"
    + TEMPLATE.format("")
    + "onednn_verbose,v1,graph,info,template:operation,engine,partition_id,partition_kind,op_names,data_formats,"
    "logical_tensors,fpmath_mode,implementation,backend,exec_time\n"
)
REORDER = (
    "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:blk,undef,src:f32::blocked:abcd::f0 dst:f32::blocked:aBcd16b::f0,"
    "attr-scratchpad:user,,2x16x32x32,4.20996\n"
)
CONVOLUTION = (
    "onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx512_core,forward_training,src:f32:a:blocked:aBcd16b::f0 "
    "wei:f32:a:blocked:ABcd16b16a::f0 bia:f32:a:blocked:a::f0 dst:f32:a:blocked:aBcd16b::f0,attr-scratchpad:user,"
    "alg:convolution_direct,mb2_ic16oc16_ih32oh32kh3sh1dh0ph1_iw32ow32kw3sw1dw0pw1,5.07104\n"
)


def reorder(memory: str, problem: str) -> Reorder:
    text = f"onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,{memory},attr-scratchpad:user,,{problem},1\n"
    (record,) = read(text).records
    assert isinstance(record, Reorder)
    return record


# ------------------------------------------------------------------------------------------------------ what is read


def test_a_reorder():
    log = read(HEADER + REORDER)
    assert log.skipped == 0
    assert log.records == (
        Reorder(
            sizes=(2, 16, 32, 32),
            source_format="abcd",
            format="aBcd16b",
            source_dtype="f32",
            dtype="f32",
            source_itemsize=4,
            itemsize=4,
            source_strides=(16384, 1024, 32, 1),
            strides=None,
            duration_ns=4_209_960,
            start_ns=None,
            implementation="jit:blk",
            engine="cpu",
            offset=len(HEADER),
        ),
    )


def test_another_primitive():
    (record,) = read(HEADER + CONVOLUTION).records
    assert isinstance(record, Primitive)
    assert (record.operation, record.engine, record.primitive) == ("exec", "cpu", "convolution")
    assert record.implementation == "jit:avx512_core"
    assert record.problem == "mb2_ic16oc16_ih32oh32kh3sh1dh0ph1_iw32ow32kw3sw1dw0pw1"
    assert record.memory.startswith("src:f32:a:blocked:aBcd16b::f0 wei:")
    assert record.duration_ns == 5_071_040


OLD_FORMS = {
    "3.4, no version": REORDER.replace(",v1", ""),
    "3.0, no component": REORDER.replace(",v1,primitive", "").replace("src:", "src_").replace("dst:", "dst_"),
    "2.x": "onednn_verbose,exec,cpu,reorder,jit:blk,undef,src_f32::blocked:abcd:f0 dst_f32::blocked:aBcd16b:f0,"
    "attr-scratchpad:user ,,2x16x32x32,4.20996\n",
    "1.x": "dnnl_verbose,exec,cpu,reorder,jit:blk,undef,src_f32::blocked:abcd:f0 dst_f32::blocked:aBcd16b:f0,,,"
    "2x16x32x32,4.20996\n",
    "1.0": "mkldnn_verbose,exec,cpu,reorder,jit:blk,undef,src_f32::blocked:abcd:f0 dst_f32::blocked:aBcd16b:f0,num:1,"
    "2x16x32x32,4.20996\n",
    "0.x": "mkldnn_verbose,exec,reorder,jit:blk,undef,in:f32_nchw out:f32_nChw16c,num:1,2x16x32x32,4.20996\n",
    "no header": REORDER,
    "Windows line ends": REORDER.replace("\n", "\r\n"),
    "a log prefix": "[rank3]: " + REORDER,
    "no last line feed": REORDER.rstrip("\n"),
}


@pytest.mark.parametrize("text", OLD_FORMS.values(), ids=OLD_FORMS)
def test_every_generation_says_the_same(text):
    log = read(text)
    (record,) = log.records
    assert log.skipped == 0
    assert isinstance(record, Reorder)
    assert (record.sizes, record.source_format, record.format) == ((2, 16, 32, 32), "abcd", "aBcd16b")
    assert (record.duration_ns, record.start_ns) == (4_209_960, None)
    assert record.bytes_moved == 2 * 4 * 2 * 16 * 32 * 32


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        *(("x", "a"), ("nc", "ab"), ("nhwc", "acdb"), ("ncdhw", "abcde"), ("oihw", "abcd"), ("hwio", "cdba")),
        *(("OIhw16i16o", "ABcd16b16a"), ("gOIhw8i8o", "aBCde8c8b"), ("tnc", "tnc")),
    ],
)
def test_names_of_formats_from_mkldnn(name, tag):
    sizes = "x".join("3" * max(len({*filter(str.isalpha, name.lower())}), 1))
    (record,) = read(f"mkldnn_verbose,exec,reorder,r,undef,in:f32_{name} out:f32_{name},num:1,{sizes},1\n").records
    assert isinstance(record, Reorder)
    assert record.format == tag


def test_timestamps_tell_the_start_to_the_microsecond():
    stamped = REORDER.replace("v1,", "v1,1795970194298.309082,")
    for text in (TEMPLATE.format("timestamp,") + stamped, stamped, stamped.replace("v1,", "")):
        (record,) = read(text).records
        assert record.start_ns == 1_795_970_194_298_309_000
        assert record.duration_ns == 4_209_960


def test_a_stamp_that_counts_from_boot_is_no_time():
    (record,) = read(REORDER.replace("v1,", "v1,86400000.5,")).records
    assert record.start_ns is None


def test_a_header_may_name_other_fields():
    header = TEMPLATE.format("").replace("prop_kind,", "").replace("auxiliary,", "auxiliary,weather,")
    (record,) = read(header + REORDER.replace("undef,", "").replace(",,", ",,sunny,")).records
    assert isinstance(record, Reorder)
    assert record.sizes == (2, 16, 32, 32)


def test_a_header_without_what_is_needed_is_not_followed():
    header = "onednn_verbose,v1,primitive,info,template:operation,engine,exec_time\n"
    assert len(read(header + REORDER).records) == 1


def test_a_log_in_pieces_keeps_its_header_and_its_offsets():
    text = (TEMPLATE.format("").replace("prop_kind,", "") + REORDER.replace("undef,", "")).encode()
    cut = text.index(b"\n") + 1
    reader = Reader()
    assert list(reader.read(text[:cut])) == []
    (record,) = reader.read(text[cut:], offset=cut)
    assert isinstance(record, Reorder)
    assert record.offset == cut
    assert text[record.offset :].startswith(b"onednn_verbose")


def test_commas_in_attributes():
    (record,) = read(HEADER + REORDER.replace("attr-scratchpad:user", "query:f16:2x4,key:f16:2x4,val:f16:2x4")).records
    assert isinstance(record, Reorder)
    assert record.sizes == (2, 16, 32, 32)


# --------------------------------------------------------------------------------------------------- layouts and bytes


@given(st.permutations(range(5)), st.lists(st.integers(0, 9), min_size=5, max_size=5), st.integers(1, 5))
def test_strides_of_a_tag_are_those_of_a_permuted_tensor(permutation, sizes, rank):
    order = [dimension for dimension in permutation if dimension < rank]
    sizes = sizes[:rank]
    inverse = sorted(range(rank), key=order.__getitem__)
    tensor = torch.empty([sizes[dimension] for dimension in order]).permute(inverse)
    tag = "".join("abcde"[dimension] for dimension in order)
    assert tensor.shape == tuple(sizes)
    assert strides_of_tag(tag, tuple(sizes)) == tensor.stride()


def test_the_tags_of_torch_s_memory_formats():
    for rank, tag, memory_format in ((4, "acdb", torch.channels_last), (5, "acdeb", torch.channels_last_3d)):
        tensor = torch.empty(tuple(range(2, 2 + rank))).to(memory_format=memory_format)
        assert strides_of_tag(tag, tuple(tensor.shape)) == tensor.stride()


@pytest.mark.parametrize(
    "tag", ["aBcd16b", "abc", "abcde", "abca", "abce", "aBcd", "abcd16b", "aBcd0b", "", "*", "any"]
)
def test_no_strides_for_blocked_and_nonsense_tags(tag):
    assert strides_of_tag(tag, (2, 3, 4, 5)) is None


@pytest.mark.parametrize(
    ("tag", "padded"),
    [
        ("aBcd16b", (2, 16, 4, 5)),
        ("ABcd16b16a", (16, 16, 4, 5)),
        ("ABcd8b16a2b", (16, 16, 4, 5)),  # b in 8 groups of 2
        ("Acdb64a", (64, 3, 4, 5)),
        ("abcd", (2, 3, 4, 5)),
        ("nonsense", (2, 3, 4, 5)),
    ],
)
def test_padding(tag, padded):
    assert padded_sizes(tag, (2, 3, 4, 5)) == padded


def test_bytes_moved_count_the_padding_of_blocked_formats():
    record = reorder("src:f32::blocked:abcd::f0 dst:f32:p:blocked:aBcd16b::f0", "2x3x8x8")
    assert record.bytes_moved == 4 * (2 * 3 * 8 * 8) + 4 * (2 * 16 * 8 * 8)


def test_grouped_weights_and_flags_behind_the_tag():
    record = reorder("src:s8::blocked:abcde::f0 dst:s8:p:blocked:aBCde16c16b::f8:zpm2", "4x16x8x3x3")
    assert record.source_strides == (1152, 72, 9, 3, 1)
    assert (record.format, record.strides) == ("aBCde16c16b", None)
    assert record.bytes_moved == 4 * 16 * 8 * 9 + 4 * 16 * 16 * 9


def test_memory_that_is_not_dense_has_its_strides_printed():
    record = reorder("src:bf16::blocked:ab:128x1:f0 dst:f32::blocked:ba::f0", "64x32")
    assert (record.source_strides, record.strides) == ((128, 1), (1, 64))
    assert record.bytes_moved == 64 * 32 * 2 + 64 * 32 * 4


def test_stride_0_counts_once():
    record = reorder("src:f32::blocked:ab:0x1:f0 dst:f32::blocked:ab::f0", "64x32")
    assert record.bytes_moved == 32 * 4 + 64 * 32 * 4
    assert reorder("src:f32::blocked:ab:0x1:f0 dst:f32::blocked:ab::f0", "64x0").bytes_moved == 0


def test_formats_without_a_tag_go_by_their_kind():
    record = reorder("src:f32::blocked:abcd::f0 dst:f32:a:wino:::f0", "4x4x3x3")
    assert (record.format, record.strides) == ("wino", None)


def test_half_bytes_round_up():
    record = reorder("src:s4::blocked:ab::f0 dst:s8::blocked:ab::f0", "3x3")
    assert (record.source_itemsize, record.itemsize, record.bytes_moved) == (1, 1, 5 + 9)


def test_element_types_are_those_of_torch():
    names = {"f64": "float64", "s64": "int64", "f32": "float32", "s32": "int32", "bf16": "bfloat16", "f16": "float16"}
    names |= {"s8": "int8", "u8": "uint8", "boolean": "bool", "f8_e5m2": "float8_e5m2", "f8_e4m3": "float8_e4m3fn"}
    for name, torch_name in names.items():
        record = reorder(f"src:{name}::blocked:ab::f0 dst:{name}::blocked:ba::f0", "2x3")
        assert record.itemsize == getattr(torch, torch_name).itemsize


@pytest.mark.parametrize(
    "line",
    [
        REORDER.replace("2x16x32x32", "*x16x32x32"),
        REORDER.replace("src:f32", "src:f31"),
        REORDER.replace("src:f32::blocked:abcd", "src:undef::undef:"),
    ],
)
def test_a_reorder_that_cannot_be_told_stays_a_primitive(line):
    log = read(line)
    assert log.skipped == 0
    assert isinstance(log.records[0], Primitive)


# ------------------------------------------------------------------------------------------- all that may stand between


def test_nothing():
    assert read("") == read(b"") == read("\n\n\r\n") == onednn.Log((), 0)


def test_what_did_not_run_is_left_out():
    others = [
        REORDER.replace("exec", "create:cache_miss"),
        REORDER.replace("exec", "create_nested:cache_hit"),
        "onednn_verbose,v1,primitive,create:dispatch,reorder,src has a bad number of dimensions 1,src/x.cpp:302\n",
        "onednn_verbose,v1,primitive,exec:check,primitive,unused primitive execution argument (80),src/x.hpp:136\n",
        "onednn_verbose,v1,common,error,filter format is ill-formed\n",
        "onednn_verbose,v1,graph,exec,cpu,100002,convolution_post_ops,conv,,,fpm:strict,larger,dnnl_backend,0.4\n",
        "epoch 3: onednn_verbose is on\n",
        "\x1b[31mred\x1b[0m, ,,,, \x00\n",
    ]
    log = read("".join(itertools.chain.from_iterable((other, REORDER) for other in others)))
    assert log.skipped == 0
    assert len(log.records) == len(others)


def test_every_way_to_cut_a_line_off():
    cuts = [REORDER[:at] for at in range(len("onednn_verbose,"), REORDER.rindex(",") + 1)]
    for cut in cuts:
        log = read(cut + "\n" + CONVOLUTION)
        assert (len(log.records), log.skipped) == (1, 1), cut
        log = read(cut + CONVOLUTION)  # the next line begins in the middle
        assert (len(log.records), log.skipped) == (1, 1), cut


@pytest.mark.parametrize("time", ["", "nan", "inf", "-1", "1e999", "1_0", "0x1p3", "1.2.3", "9" * 5000, "1 ", "1e300"])
def test_times_that_are_none(time):
    log = read(REORDER.replace("4.20996", time))
    assert (log.records, log.skipped) == ((), 1)


@pytest.mark.parametrize("sizes", ["", "x", "2x", "-2x3", "1e3", "9" * 5000, "2x16x32", "x".join(["2"] * 40)])
def test_sizes_that_are_none(sizes):
    log = read(REORDER.replace("2x16x32x32", sizes))
    assert (log.records, log.skipped) == ((), 1)


def test_huge_sizes_stay_exact():
    record = reorder("src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0", f"{2**62}x{2**62}")
    assert record.bytes_moved == 8 * 2**124


def test_huge_input():
    text = (REORDER + "x" * 100 + "\n") * 20_000 + "onednn_verbose,v1,primitive,exec," + "," * 1_000_000
    log = read(text)
    assert (len(log.records), log.skipped) == (20_000, 1)


WORDS = [
    *REORDER.split(","),
    "onednn_verbose",
    "v1",
    "exec",
    "info",
    "template:operation",
    "1795970194298.3",
    "\n",
    "in:f32_x",
]


@given(st.one_of(st.binary(), st.text().map(str.encode), st.lists(st.sampled_from(WORDS)).map(",".join)))
def test_nothing_breaks_it(text):
    log = read(text)
    for record in log.records:
        assert record.duration_ns >= 0
        assert not isinstance(record, Reorder) or record.bytes_moved >= 0


# ---------------------------------------------------------------------------------------------------------- real ones


@pytest.mark.parametrize(
    ("memory_format", "expected"),
    [
        (torch.contiguous_format, ["input", "weight", "convolution", "output"]),
        (torch.channels_last, ["weight", "convolution"]),
    ],
)
def test_the_reorders_of_a_convolution(memory_format, expected):
    inputs = torch.randn(4, 16, 12, 12).to(memory_format=memory_format)
    convolution = torch.nn.Conv2d(16, 32, 3).eval()
    names = {(4, 16, 12, 12): "input", (32, 16, 3, 3): "weight", (4, 32, 10, 10): "output"}
    with VerboseCapture() as capture, torch.no_grad():
        if capture.unavailable:
            pytest.skip(capture.unavailable)
        convolution(inputs)
    log = read(capture.take())
    assert log.skipped == 0
    assert [names[r.sizes] if isinstance(r, Reorder) else r.primitive for r in log.records] == expected
    moved = [r for r in log.records if isinstance(r, Reorder) and names[r.sizes] == "input"]
    for record in moved:
        assert record.source_strides == inputs.stride()
        assert record.bytes_moved >= 2 * 4 * math.prod(record.sizes)
