"""SW222 weights-not-one-chunk: cuDNN will copy the weights of a recurrent layer at each call.

What it means
    "RNN module weights are not part of single contiguous chunk of memory": cuDNN wants the weights of an LSTM, GRU or
    RNN in one piece, and makes one at every call where they are not. On the CPU it does not matter. Not run on a
    device here: the condition is that of torch's own warning.

Why it happens
    Weights were replaced, as weight dropping, pruning and some loaders do, or copied one by one.

How to fix it
    `module.flatten_parameters()` after the change.

When to ignore it
    On the CPU.
"""

from __future__ import annotations

from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.checks.rule import Problem, finding
from stridewise.checks.words import object_site
from stridewise.findings import Finding, Severity

SEVERITY: Severity = "note"
WAY = "preflight"
FIRES = (
    """
from stridewise.checks.preflight.facts import StateTensor, Subject
from stridewise.layout import Layout

def facts():
    def weight(name, storage):
        layout = Layout((8, 4), (4, 1))
        return StateTensor((name,), "parameter", "rnn", "LSTM", layout, "float32", 4, "cuda", storage, 128, True, True)

    return Subject((weight("rnn.weight_ih_l0", 0), weight("rnn.weight_hh_l0", 1)))
""",
)
QUIET = (
    """
import torch

def subject():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return {"model": model, "optimizer": optimizer, "sample": (torch.randn(2, 3, 8, 8),)}
""",
    """
import torch

def subject():
    return {"model": torch.nn.LSTM(4, 8, 2)}
""",
)


_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def check(subject: Subject) -> list[Finding]:
    """One finding for each such layer on a device of cuDNN's."""
    layers: dict[str, list[StateTensor]] = {}
    for tensor in subject.parameters():
        if tensor.module_type in _RECURRENT and tensor.device == "cuda":
            layers.setdefault(tensor.module, []).append(tensor)
    found = []
    for module, weights in layers.items():
        storages = {weight.storage for weight in weights}
        if len(storages) == 1:
            continue
        shown = f"`{module}`" if module else "The model"
        message = f"{shown} has its {len(weights)} weights in {len(storages)} pieces: cuDNN copies them at each call."
        advice = "Call `flatten_parameters()` on it after its weights were changed."
        site = object_site(f"`{module or weights[0].module_type}`", module)
        found.append(finding(__name__, Problem(site, message, advice, (f"{len(storages)} storages",))))
    return found
