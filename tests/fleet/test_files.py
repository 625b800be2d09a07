"""Which files are meant by globs, folders and URLs."""

import os
from pathlib import Path

import fsspec
import pytest

from stridewise.errors import InputError, UsageError
from stridewise.fleet.files import expand, shown_names

FILES = ["b/rank10.json.gz", "b/rank9.json.gz", "a/rank1.json", "a/x.sqlite", "a/notes.txt", "a/deep/rank2.json"]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FILES:
        file = tmp_path / "runs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def memory() -> str:
    store = fsspec.filesystem("memory")
    for name in FILES:
        store.pipe(f"/runs/{name}", b"{}")
    return "memory://runs"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["runs/*/rank*"], ["runs/a/rank1.json", "runs/b/rank9.json.gz", "runs/b/rank10.json.gz"]),
        (["runs/**/*.json"], ["runs/a/deep/rank2.json", "runs/a/rank1.json"]),
        (["runs/a"], ["runs/a/rank1.json", "runs/a/x.sqlite"]),
        (["runs/b/", "runs/a/rank1.json"], ["runs/b/rank9.json.gz", "runs/b/rank10.json.gz", "runs/a/rank1.json"]),
        (["runs/a/notes.txt"], ["runs/a/notes.txt"]),
        (["nowhere.json"], ["nowhere.json"]),  # whoever reads it says so
        (["runs/a/rank1.json", "./runs/a/../a/rank1.json", "runs/a/rank[1].json"], ["runs/a/rank1.json"]),
        (["s3://bucket/rank0.json", "s3://bucket/rank0.json"], ["s3://bucket/rank0.json"]),
        (["https://host/rank0.json.gz?key=[a]"], ["https://host/rank0.json.gz?key=[a]"]),
    ],
)
def test_names(names: list[str], expected: list[str]) -> None:
    assert [str(Path(file)) if "://" not in file else file for file in expand(names)] == expected


def test_links_and_file_urls_are_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("runs/a/rank1.json")
    url = f"file://{tmp_path}/runs/a/rank1.json"
    assert expand(["link.json", url, "runs/a/rank1.json"]) == ("link.json",)
    assert expand([f"file://{tmp_path}/runs/a/*.json"]) == (f"{tmp_path}/runs/a/rank1.json",)


def test_a_file_with_a_globs_characters_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "rank[1].json").write_text("{}")
    assert expand(["rank[1].json"]) == ("rank[1].json",)


def test_a_path_is_as_good_as_text(tmp_path: Path) -> None:
    assert expand([tmp_path / "runs/b"])[0].endswith("rank9.json.gz")


def test_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand(["~/runs/a/*.json"]) == (f"{tmp_path}/runs/a/rank1.json",)


@pytest.mark.parametrize("name", ["runs/*.pt", "runs/a/deep/none", "memory://runs/*/none*"])
def test_nothing_is_an_error_of_one_line(name: str, memory: str) -> None:
    Path("runs/a/deep/none").mkdir()
    with pytest.raises(UsageError) as caught:
        expand([name])
    assert len(str(caught.value).splitlines()) == 1
    assert name in str(caught.value)


def test_stores(memory: str) -> None:
    assert expand([f"{memory}/*/rank*"]) == tuple(
        f"memory:///runs/{name}" for name in ("a/rank1.json", "b/rank9.json.gz", "b/rank10.json.gz")
    )
    assert expand([f"{memory}/a"]) == ("memory:///runs/a/rank1.json", "memory:///runs/a/x.sqlite")
    assert expand(expand([f"{memory}/a/*"])) == expand([f"{memory}/a/*"])
    assert expand([f"{memory}/nowhere"]) == (f"{memory}/nowhere",)


@pytest.mark.parametrize("url", ["nonsense://x/*.json", "memory2://u:secret@host/*"])
def test_a_store_that_can_not_be_asked(url: str) -> None:
    with pytest.raises(InputError) as caught:
        expand([url])
    assert len(str(caught.value).splitlines()) == 1
    assert "secret" not in str(caught.value)


def test_names_show_no_secrets_and_differ() -> None:
    files = ["https://user:pw@host/a.json?sig=1", "https://host/a.json?sig=2", "s3://b/a.json", "x\udcff.json"]
    names = shown_names(files)
    assert names == ("https://host/a.json", "https://host/a.json (2)", "s3://b/a.json", "x?.json")
    assert os.fspath("x?.json").encode()
