"""What reading traces costs: against `json.loads`, against HolisticTraceAnalysis, and in memory.

    python benchmarks/traces.py [TRACE …] [--repeat N] [--large MB]

For each trace, in one run with the arms in turn: unzip and `json.loads`; HolisticTraceAnalysis loading the file, if it
is installed; stridewise loading and analysing it. Ratios are of medians. Then, each in a process of its own, the peak
memory of stridewise over what it has after its imports. `--large` makes a trace of so many megabytes by repeating the
first, shifted in time, and reads that.

Without traces it records one: three steps of a small transformer with shapes and stacks.
"""

import argparse
import gzip
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import stridewise

SHARED = Path(__file__).parents[2] / "shared" / "traces"
_PEAK = """
import resource, sys
import numpy, stridewise

def most():
    try:  # of this process alone: Linux counts in the other figure what its parent had
        with open("/proc/self/status") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

from stridewise import api
from stridewise.analysis import assemble
from stridewise.analysis.rules import all_rules
all_rules()
before = most()
report = api.analyze(sys.argv[1])
print(before, most())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--large", type=int, metavar="MB", help="also read a generated trace of this size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        traces = options.traces or ([SHARED / "h100_owlv2.json.gz"] if SHARED.is_dir() else [recorded(Path(folder))])
        for trace in traces:
            measure(trace, options.repeat)
        if options.large:
            large(traces[0], options.large, Path(folder))


def measure(trace: Path, repeat: int) -> None:
    text = text_of(trace)
    arms: dict[str, Callable[[], Any]] = {
        "json.loads of its text": lambda: json.loads(text),
        "stridewise, load and analyse": lambda: stridewise.analyze(trace),
    }
    if hta := hta_loader(trace):
        arms["HolisticTraceAnalysis, load"] = hta
    times: dict[str, list[float]] = {name: [] for name in arms}
    for run in arms.values():
        run()  # imports, caches
    for _ in range(repeat):
        for name, run in arms.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    ours = statistics.median(times["stridewise, load and analyse"])
    print(f"{trace.name}: {len(text) / 1e6:.1f} MB of text, medians of {repeat}")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"  {name:<30} {median * 1000:8.0f} ms   {median / ours:6.2f} x stridewise")
    if not hta:
        print("  HolisticTraceAnalysis is not installed: pip install HolisticTraceAnalysis==0.5.0")
    before, peak = peak_memory(trace)
    over = (peak - before) / len(text)
    print(
        f"  peak memory {peak / 1e6:.0f} MB, {(peak - before) / 1e6:.0f} MB over its imports: {over:.1f} x the text\n"
    )


def large(trace: Path, megabytes: int, folder: Path) -> None:
    path = folder / "large.json"
    size = repeated(trace, path, megabytes * 10**6)
    start = time.perf_counter()
    before, peak = peak_memory(path)
    seconds = time.perf_counter() - start
    print(f"{size / 1e9:.2f} GB made of {trace.name}: {seconds:.0f} s, {seconds / size * 1e9:.1f} s a GB")
    print(f"  peak memory {peak / 1e6:.0f} MB, {(peak - before) / size:.2f} x the text")


def text_of(trace: Path) -> bytes:
    content = trace.read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def hta_loader(trace: Path) -> Callable[[], Any] | None:
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError:
        return None
    logging.disable(logging.CRITICAL)
    return lambda: TraceAnalysis(trace_files={0: str(trace)}, trace_dir="")


def peak_memory(trace: Path) -> tuple[int, int]:
    """Bytes in use after the imports, and at most, of a process that reads a trace."""
    command = [sys.executable, "-c", _PEAK, str(trace)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before, peak = map(int, output.split())
    return before, peak


def repeated(trace: Path, path: Path, size: int) -> int:
    """Write a trace's events again and again, each time later and with other ids, until there are so many bytes."""
    events = json.loads(text_of(trace))["traceEvents"]
    timed = [event for event in events if "ts" in event]
    first, last = min(event["ts"] for event in timed), max(event["ts"] + event.get("dur", 0) for event in timed)
    with path.open("w") as out:
        out.write('{"schemaVersion": 1, "traceEvents": [\n')
        written = turn = 0
        while written < size:
            lines = shifted(events, turn * (last - first + 1000), turn * 10_000_000)
            chunk = (",\n" if turn else "") + ",\n".join(map(json.dumps, lines))
            out.write(chunk)
            written, turn = written + len(chunk), turn + 1
        out.write("\n]}")
    return path.stat().st_size


def shifted(events: list[dict[str, Any]], later: float, number: int) -> Iterator[dict[str, Any]]:
    for event in events:
        moved = {**event, "ts": event["ts"] + later} if "ts" in event else dict(event)
        if "id" in event:
            moved["id"] = event["id"] + number
        args = event.get("args", {})
        ids = {key: args[key] + number for key in ("correlation", "External id") if type(args.get(key)) is int}
        yield moved | {"args": args | ids} if ids else moved


def recorded(folder: Path) -> Path:
    import torch

    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 8, 512, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    images = torch.randn(4, 256, 64)
    with torch.profiler.profile(record_shapes=True, with_stack=True) as profiler:
        for _ in range(3):
            model(images.transpose(1, 2)).sum().backward()
            profiler.step()
    path = folder / "recorded.json"
    profiler.export_chrome_trace(str(path))
    return path


if __name__ == "__main__":
    main()
