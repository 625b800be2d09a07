"""A step's timeline as the layout map and the strip of a vision net show it."""

import re
from collections.abc import Collection, Iterable
from typing import Any, get_args

from stridewise.findings import Finding, Site
from stridewise.layout import LayoutClass
from stridewise.report.html.model import Layer
from stridewise.report.html.text import label
from stridewise.results import StepCall, Timeline

CLASSES: tuple[LayoutClass, ...] = get_args(LayoutClass)
_IMAGES = (4, 5)
_FORMATS = {"channels_last": "NHWC", "channels_last_3d": "NDHWC"}
_ROW_MAJOR = {4: "NCHW", 5: "NCDHW"}
_LAYERS = re.compile(r"conv|(?:batch|group|instance)_norm|pool|interpolate|upsample|pixel_(?:un)?shuffle")
_LEAST_CONVOLUTIONS = 2
"""A transformer that cuts images into patches has one."""


def map_data(timeline: Timeline, cards: Iterable[tuple[Finding, str]]) -> dict[str, Any]:
    """Columns for the script that draws the map: one entry a call. Times are in microseconds of the step.

    `cards` are the findings and the ids of their cards: a place that one of them names leads to it.
    """
    names, shapes = _Numbers(), _Numbers()
    owners = _owners(cards)
    columns: dict[str, list[int]] = {key: [] for key in ("m", "s", "d", "c", "k", "b", "w", "n", "p", "z")}
    for call in timeline.calls:
        shape = "" if call.sizes is None else f"{_tuple(call.sizes)} strides {_tuple(call.strides or ())}"
        values = (
            call.module,
            call.start_ns // 1000,
            max(call.duration_ns // 1000, 1),
            -1 if call.layout is None else CLASSES.index(call.layout),
            call.copies,
            call.bytes_moved,
            int(call.backward),
            names[call.name],
            call.site,
            shapes[shape],
        )
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    return {
        "classes": CLASSES,
        "modules": [label(module) for module in timeline.modules],
        "names": [label(name) for name in names],
        "shapes": list(shapes),
        "sites": [_place(site) for site in timeline.sites],
        "cards": [owners.get(_key(site), "") for site in timeline.sites],
        "duration": timeline.duration_ns // 1000,
        "left": timeline.left_out,
        "calls": columns,
    }


def layers(timeline: Timeline) -> tuple[Layer, ...]:
    """The layers of a vision net that give images, in order; nothing for one that only cuts images up.

    A layer is the calls of a function in one module, which may run more than once in a step.
    """
    images = [call for call in timeline.calls if not call.backward and _is_image(call) and _LAYERS.search(call.name)]
    found: dict[object, list[StepCall]] = {}
    for position, call in enumerate(images):
        alike = (call.module, call.name, call.layout) if call.module >= 0 else position
        found.setdefault(alike, []).append(call)
    if sum("conv" in calls[0].name for calls in found.values()) < _LEAST_CONVOLUTIONS:
        return ()
    return tuple(_layer(calls, timeline) for calls in found.values())


def _layer(calls: list[StepCall], timeline: Timeline) -> Layer:
    first = calls[0]
    assert first.layout is not None
    assert first.sizes is not None
    row_major = _ROW_MAJOR[len(first.sizes)] if first.layout == "contiguous" else first.layout
    return Layer(
        name=label(first.name.removeprefix("aten::").strip("_")),
        layout=first.layout,
        format=_FORMATS.get(first.layout, row_major),
        where=timeline.modules[first.module] if first.module >= 0 else "",
        copies=sum(call.copies for call in calls),
        times=len(calls),
    )


def _is_image(call: StepCall) -> bool:
    """A tensor of images: not one that is both formats, such as one of a single channel or a single pixel."""
    if call.layout is None or call.sizes is None or len(call.sizes) not in _IMAGES:
        return False
    return call.sizes[1] > 1 and max(call.sizes[2:]) > 1


def _owners(cards: Iterable[tuple[Finding, str]]) -> dict[object, str]:
    found: dict[object, str] = {}
    for finding, card in cards:
        for site in (finding.site, *(payer.site for payer in finding.payers)):
            found.setdefault(_key(site), card)
    return found


def _key(site: Site) -> object:
    return site.file, site.line, site.column, site.expression


def _place(site: Site) -> str:
    place = site.where if site.file else ""
    expression = label(site.expression or "")
    return " · ".join(filter(None, (label(place), expression)))


def _tuple(values: Collection[int]) -> str:
    return f"({', '.join(map(str, values))}{',' if len(values) == 1 else ''})"


class _Numbers(dict[str, int]):
    """Numbers for texts, in the order in which they are met."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]
