"""Databases that `nsys export --type sqlite` writes from reports of Nsight Systems.

Tables and columns as of schema 3.20 (nsys 2025.3), of which older ones are subsets; a table exists only if there was
data. Times are nanoseconds since the session's start. The tables have no indexes: instead of joining in SQL, launches
are found by a dictionary here.
"""

import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from stridewise.errors import InputError
from stridewise.recording import nvtx
from stridewise.recording.build import DeviceRow, TraceBuilder
from stridewise.recording.database import MAGIC, Database
from stridewise.recording.nesting import Numbers
from stridewise.recording.text import Text, is_url
from stridewise.recording.trace import Trace

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
"""Launches of CUDA graphs, as `--cuda-graph-trace=graph` (the default) records them: without their kernels."""
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
RANGES = "NVTX_EVENTS"
STRINGS = "StringIds"

MOST_COPIED = 8_000_000_000
"""Bytes of a database that is unzipped or fetched, since SQLite reads only files: 8 GB."""

_TIMES = ("start", "end")
_PLACE = ("deviceId", "streamId", "correlationId", "globalPid")
_PUSH_POP, _START_END = 59, 60  # NvtxPushPopRange and NvtxStartEndRange of ENUM_NSYS_EVENT_TYPE
_PROCESS = ~0xFFFFFF
"""Of a `globalTid`: the machine and the process, which it shares with the `globalPid`. The rest is the thread."""
# ENUM_CUDA_MEMCPY_OPER, which is CUpti_ActivityMemcpyKind and the moves of managed memory; named as Kineto does.
_COPY_KINDS = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP",
    11: "HtoD (managed)", 12: "DtoH (managed)", 13: "DtoD (managed)",
}  # fmt: skip
_LAST_NS = 1 << 60
_BATCH = 10_000
_READ = 4_000_000


def read_file(path: str | os.PathLike[str]) -> Trace:
    """Read a database. Raises InputError if it can't be read, or is no export of Nsight Systems."""
    with Database(path, os.fspath(path)) as database:
        return _Reader(database).read()


def read_text(text: Text, begun: bytes) -> Trace:
    """Read a database of which `begun` was read already: in place if it is a file, else from a private copy."""
    if _is_plain_file(text.name):
        return read_file(text.name)
    with _copied(text, begun) as path, Database(path, text.name) as database:
        return _Reader(database).read()


def _is_plain_file(name: str) -> bool:
    """Not so: a URL, a pipe, a zipped database."""
    if is_url(name) or not os.path.isfile(name):
        return False
    with open(name, "rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


@contextmanager
def _copied(text: Text, begun: bytes) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="stridewise-") as folder:
        path = os.path.join(folder, "report.sqlite")
        total, part = 0, begun
        try:
            with open(path, "xb") as out:
                while part:
                    out.write(part)
                    total += len(part)
                    if total > MOST_COPIED:
                        raise InputError(
                            f"{text.name} holds a database of more than {MOST_COPIED // 10**9} GB.",
                            advice="Fetch and unpack it, and name the file.",
                        )
                    part = text.read(_READ)
        except OSError as error:
            raise InputError(
                f"{text.name} can't be copied to {tempfile.gettempdir()}: {error.strerror or error}.",
                advice="Fetch and unpack it, and name the file.",
            ) from None
        if text.broken:
            raise InputError(f"{text.name} can't be read: {text.broken}.")
        yield path


class _Reader:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.builder = TraceBuilder()
        self.builder.pack()
        self.processes = Numbers()
        self.launched: set[int] = set()
        """The correlations of device events: few calls of the runtime launch any."""
        self.latest_ns = 0
        self.without_times = 0
        self.gpu_processes = 0
        self._strings: dict[int, str] = {}
        self._gpus: dict[tuple[int, int], int] = {}
        self._steps: dict[tuple[int, str, int], list[tuple[int, int]]] = defaultdict(list)
        """By rank, name and thread: the ranges that may be steps."""

    def read(self) -> Trace:
        self.check()
        self.take_gpus()
        self.take_kernels()
        self.take_graphs()
        self.take_copies()
        if not any(row.category == "kernel" for row in self.builder.device):
            raise self.no_kernels()
        self.gpu_processes = len(self.processes)
        self.take_launches()
        self.take_ranges()
        self.choose_steps()
        trace = self.builder.build(self.base_ns())
        trace.format = "nsys"
        trace.environment = self.environment()
        trace.notes = [*self.notes(trace), *trace.notes]
        return trace

    def check(self) -> None:
        tables = self.database.tables
        if KERNELS in tables or GRAPHS in tables:
            return
        if STRINGS in tables and any(name.startswith((RANGES, "TARGET_INFO_", "META_DATA_")) for name in tables):
            raise self.no_kernels()
        raise InputError(
            f"{self.database.name} is a SQLite database, but no export of Nsight Systems.",
            expected=f"Expected: a table {KERNELS}, as `nsys export --type sqlite` writes it.",
        )

    def no_kernels(self) -> InputError:
        return InputError(
            f"{self.database.name} holds no kernels of a GPU.",
            advice="Record them: nsys profile --trace=cuda,nvtx … and export again",
        )

    # -- what ran on devices ------------------------------------------------------------------------------------------

    def take_gpus(self) -> None:
        """Processes number devices as CUDA_VISIBLE_DEVICES lets them see them: to each its GPU."""
        for gpu, cuda, pid in self.database.rows("TARGET_INFO_CUDA_DEVICE", (), ("gpuId", "cudaId", "pid")):
            if None not in (gpu, cuda, pid):
                self._gpus[pid, cuda] = gpu

    def take_kernels(self) -> None:
        columns = (*_PLACE, "demangledName", "shortName")
        for start, end, device, stream, number, process, full, short in self.database.rows(KERNELS, _TIMES, columns):
            name = self.string(full) or self.string(short) or "kernel without a name"
            self.take_event("kernel", name, start, end, device, stream, number, process)

    def take_graphs(self) -> None:
        columns = (*_PLACE, "graphId")
        graphs = 0
        for start, end, device, stream, number, process, graph in self.database.rows(GRAPHS, _TIMES, columns):
            name = "CUDA graph" if graph is None else f"CUDA graph {graph}"
            self.take_event("kernel", name, start, end, device, stream, number, process)
            graphs += 1
        if graphs:
            self.builder.notes.append(
                f"CUDA graphs were recorded as a whole, each of {graphs:,} launches counted as one kernel: what runs "
                "in them is unknown. Record with --cuda-graph-trace=node."
            )

    def take_copies(self) -> None:
        columns = (*_PLACE, "copyKind", "bytes")
        for start, end, device, stream, number, process, kind, moved in self.database.rows(MEMCPY, _TIMES, columns):
            name = f"Memcpy {_COPY_KINDS[kind]}" if kind in _COPY_KINDS else "Memcpy"
            self.take_event("gpu_memcpy", name, start, end, device, stream, number, process, moved)
        for start, end, device, stream, number, process, moved in self.database.rows(
            MEMSET, _TIMES, (*_PLACE, "bytes")
        ):
            self.take_event("gpu_memset", "Memset (Device)", start, end, device, stream, number, process, moved)

    def take_event(
        self,
        category: str,
        name: str,
        start: int,
        end: int,
        device: int | None,
        stream: int | None,
        number: int | None,
        process: int | None,
        moved: int | None = None,
    ) -> None:
        if not start and not end:  # CUPTI's way to say that it has no times
            self.without_times += 1
            return
        end = self.checked(start, end)
        correlation = self.correlation(process, number)
        if correlation is not None:
            self.launched.add(correlation)
        if device is not None and process is not None:
            device = self._gpus.get((process >> 24 & 0xFFFFFF, device), device)
        self.builder.device.append(
            DeviceRow(name, category, start, end - start, device, stream, correlation, bytes=moved)
        )

    # -- what the processes did ---------------------------------------------------------------------------------------

    def take_launches(self) -> None:
        columns = ("globalTid", "correlationId")
        for start, end, thread, number in self.database.rows(RUNTIME, _TIMES, columns):
            correlation = self.correlation(thread, number)
            if correlation in self.launched and correlation is not None:
                self.checked(start, end)
                self.builder.launch(start, self.builder.threads[thread], correlation)

    def take_ranges(self) -> None:
        """Push/pop ranges nest on their thread. Start/end ranges may overlap: they are never operators."""
        batch: list[tuple[int, int, int, str, bytes]] = []
        unclosed = []
        rows = self.database.rows(
            RANGES,
            ("start", "eventType"),
            ("end", "globalTid", "textId", "text"),
            texts=frozenset({"text"}),
            where=f'WHERE "eventType" IN ({_PUSH_POP}, {_START_END})',
        )
        for start, kind, end, thread_id, text_id, text in rows:
            name, args = nvtx.parse(text or self.string(text_id) or "")
            if not name:
                continue
            thread = self.builder.threads[thread_id]
            operator = args if kind == _PUSH_POP else None
            if end is None:
                self.checked(start, start)
                unclosed.append((start, thread, name, operator))
                continue
            end = self.checked(start, end)
            if operator is None:
                self.take_range(start, end, thread, name)
            else:
                batch.append((start, end, thread, name, operator))
                if len(batch) >= _BATCH:
                    self.take_ops(batch)
                    batch = []
        for start, thread, name, operator in unclosed:  # what was open when recording ended lasted until then
            if operator is None:
                self.take_range(start, self.latest_ns, thread, name)
            else:
                batch.append((start, self.latest_ns, thread, name, operator))
        if batch:
            self.take_ops(batch)

    def take_ops(self, batch: list[tuple[int, int, int, str, bytes]]) -> None:
        start_ns, end_ns, threads, names, args = zip(*batch, strict=True)
        self.builder.ops(names, start_ns, end_ns, threads, args)

    def take_range(self, start: int, end: int, thread: int, name: str) -> None:
        self.builder.ranges.extend([name], [start], [end], [thread])
        kind = nvtx.step_kind(name)
        if kind is not None:
            self._steps[kind.rank, kind.name, thread].append((start, end))

    def choose_steps(self) -> None:
        """Of the ranges that may be steps: the likeliest kind, on the thread where it took longest."""
        if not self._steps:
            return
        totals = {key: sum(end - start for start, end in spans) for key, spans in self._steps.items()}
        rank, name, thread = min(self._steps, key=lambda key: (key[0], -totals[key]))
        last = -_LAST_NS
        for start, end in sorted(self._steps[rank, name, thread]):
            if start >= last:  # one within another is none of its own
                self.builder.profiler_steps.append((start, end))
                last = end
        found = len(self.builder.profiler_steps)
        self.builder.notes.append(f"Steps are the {found:,} NVTX ranges named `{name[:80]}`.")

    # -- the rest -----------------------------------------------------------------------------------------------------

    def string(self, number: int | None) -> str | None:
        """What a column that refers to StringIds says."""
        if number is None:
            return None
        if number not in self._strings:
            found = self.database.value(STRINGS, "value", number)
            self._strings[number] = (found or "")[: nvtx.LONGEST_NAME]
        return self._strings[number]

    def correlation(self, process: int | None, number: int | None) -> int | None:
        """One number for a process and its correlation id, which repeats in other processes."""
        if number is None or not 0 <= number < 1 << 32:
            return None
        return self.processes[None if process is None else process & _PROCESS] << 32 | number

    def checked(self, start: int, end: int) -> int:
        if not (-_LAST_NS < start < _LAST_NS and -_LAST_NS < end < _LAST_NS):
            raise InputError(f"{self.database.name} holds times that are no times.")
        if end < start:
            end = start
        if end > self.latest_ns:
            self.latest_ns = end
        return end

    def base_ns(self) -> int:
        for (start,) in self.database.rows("TARGET_INFO_SESSION_START_TIME", (), ("utcEpochNs",)):
            if start is not None and 0 < start < 1 << 62:
                return int(start)
        return 0

    def environment(self) -> dict[str, str]:
        texts = frozenset({"name", "value"})
        gpus = dict.fromkeys(
            name for (name,) in self.database.rows("TARGET_INFO_GPU", (), ("name",), texts=texts) if name
        )
        version = None
        for name, value in self.database.rows("META_DATA_EXPORT", (), ("name", "value"), texts=texts):
            if name == "EXPORT_PRODUCT_VERSION":
                version = value
        found = {"device": ", ".join(list(gpus)[:8])[:200]} if gpus else {}
        return found | ({"nsys": version[:80]} if version else {})

    def notes(self, trace: Trace) -> list[str]:
        notes = [
            "Nsight Systems records no strides: only the names of kernels tell that they change layout. For the copies "
            "themselves, record with torch.profiler (record_shapes=True), or with `stridewise run`."
        ]
        if not len(trace.ops):
            notes.append(
                "The report names no operators: `nsys profile --pytorch=autograd-shapes-nvtx`, or "
                "`torch.autograd.profiler.emit_nvtx`, adds them."
            )
        if self.gpu_processes > 1:
            notes.append(f"{self.gpu_processes:,} processes used GPUs: every figure is of all of them together.")
        if self.without_times:
            notes.append(f"Device events without times, which are left out: {self.without_times:,}.")
        return notes
