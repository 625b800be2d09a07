"""The tables of a device's kernels: equal ones together, the totals of those that only change layout, each stream."""

from collections import defaultdict
from collections.abc import Sequence

from stridewise.analysis.case import Case
from stridewise.analysis.sites import common_site, place_of
from stridewise.analysis.tally import KERNEL_TIME, Tally
from stridewise.findings import Site
from stridewise.results import Cause, Kernel, KernelTime, LayoutKernels, StreamRow

_Key = tuple[str, Cause | None, str | None, str | None, int | None, tuple[object, ...] | None]


def kernels(case: Case) -> tuple[Kernel, ...]:
    """Equal kernels of the whole recording in one row, the longest first."""
    groups: dict[_Key, list[tuple[int, Site | None]]] = defaultdict(list)
    places: dict[int, tuple[object, ...] | None] = {id(None): None}  # sites of equal calls are one object
    events = case.trace.device_events
    for position in case.kernels:
        event = events[position]
        op, site, within = case.place_of_event(event)
        if id(site) not in places:
            places[id(site)] = place_of(site) if site is not None else None
        place = places[id(site)]
        groups[event.name, case.causes[position], op, within, event.device, place].append((event.duration_ns, site))
    whole = sum(events[position].duration_ns for position in case.kernels)
    rows = [
        Kernel(
            name=name,
            cause=cause,
            op=op,
            site=common_site(sites) if (sites := [site for _, site in group if site is not None]) else None,
            range=within,
            device=device,
            count=len(group),
            duration_ns=(duration := sum(duration for duration, _ in group)),
            share=duration / whole if whole else None,
        )
        for (name, cause, op, within, device, _), group in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.duration_ns, row.name)))


def layout_kernels(case: Case, tally: Tally) -> LayoutKernels | None:
    """What a step spends in kernels that only change layout; None where no device was recorded."""
    if tally.busy_ns is None:
        return None
    by_cause: dict[Cause, list[int]] = defaultdict(list)
    for position in case.kernels_of_steps:
        cause = case.causes[position]
        if cause is not None:
            by_cause[cause].append(case.trace.device_events[position].duration_ns)
    possible = _time(by_cause.pop("possible", []), tally)
    together = _time([duration for durations in by_cause.values() for duration in durations], tally)
    return LayoutKernels(
        count=together.count,
        duration_ns=together.duration_ns,
        share=together.share,
        share_of=KERNEL_TIME,
        share_of_step=together.share_of_step,
        by_cause={cause: _time(durations, tally) for cause, durations in sorted(by_cause.items())},
        possible=possible,
    )


def streams(case: Case) -> tuple[StreamRow, ...]:
    """What each stream of each device did in a step."""
    found: dict[tuple[int | None, int | None], list[int]] = defaultdict(list)
    events = case.trace.device_events
    for position in case.kernels_of_steps:
        found[events[position].device, events[position].stream].append(position)
    rows = []
    for device, stream in sorted(found, key=lambda key: [-1 if number is None else number for number in key]):
        positions = found[device, stream]
        busy = sum(events[position].duration_ns for position in positions)
        changing = [
            events[position].duration_ns for position in positions if case.causes[position] not in (None, "possible")
        ]
        rows.append(
            StreamRow(
                device=device,
                stream=stream,
                busy_ns=busy / case.steps,
                kernels=len(positions) / case.steps,
                layout=KernelTime(
                    count=len(changing) / case.steps,
                    duration_ns=sum(changing) / case.steps,
                    share=sum(changing) / busy if busy else None,
                ),
            )
        )
    return tuple(rows)


def _time(durations: Sequence[int], tally: Tally) -> KernelTime:
    total = tally.per_step(sum(durations))
    return KernelTime(
        count=tally.per_step(len(durations)),
        duration_ns=total,
        share=total / tally.busy_ns if tally.busy_ns else None,
        share_of_step=total / tally.span_ns if tally.span_ns else None,
    )
