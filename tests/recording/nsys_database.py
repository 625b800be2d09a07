"""Writes databases as `nsys export --type sqlite` does: tables and columns of schema 3.20, of which each is made when
it gets its first row.

Source: `.schema` of exports of Nsight Systems 2025.3, and the SQLite schema reference in its user guide.
"""

import sqlite3
from pathlib import Path
from typing import Any

SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "TARGET_INFO_GPU": "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER,"
    " l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER,"
    " pwGpuId INTEGER, uuid TEXT, luid INTEGER, chipName TEXT, cuDevice INTEGER, ctxswDevPath TEXT,"
    " ctrlDevPath TEXT, revision INTEGER, nodeMask INTEGER, constantMemory INTEGER, maxIPC INTEGER,"
    " maxRegistersPerBlock INTEGER, maxShmemPerBlock INTEGER, computeMajor INTEGER, computeMinor INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL,"
    " uuid TEXT NOT NULL, numMultiprocessors INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,"
    " globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,"
    " launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,"
    " gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,"
    " blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,"
    " localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,"
    " sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,"
    " globalPid INTEGER, graphId INTEGER NOT NULL, graphExecId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,"
    " globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER,"
    " srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER,"
    " dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,"
    " globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,"
    " globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,"
    " callchainId INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,"
    " category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,"
    " domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,"
    " int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT",
}
KERNELS, RUNTIME, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
PUSH_POP, START_END, MARK = 59, 60, 34
SESSION_START_NS = 1_750_000_000_000_000_000


def global_tid(process: int, thread: int = 0) -> int:
    """The serialised identity of a thread; with thread 0, of a process. Machine 1, as exports have it."""
    return 1 << 48 | process << 24 | thread


class Export:
    """One database being written. Columns that are not given and may not be null are 0."""

    def __init__(self, path: Path, schema: dict[str, str] = SCHEMA) -> None:
        self.path = path
        self.connection = sqlite3.connect(path)
        self._schema = schema
        self._made: set[str] = set()
        self._strings: dict[str, int] = {}
        self._correlation = 0
        self.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=SESSION_START_NS)
        self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2025.3.1.90")

    def add(self, table: str, **values: Any) -> None:
        if table not in self._made:
            self._made.add(table)
            self.connection.execute(f"CREATE TABLE {table} ({self._schema[table]})")
        needed = [part.split()[0] for part in self._schema[table].split(", ") if "NOT NULL" in part]
        values = {**dict.fromkeys(needed, 0), **values}
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))

    def string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self.add("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def launch(
        self,
        at: int,
        *events: dict[str, Any],
        process: int = 100,
        thread: int = 1,
        correlation: int | None = None,
        table: str = KERNELS,
    ) -> int:
        """A call of the runtime and what it launched, each with `start` and `end`, and a kernel with its `name`."""
        self._correlation += 1
        correlation = self._correlation if correlation is None else correlation
        self.add(
            RUNTIME,
            start=at,
            end=at + 5,
            eventClass=1,
            globalTid=global_tid(process, thread),
            correlationId=correlation,
            nameId=self.string("cudaLaunchKernel_v7000"),
        )
        for event in events:
            values = dict(event)
            if "name" in values:
                name = values.pop("name")
                values |= {"demangledName": self.string(name), "shortName": self.string(name.split("<")[0])}
            self.add(table, correlationId=correlation, globalPid=global_tid(process), streamId=7, **values)
        return correlation

    def range(
        self, start: int, end: int | None, text: str, *, thread: int = 1, process: int = 100, **more: Any
    ) -> None:
        values = {"eventType": PUSH_POP, "text": text} | more
        self.add(RANGES, start=start, end=end, globalTid=global_tid(process, thread), **values)

    def close(self) -> Path:
        self.connection.commit()
        self.connection.close()
        return self.path
