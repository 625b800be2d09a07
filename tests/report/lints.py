"""Lint runs made by hand: what people can meet, and what somebody hostile could put in."""

from pathlib import Path
from typing import Any

from stridewise.findings import NOT_MEASURED, Cost, Edit, Finding, Site, fingerprint
from stridewise.results.lint import LintRun, Mended, Refused, Unread
from stridewise.source.file import SourceFile

from .samples import HOSTILE_TEXT

TITLES = {"SW301": "discarded-result", "SW302": "missing-call", "SW310": "guarded-contiguous", "SW314": "fragile-view"}

MODEL = b"""\
import torch


class Encoder(torch.nn.Module):
    def forward(self, images):
        x = self.convolve(images)
        x.contiguous()
        if not x.is_contiguous():
            x = x.contiguous()
        return self.head(x.view(x.size(0), -1))
"""
WINDOWS = MODEL.replace(b"\n", b"\r\n").replace(b"images", "größe".encode())
TABS = b"import torch\n\ndef f(x):\n\tif x.is_contiguous:\n\t\treturn\tx\n"
LATIN = "# -*- coding: latin-1 -*-\nimport torch\nmaß = 'größer'; x = maße.t().view(x.size(0), -1)\n".encode("latin-1")
MARKED = b"\xef\xbb\xbf" + "x = '模型'; y = torch.zeros(2).view(x.size(0), -1)\n".encode()
LONG = (
    b"result = torch.cat([" + b", ".join(b"self.very_long_name_%d(x)" % n for n in range(12)) + b"]).contiguous(), z\n"
)
SPREAD = b"""\
y = torch.stack(
    [a, b],
    dim=1,
).transpose(1, 2).contiguous(

)
"""
SOURCES = {
    "model.py": MODEL,
    "windows.py": WINDOWS,
    "tabs.py": TABS,
    "latin.py": LATIN,
    "marked.py": MARKED,
    "long.py": LONG,
    "spread.py": SPREAD,
}


def read(file: str) -> bytes | None:
    return SOURCES.get(file, MODEL if file.startswith("models/") else None)


def finding(code: str, expression: str, file: str = "model.py", **fields: Any) -> Finding:
    """A finding at an expression of a source. `replacement` makes a fix of `safety` for it, or for `replaced`."""
    content = read(file)
    assert content is not None
    source = SourceFile(Path(file), file, content)
    span = _span(source, expression)
    (line, column), (end_line, end_column) = map(source.position, span)
    text = source.decode(source.line_at(span[0]))
    where = Site(file, line, column, end_line, end_column, "Encoder.forward", None, expression, None, text)
    edits: tuple[Edit, ...] = ()
    replaced = fields.pop("replaced", expression)
    if "replacement" in fields:
        edits = (Edit(file, _span(source, replaced), fields.pop("replacement"), fields.pop("safety", "safe")),)
    values: dict[str, Any] = {
        "title": TITLES[code],
        "severity": "warning",
        "message": f"`{' '.join(expression.split())}` is worth a word.",
        "count": 1,
        "site": where,
        "origin": None,
        "carriers": (),
        "payers": (),
        "cost": NOT_MEASURED,
        "advice": "Write something else.",
        "edits": edits,
        "fingerprint": fingerprint(code, where),
    }
    return Finding(code, **{**values, **fields})


def _span(source: SourceFile, text: str) -> tuple[int, int]:
    encoded = text.encode(source.encoding)
    start = source.content.index(encoded)
    return start, start + len(encoded)


def run(*findings: Finding, **fields: Any) -> LintRun:
    return LintRun(findings, **{"files": 120, "lines": 33_204, **fields})


DISCARDED = finding(
    "SW301",
    "x.contiguous()",
    severity="error",
    message="`x.contiguous()` gives a new tensor, and it is thrown away: `x` stays as it is.",
    advice="Bind the result, or delete the statement.",
    replacement="x = x.contiguous()",
    safety="unsafe",
)
GUARD = "if not x.is_contiguous():\n            x = x.contiguous()"
GUARDED = finding(
    "SW310",
    "x.is_contiguous()",
    message="`x.contiguous()` asks `x.is_contiguous()` itself, and gives `x` if so: the `if` around it does nothing.",
    advice="Call it without asking.",
    replaced=GUARD,
    replacement="x = x.contiguous()",
)
VIEW = "x.view(x.size(0), -1)"


def view(file: str = "model.py", **fields: Any) -> Finding:
    values = {
        "message": f"`{VIEW}` raises where `x` is channels_last, as convolutions give it under that format.",
        "advice": "Write `x.flatten(1)`.",
        "replacement": "x.flatten(1)",
    }
    return finding("SW314", VIEW, file, **{**values, **fields})


CALL = finding(
    "SW302",
    "x.is_contiguous",
    "tabs.py",
    severity="error",
    message="`x.is_contiguous` without parentheses is a method, which is always true.",
    replacement="x.is_contiguous()",
    safety="unsafe",
)
SHOWN_ONLY = view(safety="display", severity="note", origin=finding("SW301", "self.convolve(images)").site)
MEASURED = view(
    cost=Cost(12, 38_000_000, 2_300_000, 0.041),
    evidence=("In all 3 steps `x` had sizes (8, 512, 7, 7) and strides (25088, 1, 3584, 512).",),
)

CLEAN = run()
SEVERAL = run(DISCARDED, GUARDED, view(), CALL)
COPIED = run(
    DISCARDED,
    *(view(f"models/{name}/modeling_{name}.py") for name in map("net{:02}".format, range(40))),
    view(),
    finding("SW301", "x.contiguous()", "models/net00/modeling_net00.py"),
    suppressed=3,
)
SAFETIES = run(GUARDED, DISCARDED, SHOWN_ONLY, view("windows.py"), suppressed=1)
RECORDED = run(MEASURED, view("windows.py"), share_of="step time", notes=("The recording is of another commit.",))
UNREAD = run(
    files=118,
    unread=(
        Unread("setup.py", 3, "setup.py:3 can't be read as Python: Missing parentheses in call to 'print'."),
        Unread("secret.py", None, "secret.py can't be read: Permission denied."),
    ),
)
DIFF = """\
--- a/tabs.py
+++ b/tabs.py
@@ -1,5 +1,5 @@
 import torch
\x20
 def f(x):
-\tif x.is_contiguous:
+\tif x.is_contiguous():
 \t\treturn\tx
"""
FIXED = (Mended("model.py", {"SW310": 1, "SW314": 2}), Mended("windows.py", {"SW314": 1}))
WROTE = run(DISCARDED, fixed=FIXED, written=True, refused=(Refused("latin.py", "It changed while it was linted."),))
WROTE_ALL = run(fixed=FIXED, written=True, suppressed=2)
PROPOSED = run(DISCARDED, fixed=(Mended("tabs.py", {"SW302": 1}),), diff=DIFF)
NOTES_ONLY = run(SHOWN_ONLY)
NOTHING = run(files=0, lines=0)
ODD = run(
    finding("SW314", "maße.t().view(x.size(0), -1)", "latin.py", replacement="maße.t().flatten(1)"),
    finding("SW314", "torch.zeros(2).view(x.size(0), -1)", "marked.py", replacement="torch.zeros(2).flatten(1)"),
    finding("SW301", LONG.decode()[9:-4], "long.py", replacement=LONG.decode()[9:-18]),
    finding("SW301", SPREAD.decode()[4:-1], "spread.py", replacement=SPREAD.decode()[4:-16]),
    CALL,
    files=5,
    lines=31,
)
_HOSTILE_FILE = f"{HOSTILE_TEXT}\0\ud800.py"
HOSTILE = run(
    Finding(
        code="SW301",
        title=HOSTILE_TEXT,
        severity="error",
        message=f"{HOSTILE_TEXT}\n::warning file=x::owned ]]> & <failure/>\ud800\ufffe",
        count=1,
        site=Site(
            _HOSTILE_FILE, 3, 0, 3, 9, HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, None, f"a = f('{HOSTILE_TEXT}')\0"
        ),
        origin=Site(_HOSTILE_FILE, 1, expression=HOSTILE_TEXT),
        carriers=(),
        payers=(),
        cost=NOT_MEASURED,
        evidence=(HOSTILE_TEXT,),
        advice=HOSTILE_TEXT,
        edits=(Edit(_HOSTILE_FILE, (0, 5), HOSTILE_TEXT, "safe"),),
        fingerprint="0123456789abcdef",
    ),
    unread=(Unread(_HOSTILE_FILE, 7, f"{_HOSTILE_FILE}:7 can't be read: {HOSTILE_TEXT}\n::error::owned"),),
    fixed=(Mended(_HOSTILE_FILE, {HOSTILE_TEXT: 2}),),
    refused=(Refused(_HOSTILE_FILE, HOSTILE_TEXT),),
    written=True,
    notes=(HOSTILE_TEXT,),
)
ALL = {name.lower(): value for name, value in list(globals().items()) if isinstance(value, LintRun)}
