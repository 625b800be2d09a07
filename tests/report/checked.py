"""Results of checks made by hand: what people can meet, and what somebody hostile could put in."""

from msgspec.structs import replace

from stridewise.findings import NOT_MEASURED, Finding, Site, fingerprint
from stridewise.results.checks import Conformance, Field, LoaderReport, Looked, Operand, Preflight, Snippet, Tried

from .samples import HOSTILE_TEXT

ENVIRONMENT = {"torch": "2.13.0", "python": "3.11"}
FEW = "a difference of at most 0.002 % of a result's largest magnitude"


def finding(code: str, title: str, site: Site, **fields) -> Finding:
    given = {
        "severity": "error",
        "message": "`x` is read flat.",
        "count": 1,
        "origin": None,
        "carriers": (),
        "payers": (),
        "cost": NOT_MEASURED,
        "fingerprint": fingerprint(code, site, site.module or ""),
        **fields,
    }
    return Finding(code=code, title=title, site=site, **given)


KERNEL = Site(file="kernels.py", line=12, function="scale", text="def scale(x, w):")
WRONG = finding(
    "SW401",
    "wrong-values",
    KERNEL,
    message="`scale` gives wrong values for every layout of `x` with gaps, and for expanded ones.",
    count=9,
    evidence=(
        "`x[:, ::2]`, (3, 4) with strides (8, 2): 9 of 12 elements of the output differ, by up to 86 % of its largest",
        "`x.split(4, 1)[1]`, (3, 4) with strides (8, 1): 8 of 12 elements differ",
    ),
    advice="Call `x = x.contiguous()` and keep the result until the kernel is done, or give it `x.stride()`.",
)
OUTSIDE = finding(
    "SW402",
    "writes-outside",
    KERNEL,
    message="`scale` writes outside of `out` where that has gaps.",
    count=4,
    evidence=("`out[:, ::2]`: 6 elements between those of `out` were written",),
)
SNIPPET = Snippet(
    WRONG.fingerprint,
    "`x[:, ::2]`, (1, 2) with strides (4, 2)",
    "import torch\nfrom kernels import scale\n\nx = torch.arange(4.).reshape(1, 4)[:, ::2]\n"
    "torch.testing.assert_close(scale(x), scale(x.contiguous()))\n",
)
X = Operand("x", "input", (3, 4), "float32", "wrong values", 31, 9)
CASES = (
    Tried(("x",), ("`x[:, ::2]`, (3, 4) with strides (8, 2)",), "values", "wrong values", "output", 0.86, None),
    Tried(("x",), ("`x.transpose(0, 1)`, (3, 4) with strides (1, 3)",), "values", "honours strides", None, None, None),
    Tried((), (), "gradient", "honours strides", None, None, None),
)
BROKEN = Conformance(
    "scale",
    (X, Operand("out", "out", (3, 4), "float32", "writes outside", 14, 4)),
    CASES,
    (WRONG, OUTSIDE),
    (SNIPPET,),
    '@expect_layout(x="contiguous", out="contiguous", mode="convert")',
    True,
    FEW,
    "in a child process, forked, one thread",
    ("12 runs were left out: `scale` raises for operands of that size even when they are contiguous.",),
    ENVIRONMENT,
)
GOOD = replace(
    BROKEN,
    operands=(replace(X, verdict="honours strides", failed=0),),
    cases=CASES[1:],
    findings=(),
    snippets=(),
    contract=None,
    contract_holds=None,
    notes=(),
)
REFUSES = replace(
    GOOD,
    operands=(replace(X, verdict="raises", failed=9, clear=True),),
    findings=(
        finding(
            "SW407",
            "refuses-layout",
            KERNEL,
            severity="note",
            message="`scale` raises for `x` with gaps, and says so: `x must be contiguous`.",
            count=9,
        ),
    ),
)
UNCLEAR = replace(REFUSES, findings=(replace(REFUSES.findings[0], severity="warning"),))
RANDOM = replace(GOOD, operands=(replace(X, verdict="not comparable", failed=0),))
UNTRIED = replace(GOOD, operands=(), cases=())

PARAMETER = Site(module="stem", expression="parameter `stem.weight`")
FUSED = finding(
    "SW204",
    "fused-optimizer-strides",
    PARAMETER,
    message="`AdamW(fused=True)` will update `stem.weight`, (27, 3, 3, 3) with strides (54, 18, 6, 2), as if it were"
    " flat: wrong values, and its neighbours in memory are overwritten.",
    evidence=("the parameter has gaps: 729 elements in a span of 1457",),
    advice="Give it memory of its own, `stem.weight.data = stem.weight.data.clone()`, or use `foreach=True`.",
)
SHIPS = finding(
    "SW215",
    "sample-ships-storage",
    Site(file="data.py", line=8, function="Crops.__getitem__", expression="Crops.__getitem__"),
    severity="warning",
    message="Each sample of `image` is 1.2 kB, and ships its storage of 12 MB from the worker.",
    advice="Return `crop.clone()`; `contiguous()` would return the same view.",
)
FIELDS = (
    Field(
        "image",
        "gapped, (3, 10, 10) with strides (1000000, 1000, 1)",
        "contiguous, (4, 3, 10, 10)",
        1200,
        12_000_000,
        0,
    ),
    Field("label", None, "contiguous, (4,)", None, None, None),
)
HAZARDS = Preflight(
    (FUSED, SHIPS),
    (
        Looked("148 parameters and 53 buffers", "channels_last"),
        Looked("AdamW, fused", "1 finding"),
        Looked("DataLoader, 2 batches", "1 finding"),
    ),
    FIELDS,
    ("No sample was given: gradients were not looked at.",),
    ENVIRONMENT,
)
SAFE = replace(HAZARDS, findings=(), fields=(), notes=())
LOADER = LoaderReport((SHIPS,), FIELDS, 2, 2, (), ENVIRONMENT)
EMPTY = Preflight((), (), (), (), {})

NASTY = finding(
    "SW206",
    HOSTILE_TEXT,
    Site(module=HOSTILE_TEXT, expression=HOSTILE_TEXT),
    message=HOSTILE_TEXT,
    evidence=(HOSTILE_TEXT,),
    advice=HOSTILE_TEXT,
)
HOSTILE = Preflight(
    (NASTY,),
    (Looked(HOSTILE_TEXT, HOSTILE_TEXT),),
    (Field(HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, 1, 2, 3),),
    (HOSTILE_TEXT,),
    {HOSTILE_TEXT: HOSTILE_TEXT},
)
HOSTILE_OP = Conformance(
    HOSTILE_TEXT,
    (Operand(HOSTILE_TEXT, "input", (2,), HOSTILE_TEXT, "wrong values", 1, 1),),
    (Tried((HOSTILE_TEXT,), (HOSTILE_TEXT,), "values", "wrong values", HOSTILE_TEXT, 1.0, HOSTILE_TEXT),),
    (NASTY,),
    (Snippet(NASTY.fingerprint, HOSTILE_TEXT, HOSTILE_TEXT),),
    HOSTILE_TEXT,
    None,
    HOSTILE_TEXT,
    HOSTILE_TEXT,
    (HOSTILE_TEXT,),
    {},
)

ALL = {
    "broken": BROKEN,
    "good": GOOD,
    "refuses": REFUSES,
    "unclear": UNCLEAR,
    "random": RANDOM,
    "untried": UNTRIED,
    "hazards": HAZARDS,
    "safe": SAFE,
    "loader": LOADER,
    "empty": EMPTY,
    "hostile": HOSTILE,
    "hostile_op": HOSTILE_OP,
}
