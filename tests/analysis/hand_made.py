"""Traces made by hand: events as the profiler writes them, in microseconds."""

import json
from typing import Any

from stridewise.recording.handle import Recording


def op(name: str, ts: float, dur: float, sizes: Any = (), strides: Any = (), kind: str = "float", **args: Any) -> Any:
    given = {"Input Dims": list(sizes), "Input Strides": list(strides), "Input type": [kind] * len(sizes), **args}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": given}


def launch(ts: float, correlation: int, tid: int = 1) -> Any:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 1, "tid": tid, "ts": ts, "dur": 1, "args": args}


def kernel(ts: float, dur: float, name: str, correlation: int | None = None, **args: Any) -> Any:
    link = {} if correlation is None else {"correlation": correlation}
    args = {"device": 0, "stream": 7, **link, **args}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def frame(ts: float, dur: float, name: str) -> Any:
    return {"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}


def annotation(ts: float, dur: float, name: str) -> Any:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}


def recording(*events: Any) -> Recording:
    return Recording(json.dumps({"traceEvents": events}).encode(), "trace.json")
