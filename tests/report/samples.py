"""Reports made by hand: what people can meet, and what somebody hostile could put in."""

from collections.abc import Sequence
from typing import Any

from stridewise.findings import Carrier, Cost, Edit, Finding, Payer, Site
from stridewise.results import Copy, Folded, Kernel, KernelTime, LayoutKernels, ModuleRow, Report, StreamRow, Totals

MS = 1e6


def site(text: str = "", expression: str = "", line: int = 42, file: str | None = "model.py", **fields: Any) -> Site:
    """A site whose columns follow from where the expression stands in the line, as recordings have them."""
    column = len(text[: text.index(expression)].encode()) if text else None
    end = None if column is None else column + len(expression.encode())
    marks = {"column": column, "end_line": line, "end_column": end, "text": text or None}
    return Site(file=file, line=line, expression=expression or None, **{**marks, **fields})


def payer(expression: str, line: int, copies: float, megabytes: float, ms: float | None, **fields: Any) -> Payer:
    operand = fields.pop("operand", "input 0, (2, 80, 3000) with strides (240000, 1, 80)")
    op = fields.pop("op", "torch.nn.functional.layer_norm")
    where = Site(file=fields.pop("file", "model.py"), line=line, expression=expression, **fields)
    return Payer(where, op, operand, cost(copies, megabytes, ms))


def cost(copies: float, megabytes: float, ms: float | None, share: float | None = None) -> Cost:
    return Cost(copies, megabytes * 1e6, None if ms is None else ms * MS, share)


def finding(code: str = "SW101", **fields: Any) -> Finding:
    default = site("        x = self.embed(mel).transpose(1, 2)", "self.embed(mel).transpose(1, 2)")
    values: dict[str, Any] = {
        "title": "strided-stream",
        "severity": "warning",
        "message": "`self.embed(mel).transpose(1, 2)` starts a stream of strided tensors, which later calls copy.",
        "count": 1,
        "site": default,
        "origin": None,
        "carriers": (),
        "payers": (),
        "cost": cost(24, 31, 1.2, 0.032),
        "fingerprint": "0123456789abcdef",
    }
    return Finding(code=code, **{**values, **fields})


def report(findings: Sequence[Finding] = (), **fields: Any) -> Report:
    totals = {
        "steps": 3,
        "steps_found": True,
        "step_ns": 37.5 * MS,
        "copies": 0.0,
        "bytes_moved": 0.0,
        "duration_ns": 0.0,
        "share": 0.0,
        "share_of": "step time",
        "by_kind": {},
        "by_change": {},
        "untaxed": {},
        "layout_kernels": None,
    }
    totals |= {key: fields.pop(key) for key in list(fields) if key in totals}
    values: dict[str, Any] = {
        "folded": Folded(0, 0.001, Cost(duration_ns=0, share=0)),
        "copies": (),
        "kernels": (),
        "modules": (),
        "notes": (),
        "environment": {"torch": "2.13.0", "device": "cpu"},
    }
    values["copies"] = fields.pop("copy_list", ())
    return Report(findings=tuple(findings), totals=Totals(**totals), **{**values, **fields})


STREAM = finding(
    count=12,
    site=site(
        "        x = self.embed(mel).transpose(1, 2)",
        "self.embed(mel).transpose(1, 2)",
        function="AudioEncoder.forward",
        module="encoder",
    ),
    origin=site(
        "        x = self.embed(mel).transpose(1, 2)",
        "self.embed(mel).transpose(1, 2)",
        function="AudioEncoder.forward",
        module="encoder",
    ),
    carriers=(
        Carrier(Site("model.py", 44, expression="F.gelu(x)"), "torch.nn.functional.gelu", 1),
        Carrier(Site("model.py", 45, expression="x + self.positions"), "torch.Tensor.__add__", 12),
    ),
    payers=(
        *(payer("self.norm(x)", 51, 1, 1.25, 0.05, module=f"encoder.layers.{n}") for n in range(12)),
        payer(
            "linear(h, self.weight)", 7, 6, 8, 0.3, file="package/layers/dense.py", operand="input 0, (2, 1500, 512)"
        ),
        payer(
            "F.gelu(x)", 44, 2, 2, 0.1, operand="the gradient, (2, 1500, 512)", op="torch.nn.functional.gelu (backward)"
        ),
        *(payer(f"self.probe{n}(x)", 60 + n, 1, 0.5, 0.02) for n in range(8)),
    ),
    advice="Call `.contiguous()` once, right after the transpose: one copy then replaces 24.",
    inferred=True,
    edits=(Edit("model.py", (812, 843), "self.embed(mel).transpose(1, 2).contiguous()", "safe"),),
)

FROM_INPUT = finding(
    message="Input `mel` comes in with its last two dimensions swapped, and nothing puts them in order.",
    site=Site(expression="input `mel`"),
    origin=Site(expression="input `mel`"),
    payers=(payer("self.conv1(mel)", 40, 2, 4, 0.3),),
    cost=cost(2, 4, 0.3, 0.008),
    advice="Make `mel` contiguous where the batch is made.",
)

RESHAPE = finding(
    "SW103",
    title="copying-reshape",
    message="`y.reshape(-1, 512)` cannot be a view of a tensor with this layout, so it copies all of it.",
    site=site("\treturn\ty.reshape(-1, 512)  # größer", "y.reshape(-1, 512)", line=77, function="Head.forward"),
    payers=(
        Payer(
            site("\treturn\ty.reshape(-1, 512)  # größer", "y.reshape(-1, 512)", line=77, function="Head.forward"),
            "torch.Tensor.reshape",
            "input 0, (8, 512, 64) with strides (32768, 1, 512)",
            cost(1, 2.1, 0.05),
        ),
    ),
    cost=cost(1, 2.1, 0.05, 0.0014),
    evidence=("`y` has memory order (0, 2, 1); a view needs (0, 1, 2).",),
)

RICH = report(
    [STREAM, FROM_INPUT, RESHAPE],
    copies=27.0,
    bytes_moved=37.1e6,
    duration_ns=1.55 * MS,
    share=0.0414,
    folded=Folded(3, 0.001, cost(4, 0.02, 0.004, 0.0001)),
    notes=("2 threads ran before the recording began: what they did is not in it.",),
)

HEALTHY = report(share=0.0003, copies=2.0, bytes_moved=3100.0, duration_ns=11000.0)
NO_COPY = report()
UNMEASURED = report(
    [finding(cost=cost(24, 31, None), payers=(payer("self.norm(x)", 51, 24, 31, None),))],
    step_ns=None,
    duration_ns=None,
    share=None,
    copies=24.0,
    bytes_moved=31e6,
    steps=1,
    steps_found=False,
    environment={},
)

FOLDED = report(
    copies=300.0,
    bytes_moved=9e6,
    duration_ns=2 * MS,
    share=0.053,
    folded=Folded(41, 0.001, cost(300, 9, 2, 0.053)),
)
IGNORED = report(copies=300.0, bytes_moved=9e6, duration_ns=2 * MS, share=0.053)
DEVICE = report(
    [finding("SW110", title="gradient-copy", severity="note", cost=cost(0.33, 0.5, 0.2, 0.0021))],
    copies=0.33,
    bytes_moved=5e5,
    duration_ns=0.2 * MS,
    share=0.0021,
    share_of="kernel-busy time",
)
NO_STRIDES = report(copies=None, bytes_moved=None, duration_ns=None, share=None, notes=("Record with shapes.",))
WRONG = report(
    [finding("SW201", title="ignored-strides", severity="error", cost=Cost(), message="The kernel ignores strides.")]
)

HOSTILE_TEXT = "\x1b[31m[red]x[/red]\x1b]8;;http://evil\x07::error::owned ##[error]y \u202e%0A](http://evil) <b>&"
HOSTILE = report(
    [
        finding(
            title=HOSTILE_TEXT,
            message=HOSTILE_TEXT + "\nsecond line\r\n::warning file=x::owned",
            site=site(
                f"a = f('{HOSTILE_TEXT}')", f"f('{HOSTILE_TEXT}')", file=f"{HOSTILE_TEXT}.py", function=HOSTILE_TEXT
            ),
            origin=Site(expression=HOSTILE_TEXT, module=HOSTILE_TEXT),
            payers=(payer(HOSTILE_TEXT, 3, 1, 1, 1, file=HOSTILE_TEXT, operand=HOSTILE_TEXT),),
            evidence=(HOSTILE_TEXT,),
            advice=HOSTILE_TEXT,
        )
    ],
    copies=1.0,
    bytes_moved=1e6,
    duration_ns=MS,
    share=0.01,
    notes=(HOSTILE_TEXT,),
    environment={HOSTILE_TEXT: HOSTILE_TEXT},
    modules=(ModuleRow(HOSTILE_TEXT, HOSTILE_TEXT, 1, 0, (HOSTILE_TEXT,), (HOSTILE_TEXT,), True, True),),
)

_LONG = "torch.cat([" + ", ".join(f"self.very_long_attribute_name_{n}(x)" for n in range(9)) + "]).transpose(1, 2)"
_WIDE = "self.模型.编码器(输入).transpose(1, 2)"
LONG = report(
    [
        finding(
            message=f"`{_LONG}` starts a stream.",
            site=site(
                f"        result = {_LONG}", _LONG, file="a/very/deep/folder/" * 5 + "model.py", module="m." * 60
            ),
            origin=site(f"        result = {_LONG}", _LONG, file="a/very/deep/folder/" * 5 + "model.py"),
            payers=(payer(_LONG, 3, 1234567, 98765, 4321, operand="input " + "0, " * 80),),
        ),
        finding(
            site=site(f"        {'y' * 60} = \t{_WIDE}; {'z' * 60}", _WIDE),
            payers=(payer(_WIDE, 9, 1, 1, 1), payer("f(x)", 9, 1, 1, 1)),
        ),
        finding(
            site=Site(
                "model.py",
                7,
                8,
                10,
                21,
                expression="torch.stack(\n            [a, b],\n            dim=1,\n        ).transpose(1, 2)",
                text="    y = torch.stack(",
            ),
        ),
    ],
    copies=2.0,
    bytes_moved=1e6,
    duration_ns=MS,
    share=0.05,
)

COPIES = tuple(
    Copy(
        kind="hidden",
        change="reorder",
        cast=step == 2,
        op="aten::layer_norm",
        call="torch.nn.functional.layer_norm",
        site=Site("model.py", 51, expression="self.norm(x)"),
        step=step,
        sizes=(2, 80, 3000),
        source_strides=(240000, 1, 80),
        strides=(240000, 3000, 1),
        source_dtype="float32",
        dtype="float32",
        bytes_moved=3_840_000,
        bytes_written=1_920_000,
        duration_ns=150_000 if step else None,
        gb_per_s=25.6 if step else None,
        backward=False,
        inferred=False,
        taxed=step != 1,
        reason="a bias spread over rows" if step == 1 else None,
        finding="0123456789abcdef",
    )
    for step in (0, 1, 2, 2)
)
MODULES = (
    ModuleRow("", "Whisper", 1, 0, ("contiguous (2, 80, 3000)",), ("contiguous (2, 1500, 512)",), False, False),
    ModuleRow("encoder.conv1", "Conv1d", 1, 2, ("contiguous (2, 80, 3000)",), ("permuted (2, 512, 3000)",), True, True),
    ModuleRow(
        "encoder.layers.0.fc.lora", "LoraLinear", 12, 4, ("permuted (2, 3)", "int"), ("expanded (2,)",), True, False
    ),
    ModuleRow("encoder.ln" + ".deep" * 12, "LayerNorm", 1, 4, ("permuted (2, 3)",), ("permuted (2, 3)",), False, False),
)
KERNELS = (
    Kernel(
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
        "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}> >(int)",
        "copy",
        "aten::copy_",
        Site("model.py", 51, function="forward", module="Model_0.*"),
        "forward pass",
        0,
        540,
        5_500_000,
        0.0101,
    ),
    Kernel("nchwToNhwcKernel<" + HOSTILE_TEXT, "transpose", HOSTILE_TEXT, None, HOSTILE_TEXT, None, 3, 3000, None),
    Kernel("triton_poi_fused_permute_0", "possible", None, None, None, 1, 1, 900, 0.00001),
    Kernel("void cutlass::Kernel2<cutlass_80_tensorop>", None, "aten::mm", None, None, 0, 9, 27_000, 0.9),
)
LAYOUT_KERNELS = LayoutKernels(
    count=211,
    duration_ns=5_040_303.3,
    share=0.0974,
    share_of="kernel-busy time",
    share_of_step=0.0227,
    by_cause={
        "copy": KernelTime(60, 1_340_303.3, 0.026, 0.006),
        "transpose": KernelTime(151, 3_700_000, 0.0714, 0.0167),
    },
    possible=KernelTime(1, 300, 0.0000058, 0.0000013),
)
STREAMS = (
    StreamRow(0, 7, 38.5 * MS, 893, KernelTime(211, 5_040_303.3, 0.131)),
    StreamRow(0, 40, 15.6 * MS, 7, KernelTime(0, 0, 0.0)),
    StreamRow(None, None, 1 * MS, 0.33, KernelTime(0, 0, None)),
)
ON_A_DEVICE = report(
    [finding("SW107", title="library-reorder", cost=Cost(151, None, 3.7e6, 0.0714))],
    copies=None,
    bytes_moved=None,
    duration_ns=None,
    share=None,
    share_of="kernel-busy time",
    kernels=KERNELS,
    layout_kernels=LAYOUT_KERNELS,
    streams=STREAMS,
)
EVERYTHING = report(
    [STREAM],
    copies=24.0,
    bytes_moved=31e6,
    duration_ns=1.2 * MS,
    share=0.032,
    copy_list=COPIES,
    modules=MODULES,
    kernels=KERNELS,
    layout_kernels=LAYOUT_KERNELS,
    streams=STREAMS,
)
