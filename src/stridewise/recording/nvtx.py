"""What the names of NVTX ranges say: operators that `emit_nvtx` marked, steps, or whatever the program named.

`torch.autograd.profiler.emit_nvtx`, which `nsys profile --pytorch=autograd-nvtx` and `autograd-shapes-nvtx` switch on,
names a range `NAME, seq = 12, op_id = 34, sizes = [[2, 3], []], input_op_ids = [(33,0), (0,-1)]`: torch's `getNvtxStr`
and `shapesToStr` (torch/csrc/profiler/util.cpp). What is not known is left out: there is no `seq` for operators that
create no node, no `sizes` without shapes, and nothing but the name before torch 1.9. Tensors of a list come one by one.
"""

import re
from typing import NamedTuple

_DETAIL = re.compile(r", (?:(?:stashed )?seq|op_id|sizes|input_op_ids) ?= ?")
_SEQUENCE = re.compile(r", (?:stashed )?seq ?= ?(\d{1,18})(?!\d)")
_SIZES = re.compile(r", sizes = (\[(?:\[(?:\d{1,18}(?:, \d{1,18})*)?\](?:, (?=\[)|(?=\])))*\])")
_TORCHS = ("aten::", "autograd::", "c10d::", "torch::", "torchvision::", "profiler::")
_STEP = re.compile(
    r"(?P<kind>ProfilerStep|(?:(?:train|training|global|optimizer|inference|eval|decode)[ _-]?)?"
    r"(?P<word>step|iteration|iter|batch))[ _#:=-]{0,3}(?P<number>\d{1,12})(?: ?(?:/|of) ?\d{1,12})?",
    re.IGNORECASE,
)
_STEP_WITHOUT_NUMBER = re.compile(r"(?:train|training)[ _-]?(?P<word>step|iteration|iter)|iteration", re.IGNORECASE)
_RANK = {"profilerstep": 0, "iteration": 1, "iter": 1, "step": 2, "batch": 3}
LONGEST_NAME = 16_000


class Named(NamedTuple):
    """A range by its name; `args` is an operator's, as the profiler writes them in JSON, and None for other ranges."""

    name: str
    args: bytes | None


class StepKind(NamedTuple):
    """Ranges that can be told to be steps of one kind; the lowest rank is the likeliest to be whole steps."""

    rank: int
    name: str


def parse(text: str) -> Named:
    """Tell operators from other ranges. Names with `::` are operators' only if torch gave them one of its details."""
    found = _DETAIL.search(text)
    if found is None:
        return Named(text[:LONGEST_NAME], b"" if text.startswith(_TORCHS) else None)
    at = found.start()
    name = text[:at][:LONGEST_NAME]
    sequence, sizes = _SEQUENCE.match(text, at), _SIZES.search(text, at)
    if sequence is None and sizes is None and "::" not in name:
        return Named(name, None)  # a `record_function` of the program
    fields = []
    if sequence is not None:
        fields.append(f'"Sequence number":{int(sequence[1])}')
    if sizes is not None:
        fields.append(f'"Input Dims":{sizes[1]}')
    return Named(name, f"{{{','.join(fields)}}}".encode() if fields else b"")


def step_kind(name: str) -> StepKind | None:
    """What kind of step a range is by its name; None for one that is none.

    `ProfilerStep#3`, `step 3`, `Step_3/100`, `train_step 3`, `iteration: 3`, `iter3`, `batch 3`; and without a number
    `iteration` and `train_step`. A plain `step` is an optimizer's as often as the program's.
    """
    found = _STEP.fullmatch(name)
    if found is not None:
        word = (found["word"] or found["kind"]).lower()
        return StepKind(_RANK[word], name[: found.start("number")].rstrip(" _#:=-"))
    found = _STEP_WITHOUT_NUMBER.fullmatch(name)
    return StepKind(_RANK[(found["word"] or "iteration").lower()], name) if found is not None else None
