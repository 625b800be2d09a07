"""How fast lint is: against TorchFix, by itself and in flake8, on timm; and on transformers with and without its cache.

    make corpus
    .venv/bin/python -m pip install -e ".[bench]"
    python benchmarks/lint.py [--repeat N]

Each command is a process of its own, measured by the CPU time that it and its children took. On timm the tools take
turns on one core, in this run; the peers read every tenth file, since all of them take minutes, and lines a second are
compared. On transformers wall time counts: all cores, without a cache and with the one that the run before left.
"""

import argparse
import importlib.util
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[1] / ".corpus" / "src"
OURS = ["-m", "stridewise", "lint", "--exit-zero", "--quiet", "--output", os.devnull]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    if not CORPUS.is_dir():
        parser.error("there is no corpus: run `make corpus` first")
    with tempfile.TemporaryDirectory() as cache:
        against_peers(options.repeat)
        with_cache(options.repeat, Path(cache))


def against_peers(repeat: int) -> None:
    files = sorted((CORPUS / "timm").rglob("*.py"))
    some = [str(path.relative_to(CORPUS)) for path in files[::10]]
    all_lines, some_lines = lines_in(files), lines_in(files[::10])
    tools = {
        "stridewise": [*OURS, "--no-cache", "--jobs", "1", "timm"],
        "flake8 with the TorchFix plugin": ["-m", "flake8", "--isolated", "--jobs", "1", "--exit-zero", *some],
        "TorchFix": ["-m", "torchfix", "--jobs", "1", *some],
    }
    modules = {"flake8 with the TorchFix plugin": "flake8", "TorchFix": "torchfix"}
    for name, module in modules.items():
        if importlib.util.find_spec(module) is None:
            print(f"{name} is not installed, and left out: pip install -e '.[bench]'")
            del tools[name]
    seconds: dict[str, list[float]] = {name: [] for name in tools}
    for _ in range(repeat):
        for name, command in tools.items():
            seconds[name].append(cpu_seconds(command))
    ours = all_lines / statistics.median(seconds["stridewise"])
    print(f"timm, {all_lines:,} lines (peers: {some_lines:,}), one core, no cache:", flush=True)
    for name, times in seconds.items():
        rate = (all_lines if name == "stridewise" else some_lines) / statistics.median(times)
        print(f"  {name:<31}{rate:>10,.0f} lines a CPU second   {ours / rate:>6.1f}x the time of ours", flush=True)


def with_cache(repeat: int, folder: Path) -> None:
    lines, cores = lines_in((CORPUS / "transformers").rglob("*.py")), len(os.sched_getaffinity(0))
    command = [*OURS, "--cache-dir", str(folder / "cache"), "transformers"]
    cold, warm, busy = [], [], []
    for _ in range(repeat):
        shutil.rmtree(folder / "cache", ignore_errors=True)
        start, before = time.perf_counter(), children_seconds()
        run(command)
        cold.append(time.perf_counter() - start)
        busy.append(children_seconds() - before)
        start = time.perf_counter()
        run(command)
        warm.append(time.perf_counter() - start)
    print(f"transformers, {lines:,} lines, {cores} cores:")
    print(f"  no cache    {statistics.median(cold):.1f} s, {lines / statistics.median(busy):,.0f} lines a CPU second")
    print(f"  with cache  {statistics.median(warm):.2f} s")


def cpu_seconds(command: list[str]) -> float:
    before = children_seconds()
    run(command)
    return children_seconds() - before


def run(command: list[str]) -> None:
    result = subprocess.run([sys.executable, *command], cwd=CORPUS, capture_output=True, text=True)
    # TorchFix exits with 1 for what it finds.
    if result.returncode not in (0, 1):
        sys.exit(f"{' '.join(command)} failed: {result.stderr.strip()}")


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def lines_in(files: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in files)


if __name__ == "__main__":
    main()
