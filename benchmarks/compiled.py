"""What explaining compiled code costs, beside compiling it: ratios.

`python benchmarks/compiled.py [--layers N] [--repeat N]`. Compiles an encoder of N layers with and without what is
logged being kept, in turn, and reads the logs alone. Ratios are to a plain `torch.compile` with its caches off; the
best of the rounds counts.
"""

import argparse
import time

import torch
from torch import nn

from stridewise.compiled.capture import fresh, logged, without_caches
from stridewise.compiled.logs import from_entries
from stridewise.compiled.trace_log import Entry


def seconds(model: nn.Module, x: torch.Tensor, *, keep: bool) -> tuple[float, list[Entry]]:
    """How long a first call takes, compiled anew, and what was logged."""
    entries: list[Entry] = []
    settings = {} if keep else {"trace.provenance_tracking_level": 0}
    with torch.no_grad(), without_caches(settings):
        compiled = torch.compile(fresh(model))
        start = time.perf_counter()
        if keep:
            with logged() as entries:
                compiled(x)
        else:
            compiled(x)
        return time.perf_counter() - start, entries


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(given.layers)]
    model = nn.Sequential(*layers).train()  # in eval a layer is one fused operator, and there is little to compile
    x = torch.randn(4, 32, 64)
    seconds(model, x, keep=False)
    plain, kept, reading = [], [], []
    for _ in range(given.repeat):
        plain.append(seconds(model, x, keep=False)[0])
        took, entries = seconds(model, x, keep=True)
        kept.append(took)
        start = time.perf_counter()
        result = from_entries(entries)
        reading.append(time.perf_counter() - start)
    graph = result.graphs[0]
    print(f"{given.layers} layers: {graph.kernels} kernels, {graph.externs} library calls, {graph.copies} copies")
    print(f"compiling, with logs kept      {min(kept) / min(plain):.2f}x of {min(plain):.1f} s")
    print(f"reading the logs               {min(reading) / min(plain):.3f}x")


if __name__ == "__main__":
    main()
