"""Pairs of reports made by hand, as people meet them, and what somebody hostile could put in."""

from collections.abc import Sequence
from typing import Any

from stridewise.findings import Cost, Finding, Payer, Site
from stridewise.results import Folded, Kernel, KernelTime, LayoutKernels, Report, Totals

MS = 1e6


def cost(copies: float = 0, megabytes: float = 0, ms: float | None = None, share: float | None = None) -> Cost:
    return Cost(copies, megabytes * 1e6, None if ms is None else ms * MS, share)


def payer(expression: str, line: int, paid: Cost, op: str = "torch.nn.functional.layer_norm") -> Payer:
    return Payer(Site("model.py", line, expression=expression), op, None, paid)


DOZEN = cost(12, 31, 1.2, 0.032)


def finding(code: str = "SW101", line: int | None = 42, paid: Cost = DOZEN, **fields: Any) -> Finding:
    site = {"file": "model.py", "function": "Encoder.forward", "expression": "self.embed(mel).transpose(1, 2)"}
    site |= {key: fields.pop(key) for key in ("file", "function", "expression", "module") if key in fields}
    values: dict[str, Any] = {
        "title": {"SW101": "strided-stream", "SW103": "hidden-copy"}.get(code, "ignored-strides"),
        "severity": "warning",
        "message": "Something about layout.",
        "count": 1,
        "site": Site(line=line, **site),
        "origin": None,
        "carriers": (),
        "payers": (payer("self.norm(x)", 51, paid),) if paid.copies else (),
        "cost": paid,
        "fingerprint": f"{code}-{site['expression']}",
    }
    return Finding(code=code, **{**values, **fields})


def report(findings: Sequence[Finding] = (), **fields: Any) -> Report:
    """Its totals are what the findings cost, unless they are given."""
    costs = [each.cost for each in findings]
    totals: dict[str, Any] = {
        "steps": 3,
        "steps_found": True,
        "step_ns": 37.5 * MS,
        "copies": sum(each.copies for each in costs),
        "bytes_moved": sum(each.bytes_moved or 0 for each in costs),
        "duration_ns": sum(each.duration_ns or 0 for each in costs),
        "share": sum(each.share or 0 for each in costs),
        "share_of": "step time",
        "by_kind": {},
        "by_change": {},
        "untaxed": {},
        "layout_kernels": None,
    }
    totals |= {key: fields.pop(key) for key in list(fields) if key in totals}
    values: dict[str, Any] = {
        "folded": Folded(0, 0.001, Cost()),
        "copies": (),
        "kernels": (),
        "modules": (),
        "notes": (),
        "environment": {"torch": "2.13.0", "device": "cpu"},
    }
    return Report(findings=tuple(findings), totals=Totals(**totals), **{**values, **fields})


def kernel(name: str, count: int, ms: float, cause: Any = "transpose") -> Kernel:
    return Kernel(name, cause, "aten::convolution", None, None, 0, count, round(ms * MS), 0.1)


def layout_kernels(count: float, ms: float) -> LayoutKernels:
    return LayoutKernels(count, ms * MS, 0.1, "kernel-busy time", 0.05, {}, KernelTime(0, 0, None))


NORM, PROBE = ("self.norm(x)", 51), ("self.probe(x)", 60)

STREAM = finding(payers=(payer(*NORM, cost(8, 21, 0.8)), payer(*PROBE, cost(4, 10, 0.4))))
LONGER_STREAM = finding(
    line=44,
    paid=cost(15, 39, 1.5, 0.039),
    payers=(payer(*NORM, cost(11, 29, 1.1)), payer(*PROBE, cost(4, 10, 0.4))),
)
RESHAPE = finding("SW103", 77, cost(1, 2.1, 0.05, 0.0014), expression="y.reshape(-1, 512)", function="Head.forward")
INPUT = finding(
    paid=cost(2, 4, 0.3, 0.008), line=None, file=None, function=None, expression="input `mel`", fingerprint="input"
)
TINY = finding("SW103", 90, cost(0.5, 0.001, 0.001, 0.00002), expression="z.flatten()", severity="note")
TINIER = finding("SW103", 90, cost(0.25, 0.0005, 0.001, 0.00002), expression="z.flatten()", severity="note")
WRONG = finding("SW201", 12, Cost(), severity="error", expression="kernel(x)")

NOTHING = report()
BEFORE = report([STREAM, INPUT])
AFTER = report([LONGER_STREAM, RESHAPE], step_ns=39 * MS)
SLOWER = report([finding(paid=cost(12, 31, 1.9, 0.05)), INPUT], step_ns=80 * MS)
UNMEASURED = report(copies=None, bytes_moved=None, duration_ns=None, share=None, notes=("Record with shapes.",))
ON_DEVICE = report(
    [STREAM],
    share_of="kernel-busy time",
    environment={"torch": "2.12.0", "device": "cuda"},
    layout_kernels=layout_kernels(12, 1.2),
    kernels=(
        kernel("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>()", 36, 3.6),
        kernel("direct_copy_kernel", 6, 0.6, "copy"),
        kernel("gemm", 99, 60, None),
    ),
)
ON_DEVICE_LATER = report(
    [STREAM],
    share_of="kernel-busy time",
    environment={"torch": "2.13.0", "device": "cuda"},
    layout_kernels=layout_kernels(18, 1.8),
    kernels=(
        kernel("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>()", 54, 5.4),
        kernel("gemm", 99, 60, None),
    ),
)

EVIL = "\x1b[31m[red]x[/red]\x1b]8;;http://evil\x07::error::owned ##[error]y \u202e%0A](http://evil) <b>&"
HOSTILE = report(
    [
        finding(EVIL, paid=cost(3, 1), title=EVIL, file=f"{EVIL}.py", function=EVIL, expression=EVIL),
        finding("SW103", paid=cost(3, 1), expression="模型(" * 60, file="a/very/deep/folder/" * 9 + "model.py"),
    ],
    notes=(f"{EVIL}\n::warning file=x::owned",),
    environment={EVIL: "one"},
    kernels=(kernel(EVIL, 3, 1),),
    layout_kernels=layout_kernels(1, 1),
)
HOSTILE_LATER = report(
    [finding(EVIL, paid=cost(4, 1.5), title=EVIL, file=f"{EVIL}2.py", function=EVIL, expression=EVIL)],
    environment={EVIL: EVIL},
    kernels=(kernel(EVIL, 6, 2),),
    layout_kernels=layout_kernels(2, 2),
)

PAIRS = {
    "worse": (BEFORE, AFTER),
    "better": (AFTER, BEFORE),
    "same": (BEFORE, BEFORE),
    "no copy": (NOTHING, NOTHING),
    "only slower": (BEFORE, SLOWER),
    "small": (report([STREAM, TINY]), report([STREAM, TINIER])),
    "wrong": (report([STREAM]), report([STREAM, WRONG])),
    "right again": (report([STREAM, WRONG]), report([STREAM])),
    "old without strides": (UNMEASURED, AFTER),
    "device": (ON_DEVICE, ON_DEVICE_LATER),
    "cpu and device": (BEFORE, ON_DEVICE),
    "no steps": (BEFORE, report([STREAM, INPUT], steps=1, steps_found=False)),
    "hostile": (HOSTILE, HOSTILE_LATER),
}
