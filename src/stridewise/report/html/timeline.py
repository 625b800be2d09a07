"""A step's timeline as the layout map and the strip of a vision net show it."""

import re
from collections.abc import Collection, Iterable
from typing import Any, get_args

from stridewise.findings import Finding, Site
from stridewise.layout import LayoutClass
from stridewise.report.html.model import Layer
from stridewise.report.text import one_line
from stridewise.results import StepCall, Timeline

CLASSES: tuple[LayoutClass, ...] = get_args(LayoutClass)
_IMAGES = (4, 5)
_FORMATS = {"channels_last": "NHWC", "channels_last_3d": "NDHWC"}
_ROW_MAJOR = {4: "NCHW", 5: "NCDHW"}
_LONGEST_NAME = 160
_LAYERS = re.compile(r"conv|(?:batch|group|instance)_norm|pool|interpolate|upsample|pixel_(?:un)?shuffle")
_LEAST_CONVOLUTIONS = 2
"""A transformer that cuts images into patches has one."""
_MOST_LAYERS = 400


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
        "modules": [one_line(module)[-_LONGEST_NAME:] for module in timeline.modules],
        "names": list(names),
        "shapes": list(shapes),
        "sites": [_place(site) for site in timeline.sites],
        "cards": [owners.get(_key(site), "") for site in timeline.sites],
        "duration": timeline.duration_ns // 1000,
        "left": timeline.left_out,
        "calls": columns,
    }


def layers(timeline: Timeline) -> tuple[Layer, ...]:
    """The forward calls of a vision net that work on images, in order; nothing for one that only cuts them up."""
    images = [call for call in timeline.calls if not call.backward and _is_image(call) and _LAYERS.search(call.name)]
    if sum("conv" in call.name for call in images) < _LEAST_CONVOLUTIONS:
        return ()
    return tuple(_layer(call, timeline) for call in images[:_MOST_LAYERS])


def _layer(call: StepCall, timeline: Timeline) -> Layer:
    assert call.layout is not None
    assert call.sizes is not None
    row_major = _ROW_MAJOR[len(call.sizes)] if call.layout == "contiguous" else call.layout
    where = timeline.modules[call.module] if call.module >= 0 else ""
    name = one_line(call.name.removeprefix("aten::").strip("_"))
    return Layer(name, call.layout, _FORMATS.get(call.layout, row_major), where, call.copies)


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
    expression = one_line(site.expression or "")[:_LONGEST_NAME]
    return " · ".join(filter(None, (one_line(place), expression)))


def _tuple(values: Collection[int]) -> str:
    return f"({', '.join(map(str, values))}{',' if len(values) == 1 else ''})"


class _Numbers(dict[str, int]):
    """Numbers for texts, in the order in which they are met."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]
