"""Run a program with and without recording, and compare all that it can see."""

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import stridewise
from stridewise.recorder.private import all_threads_config
from stridewise.recording.handle import Recording
from stridewise.recording.model import MARK


def seeded(program: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return program()


def recorded(program: Callable[[], Any], **options: Any) -> tuple[Any, Recording]:
    torch.manual_seed(0)
    with stridewise.record(**options) as recording:
        result = program()
    return result, recording


def plain_ops(program: Callable[[], Any]) -> list[str]:
    """The operators that the profiler sees, read by the same reader."""
    torch.manual_seed(0)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, experimental_config=all_threads_config()) as p:
        program()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        p.export_chrome_trace(str(path))
        return ops_of(Recording.load(path))


def ops_of(recording: Recording) -> list[str]:
    ops = recording.trace.ops
    return [
        f"{ops.text(index)} {ops.args[index].dims} {ops.args[index].strides}"
        for index in range(len(ops))
        if not ops.text(index).startswith(MARK)
    ]


def calls_of(recording: Recording) -> list[str]:
    """The names of the functions that were called, in order."""
    log = recording.trace.log
    assert log is not None
    log.check()
    return [log.functions[row.function] for row in log.calls]


def expressions_of(recording: Recording) -> list[str | None]:
    sites = [recording.trace.site(call) for call in range(len(calls_of(recording)))]
    return [site and site.expression for site in sites]


def bits(value: Any) -> Any:
    """Something that is equal only for equal bits, layouts and types."""
    if isinstance(value, torch.Tensor):
        return type(value).__name__, str(value.dtype), str(value.device), value.requires_grad, _content(value.detach())
    if isinstance(value, dict):
        return {key: bits(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(entry) for entry in value]
    if dataclasses.is_dataclass(value):
        return bits(vars(value))
    return value


def _content(tensor: torch.Tensor) -> Any:
    if tensor.device.type == "meta":
        return tuple(tensor.shape), tensor.stride()
    if tensor.is_nested:
        return [bits(part) for part in tensor.unbind()]
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return bits([tensor.indices(), tensor.values()])
    if tensor.layout is not torch.strided:
        return bits(tensor.to_dense())
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    raw = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), raw.numpy().tobytes()
