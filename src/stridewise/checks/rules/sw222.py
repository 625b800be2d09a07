"""SW222 weights-not-one-chunk: cuDNN will copy the weights of a recurrent layer at each call.

What it means
    cuDNN takes the weights of an LSTM, GRU or RNN as one piece of memory. Where they are not, torch warns "RNN module
    weights are not part of single contiguous chunk of memory" and copies them at each call. On the CPU it does not
    matter, and it is not said. The cost was not measured: the condition is the one that torch's warning tells.

Why it happens
    Weights were replaced, as weight dropping, pruning and some loaders do, or copied one by one.

How to fix it
    `module.flatten_parameters()` after the change.

When to ignore it
    If the layer takes no time that matters.
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
        kind = weights[0].module_type
        problem = Problem(
            object_site(f"{kind} `{module}`" if module else kind, module),
            f"The {len(weights)} weights of {f'`{module}`' if module else f'this {kind}'} lie in {len(storages)} "
            "pieces of memory: cuDNN copies them into one at each call.",
            "Call `flatten_parameters()` on it after its weights were changed.",
            (f"{len(weights)} weights in {len(storages)} storages; cuDNN wants one",),
        )
        found.append(finding(__name__, problem))
    return found
