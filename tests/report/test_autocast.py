"""What a terminal report says of autocast, held by snapshots; and that it fits, is plain in a pipe, and is inert."""

import io
import json
from typing import Any

import pytest
from rich.cells import cell_len

from stridewise.findings import Site
from stridewise.report import render, terminal
from stridewise.report.autocast import CONTIGUITY
from stridewise.results import (
    AutocastOperator,
    AutocastRegion,
    AutocastUse,
    CastAndCopy,
    CastCost,
    RepeatedCast,
    Report,
)

from . import samples

NONE = CastCost(0, 0, 0)
WITH = 'torch.autocast("cuda", dtype=torch.float16)'


def site(line: int = 42, file: str = "model.py", expression: str | None = None) -> Site:
    return Site(file=file, line=line, expression=expression)


def operator(op: str = "linear", line: int = 42, **fields: Any) -> AutocastOperator:
    values = {
        "op": f"aten::{op}",
        "site": site(line),
        "given": ("float32", "float32", "float32"),
        "ran": "float16",
        "cast": True,
        "count": 12,
        "casts": 36,
        "cache_hits": 0,
    }
    return AutocastOperator(**{**values, **fields})


def region(**fields: Any) -> AutocastRegion:
    values = {
        "site": site(12, "train.py", WITH),
        "within": None,
        "device": "cuda",
        "dtype": "float16",
        "enabled": True,
        "cache": True,
        "entered": 1,
        "operators": (operator(),),
        "casts": CastCost(36, 31e6, 1.2e6),
        "backward": NONE,
        "weights": 0,
        "cache_hits": 0,
    }
    return AutocastRegion(**{**values, **fields})


def use(**fields: Any) -> AutocastUse:
    values = {
        "recorded": True,
        "regions": (region(),),
        "casts": (),
        "repeated": (),
        "with_copies": (),
        "cost": CastCost(36, 31e6, 1.2e6),
        "backward": NONE,
        "cache_hits": 0,
        "unidentified": 0,
    }
    return AutocastUse(**{**values, **fields})


def again(**fields: Any) -> RepeatedCast:
    values = {
        "tensor": "the parameter `blocks.*.qkv.weight`",
        "sizes": (2304, 768),
        "source_dtype": "float32",
        "dtype": "float16",
        "count": 24,
        "again": CastCost(12, 127e6, 2.1e6),
        "reason": "the cache is off: `cache_enabled=False`",
        "sites": (site(42), site(57), site(42), site(63), site(71)),
    }
    return RepeatedCast(**{**values, **fields})


def pair(**fields: Any) -> CastAndCopy:
    values = {
        "tensor": "what `torch.Tensor.transpose` returns",
        "op": "aten::linear",
        "site": site(88),
        "sizes": (8, 197, 768),
        "source_strides": (151296, 1, 197),
        "strides": (151296, 768, 1),
        "source_dtype": "float32",
        "dtype": "float16",
        "one_pass": False,
        "cost": CastCost(2, 24e6, 0.3e6),
    }
    return CastAndCopy(**{**values, **fields})


TRAINING = use(
    regions=(
        region(
            operators=(
                operator(casts=36, cache_hits=0),
                operator(given=("float16", "float32", "float32"), line=43, casts=0, cache_hits=24),
                operator("scaled_dot_product_attention", 44, given=("float16",) * 3, cast=False, casts=0),
                operator("layer_norm", 45, given=("float16", "float32", "float32"), ran="float32", casts=12),
                operator("cat", 46, given=("float16",), ran="float32", casts=0.33, count=0.33),
            ),
            backward=CastCost(30, 28e6, 0.9e6),
            weights=24,
            cache_hits=24,
        ),
        region(
            site=site(77, "/a/long/way/to/the/sources/of/some/package/models/rotary_embedding.py", "maybe_autocast(x)"),
            within=0,
            enabled=False,
            entered=12,
            operators=(operator("matmul", 78, given=("float32",) * 2, ran="float32", cast=False, casts=0),),
            casts=NONE,
        ),
        region(site=site(90), within=0, enabled=False, operators=(), casts=NONE),
        region(
            site=None,
            dtype="bfloat16",
            cache=False,
            operators=(operator(ran="float16, float32", given=("float32", "float16")),),
        ),
    ),
    repeated=(
        again(),
        again(tensor="the input `x`", sizes=(8, 768), sites=(), reason="autocast keeps casts of weights only"),
    ),
    with_copies=(pair(), pair(one_pass=True, site=None, sizes=(8, 3, 224, 224))),
    cost=CastCost(72, 62e6, 2.4e6),
    backward=CastCost(30, 28e6, 0.9e6),
    cache_hits=24,
    unidentified=3,
)
FOREIGN = use(
    recorded=False,
    regions=(
        region(
            **dict.fromkeys(("site", "device", "dtype", "enabled", "cache", "entered")),
            operators=(operator(site=None), operator(site=None, given=(), ran="")),
        ),
    ),
    cost=CastCost(36, None, 1.2e6),
    unidentified=36,
)
MANY = use(
    regions=tuple(region(operators=tuple(operator(line=line) for line in range(40))) for _ in range(20)),
    repeated=(again(),) * 40,
    with_copies=(pair(),) * 40,
)
HOSTILE = use(
    regions=(
        region(
            site=site(1, "e\x1b\n.py", "\x1b[31mautocast\n[red]`x`"),
            device="\x1b]cpu",
            dtype="[red]\x07",
            operators=(
                operator("\x1b[31mlinear\n", given=("\x07",), ran="::error::\x1b"),
                operator("x" * 300, given=("y" * 300,)),
                operator(site=site(1, "z" * 300)),
            ),
        ),
    ),
    repeated=(again(tensor="\x1b[31m`[red]`", reason="::error::\x1b" + "y" * 300, dtype="\x1b", sizes=(1,) * 99),),
    with_copies=(pair(tensor="\x1b\n", op="\x1b", dtype="\x07", sizes=(1,) * 99, strides=(1,) * 99),),
)
USES = {
    "TRAINING": TRAINING,
    "FOREIGN": FOREIGN,
    "MANY": MANY,
    "HOSTILE": HOSTILE,
    "IDLE": use(regions=(region(operators=(), casts=NONE),), cost=NONE),
    "NONE": None,
}


def report(name: str, **fields: Any) -> Report:
    return samples.report(autocast=USES[name], **fields)


def rendered(name: str, **options: int) -> str:
    out = io.StringIO()
    terminal.render(report(name), out, tables=("autocast",), **options)
    return out.getvalue()


@pytest.mark.parametrize("name", USES)
def test_the_section(name, snapshot):
    assert rendered(name) == snapshot


@pytest.mark.parametrize("width", [50, 80, 100])
@pytest.mark.parametrize("name", USES)
def test_it_fits(name, width):
    assert max(map(cell_len, rendered(name, width=width).splitlines())) <= width


def test_nothing_of_a_program_is_obeyed():
    text = rendered("HOSTILE")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert not any(line.startswith("::") for line in text.splitlines())


def test_it_says_that_contiguity_does_not_gate_autocast():
    assert CONTIGUITY in rendered("TRAINING")
    assert CONTIGUITY not in rendered("NONE")


def test_it_is_there_only_when_asked_for():
    out = io.StringIO()
    terminal.render(report("TRAINING"), out)
    assert "utocast" not in out.getvalue()


def test_json_has_it_only_when_asked_for():
    plain, asked = io.StringIO(), io.StringIO()
    render(report("TRAINING"), "json", plain)
    render(report("TRAINING"), "json", asked, tables=("autocast",))
    assert "autocast" not in json.loads(plain.getvalue())
    assert json.loads(asked.getvalue())["autocast"]["regions"][0]["dtype"] == "float16"
