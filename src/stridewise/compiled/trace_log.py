"""The compiler's structured trace: entries as torch logs them in a process, and as `TORCH_TRACE` writes them. No torch.

torch.compile logs what it does to the logger `torch.__trace`: metadata as JSON, and a payload of text. With
`TORCH_TRACE=DIR` each process writes a file of them, which is also what tlparse reads.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stridewise.errors import InputError

_HEAD = re.compile(r"^V\d{4} \d\d:\d\d:\d\d\.\d+ \d+ [^\]\n]+\] (\{.*\})$")
_COMMON = {
    "rank",
    "compiled_autograd_id",
    "frame_id",
    "frame_compile_id",
    "attempt",
    "severity",
    "timestamp",
    "pathname",
    "thread",
    "process",
    "has_payload",
    "stack",
    "subgraph_name",
}
_UNUSED = {"chromium_event", "describe_storage", "link", "create_symbol", "guard_added_fast", "guard_added"}
"""Kinds of entries that nothing here reads, and of which there are many."""


class Entry(Struct, frozen=True):
    """One thing that the compiler logged."""

    kind: str
    """`inductor_output_code`, or of an artifact its name: `inductor_post_grad_graph`."""
    data: Any
    compile_id: str
    """`0/0`; empty where none was running."""
    attempt: int
    payload: str
    rank: int | None = None


def entry(metadata: Mapping[str, Any], payload: Any) -> Entry | None:
    """An entry from what was logged; None for kinds that nothing reads."""
    kind = next((key for key in metadata if key not in _COMMON), None)
    if kind is None or kind in _UNUSED:
        return None
    data = metadata[kind]
    if kind == "artifact" and isinstance(data, Mapping):
        kind = str(data.get("name", kind))
    frame, number = metadata.get("frame_id"), metadata.get("frame_compile_id")
    compile_id = "" if frame is None else f"{frame}/{number or 0}"
    text = payload if isinstance(payload, str) else "" if payload is None else str(payload)
    attempt, rank = metadata.get("attempt"), metadata.get("rank")
    return Entry(
        kind,
        data,
        compile_id,
        attempt if isinstance(attempt, int) else 0,
        text,
        rank if isinstance(rank, int) else None,
    )


def renumbered(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The same with frames counted from 0: in a process that compiled before, numbers go on."""
    numbers: dict[str, int] = {}
    for each in entries:
        frame, slash, rest = each.compile_id.partition("/")
        number = numbers.setdefault(frame, len(numbers)) if slash else 0
        yield replace(each, compile_id=f"{number}/{rest}") if slash else each


def read_lines(lines: Iterable[str]) -> Iterator[Entry]:
    """The entries of a file of them. What is no entry is passed over: other programs log to it, and ends are cut."""
    metadata: dict[str, Any] | None = None
    payload: list[str] = []
    for line in lines:
        if line.startswith("\t") and metadata is not None:
            payload.append(line[1:])
            continue
        if metadata is not None and (made := entry(metadata, "".join(payload))) is not None:
            yield made
        metadata, payload = _decoded(line), []
    if metadata is not None and (made := entry(metadata, "".join(payload))) is not None:
        yield made


def _decoded(line: str) -> dict[str, Any] | None:
    head = _HEAD.match(line.rstrip("\n"))
    if head is None:
        return None
    try:
        found = msgspec.json.decode(head[1])
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_file(path: Path) -> tuple[Entry, ...]:
    """The entries of one process's file. Raises InputError if there are none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = tuple(read_lines(file))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}.") from None
    if not found:
        raise InputError(
            f"{path} holds nothing that torch.compile logs.",
            advice="Record with TORCH_TRACE=DIR, and give DIR or a file dedicated_log_torch_trace_*.log in it.",
        )
    return found


def files_of(place: Path) -> tuple[Path, ...]:
    """The files of a folder that `TORCH_TRACE` wrote, or the one file. Raises InputError if there are none."""
    if not place.exists():
        raise InputError(f"There is no {place}.")
    if not place.is_dir():
        return (place,)
    found = tuple(sorted(place.rglob("dedicated_log_torch_trace*.log"))) or tuple(sorted(place.glob("*.log")))
    if not found:
        raise InputError(
            f"{place} holds no file that torch.compile logs to.",
            advice="Record with TORCH_TRACE=DIR: each process writes a dedicated_log_torch_trace_*.log into it.",
        )
    return found
