"""Repairs made by hand: what people can meet, and what somebody hostile could put in."""

from typing import Any

from stridewise.findings import Cost, Edit, Site
from stridewise.results.repair import EditedFile, Measurement, Repair, Trial, Untried

from . import samples

MB = 10**6

SOURCE = (
    b"import torch\n"
    b"\n"
    b"\n"
    b"class Encoder(torch.nn.Module):\n"
    b"    def forward(self, images):\n"
    b"        x = self.patches(images).flatten(2).transpose(1, 2)  # gr\xc3\xb6\xc3\x9fer\n"
    b"        for layer in self.layers:\n"
    b"            x = layer(x, self.mask.expand(8, -1).contiguous())\n"
    b"        return self.norm(x)\n"
)
STREAM = "self.patches(images).flatten(2).transpose(1, 2)"
MASK = "self.mask.expand(8, -1).contiguous()"


def place(expression: str, line: int, file: str = "train.py", **fields: Any) -> Site:
    text = SOURCE.decode().splitlines()[line - 1] if file == "train.py" and line < 10 else ""
    return samples.site(text, expression, line, file, **{"function": "Encoder.forward", "module": "encoder", **fields})


def edit(expression: str, replacement: str) -> Edit:
    start = SOURCE.index(expression.encode())
    return Edit("train.py", (start, start + len(expression.encode())), replacement, "unsafe")


def tax(copies: float, megabytes: float, ms: float) -> Cost:
    return samples.cost(copies, megabytes, ms)


MEASURED: dict[str, Any] = {
    "ratio": 0.763,
    "low": 0.741,
    "high": 0.787,
    "pairs": 40,
    "equal": True,
    "difference": 3.1e-7,
    "verdict": "won",
    "reason": None,
    "copies_before": 16.0,
    "copies_after": 2.0,
    "tax_before": tax(16, 38, 2.3),
    "tax_after": tax(2, 4.1, 0.2),
    "peak_before": 81 * MB,
    "peak_after": 64 * MB,
}
UNTIMED: dict[str, Any] = {
    **dict.fromkeys(MEASURED),
    "pairs": 0,
    "verdict": "refused",
}


def together(**fields: Any) -> Measurement:
    return Measurement(**{**MEASURED, **fields})


def trial(**fields: Any) -> Trial:
    values = {
        **MEASURED,
        "candidate": "copy-at-origin",
        "what": f"copy once behind `{STREAM}`",
        "answers": 'A strided tensor: "put `.contiguous()` in front of each call that copies". One copy where the'
        " tensor starts to be strided does for all of them.",
        "site": place(STREAM, 6),
        "findings": ("stream",),
        "edits": (edit(STREAM, f"{STREAM}.contiguous()"),),
        "kept": False,
    }
    return Trial(**{**values, **fields})


def refused(reason: str, **fields: Any) -> Trial:
    return trial(**{**UNTIMED, "reason": reason, **fields})


def level(**fields: Any) -> Trial:
    """A trial that made no difference."""
    values = {"ratio": 1.002, "low": 0.993, "high": 1.008, "verdict": "no difference", "difference": 0.0}
    same = {"copies_after": 16.0, "tax_after": tax(16, 38, 2.3), "peak_after": 81 * MB}
    return trial(**{**values, **same, **fields})


def repair(*trials: Trial, **fields: Any) -> Repair:
    values: dict[str, Any] = {
        "findings": (),
        "together": None,
        "diff": "",
        "files": (),
        "step_ns": 9.1e6,
        "confidence": 0.95,
        "tolerance": "results within 1e-05 of the largest magnitude, gradients within 0.0001",
        "notes": (),
        "environment": {"torch": "2.13.0", "device": "cpu", "threads": "2"},
    }
    return Repair(trials=trials, **{**values, **fields})


WINNER = trial(kept=True, ratio=0.781, low=0.762, high=0.803, copies_after=3.0, tax_after=tax(3, 6.2, 0.3))
HOISTED = trial(
    candidate="hoist",
    what=f"take `{MASK}` out of the loop",
    answers='A loop over a strided tensor: "call `.contiguous()` in it". What stays the same is copied once, before.',
    site=place(MASK, 8),
    findings=("mask",),
    edits=(edit(MASK, "mask"),),
    kept=True,
    ratio=0.972,
    low=0.961,
    high=0.984,
    difference=0.0,
    copies_after=15.0,
    tax_after=tax(15, 36, 2.2),
    peak_after=81 * MB,
    layouts=("output 0 leaves as contiguous; it was permuted",),
)
LEVEL = level(
    candidate="swap-operands",
    what="swap the operands of `position + x`",
    site=Site("train.py", 14, function="Encoder.embed"),
)
UNCLEAR = level(
    candidate="hoist",
    what="copy `mask.expand(8, -1)` once, before its first use",
    site=Site("train.py", 19),
    ratio=0.981,
    low=0.943,
    high=1.021,
)
LOST = level(
    candidate="drop-copy",
    what="drop `.contiguous()` in `self.project(x.transpose(1, 2).contiguous())`",
    site=Site("train.py", 31, function="Head.forward"),
    ratio=1.093,
    low=1.071,
    high=1.112,
    verdict="lost",
    copies_after=18.0,
    tax_after=tax(18, 45, 2.9),
)
CHANGED = refused(
    "result 0 changes by 0.31 of its largest magnitude",
    candidate="reshape-first",
    what="reshape before the transpose: `x.reshape(8, 64, -1).transpose(1, 2)`",
    site=Site("train.py", 27),
    equal=False,
    difference=0.31,
)
MOVED = [
    refused(
        "it only moves copies elsewhere: 16 copies a step, as before",
        candidate="channels-last-at-origin",
        what=f"make `self.block{number}(x)` channels_last",
        site=Site("package/models/vision/backbones/resnet/blocks.py", 40 + number),
    )
    for number in range(5)
]

DIFF = """\
--- a/train.py
+++ b/train.py
@@ -4,6 +4,7 @@
 class Encoder(torch.nn.Module):
     def forward(self, images):
-        x = self.patches(images).flatten(2).transpose(1, 2)  # größer
+        x = self.patches(images).flatten(2).transpose(1, 2).contiguous()  # größer
+        mask = self.mask.expand(8, -1).contiguous()
         for layer in self.layers:
-            x = layer(x, self.mask.expand(8, -1).contiguous())
+            x = layer(x, mask)
         return self.norm(x)
"""

STREAM_FINDING = samples.finding(site=place(STREAM, 6), fingerprint="stream")
MASK_FINDING = samples.finding("SW102", title="repeated-copy", site=place(MASK, 8), fingerprint="mask")
SLOW = samples.finding(
    "SW109",
    title="slow-strided-kernel",
    message="`scores.sum(0)` takes 13x as long on this layout as on a contiguous tensor, and no copy tells of it.",
    site=place("scores.sum(0)", 52, function="loss", module=None),
    cost=samples.cost(0, 0, 0.6, 0.06),
    fingerprint="slow",
)
REORDER = samples.finding(
    "SW107",
    title="library-reorder",
    site=place("self.conv(x)", 61, module="head"),
    cost=samples.cost(4, 8.2, 0.3, 0.03),
    fingerprint="reorder",
)
LOST_FORMAT = samples.finding(
    "SW106",
    title="format-lost",
    message="`x.reshape(8, 64, -1)` takes a channels_last tensor and gives one that is not; 3 later calls copy it.",
    site=place("x.reshape(8, 64, -1)", 33),
    cost=samples.cost(3, 6.4, 0.41, 0.04),
    fingerprint="lost",
)
OWN = EditedFile("train.py", "0" * 64, installed=False)
INSTALLED = EditedFile("transformers/models/whisper/modeling_whisper.py", "1" * 64, installed=True)

TWO = repair(
    WINNER,
    HOISTED,
    LEVEL,
    LOST,
    CHANGED,
    *MOVED,
    together=together(),
    diff=DIFF,
    files=(OWN,),
    findings=(STREAM_FINDING, MASK_FINDING, SLOW, REORDER),
    left=(SLOW,),
)
NOTHING = repair(LEVEL, UNCLEAR, LOST, CHANGED, *MOVED)
NO_CANDIDATES = repair()
NO_EDIT_KNOWN = repair(findings=(REORDER,))
ALL_REFUSED = repair(
    CHANGED,
    refused(
        "`Head.forward` is compiled: its code can't be swapped",
        what="copy once behind `x.mT`",
        site=Site("train.py", 31),
    ),
)
WAITING = (
    Untried("hoist", f"take `{MASK}` out of the loop", place(MASK, 8)),
    Untried("sdpa", "use `F.scaled_dot_product_attention` for `softmax(q @ k.mT) @ v`", Site("train.py", 70)),
)
INTERRUPTED = repair(
    WINNER,
    LEVEL,
    diff=DIFF,
    files=(OWN,),
    untried=WAITING,
    interrupted=True,
    notes=("Interrupted: 2 of 4 edits were tried. The program is as it was.",),
)
OUT_OF_TIME = repair(
    LEVEL, LOST, untried=WAITING, notes=("The time limit of 60 s was over before 2 edits were tried.",)
)
INSTALLED_PACKAGE = repair(
    trial(
        kept=True,
        site=place(
            "attn_output.transpose(1, 2)",
            381,
            INSTALLED.file,
            function="WhisperAttention.forward",
            module="model.encoder.layers.*.self_attn",
        ),
        what="copy once behind `attn_output.transpose(1, 2)`",
    ),
    together=together(),
    diff=f"--- a/{INSTALLED.file}\n+++ b/{INSTALLED.file}\n@@ -381 +381 @@\n-\t\ta = b\n+\t\ta = b.contiguous()\n",
    files=(INSTALLED, OWN),
)
CHANNELS_LAST = trial(
    candidate="channels-last-model",
    what="convert the model and its inputs to channels_last",
    answers='Images: "use channels_last". It wins where convolutions take it and nothing between loses it.',
    site=Site("train.py", 88, function="make"),
    findings=(),
    kept=True,
    ratio=0.704,
    low=0.681,
    high=0.725,
    copies_before=0.0,
    copies_after=3.0,
    tax_before=tax(0, 0, 0),
    tax_after=tax(3, 6.4, 0.41),
    layouts=("output 0 leaves as channels_last; it was contiguous",),
)
HELPS = repair(
    CHANNELS_LAST,
    together=together(ratio=0.704, low=0.681, high=0.725, copies_before=0.0, copies_after=3.0, peak_after=81 * MB),
    only=("channels_last",),
    format_lost=(LOST_FORMAT,),
    diff="--- a/train.py\n+++ b/train.py\n@@ -88 +88 @@\n-    return model, (x,)\n"
    "+    return model.to(memory_format=torch.channels_last), (x.to(memory_format=torch.channels_last),)\n",
    files=(OWN,),
)
HURTS = repair(
    trial(
        **{name: getattr(CHANNELS_LAST, name) for name in ("candidate", "what", "answers", "site", "tax_before")},
        ratio=1.093,
        low=1.071,
        high=1.112,
        verdict="lost",
        copies_before=0.0,
        copies_after=24.0,
        peak_after=96 * MB,
        findings=(),
    ),
    only=("channels_last",),
    format_lost=(LOST_FORMAT,),
)
LEVEL_ANSWER = repair(level(candidate="channels-last-model", what=CHANNELS_LAST.what), only=("channels_last",))
UNCLEAR_ANSWER = repair(
    level(candidate="channels-last-model", what=CHANNELS_LAST.what, ratio=0.981, low=0.943, high=1.021),
    only=("channels_last",),
)
NO_PLACE = repair(only=("channels_last",))
NOT_USABLE = repair(
    refused(
        "the model has no parameter with four dimensions", what=CHANNELS_LAST.what, candidate="channels-last-model"
    ),
    only=("channels_last",),
)
MEMORY = repair(
    trial(
        candidate="clone-slice",
        what="clone `hidden[:, :1]`, which keeps all of `hidden`",
        kept=True,
        ratio=1.001,
        low=0.994,
        high=1.007,
        copies_after=16.0,
        tax_after=tax(16, 38, 2.3),
        difference=0.0,
        peak_after=22 * MB,
    ),
    together=together(ratio=1.001, low=0.994, high=1.007, copies_after=16.0, difference=0.0, peak_after=22 * MB),
    diff=DIFF,
    files=(OWN,),
)
WIDE = {"ratio": 0.342, "low": 0.127, "high": 0.935}
BUSY = repair(
    trial(**WIDE, kept=True),
    level(
        candidate="hoist",
        what="copy `mask.expand(8, -1)` once, before its first use",
        site=Site("train.py", 19),
        verdict="lost",
        ratio=1.7,
        low=1.09,
        high=7.2,
    ),
    together=together(**WIDE),
    diff=DIFF,
    files=(OWN,),
)
UNSEEN = ("output 1 (Statistics)", "output 2 (Statistics)")
PARTLY_COMPARED = repair(
    trial(kept=True, difference=0.0, unseen=UNSEEN),
    together=together(difference=0.0, unseen=UNSEEN),
    diff=DIFF,
    files=(OWN,),
)
NOT_COMPARED = repair(
    trial(kept=True, equal=None, difference=None, unseen=UNSEEN),
    together=together(equal=None, difference=None, unseen=UNSEEN),
    diff=DIFF,
    files=(OWN,),
)
BY_HAND = repair(
    trial(
        **{name: getattr(CHANNELS_LAST, name) for name in ("candidate", "what", "answers", "tax_before", "tax_after")},
        site=Site(module="backbone", expression="ResNet"),
        findings=(),
        edits=(),
        kept=True,
    ),
    together=together(),
    tolerance="results within a share of the largest magnitude: 1e-09 (float64), 2e-05 (float32); gradients within 10"
    " times that",
    notes=("Convolutions ran in oneDNN, whose own copies no profiler sees: `stridewise run --library-copies` does.",),
)
UNMEASURED = repair(
    trial(
        **{**dict.fromkeys(("copies_before", "copies_after", "tax_before", "tax_after", "peak_before", "peak_after"))},
        difference=None,
        kept=True,
    ),
    step_ns=None,
    notes=("Copies were not counted: a profiler was running.",),
    diff=DIFF,
    files=(OWN,),
)

EVIL = "\x1b]0;evil\x07\x1b[31m[red]\n::error ::x ##[group]\u202e\u2028`"
HOSTILE = repair(
    trial(
        what=EVIL,
        candidate=EVIL,
        answers=EVIL,
        reason=EVIL,
        layouts=(EVIL,),
        unseen=(EVIL, EVIL),
        site=Site(EVIL, 1, function=EVIL, module=EVIL, expression=EVIL, text=EVIL),
        kept=True,
    ),
    refused(EVIL, what=EVIL, site=Site(EVIL, 3)),
    together=together(reason=EVIL, unseen=(EVIL,)),
    diff=f"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-{EVIL}\n+\tx = '{EVIL}'\r\n",
    files=(EditedFile(EVIL, EVIL, installed=False), EditedFile(EVIL, EVIL, installed=True)),
    tolerance=EVIL,
    notes=(EVIL,),
    environment={EVIL: EVIL},
    untried=(Untried(EVIL, EVIL, Site(EVIL, 2)),),
    findings=(samples.finding(EVIL, title=EVIL, message=EVIL, site=Site(EVIL, 4)),),
    left=(samples.finding(EVIL, title=EVIL, message=EVIL, site=Site(EVIL, 4)),),
)

REPAIRS = {
    "won two": TWO,
    "nothing to win": NOTHING,
    "nothing to try": NO_CANDIDATES,
    "no edit known": NO_EDIT_KNOWN,
    "all refused": ALL_REFUSED,
    "interrupted": INTERRUPTED,
    "out of time": OUT_OF_TIME,
    "installed package": INSTALLED_PACKAGE,
    "channels_last helps": HELPS,
    "channels_last hurts": HURTS,
    "channels_last makes no difference": LEVEL_ANSWER,
    "channels_last is unclear": UNCLEAR_ANSWER,
    "channels_last has no place": NO_PLACE,
    "channels_last is not usable": NOT_USABLE,
    "memory only": MEMORY,
    "not measured": UNMEASURED,
    "busy machine": BUSY,
    "compared in part": PARTLY_COMPARED,
    "not compared": NOT_COMPARED,
    "no edit of a file": BY_HAND,
    "hostile": HOSTILE,
}
