"""Versions are read from files: nothing is imported."""

import sys
from importlib import metadata

import pytest
import torch

import stridewise
from stridewise.checks.machine import installed
from stridewise.checks.machine.installed import extras, torch_version


def test_the_version_of_torch_is_what_it_says_itself():
    assert torch_version() == torch.__version__


def test_the_torch_that_would_be_imported_counts(tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('it must not be imported')")
    (tmp_path / "torch" / "version.py").write_text("from typing import Optional\n__version__: str = '9.9.9+rocm'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch")
    assert torch_version() == "9.9.9+rocm"


def test_no_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_version() is None


def test_extras_are_those_of_the_package():
    found = {row.name: row for row in extras()}
    provided = set(metadata.metadata("stridewise").get_all("Provides-Extra"))
    assert set(found) == provided - {"bench", "dev"}
    assert found["fleet"].versions.keys() == {"cryptography", "distributed", "fsspec"}
    assert found["pytest"].installed
    assert found["pytest"].versions == {"pytest": pytest.__version__}
    assert found["pytest"].install == 'pip install "stridewise[pytest]"'


@pytest.mark.parametrize(
    ("lines", "versions", "is_there"),
    [
        (['pygls>=2; extra == "lsp"'], {"pygls": "2.0.1"}, True),
        (['pygls>=2; extra == "lsp"'], {"pygls": "2"}, True),
        (['pygls>=2; extra == "lsp"'], {"pygls": "1.9.9"}, False),
        (['pygls>=2; extra == "lsp"'], {"pygls": None}, False),
        (["pygls (>=2.0) ; extra == 'lsp'"], {"pygls": "2.0.0rc1"}, True),
        (
            ["pygls[ws]>=2,<3; python_version > '3' and extra == 'lsp'", 'a.b>=1; extra=="lsp"'],
            {"pygls": "2.1", "a.b": "1"},
            True,
        ),
        (["pygls; extra == 'lsp'"], {"pygls": "0.1"}, True),
    ],
)
def test_what_is_too_old_is_not_there(monkeypatch, lines, versions, is_there):
    monkeypatch.setattr(metadata, "requires", lambda _: ["msgspec>=0.19", *lines])
    monkeypatch.setattr(installed, "_version", versions.get)
    (row,) = extras()
    assert (row.name, row.versions, row.installed) == ("lsp", versions, is_there)


def test_a_checkout_that_is_not_installed_has_none(monkeypatch):
    def absent(_):
        raise metadata.PackageNotFoundError("stridewise")

    monkeypatch.setattr(metadata, "requires", absent)
    assert extras() == ()
    monkeypatch.setitem(sys.modules, "torch", None)
    assert stridewise.doctor().notes == (
        "stridewise is not installed as a package: what its extras take is not known.",
    )
