"""Pages of every kind of result: what they say, and that they are whole, self-contained and inert."""

import base64
import gzip
import json
import re

import pytest

from stridewise.report import html
from stridewise.report.content import Contents
from stridewise.report.html.pages import charts_of, page_of

from .. import repairs, samples
from . import pages
from .pages import ALL, Reader


@pytest.fixture(scope="module")
def made():
    """Every page once."""
    return {name: pages.page(result) for name, result in ALL.items()}


@pytest.mark.parametrize(
    "name", ["rich", "healthy", "unmeasured", "wrong", "lint_several", "fix_won two", "fleet_odd", "lab_whole"]
)
def test_text(name, made, snapshot):
    assert Reader(made[name]).text == snapshot


@pytest.mark.parametrize("name", list(ALL))
def test_a_page_is_well_formed(name, made):
    reader = Reader(made[name])
    assert reader.wrong == []
    assert reader.open == []
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in reader.tags if tag == "a"]
    assert {link for link in links if link.startswith("#")} <= {f"#{name}" for name in ids}


@pytest.mark.parametrize("name", list(ALL))
def test_a_page_needs_nothing_else(name, made):
    for tag, attributes in Reader(made[name]).tags:
        assert tag not in ("iframe", "object", "embed", "base", "form") or attributes.get("role") == "search"
        for key in ("src", "href", "action", "srcset"):
            assert re.match(r"#|data:,$", attributes.get(key) or "#")
    assert "url(" not in made[name].partition("</style>")[0]
    assert len(made[name].encode()) < 6_000_000


@pytest.mark.parametrize("name", list(ALL))
def test_text_of_programs_is_inert(name, made):
    reader = Reader(made[name])
    assert "\x1b" not in made[name]
    assert "\u202e" not in made[name]
    assert not any(key.startswith("on") for _, attributes in reader.tags for key in attributes)
    assert not any(tag == "img" for tag, _ in reader.tags)
    assert made[name].count("<script") == made[name].count("</script>")


def test_hostile_text_is_shown(made):
    text = Reader(made["hostile"]).text
    assert "<b>&" in text
    assert r"\x1b[31m" in text
    scripts = [attributes.get("type") for tag, attributes in Reader(made["hostile"]).tags if tag == "script"]
    assert scripts == ["application/octet-stream", "application/octet-stream", None]


def test_the_data_of_charts_reads_back(made):
    found = re.search(r'id="data">(.*?)</script>', made["hostile"], re.DOTALL)
    data = json.loads(gzip.decompress(base64.b64decode(found[1])))
    assert data["map"]["names"] == ["</script><img src=x onerror=alert(1)>"]
    assert data["map"]["modules"][1].startswith("</script><script>")


def test_a_page_without_charts_carries_no_library(made):
    assert len(made["lint_several"]) < 100_000
    assert "plotly" not in Reader(made["lint_several"]).text


@pytest.mark.parametrize("name", list(ALL))
def test_a_fragment_is_well_formed_and_brings_no_script(name):
    text = html.fragment(ALL[name])
    reader = Reader(text)
    assert reader.wrong == []
    assert reader.tags[0] == ("div", {"class": "stridewise"})
    assert not {"script", "link", "iframe", "form"} & {tag for tag, _ in reader.tags}
    assert not any("id" in attributes for _, attributes in reader.tags)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    selectors = [part for rule in style.split("}") for part in rule.partition("{")[0].split(",") if part.strip()]
    assert all(selector.strip().startswith(".stridewise") for selector in selectors)


def test_a_fragment_works_out_no_chart(monkeypatch):
    monkeypatch.setattr("stridewise.report.html.rendering.charts_of", None)
    assert html.fragment(pages.RICH)


def test_a_fragment_names_what_it_leaves_out():
    many = samples.report([samples.RESHAPE] * 9, copies=9.0, share=0.1)
    assert "4 more; all of them in to_html() and print() ." in Reader(html.fragment(many)).text


def test_what_is_no_result_has_no_page():
    with pytest.raises(TypeError, match="str is no result of stridewise"):
        page_of("report", Contents())


def test_a_place_of_the_map_leads_to_its_finding():
    data = charts_of(pages.RICH, page_of(pages.RICH, Contents())).map
    place = data["sites"].index("model.py:51 · self.norm(x)")
    assert data["cards"][place] == "finding-1"
    assert data["cards"][data["sites"].index("model.py:7")] == ""


def test_the_icicle_adds_up_to_the_taxed_bytes_of_a_step():
    icicle = charts_of(pages.RICH, page_of(pages.RICH, Contents())).icicle
    taxed = sum(row.bytes_moved for row in pages.RICH.copies if row.taxed) / pages.RICH.totals.steps
    assert icicle["values"][icicle["parents"].index("")] == round(taxed)
    for name, parent in zip(icicle["ids"], icicle["parents"], strict=True):
        below = [icicle["values"][at] for at, up in enumerate(icicle["parents"]) if up == name]
        assert not below or abs(sum(below) - icicle["values"][icicle["ids"].index(name)]) <= len(below)
        assert parent == "" or parent in icicle["ids"]


@pytest.mark.parametrize(
    ("formats", "shown"),
    [
        (("channels_last", "channels_last"), ["NHWC"] * 4),
        (("contiguous", "channels_last"), ["NCHW", "NCHW", "NHWC", "NHWC"]),
        (("permuted", "contiguous"), ["permuted", "permuted", "NCHW", "NCHW"]),
        (("contiguous",), []),  # one convolution: a transformer that cuts images into patches
    ],
)
def test_the_strip_of_a_vision_net(formats, shown):
    report = samples.report(timeline=pages.images(formats))
    assert [layer.format for layer in page_of(report, Contents()).layers] == shown


def test_an_interval_lies_on_the_side_of_its_verdict():
    shown = page_of(repairs.TWO, Contents())
    won = [trial.interval for trial in shown.trials if trial.won]
    assert all(1 < interval.low <= interval.middle <= interval.high for interval in won)
    lost = [trial.interval for trial in shown.trials if trial.verdict == "lost"]
    assert all(interval.high < 1 for interval in lost)


def test_an_edit_is_shown_as_a_diff_of_the_file_as_it_was_found(tmp_path):
    from stridewise.api import lint

    (tmp_path / "model.py").write_text("import torch\n\n\ndef f(x: torch.Tensor):\n    x.contiguous()\n    return x\n")
    shown = Reader(lint(tmp_path).to_html()).text
    assert "-    x.contiguous()" in shown.replace("- x", "-    x")
    assert "x = x.contiguous()" in shown
