"""Pages in a real browser: they draw, answer, fit, and neither complain nor ask the network for anything."""

import msgspec
import pytest

from .. import samples
from . import pages

KINDS = [
    "rich",
    "hostile",
    "healthy",
    "long",
    "on_a_device",
    "lint_several",
    "fix_won two",
    "check_broken",
    "fleet_odd",
    "diff_worse",
    "lab_whole",
    "lab_hostile",
    "beside_disagreeing",
]
ACCESSIBLE = ["rich", "long", "fix_won two", "fleet_odd", "lab_whole"]
"""Together they have every part that a page can have."""


@pytest.mark.parametrize("name", KINDS)
def test_nothing_is_said_or_asked_for(opened, name):
    found = opened(pages.ALL[name])
    if found.page.locator("#data").count():
        found.drawn()
    assert found.said == []
    assert [url for url in found.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert len([url for url in found.asked if url.startswith("file:")]) == 1


@pytest.mark.parametrize("name", KINDS)
def test_it_fits_a_narrow_screen(opened, name):
    found = opened(pages.ALL[name], width=400)
    assert found.page.evaluate("document.documentElement.scrollWidth") <= 400
    assert found.page.evaluate("Number(getComputedStyle(document.body).fontSize.replace('px', ''))") >= 16


def test_hostile_text_makes_nothing(opened):
    found = opened(pages.ALL["hostile"]).drawn()
    assert found.page.title().startswith("stridewise: ")
    assert found.page.locator("main img, main b, main iframe, header a").count() == 0
    assert r"\x1b[31m[red]x[/red]" in found.page.inner_text("#finding-1")


def test_the_map_shows_modules_layouts_and_copies(opened):
    page = opened(pages.RICH).drawn().page
    rows = page.evaluate("document.getElementById('map').layout.yaxis.ticktext")
    assert rows == [f"encoder.layers.{number}.norm" for number in range(6)]
    assert "permuted" in page.inner_text("#map-legend")
    marks = page.evaluate("document.getElementById('map').data[1].x.length")
    assert marks == sum(call.copies > 0 for call in pages.RICH.timeline.calls)
    colours = page.evaluate("document.getElementById('map').data[0].z.flat().filter((value) => value !== null)")
    assert len(colours) == len(pages.RICH.timeline.calls)


def test_a_call_of_the_map_tells_what_it_is_and_leads_to_its_finding(opened):
    page = opened(pages.RICH).drawn().page
    call = next(at for at, row in enumerate(pages.RICH.timeline.calls) if row.copies and row.site >= 0)
    page.evaluate(
        """(call) => {
            const map = document.getElementById('map');
            const points = map.data[1];
            const at = points.customdata.indexOf(call);
            map.emit('plotly_click', {points: [{customdata: call, pointNumber: at}]});
        }""",
        call,
    )
    told = page.inner_text("#map-inspector")
    assert "layer_norm" in told
    assert "1 copy, 2 MB" in told
    page.click("#map-inspector a")
    assert page.evaluate("location.hash") == "#finding-1"


def test_the_map_can_be_seen_along_time_and_to_a_depth(opened):
    page = opened(pages.RICH).drawn().page
    page.select_option("#map-axis", "time")
    assert page.evaluate("document.getElementById('map').layout.xaxis.title.text") == "time in the step, ms"
    page.select_option("#map-depth", "1")
    assert page.evaluate("document.getElementById('map').layout.yaxis.ticktext") == ["encoder"]


def test_the_map_zooms_and_comes_back(opened):
    page = opened(pages.RICH).drawn().page
    page.select_option("#map-axis", "time")
    page.evaluate("document.getElementById('map').emit('plotly_doubleclick')")
    assert page.evaluate("document.getElementById('map').layout.xaxis.range") == [0, 600]  # all of the 600 µs
    page.select_option("#map-axis", "order")
    page.evaluate("Plotly.relayout('map', {'xaxis.range[0]': 10, 'xaxis.range[1]': 20})")
    columns = "document.getElementById('map').data[0].z[0].length"
    assert page.evaluate(columns) == 10
    page.click("#map-reset")
    assert page.evaluate(columns) == 60


def test_the_map_is_drawn_anew_in_another_window(opened):
    page = opened(pages.RICH).drawn().page
    tall = page.evaluate("document.getElementById('map').clientHeight")
    page.set_viewport_size({"width": 500, "height": 900})
    width = page.evaluate("document.getElementById('map').clientWidth")
    assert width < 500
    page.wait_for_selector(f"#map .main-svg[width='{width}']")
    assert page.evaluate("document.getElementById('map').clientHeight") == tall
    assert page.evaluate("document.getElementById('map').layout.yaxis.ticktext[0].length") <= 16


def test_the_keyboard_walks_over_the_map(opened):
    page = opened(pages.RICH).drawn().page
    page.focus("#map")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#map-inspector").startswith("layer_norm")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#map-inspector").startswith("linear")
    page.keyboard.press("ArrowDown")  # to the next copy, which is call 7
    assert "1 copy" in page.inner_text("#map-inspector")
    assert page.evaluate("document.getElementById('map').data[2].x") == [7.5]
    page.keyboard.press("+")
    assert page.evaluate("document.getElementById('map').data[0].z[0].length") == 30
    page.keyboard.press("0")
    assert page.evaluate("document.getElementById('map').data[0].z[0].length") == 60
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#finding-1"


def test_labels_are_no_markup(opened):
    page = opened(pages.ALL["hostile"]).drawn().page
    assert page.locator("#map a, #icicle a").count() == 0
    shown = page.text_content("#map .yaxislayer-above, #map .yaxislayer-below") + page.text_content("#map svg")
    assert "</script>" in shown


def test_layouts_that_are_not_known_are_in_the_legend(opened):
    assert "layout not known" in opened(pages.RICH).drawn().page.inner_text("#map-legend")


def test_thousands_of_modules_are_cut(opened):
    found = opened(msgspec.structs.replace(pages.RICH, timeline=pages.timeline(4000, 2000), copies=())).drawn()
    rows = found.page.evaluate("document.getElementById('map').data[0].y.length")
    assert rows == 501
    assert found.said == []


def test_a_timeline_without_calls_leaves_the_rest(opened):
    empty = msgspec.structs.replace(pages.RICH.timeline, calls=())
    found = opened(msgspec.structs.replace(pages.RICH, timeline=empty)).drawn()
    assert found.page.is_visible("#icicle")
    assert found.page.locator("#map").count() == 0


def test_light_and_dark(opened):
    page = opened(pages.RICH).drawn().page
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before == "rgb(255, 255, 255)"
    assert after != before
    assert page.evaluate("document.getElementById('map').layout.paper_bgcolor") == "#0f1419"


# ------------------------------------------------------------------------------------------------ search, sort, filter


def visible(page):
    return page.eval_on_selector_all(".card:not([hidden])", "cards => cards.map((card) => card.id)")


def test_search(opened):
    page = opened(pages.CARDS).page
    page.fill("#search", "memory ORDER")
    page.wait_for_selector("#shown:text-is('1 of 3')")
    assert visible(page) == ["finding-3"]
    page.fill("#search", "nowhere to be found")
    page.wait_for_selector("#none:visible")
    page.fill("#search", "")
    page.wait_for_selector("#shown:text-is('3')")


def test_filters(opened):
    page = opened(pages.CARDS).page
    page.select_option("#by-code", "SW103")
    assert visible(page) == ["finding-3"]
    page.select_option("#by-code", "")
    assert len(visible(page)) == 3
    assert page.is_hidden("#by-module")  # one module: nothing to choose


def test_sorting(opened):
    page = opened(pages.ALL["fix_won two"]).page
    before = visible(page)
    page.select_option("#order", "share")
    shares = page.eval_on_selector_all(".card", "cards => cards.map((card) => Number(card.dataset.share))")
    assert shares == sorted(shares, reverse=True)
    page.select_option("#order", "")
    assert visible(page) == before


def test_the_keyboard_is_enough(opened):
    page = opened(pages.CARDS).page
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.id") == "finding-2"
    page.keyboard.press("o")
    assert not page.evaluate("document.querySelector('#finding-2 details').open")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.id") == "finding-1"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("j")  # written, not obeyed
    assert page.input_value("#search") == "j"
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_tab_reaches_what_can_be_clicked(opened):
    page = opened(pages.RICH).drawn().page
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {
        "theme",
        "map-axis",
        "map-depth",
        "map-reset",
        "search",
        "by-code",
        "order",
        "open-all",
        "SUMMARY",
    } <= reached


def test_a_link_opens_what_it_leads_to(opened):
    page = opened(pages.CARDS).page
    page.click("#finding-1 .more a")
    assert page.evaluate("document.getElementById('meaning-SW101').open")


def test_a_link_to_what_a_search_hides_ends_the_search(opened):
    found = opened(pages.CARDS)
    page = found.page
    for _ in range(2):  # the second time the address stays what it is
        page.fill("#search", "memory order")
        page.wait_for_selector("#shown:text-is('1 of 3')")
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('a'), {href: '#finding-1', id: 'to'}))"
        )
        page.evaluate("document.getElementById('to').click()")
        page.wait_for_selector("#shown:text-is('3')")
        assert page.input_value("#search") == ""
        page.evaluate("document.getElementById('to').remove()")
    page.evaluate("location.hash = '#%'")
    assert found.said == []


def test_open_all_and_close_all(opened):
    page = opened(pages.CARDS).page
    page.click("#open-all")
    page.click("#open-all")
    assert page.evaluate("document.querySelectorAll('.card details[open]').length") == 0


# ------------------------------------------------------------------------------------------- print, no script, access


def test_print_shows_what_is_closed(opened):
    page = opened(pages.CARDS).page
    page.evaluate("document.querySelectorAll('details').forEach((details) => details.open = false)")
    assert page.pdf().startswith(b"%PDF")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details[open]').length") == 0
    page.emulate_media(media="print")
    assert page.is_hidden("#filters")


def test_paper_is_white(opened):
    page = opened(pages.CARDS, dark=True).page
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_it_reads_without_scripts(opened):
    page = opened(pages.RICH, java_script_enabled=False).page
    assert "Layout costs 4.1 % of a step" in page.inner_text("h1")
    assert "self.embed(mel).transpose(1, 2)" in page.inner_text("#finding-1")
    assert page.is_hidden("#filters")
    assert page.locator(".chart:visible").count() == 0


@pytest.mark.parametrize(("name", "dark"), [(name, dark) for name in ACCESSIBLE for dark in (False, True)])
def test_everybody_can_read_it(opened, name, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is in the extra `dev`")
    # axe is put into the page by the test, which the page's own policy would not let any script do.
    page = opened(pages.ALL[name], dark=dark, bypass_csp=True).page
    found = axe.Axe().run(page).response["violations"]
    serious = [(each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in ("serious", "critical")]
    assert serious == []


def test_a_long_report_works_and_stays_small(opened):
    long = msgspec.structs.replace(
        pages.RICH, findings=(samples.STREAM, samples.RESHAPE) * 1000, timeline=pages.timeline(50_000, 400)
    )
    text = pages.page(long)
    assert len(text.encode()) < 6_000_000
    found = opened(text).drawn()
    found.page.wait_for_selector("#filters:visible")
    page = found.page
    assert page.locator(".card").count() == 2000
    page.select_option("#by-code", "SW103")
    assert page.inner_text("#shown") == "1000 of 2000"
    assert len(page.evaluate("document.getElementById('map').data[0].z")) == 400
    assert len(page.evaluate("document.getElementById('map').layout.yaxis.ticktext")) < 150
    assert page.evaluate("Math.max(...document.getElementById('map').data[0].z.map((row) => row.length))") <= 1200
    assert found.said == []
