"""Results of every kind, as the other tests of reports have them, and what a page says."""

import io
from html.parser import HTMLParser
from typing import Any

import msgspec

from stridewise.analysis.diff import compare
from stridewise.findings import Site
from stridewise.report import html
from stridewise.results import StepCall, Timeline

from .. import checked, fleets, labs, lints, pairs, repairs, samples

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr", "path"}


def timeline(calls: int = 60, modules: int = 6) -> Timeline:
    """A step in which every module in turn makes a few calls, forward and then backward."""
    layouts = ("contiguous", "permuted", "channels_last", "gapped", "expanded", None)
    rows = []
    for number in range(calls):
        backward = number >= calls // 2
        module = number * 2 * modules // calls
        rows.append(
            StepCall(
                name="layer_norm" if number % 7 == 0 else "linear",
                module=2 * modules - 1 - module if backward else module,
                site=number % 5 - 1,
                start_ns=number * 10_000,
                duration_ns=9_000,
                layout=layouts[number % len(layouts)],
                sizes=(8, 256, 128) if number % len(layouts) < 5 else None,
                strides=(32768, 1, 256) if number % len(layouts) < 5 else None,
                copies=int(number % 7 == 0),
                bytes_moved=2_000_000 * (number % 7 == 0),
                backward=backward,
            )
        )
    return Timeline(
        duration_ns=calls * 10_000,
        modules=tuple(f"encoder.layers.{number}.norm" for number in range(modules)),
        sites=(*(payer.site for payer in samples.STREAM.payers[:3]), Site("model.py", 7)),
        calls=tuple(rows),
    )


def images(formats: tuple[str, ...]) -> Timeline:
    """A step of a convnet whose layers give images in these layouts."""
    calls = [
        StepCall(
            name, -1, -1, 1000 * number, 900, layout, (2, 8, 16, 16), (1, 1, 1, 1), int(name == "conv2d"), 8, False
        )
        for number, layout in enumerate(formats)
        for name in ("conv2d", "batch_norm")
    ]
    return Timeline(duration_ns=10_000, modules=(), sites=(), calls=tuple(calls))


RICH = samples.report(
    [samples.STREAM, samples.FROM_INPUT, samples.RESHAPE],
    copies=27.0,
    bytes_moved=37.1e6,
    duration_ns=1.55 * samples.MS,
    share=0.0414,
    folded=samples.RICH.folded,
    notes=samples.RICH.notes,
    copy_list=samples.COPIES,
    modules=samples.MODULES,
    kernels=samples.KERNELS,
    layout_kernels=samples.LAYOUT_KERNELS,
    streams=samples.STREAMS,
    timeline=timeline(),
)
"""A report with everything in it."""

CARDS = msgspec.structs.replace(RICH, copies=(), timeline=None)
"""The same without charts."""

_HOSTILE_SITE = Site(f"{samples.HOSTILE_TEXT}.py", 3, expression=samples.HOSTILE_TEXT, module=samples.HOSTILE_TEXT)
HOSTILE = samples.report(
    samples.HOSTILE.findings,
    copies=1.0,
    notes=samples.HOSTILE.notes,
    environment=samples.HOSTILE.environment,
    modules=samples.HOSTILE.modules,
    copy_list=samples.COPIES,
    kernels=samples.KERNELS,
    timeline=Timeline(
        duration_ns=10,
        modules=(samples.HOSTILE_TEXT, "</script><script>document.title = 'owned'</script>"),
        sites=(_HOSTILE_SITE,),
        calls=(StepCall("</script><img src=x onerror=alert(1)>", 1, 0, 0, 5, "gapped", (2,), (2,), 1, 8, False),),
    ),
)

ALL: dict[str, Any] = {
    "rich": RICH,
    "healthy": samples.HEALTHY,
    "hostile": HOSTILE,
    "unmeasured": samples.UNMEASURED,
    "without_strides": samples.NO_STRIDES,
    "wrong": samples.WRONG,
    "long": samples.LONG,
    "folded": samples.FOLDED,
    "on_a_device": samples.ON_A_DEVICE,
    **{f"lint_{name}": run for name, run in lints.ALL.items()},
    **{f"fix_{name}": repair for name, repair in repairs.REPAIRS.items()},
    **{f"check_{name}": result for name, result in checked.ALL.items()},
    **{f"diff_{name}": compare(*pair, min_share=0.001) for name, pair in pairs.PAIRS.items()},
    **{f"lab_{name}": found for name, found in labs.ALL.items()},
    **{f"beside_{name}": found for name, found in labs.BESIDE.items()},
    **{f"fleet_{name.lower()}": getattr(fleets, name) for name in ("ODD", "HEALTHY", "HOSTILE", "DEVICES", "LARGE")},
}


def page(result: Any) -> str:
    out = io.StringIO()
    html.render(result, out)
    return out.getvalue()


class Reader(HTMLParser):
    """The tags of a page, what they refer to, and its text as a reader without styles has it."""

    BLOCKS = frozenset({"p", "li", "dt", "dd", "h1", "h2", "h3", "summary", "tr", "pre", "div"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.lines: list[str] = [""]
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in self.BLOCKS or dict(attrs).get("class") in ("line", "del", "ins", "same", "at"):
            self.lines.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.wrong.append(f"</{tag}> closes {self.open[-3:]}")
        elif tag in self.BLOCKS:
            self.lines.append("")
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.lines[-1] += " " + " ".join(data.split()) if data.strip() else " "

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (" ".join(line.split()) for line in self.lines)))
