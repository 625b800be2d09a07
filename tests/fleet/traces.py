"""Traces of ranks, made by hand: each step copies a transposed tensor so many times."""

import json
from pathlib import Path
from typing import Any


def events(copies: int, steps: int, copy_us: int = 100) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    common = {"ph": "X", "pid": 1, "tid": 1}
    at = 1000
    for step in range(steps):
        begin = at
        for _ in range(copies):
            shapes = {
                "Input Dims": [[64, 64], [64, 64], []],
                "Input Strides": [[64, 1], [1, 64], []],
                "Input type": ["float", "float", "Scalar"],
            }
            found.append({**common, "cat": "cpu_op", "name": "aten::contiguous", "ts": at, "dur": copy_us, "args": {}})
            found.append(
                {**common, "cat": "cpu_op", "name": "aten::copy_", "ts": at + 1, "dur": copy_us - 2, "args": shapes}
            )
            at += copy_us + 10
        at += 1000
        name = f"ProfilerStep#{step}"
        found.append({**common, "cat": "user_annotation", "name": name, "ts": begin, "dur": at - begin - 5, "args": {}})
    return found


def write(path: Path, *, copies: int = 2, steps: int = 3, rank: int | None = None) -> Path:
    """Write a trace, whose own rank may differ from the one in the file's name."""
    trace: dict[str, Any] = {"traceEvents": events(copies, steps)}
    if rank is not None:
        trace["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": 8}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(trace))
    return path


def fleet(folder: Path, ranks: int = 4, odd: int | None = None) -> list[str]:
    """Write so many ranks' traces; one may make more copies."""
    files = [folder / f"rank{rank}.json" for rank in range(ranks)]
    return [str(write(file, copies=9 if rank == odd else 2)) for rank, file in enumerate(files)]
