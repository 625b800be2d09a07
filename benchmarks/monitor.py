"""What `stridewise.monitor` costs a training loop, in steps of that loop, inside one run.

`python benchmarks/monitor.py [--models NAME …] [--repeat N] [--threads N]`. Plain and recorded steps take turns. A
recording is charged with all that it takes more than a plain step: to start, to run recorded, to stop, to read, to
analyse, and with `--files` to write the report. Absolute times are of this machine alone.
"""

import argparse
import os
import tempfile
import timeit
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import stridewise

Step = Callable[[], object]


def trained(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def conv() -> Step:
    """Four convolutions, 32 images of 64x64."""
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    images, labels = torch.randn(32, 3, 64, 64), torch.randint(10, (32,))
    return trained(model, lambda: cross_entropy(model(images), labels))


def gpt2(layers: int, width: int, batch: int, length: int) -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=layers, n_head=4, n_embd=width, vocab_size=2000, n_positions=length, bos_token_id=0, eos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    tokens = torch.randint(2000, (batch, length))
    return trained(model, lambda: model(tokens, labels=tokens).loss)


MODELS: dict[str, Callable[[], Step]] = {
    "conv": conv,
    "gpt2": lambda: gpt2(4, 256, 4, 128),
    "gpt2-tiny": lambda: gpt2(4, 128, 2, 32),  # little more than operators being launched: the dearest to record
}


def measure(name: str, step: Step, repeat: int, folder: str | None) -> None:
    watched = stridewise.monitor(every=2, warmup=3, max_overhead=None, folder=folder, keep=1)
    plain: list[float] = []
    recorded: list[float] = []
    last = None
    while len(recorded) <= repeat:
        start = perf_counter()
        watched.begin()
        step()
        watched.end()
        taken = perf_counter() - start
        (plain if watched.recorded_step == last else recorded).append(taken)
        last = watched.recorded_step
    watched.close()
    assert not watched.notes, watched.notes
    base = median(plain)
    ratios = [after / before - 1 for before, after in zip(plain[-len(recorded) :], recorded, strict=True)]
    first, extra = ratios[0], median(ratios[1:])
    calls = 100_000
    asleep = stridewise.monitor(every=None, warmup=10 * calls)
    asleep.step()
    call = min(timeit.repeat(asleep.step, number=calls, repeat=5)) / calls
    print(
        f"{name:10s} a step {base * 1e3:6.1f} ms   a recording {extra:5.2f} steps, the first {first:5.2f}"
        f"   with every=1000: one of {max(1000, 1000 * extra):,.0f}, {min(extra / 1000, 0.001):.3%}"
        f"   step() {call * 1e9:3.0f} ns, {call / base:.1e} of a step"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--files", action="store_true", help="write the report as a page and as JSON each time")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {os.cpu_count()} processors")
    for name in options.models:
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            measure(name, MODELS[name](), options.repeat, folder if options.files else None)


if __name__ == "__main__":
    main()
