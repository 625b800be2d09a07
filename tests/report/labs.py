"""Results of the lab, as tests of reports use them."""

from msgspec.structs import replace

from stridewise.lab.beside import side_by_side
from stridewise.results.lab import (
    Arm,
    ClaimResult,
    Comparison,
    Copied,
    Counts,
    ExperimentResult,
    Lab,
    LabMachine,
    Prediction,
    Ratio,
    verdict,
)

from .samples import HOSTILE_TEXT

MACHINE = LabMachine(
    processor="A Processor at 2.1 GHz",
    cores=2,
    threads=2,
    system="Linux x86_64",
    python="3.11.9",
    torch="2.13.0+cpu",
    stridewise="0.1.0",
    details={"oneDNN": "3.12.0"},
)
GPU = replace(MACHINE, accelerator="A GPU", details={"CUDA": "13.0", "cuDNN": "91400"})


def claim(number: str, section: str, text: str, correct: str, *predictions: Prediction) -> ClaimResult:
    return ClaimResult(number, section, text, correct, verdict(predictions), predictions)


NOT_SLOWER = claim(
    "C58",
    "3.2",
    "bmm of `q.transpose(0, 1)` takes 2.1 ms instead of 0.45, and `.contiguous()` in front mends it.",
    "The view is passed on as it is: it costs nothing, and the copy in front is what costs.",
    Prediction("`bmm(view, k)` is at least 2x slower than `bmm(dense, k)`", False, "0.96x (0.94 to 0.99)"),
    Prediction("`bmm(view, k)` copies something that nobody asked for", False, "no copy"),
)
UNTESTED = claim(
    "C57",
    "3.2",
    "The hit rate of the L2 cache falls from 94 % to 62 %.",
    "Nothing measured stands behind it.",
    Prediction("the L2 hit rate falls from 94 % to 62 %", None, "it takes the counters of a GPU"),
    Prediction("`a` is at least 1.1x faster than `b`", None, "it takes 0.90x its time (0.70 to 1.20)", unclear=True),
)
PARTLY = claim(
    "C3",
    "1",
    "`is_contiguous` is one bit.",
    "Several layout properties exist.",
    Prediction("it depends on sizes and strides alone", True, "21,952 of 21,952"),
    Prediction("no other property is kept", False, "channels_last is"),
)
HOLDS = claim("C19", "2.2", "Views are strided.", "They are.", Prediction("a slice is strided", True, "(64, 1)"))
BMM = ExperimentResult(
    name="bmm-transposed",
    title="bmm of a transposed batch",
    method="The same product of a dense operand, of the view, and of a copy of the view made first.",
    sizes={"batch": 64, "rows": 1280, "head_width": 64},
    claims=(UNTESTED, NOT_SLOWER),
    comparisons=(
        Comparison(
            "bmm of a batch-transposed operand",
            (
                Arm("bmm(dense, k)", 429_000.0, None, {}, None),
                Arm("bmm(view, k)", 407_000.0, Ratio(0.96, 0.94, 0.99), {}, "bit by bit"),
                Arm(
                    "bmm(view.contiguous(), k)",
                    518_000.0,
                    Ratio(1.22, 1.14, 1.31),
                    {"explicit": Copied(1, 4_194_304), "hidden": Copied(2, 1_000)},
                    "within rounding",
                ),
                Arm("bmm(other, k)", 51_800_000.0, Ratio(120.4, 98.2, 131.0), {"implicit": Copied(1, 64)}, "different"),
            ),
            7,
        ),
    ),
    counts=(),
    seconds=1.4,
)
CONDITION = ExperimentResult(
    name="contiguity-condition",
    title="What contiguous means",
    method="Every layout of three dimensions with sizes and strides up to four.",
    sizes={},
    claims=(PARTLY, HOLDS),
    comparisons=(),
    counts=(
        Counts("layouts", "layouts", {"formula and flag agree": 8_606, "contiguous, formula says no": 13_356}),
        Counts("bytes written", "B", {"a view": 0, "its copy": 12_000_000}),
    ),
    seconds=0.4,
)
FAILED = ExperimentResult(
    name="too-large",
    title="A size that is too large",
    method="It asks for more memory than there is.",
    sizes={"side": 100_000},
    claims=(claim("C6", "1", "It fits.", "It does not."),),
    comparisons=(),
    counts=(),
    seconds=0.1,
    failed="OutOfMemoryError: CUDA out of memory",
)
WHOLE = Lab(MACHINE, "cpu", True, "2026-11-30", 55.2, (CONDITION, BMM))
FULL = replace(WHOLE, quick=False, seconds=412.0)
ON_GPU = replace(
    WHOLE,
    machine=GPU,
    device="cuda",
    experiments=(
        replace(
            BMM,
            claims=(UNTESTED, replace(NOT_SLOWER, verdict="holds", predictions=(PARTLY.predictions[0],))),
            comparisons=(replace(BMM.comparisons[0], arms=BMM.comparisons[0].arms[:2]),),
        ),
        FAILED,
    ),
    notes=("Ended early by an error: too-large. What they had not come to was not tested.",),
)
SLOW_BMM = replace(
    BMM.comparisons[0],
    arms=tuple(
        replace(arm, ratio=arm.ratio and Ratio(3 * arm.ratio.middle, 3 * arm.ratio.low, 3 * arm.ratio.high))
        for arm in BMM.comparisons[0].arms
    ),
)
SLOW = replace(WHOLE, experiments=(replace(BMM, comparisons=(SLOW_BMM,)),))
EMPTY = replace(WHOLE, experiments=(), whole=False, notes=("Interrupted: 2 of 2 experiments were not run.",))
HOSTILE = replace(
    WHOLE,
    machine=replace(MACHINE, processor=HOSTILE_TEXT, torch=HOSTILE_TEXT, details={HOSTILE_TEXT: HOSTILE_TEXT}),
    date=HOSTILE_TEXT,
    experiments=(
        replace(
            BMM,
            name=HOSTILE_TEXT,
            title=HOSTILE_TEXT,
            method=HOSTILE_TEXT,
            failed=HOSTILE_TEXT,
            sizes={HOSTILE_TEXT: 1},
            claims=(
                claim("C1", HOSTILE_TEXT, HOSTILE_TEXT, HOSTILE_TEXT, Prediction(HOSTILE_TEXT, True, HOSTILE_TEXT)),
            ),
            comparisons=(Comparison(HOSTILE_TEXT, (Arm(HOSTILE_TEXT, 1.0, Ratio(1.0, 1.0, 1.0), {}, None),), 7),),
            counts=(Counts(HOSTILE_TEXT, HOSTILE_TEXT, {HOSTILE_TEXT: -1.0}),),
        ),
    ),
)
ALL = {"whole": WHOLE, "few": replace(WHOLE, experiments=(BMM,)), "gpu": ON_GPU, "empty": EMPTY, "hostile": HOSTILE}
BESIDE = {
    "one": side_by_side({"here": WHOLE}),
    "agreeing": side_by_side({"quick": WHOLE, "full": FULL}),
    "disagreeing": side_by_side({"cpu": WHOLE, "gpu": ON_GPU, "nothing": EMPTY}),
    "apart": side_by_side({each.name: replace(WHOLE, experiments=(each,)) for each in (BMM, CONDITION)}),
    "unlike": side_by_side({"fast": WHOLE, "slow": SLOW}),
    "many": side_by_side({f"run {number}": WHOLE for number in range(15)}),
    "hostile": side_by_side({HOSTILE_TEXT: HOSTILE, "whole": WHOLE}),
}
