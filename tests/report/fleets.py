"""Fleets made by hand: of ranks that are alike, of one that is not, and of what somebody hostile could put in."""

from collections.abc import Sequence
from typing import Any

import msgspec

from stridewise.analysis.fleet import assemble_fleet
from stridewise.analysis.summary import failure, merge, summarize
from stridewise.findings import Finding, Site
from stridewise.results import Fleet, FleetRow, KernelTime, LayoutKernels

from . import samples

Failures = Sequence[tuple[str, str]]


def fleet(ranks: int, change: Any = None, *, failures: Failures = (), name: str = "runs/a/rank{}.json.gz") -> Fleet:
    """So many ranks with the rich sample's findings; `change(rank)` gives what is otherwise in a rank's report."""
    ones = []
    for rank in range(ranks):
        report = msgspec.structs.replace(samples.RICH, environment={"torch": "2.13.0", "device": "cpu"})
        changes = dict(change(rank) if change else {})
        totals = {key: changes.pop(key) for key in list(changes) if key in report.totals.__struct_fields__}
        totals.setdefault("step_ns", (37.5 + 0.05 * (rank % 5)) * samples.MS)
        report = msgspec.structs.replace(report, totals=msgspec.structs.replace(report.totals, **totals), **changes)
        ones.append(summarize(report, name.format(rank)))
    return assemble_fleet(merge([*ones, *(failure(*failed) for failed in failures)]), min_share=0.001)


def with_cost(finding: Finding, copies: float, megabytes: float, ms: float | None, share: float | None) -> Finding:
    return msgspec.structs.replace(finding, cost=samples.cost(copies, megabytes, ms, share))


def _odd(rank: int) -> dict[str, Any]:
    if rank != 5:
        return {"findings": samples.RICH.findings[:2], "copies": 26.0}
    stream = with_cost(samples.STREAM, 48, 62, 2.4, 0.06)
    return {
        "findings": (stream, samples.FROM_INPUT, samples.RESHAPE),
        "step_ns": 61 * samples.MS,
        "copies": 51.0,
        "share": 0.08,
        "environment": {"torch": "2.12.1", "device": "cpu"},
        "notes": ("3 threads ran before the recording began: what they did is not in it.",),
    }


ALIKE = fleet(4)
ODD = fleet(
    9,
    _odd,
    failures=[
        ("runs/a/rank9.json.gz", "runs/a/rank9.json.gz can't be read: its gzip ends too early."),
        ("runs/a/rank11.json.gz", "each worker that read it died; perhaps it takes more memory than they have"),
    ],
)
LARGE = fleet(64, lambda rank: {"share": 0.3, "copies": 90.0} if rank in (17, 40) else {})
HEALTHY = fleet(8, lambda rank: {"findings": (), "share": 0.0003 + rank / 1e6, "copies": 2.0, "notes": ()})
NO_COPY = fleet(2, lambda rank: {"findings": (), "share": 0.0, "copies": 0.0, "notes": ()})
UNMEASURED = fleet(
    3,
    lambda rank: {
        "findings": (with_cost(samples.STREAM, 24, 31, None, None),),
        "share": None,
        "duration_ns": None,
        "step_ns": None,
        "copies": 24.0 + rank,
    },
)
NO_FIGURES = fleet(
    3, lambda rank: {"findings": (), "share": None, "duration_ns": None, "copies": None, "bytes_moved": None}
)
WRONG = fleet(
    3, lambda rank: {"findings": (msgspec.structs.replace(samples.STREAM, severity="error"),)} if rank == 1 else {}
)
UNNUMBERED = fleet(3, name="traces/host-{}x.json")

DEVICES = fleet(
    4,
    lambda rank: {
        "share_of": "kernel-busy time",
        "layout_kernels": LayoutKernels(
            9, 2e6, 0.4 if rank == 3 else 0.04, "kernel-busy time", 0.02, {}, KernelTime(0, 0, 0)
        ),
    },
)

EVIL = "\x1b[31mred\x1b[0m [bold]x[/] ::error::boo\nnext\u202e <script>"
HOSTILE = fleet(
    3,
    lambda rank: {
        "findings": (
            samples.finding(
                title=EVIL, message=EVIL, advice=EVIL, site=Site(EVIL, 1, function=EVIL, module=EVIL, expression=EVIL)
            ),
        ),
        "notes": (EVIL,),
        "environment": {EVIL: EVIL},
        "step_ns": 1e6 if rank else 9e9,
        "share_of": "step time",
    },
    failures=[(EVIL, EVIL)],
    name="a/" + EVIL + "{}",
)


def rows(fleet: Fleet) -> dict[int | None, FleetRow]:
    return {row.at.rank: row for row in fleet.rows}
