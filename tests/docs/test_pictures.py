"""The pictures of docs/explanation/layout.md are those that its generator draws, and say what torch does."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures_of_docs", DOCS / "pictures.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_that_the_files_are_current(pictures: ModuleType) -> None:
    files = {file.name: file.read_text(encoding="utf-8") for file in pictures.FOLDER.glob("*.svg")}

    assert files == pictures.pictures(), "python docs/pictures.py"


def test_that_every_picture_is_shown_with_words_for_those_who_do_not_see_it(pictures: ModuleType) -> None:
    page = (DOCS / "explanation" / "layout.md").read_text(encoding="utf-8")
    shown = {name: words for words, name in re.findall(r"!\[([^\]]+)\]\(\.\./images/explanation/([^)]+)\)", page)}

    assert set(shown) == set(pictures.pictures())
    assert all(len(words.split()) > 4 for words in shown.values())


def test_that_a_cell_is_numbered_with_the_element_that_torch_reads_there(pictures: ModuleType) -> None:
    # The value of each element is its position, so torch itself says which numbers the grid must show.
    tensor = torch.arange(12.0).reshape(3, 4).t()
    drawn = ElementTree.fromstring(pictures.matrix("x.t()", tensor))
    numbers = [int(text.text) for text in drawn.iter(f"{SVG}text") if "number" in text.get("class")]

    assert numbers[: tensor.numel()] == tensor.flatten().int().tolist()
    assert numbers[tensor.numel() :] == list(range(12))


def test_that_memory_shows_who_reads_it(pictures: ModuleType) -> None:
    overlapping = pictures.Shown("", torch.arange(4.0).unfold(0, 2, 1))
    gapped = pictures.Shown("", torch.arange(4.0)[1::2])

    assert pictures.readers(overlapping, 0) == {0: [0], 1: [0, 1], 2: [1, 2], 3: [2]}
    assert set(pictures.readers(gapped, 0)) == {1, 3}


def test_that_pictures_have_both_schemes_and_nothing_from_elsewhere(pictures: ModuleType) -> None:
    for drawn in pictures.pictures().values():
        assert "prefers-color-scheme: dark" in drawn
        assert set(re.findall(r"https?://[^\s\"<]+", drawn)) == {"http://www.w3.org/2000/svg"}
