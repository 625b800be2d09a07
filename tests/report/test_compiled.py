"""What people read of compiled code, held by snapshots; and what holds of every result: it fits, is plain, is inert."""

import io
import json

import msgspec
import pytest
from rich.cells import cell_len
from rich.text import Text

from stridewise.compiled.facts import Facts, Promise
from stridewise.compiled.judge import judged
from stridewise.findings import Site
from stridewise.report import compiled
from stridewise.results.compiled import (
    Arm,
    Break,
    Chosen,
    Compiled,
    Copied,
    Graph,
    Launch,
    Output,
    Recompile,
    Strides,
    Trial,
)

EVIL = "\x1b[31m[bold]::error::\n##[group]<script>"
CONV = Site(
    file="net.py",
    line=14,
    column=26,
    end_line=14,
    end_column=41,
    function="Net.forward",
    module="conv",
    expression="self.conv(image)",
    text="        return torch.relu(self.conv(image))",
)
FORWARD = Site(file="net.py", line=13, function="Net.forward")
NCHW, NHWC = (8192, 256, 16, 1), (8192, 1, 512, 32)
SIZES = (2, 32, 16, 16)


def copied(source: str, **fields: object) -> Copied:
    base = Copied(
        kernel="cpp_fused_convolution_0",
        line=166,
        code="cpp_fused_convolution_0(arg2_1, arg0_1, buf0, buf1)",
        statement="transpose_mxn<…>(…);",
        source=source,
        read=Strides(SIZES, NCHW, "float32"),
        written=Strides(SIZES, NHWC, "float32"),
        change="reorder",
        bytes_moved=131072,
        feeds="extern_kernels.convolution",
        feeds_extern=True,
        cause="required",
        site=CONV,
    )
    return msgspec.structs.replace(base, **fields)


GRAPH = Graph(
    id="0/0",
    phase="inference",
    function=FORWARD,
    kernels=2,
    externs=1,
    copies=2,
    bytes_moved=204800,
    launches=(
        Launch("kernel", "cpp_fused_convolution_0", 166, "cpp_fused_convolution_0(…)", 2, True, ()),
        Launch("extern", "extern_kernels.convolution", 171, "buf2 = …", 0, False, (CONV,)),
        Launch("kernel", "cpp_fused_relu_1", 177, "cpp_fused_relu_1(buf2, buf3)", 0, False, (CONV,)),
    ),
    copied=(copied("input `image`"), copied("parameter `conv.weight`", bytes_moved=73728)),
    chosen=(
        Chosen(
            "extern_kernels.convolution",
            171,
            "operand 0",
            Strides(SIZES, NCHW, "float32"),
            Strides(SIZES, NHWC, "float32"),
            "cpp_fused_convolution_0 copies it",
            CONV,
        ),
    ),
    breaks=0,
    language="C++",
)
ARMS = (
    Arm("eager", None, None, None, None, None, None, 8425472),
    Arm("compiled", 0.873, 0.821, 0.923, 2, 1, 2, 8474672),
    Arm("layout optimization off", 0.825, 0.724, 0.982, 1, 1, 0, 8425472),
    Arm("layout optimization forced on", None, None, None, None, None, None, None, "RuntimeError: no compiler"),
)
CALL = Site(
    file="net.py", line=20, column=8, end_line=20, end_column=38, function="attend", expression="q.contiguous()"
)


def result(**fields: object) -> Compiled:
    facts = {key: fields.pop(key) for key in ("promises", "failed", "dynamic_recompiles") if key in fields}
    base = Compiled(
        findings=(),
        graphs=(GRAPH,),
        recompiles=(),
        breaks=(),
        outputs=(),
        arms=(),
        trials=(),
        missing=(),
        notes=(),
        environment={"torch": "2.13.0", "python": "3.11.7"},
        code={"0/0 inference": "def call(args):\n    return (buf3, )"},
    )
    whole = msgspec.structs.replace(base, **fields)
    return msgspec.structs.replace(whole, findings=judged(Facts(whole, **facts)))


FINE = msgspec.structs.replace(
    GRAPH, kernels=1, copies=0, bytes_moved=0, launches=GRAPH.launches[1:], copied=(), chosen=()
)
ALL = {
    "convolution": result(arms=ARMS),
    "healthy": result(graphs=(FINE,)),
    "nothing": result(graphs=(), notes=("Nothing was compiled: the callable runs no operator.",)),
    "recompiled": result(
        graphs=(FINE,),
        recompiles=(
            Recompile("0/1", FORWARD, "tensor 'x' stride mismatch at index 0. expected 8, actual 1", True, "input `x`"),
            Recompile("0/2", FORWARD, "tensor 'x' stride mismatch at index 1. expected 1, actual 2", True, "input `x`"),
            Recompile("0/3", FORWARD, "tensor 'x' size mismatch at index 1. expected 8, actual 4", False, "input `x`"),
        ),
        dynamic_recompiles=2,
    ),
    "breaks": result(
        graphs=(FINE,),
        breaks=(
            Break("0/0", "Failed to trace builtin operator", CALL, "is_contiguous"),
            Break("0/0", "Call to `torch._dynamo.graph_break()`", FORWARD, None),
        ),
    ),
    "outputs": result(
        graphs=(FINE,),
        outputs=(
            Output("output", Strides((4, 6), (6, 1)), Strides((4, 6), (1, 4)), False),
            Output("gradient of `w`", Strides((4, 1), (1, 1)), Strides((4, 1), (1, 4)), True),
        ),
    ),
    "failed": result(
        graphs=(),
        notes=("torch.compile fails where eager mode does not: AssertionError: expected size 3==3, stride 12==3",),
        promises=(Promise("aten.native_batch_norm.default", CALL, Strides((2, 3), (1, 2)), Strides((2, 3), (3, 1))),),
        failed="AssertionError: expected size 3==3, stride 12==3",
    ),
    "trials": result(
        graphs=(FINE,),
        trials=(
            Trial("contiguous", CALL, "removed", (2, 1), (4, 2), (1, 1), (1048576, 524288), False),
            Trial("contiguous", CALL, "removed", (2, 1), (1, 0), (1, 1), (None, None), True),
            Trial("contiguous", CALL, "removed", (2, 2), (1, 1), (1, 1), (0, 0), False, "RuntimeError: view"),
            Trial("permute", CALL, "a view of the same sizes in its place", (1, 0), (1, 0), (1, 1), (8, 0), False),
        ),
    ),
    "evil": result(
        graphs=(msgspec.structs.replace(GRAPH, id=EVIL, copied=(copied(EVIL, code=EVIL * 9),)),),
        notes=(EVIL,),
        missing=(EVIL,),
        breaks=(Break(EVIL, EVIL, Site(file=EVIL, expression=EVIL), None),),
        environment={"torch": EVIL},
        code={EVIL: EVIL},
    ),
}


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def rendered(result, out=None, **options):
    out = io.StringIO() if out is None else out
    compiled.render(result, out, **options)
    return out.getvalue()


@pytest.mark.parametrize("name", ALL)
def test_text(name, snapshot):
    assert rendered(ALL[name]) == snapshot


def test_code_is_shown_when_asked():
    assert "def call(args):" not in rendered(ALL["convolution"])
    assert "     1  def call(args):" in rendered(ALL["convolution"], code=True)


@pytest.mark.parametrize("format", ["sarif", "github", "junit"])
def test_formats_for_programs(format, snapshot):
    assert rendered(ALL["convolution"], format=format) == snapshot


@pytest.mark.parametrize("name", ALL)
def test_json_is_the_whole_result(name):
    assert msgspec.json.decode(rendered(ALL[name], format="json"), type=Compiled) == ALL[name]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("width", [60, 100, 160])
def test_lines_fit_and_are_inert(name, width):
    text = rendered(ALL[name], Tty(), width=width, color=False)
    assert all(cell_len(line) <= width for line in text.splitlines())
    assert not any(sign in text for sign in "\x1b\x07\x00")


def test_colour_is_for_terminals():
    assert "\x1b[" in rendered(ALL["convolution"], Tty())
    assert "\x1b[" not in rendered(ALL["convolution"])
    assert Text.from_ansi(rendered(ALL["convolution"], Tty())).plain.rstrip() == rendered(ALL["convolution"]).rstrip()


def test_nothing_begins_a_command_for_ci():
    text = rendered(ALL["evil"], format="github")
    assert not any(line.startswith("##[") for line in text.splitlines())
    json.loads(rendered(ALL["evil"], format="sarif"))


def test_a_finding_of_a_copy_has_its_cost():
    (finding,) = ALL["convolution"].findings
    assert (finding.cost.copies, finding.cost.bytes_moved) == (2, 204800)
