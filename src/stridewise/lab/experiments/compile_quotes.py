"""Strings that the article quotes from torch.compile, looked for in the installed torch."""

import re
from pathlib import Path

import torch

from stridewise.lab.bench import Bench
from stridewise.lab.experiment import Claim, Experiment

PARTS = ("_inductor", "_dynamo", "_functorch", "_logging", "fx")
"""The compiler, and what it logs with."""
QUOTED = {
    "C73": ("Contiguity is the primary signal", "break the fusion chain"),
    "C112": ("--onnx-export", "--debug"),
    "C113": ("TORCHINDUCTOR_DEBUG",),
    "C114": ("CONTIGUOUS_BARRIER", "Fusion candidate"),
}
REAL = ("TORCH_COMPILE_DEBUG", "TORCHINDUCTOR_DEBUG_FUSION", "memory deps did not match")
"""What is there, so that it is seen that files are searched."""


def run(bench: Bench) -> None:
    """Count the files of the compiler's Python that have each."""
    root = Path(torch.__file__).parent
    texts = [path.read_text("utf-8", "replace") for part in PARTS for path in sorted((root / part).rglob("*.py"))]
    if not texts:
        for claim, quotes in QUOTED.items():
            for quote in quotes:
                bench.untested(claim, _text(quote), "this torch has no Python source beside it")
        return
    numbers = {quote: _files(texts, quote) for quotes in (*QUOTED.values(), REAL) for quote in quotes}
    bench.count(f"Files that have it, of {len(texts)} of torch.compile", "files", numbers)
    for claim, quotes in QUOTED.items():
        for quote in quotes:
            bench.expect(claim, _text(quote), numbers[quote] > 0, f"in {numbers[quote]} of {len(texts)} files")
    runs = (root / "_inductor" / "__main__.py").exists()
    bench.expect("C112", "inductor can be run with options", runs, f"it has {'a' if runs else 'no'} `__main__.py`")


def _files(texts: list[str], quote: str) -> int:
    """How many have it as a whole word, in one line or broken over several."""
    first, *_ = words = quote.split()
    found = re.compile(r"(?<![\w-])" + r"[\s#\"']+".join(map(re.escape, words)) + r"(?![\w-])")
    return sum(found.search(text) is not None for text in texts if first in text)


def _text(quote: str) -> str:
    return f"`{quote}` is in the source of torch.compile"


EXPERIMENT = Experiment(
    name="compile-quotes",
    title="Quotes from torch.compile",
    method="A search for each string in the Python source of the installed torch.",
    claims={
        "C73": Claim(
            "3.4",
            "A comment in inductor's source calls contiguity the primary signal for what can be fused.",
            "There is no such comment. The scheduler fuses by what nodes read and write, their sizes, loop order and "
            "device, and `TORCH_LOGS=fusion` prints its reasons.",
        ),
        "C112": Claim(
            "5.2",
            "inductor has options `--onnx-export` and `--debug` that show what it decides about contiguity.",
            "inductor is no program and has no options. `TORCH_LOGS=output_code,fusion,recompiles` shows what it does.",
        ),
        "C113": Claim(
            "5.2",
            "`TORCHINDUCTOR_DEBUG=1` makes inductor log.",
            "That variable is read nowhere. `TORCH_COMPILE_DEBUG=1` writes what is generated, and "
            "`TORCHINDUCTOR_DEBUG_FUSION=1` gives the reasons of fusion.",
        ),
        "C114": Claim(
            "5.2",
            "The log then names a `CONTIGUOUS_BARRIER` that an input which is not contiguous made necessary.",
            "No such line is logged. The reasons of the fusion log read like `memory deps did not match`.",
        ),
    },
    run=run,
)
