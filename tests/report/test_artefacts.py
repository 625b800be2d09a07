"""What people read of a check of an exported program, held by snapshots; and what holds of every result."""

import io
import json

import msgspec
import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from stridewise.findings import Site
from stridewise.report import checks
from stridewise.results.artefacts import Artefact, ArtefactInput
from stridewise.results.checks import Snippet, Tried

from .checked import ENVIRONMENT, finding
from .samples import HOSTILE_TEXT

UNCHECKED = finding(
    "SW207",
    "unchecked-layout",
    Site(expression="`model.pt2`"),
    message="`model.pt2` gives wrong results, and no error, for `input_0` in other layouts: permuted and with gaps. It "
    "was made for `input_0` of (24, 4) with strides (4, 1). It compares strides only where AOTI_RUNTIME_CHECK_INPUTS=1 "
    "is set.",
    count=10,
    evidence=(
        "`input_0.t()`, (24, 4) with strides (1, 24): output: 24 of 24 elements differ, by up to 7.9, 86 % of the "
        "largest",
        "with AOTI_RUNTIME_CHECK_INPUTS=1 it raises: RuntimeError: input_handles[0]: unmatched stride value at 0, "
        "expected: 4, but got: 1",
    ),
    advice="Call it with `input_0.contiguous()`, or through the guard.",
)
ELIDED = finding(
    "SW506",
    "elided-contiguous",
    Site(file="net.py", line=7, function="Net.forward", text="x = x.contiguous()"),
    severity="warning",
    message="For `x` of (4, 6) with strides (6, 1), which it was exported with, `x = x.contiguous()`, in front of it, "
    "had nothing to copy and is not in `net.pt2`: for other layouts it raises at node `view`, aten.view.default.",
    count=8,
)
SNIPPET = Snippet(
    UNCHECKED.fingerprint,
    "`input_0.t()`, (24, 4) with strides (1, 24)",
    "import torch\n\nprogram = torch._inductor.aoti_load_package('model.pt2')\n",
)
CASES = (
    Tried((), ("contiguous",), "values", "honours strides", None, None, None),
    Tried(
        ("input_0",), ("`input_0.t()`, (24, 4) with strides (1, 24)",), "values", "wrong values", "output", 0.86, None
    ),
)


def row(name, *counts, sizes=(24, 4), strides=(4, 1), verdict="honours strides", checks="no"):
    return ArtefactInput(name, sizes, "float32", strides, checks, sum(counts), *counts, verdict)


def artefact(**fields):
    given = {
        "name": "model.pt2",
        "kind": "exported program",
        "versions": {"torch": "2.13.0"},
        "inputs": (),
        "cases": CASES,
        "findings": (),
        "snippets": (),
        "guard": None,
        "guard_holds": None,
        "tolerance": "within 0.001 % of a result's largest magnitude, as its dtype allows",
        "contained": "in a child process, forked, on one thread",
        "notes": (),
        "environment": ENVIRONMENT,
        **fields,
    }
    return Artefact(**given)


ALL = {
    "package": artefact(
        kind="AOTInductor package",
        inputs=(
            row("input_0", 1, 0, 10, 0, verdict="wrong values", checks="only if asked"),
            row("mask.weights", 3, 0, 0, 0, sizes=(24,), strides=(1,), checks="only if asked"),
        ),
        findings=(UNCHECKED,),
        snippets=(SNIPPET,),
        guard="def guard(program): ...\n",
        guard_holds=True,
    ),
    "refuses": artefact(
        name="net.pt2",
        inputs=(
            row("x", 3, 8, 0, 0, sizes=(4, 6), strides=(6, 1), verdict="raises"),
            row("y", 3, 0, 0, 8, sizes=(4, 6), strides=(6, 1), verdict="crashes"),
        ),
        findings=(ELIDED,),
        guard="def guard(program): ...\n",
        guard_holds=False,
    ),
    "healthy": artefact(kind="TorchScript module", name="Net", inputs=(row("image", 27, 0, 0, 0),)),
    "random": artefact(
        inputs=(row("x", 27, 0, 0, 0, verdict="not comparable"),),
        notes=("Its values change with the seed: they were not compared.",),
    ),
    "interrupted": artefact(
        cases=(), notes=("28 of 28 runs were not made: it was interrupted.",), interrupted=True, left=28
    ),
    "wide": artefact(
        inputs=tuple(
            row(
                f"hidden_states.layers[{at}].attention",
                20,
                1,
                2,
                1,
                sizes=(1024,) * 4,
                strides=(1 << 30, 1 << 20, 1024, 1),
            )
            for at in range(5)
        ),
        guard="def guard(program): ...\n",
    ),
    "hostile": artefact(name=HOSTILE_TEXT, inputs=(row(HOSTILE_TEXT, 1, 1, 1, 1),), notes=(HOSTILE_TEXT,)),
}


def rendered(result, **options):
    out = io.StringIO()
    checks.render(result, out, **options)
    return out.getvalue()


@pytest.mark.parametrize("name", [name for name in ALL if name != "hostile"])
def test_text(name, snapshot):
    assert rendered(ALL[name], cases=True) == snapshot


@pytest.mark.parametrize("format", ["github", "junit"])
def test_other_formats(format, snapshot):
    assert rendered(ALL["package"], format=format) == snapshot


def test_code_scanning_gets_each_finding():
    (run,) = json.loads(rendered(ALL["package"], format="sarif"))["runs"]
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [("SW207", "error")]


@pytest.mark.parametrize("width", [100, 80])
@pytest.mark.parametrize("name", ALL)
def test_lines_fit_and_are_plain_text(name, width):
    for line in rendered(ALL[name], width=width, cases=True).split("\n"):
        assert cell_len(line) <= width
        assert line.isprintable()
        assert line == line.rstrip()


def test_json_holds_all_of_it():
    assert msgspec.json.decode(rendered(ALL["package"], format="json"), type=Artefact) == ALL["package"]


def test_findings_that_were_left_out_are_no_all_clear():
    text = rendered(replace(ALL["package"], findings=(), snippets=()))
    assert text.startswith("`model.pt2`, an AOTInductor package, is silently wrong for 10 of 11 other layouts of")
