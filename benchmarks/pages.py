"""How large a page is, and how fast it opens and answers: `python benchmarks/pages.py [--repeat N]`.

A page of 20 findings and 500 calls beside one of 2,000 findings and 50,000 calls, in headless Chromium. What a reader
waits for is measured in the page itself: from an event until the next frame is painted. A page feels smooth while that
stays below 100 ms. Ratios are to the small page.
"""

import argparse
import io
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from stridewise.findings import Cost, Finding, Payer, Site
from stridewise.report import html
from stridewise.results import Folded, Report, StepCall, Timeline, Totals

SIZES = {"small": (20, 500, 20), "large": (2000, 50_000, 400)}
"""Findings, calls and modules."""


def given_to(name: str, value: str, event: str = "change") -> str:
    """What a reader's choice does in the page."""
    return (
        f"const box = document.getElementById('{name}'); box.value = '{value}'; box.dispatchEvent(new Event('{event}'))"
    )


ACTS = {
    "search": given_to("search", "line 7", "input"),
    "filter": given_to("by-code", "SW103"),
    "sort": given_to("order", "bytes"),
    "open all": "document.getElementById('open-all').click()",
    "scroll": "scrollTo(0, document.body.scrollHeight / 2)",
    "zoom the map": "Plotly.relayout('map', {'xaxis.range[0]': 100, 'xaxis.range[1]': 300})",
    "map along time": given_to("map-axis", "time"),
}
MEASURED = """() => new Promise((done) => {
    const start = performance.now();
    ACT;
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
})"""


def report(findings: int, calls: int, modules: int) -> Report:
    """A report of that size."""
    cost = Cost(2, 4e6, 3e5, 0.01)
    sites = [Site(f"model{number % 40}.py", number, expression=f"self.norm{number}(x)") for number in range(findings)]
    found = tuple(
        Finding(
            code=("SW101", "SW103")[number % 2],
            title="strided-stream",
            severity="warning",
            message=f"`self.norm{number}(x)` copies what it is given.",
            count=1,
            site=site,
            origin=site,
            carriers=(),
            payers=tuple(Payer(site, "layer_norm", "input 0, (8, 256, 128)", cost) for _ in range(3)),
            cost=Cost(2, number * 1e4, 3e5, 0.01),
        )
        for number, site in enumerate(sites)
    )
    rows = tuple(
        StepCall(
            "layer_norm",
            number * modules // calls,
            number % findings,
            number * 1000,
            900,
            ("contiguous", "permuted", "channels_last")[number % 3],
            (8, 256, 128),
            (32768, 1, 256),
            int(number % 9 == 0),
            4_000_000,
            False,
        )
        for number in range(calls)
    )
    timeline = Timeline(calls * 1000, tuple(f"layers.{number}.norm" for number in range(modules)), tuple(sites), rows)
    totals = Totals(3, True, calls * 1e3, 9.0, 1e6, 1e6, 0.1, "step time", {}, {}, {})
    return Report(found, totals, Folded(0, 0.001, Cost()), (), (), (), (), {}, timeline=timeline)


def measured(browser: Any, path: Path, repeat: int) -> dict[str, float]:
    """Milliseconds of opening a page and of what a reader does with it: medians."""
    times: dict[str, list[float]] = {}
    for _ in range(repeat):
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        start = time.perf_counter()
        page.goto(path.as_uri())
        times.setdefault("read it", []).append(1000 * (time.perf_counter() - start))
        page.wait_for_selector("html[data-drawn=true]")
        page.wait_for_selector("#filters:visible")
        times.setdefault("see its charts", []).append(1000 * (time.perf_counter() - start))
        for name, act in ACTS.items():
            times.setdefault(name, []).append(page.evaluate(MEASURED.replace("ACT", act)))
            page.wait_for_timeout(200)
        page.close()
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    executable = os.environ.get("STRIDEWISE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    found = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for name, size in SIZES.items():
            out, path = io.StringIO(), Path(folder) / f"{name}.html"
            start = time.perf_counter()
            html.render(report(*size), out)
            made = time.perf_counter() - start
            path.write_text(out.getvalue(), encoding="utf-8")
            print(
                f"{name}: {size[0]:,} findings, {size[1]:,} calls: {path.stat().st_size / 1e6:.1f} MB in {made:.1f} s"
            )
            found[name] = measured(browser, path, given.repeat)
        browser.close()
    print(f"{'':16}{'small':>10}{'large':>10}{'ratio':>8}")
    for name, small in found["small"].items():
        large = found["large"][name]
        print(f"{name:16}{small:7.0f} ms{large:7.0f} ms{large / small:7.1f}x")


if __name__ == "__main__":
    main()
