"""What `doctor` shows: a sentence, a row for each thing that was tried, and how to get the rest."""

import io
import json
from html import unescape

import pytest
from rich.cells import cell_len

from stridewise.report.doctor import render
from stridewise.report.doctor_words import headline
from stridewise.results.doctor import Ability, Doctor, Extra

from .samples import HOSTILE_TEXT

RECORDING = Ability("recording", "works", "A copy is found at its line.", "run, fix", core=True)
THREADS = Ability("all threads", "absent", "This torch records one.", "threads", advice="a later torch records them")
COMPILE = Ability(
    "compile", "fails", "InvalidCxxCompiler: No working C++ compiler found", "torch.compile", advice="install g++"
)
ARROW = Extra("arrow", True, {"pyarrow": "26.0.1"}, 'pip install "stridewise[arrow]"')
FLEET = Extra("fleet", False, {"distributed": None, "fsspec": "2026.9.0"}, 'pip install "stridewise[fleet]"')
LSP = Extra("lsp", False, {"pygls": None}, 'pip install "stridewise[lsp]"')


def doctor(*abilities, **fields):
    values = {"stridewise": "0.1.0", "python": "3.11.2", "executable": "/usr/bin/python3", "torch": "2.13.0+cpu"}
    values |= {"build": "CPU", "extras": (ARROW,), **fields}
    return Doctor(abilities=abilities, **values)


CRASHED = "it crashed (SIGSEGV): Fatal Python error: Segmentation fault"
DOCTORS = {
    "well": doctor(RECORDING),
    "some": doctor(RECORDING, THREADS, COMPILE, extras=(ARROW, FLEET, LSP), notes=("The compiler was not tried.",)),
    "ill": doctor(Ability("recording", "fails", CRASHED, "run, fix", core=True), COMPILE),
    "no torch": doctor(torch=None, build=None),
    "hostile": doctor(Ability(HOSTILE_TEXT, "fails", HOSTILE_TEXT, "x", advice=HOSTILE_TEXT), build=HOSTILE_TEXT),
}


def rendered(name, **options):
    out = io.StringIO()
    render(DOCTORS[name], out, **options)
    return out.getvalue()


@pytest.mark.parametrize("name", list(DOCTORS))
def test_text(name, snapshot):
    assert rendered(name) == snapshot


@pytest.mark.parametrize("width", [100, 70])
@pytest.mark.parametrize("name", list(DOCTORS))
def test_lines_fit_and_are_plain_text(name, width):
    for line in rendered(name, width=width).split("\n"):
        assert cell_len(line) <= width
        assert line.isprintable()


@pytest.mark.parametrize("name", list(DOCTORS))
def test_the_page_has_it_all(name):
    text = unescape(rendered(name, format="html"))
    doctor = DOCTORS[name]
    assert headline(doctor)[:20] in text
    for row in doctor.abilities if name != "hostile" else ():
        assert row.what in text
    for extra in doctor.extras:
        assert extra.name in text
        assert (extra.install in text) is not extra.installed


def test_json_is_the_whole_result():
    told = json.loads(rendered("some", format="json"))
    assert told["abilities"][2]["advice"] == "install g++"
    assert told["extras"][1]["versions"] == {"distributed": None, "fsspec": "2026.9.0"}


@pytest.mark.parametrize(
    ("name", "ok", "sentence"),
    [
        ("well", True, "All works that this machine has."),
        ("some", True, "Recording works; compile does not work."),
        ("ill", False, "Nothing can be recorded here: recording and compile do not work."),
        ("no torch", False, "torch is not installed"),
    ],
)
def test_what_is_absent_is_no_fault(name, ok, sentence):
    assert DOCTORS[name].ok is ok
    assert headline(DOCTORS[name]).startswith(sentence)
