"""The cache of lint: what it gives back, what it forgets, and what can't do it harm."""

import os
from pathlib import Path

import pytest

from stridewise.findings import NOT_MEASURED, Edit, Finding, Site
from stridewise.linter.running import cache as caching
from stridewise.linter.running.cache import Cache, Known, digest_of, key_of

FINDING = Finding(
    code="SW391",
    title="toy",
    severity="warning",
    message="`x.t()` …",
    count=1,
    site=Site(file="a.py", line=3, column=1, end_line=3, end_column=4, expression="x.t()", text="y = x.t()"),
    origin=None,
    carriers=(),
    payers=(),
    cost=NOT_MEASURED,
    edits=(Edit("a.py", (1, 4), "", "safe"),),
    fingerprint="0123456789abcdef",
)
KNOWN = Known(7, (FINDING,), 2)
ONE, OTHER = digest_of(b"one"), digest_of(b"other")


def filled(folder: Path, *keys: str) -> Cache:
    cache = Cache(folder)
    for key in keys or ("a",):
        cache.put(key, ONE, KNOWN)
    cache.save()
    return cache


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def only(folder: Path) -> Path:
    (file,) = folder.glob("lint-*.msgpack")
    return file


def test_it_gives_back_what_it_was_given(tmp_path: Path) -> None:
    filled(tmp_path / "cache")
    cache = Cache(tmp_path / "cache")
    assert cache.get("a", ONE) == KNOWN
    assert cache.get("a", OTHER) is None
    assert cache.get("b", ONE) is None


def test_other_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    cache = filled(tmp_path)
    cache.put("a", OTHER, Known(1, (), 0))
    cache.save()
    assert Cache(tmp_path).get("a", ONE) is None
    assert Cache(tmp_path).get("a", OTHER) == Known(1, (), 0)


def test_a_key_depends_on_all_that_it_is_given() -> None:
    keys = {
        key_of("a.py", ["SW301"]),
        key_of("b.py", ["SW301"]),
        key_of("a.py", ["SW301", "SW302"]),
        key_of("a.py", ["SW301"], "SW302"),
        key_of("a.py", ["SW301"], "", "SW302"),
        key_of("a.py", []),
    }
    assert len(keys) == 6
    assert key_of("a.py", ["SW302", "SW301"]) == key_of("a.py", ["SW301", "SW302"])


def test_another_version_knows_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    monkeypatch.setattr(caching, "__version__", "99.0")
    assert Cache(tmp_path).get("a", ONE) is None
    filled(tmp_path)
    monkeypatch.undo()
    assert Cache(tmp_path).get("a", ONE) == KNOWN


def test_edited_sources_of_lint_know_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "stridewise"
    (package / "linter" / "rules").mkdir(parents=True)
    (package / "linter" / "rules" / "sw391.py").write_text("first = 1")
    monkeypatch.setattr(caching, "__file__", str(package / "linter" / "running" / "cache.py"))
    filled(tmp_path / "cache")
    assert Cache(tmp_path / "cache").get("a", ONE) == KNOWN
    (package / "linter" / "rules" / "sw391.py").write_text("second = 2")
    assert Cache(tmp_path / "cache").get("a", ONE) is None


def test_the_folder_is_marked_as_a_cache_unless_it_was_there(tmp_path: Path) -> None:
    filled(tmp_path / "made")
    assert files(tmp_path / "made") == [".gitignore", "CACHEDIR.TAG", only(tmp_path / "made").name]
    assert (tmp_path / "made" / ".gitignore").read_text() == "*\n"
    assert (tmp_path / "made" / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    (tmp_path / "theirs").mkdir()
    filled(tmp_path / "theirs")
    assert files(tmp_path / "theirs") == [only(tmp_path / "theirs").name]


def test_nothing_is_written_when_nothing_is_new(tmp_path: Path) -> None:
    filled(tmp_path)
    before = only(tmp_path).stat().st_mtime_ns
    cache = Cache(tmp_path)
    cache.get("a", ONE)
    cache.save()
    assert only(tmp_path).stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "folder"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, damage: str) -> None:
    filled(tmp_path)
    file = only(tmp_path)
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[-5] ^= 1
    file.unlink()
    if damage == "folder":
        file.mkdir()
    else:
        file.write_bytes({"cut": content[:-9], "flipped": content, "empty": b"", "foreign": b"\x93\1\2\3" * 99}[damage])
    assert Cache(tmp_path).get("a", ONE) is None
    filled(tmp_path)
    assert damage == "folder" or Cache(tmp_path).get("a", ONE) == KNOWN


def test_where_nothing_can_be_written_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = filled(tmp_path / "file" / "cache")
    assert cache.get("a", ONE) == KNOWN
    assert (tmp_path / "file").read_text() == ""
    (tmp_path / "cache").symlink_to(tmp_path / "cache")  # a link to itself, which root can't write to either
    filled(tmp_path / "cache")
    assert files(tmp_path) == ["cache", "file"]


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = Cache(None)
    cache.put("a", ONE, KNOWN)
    cache.save()
    assert cache.get("a", ONE) is None
    assert files(tmp_path) == []


def test_entries_go_that_no_run_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 20_000 * 86_400.0
    monkeypatch.setattr(caching.time, "time", lambda: now)
    filled(tmp_path, "asked for", "forgotten")
    now += 20 * 86_400
    cache = Cache(tmp_path)
    assert cache.get("asked for", ONE) == KNOWN
    cache.save()
    now += 20 * 86_400
    filled(tmp_path, "new")
    cache = Cache(tmp_path)
    assert cache.get("asked for", ONE) == cache.get("new", ONE) == KNOWN
    assert cache.get("forgotten", ONE) is None


def test_it_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_MOST_ENTRIES", 2)
    filled(tmp_path, "a", "b", "c")
    assert sum(Cache(tmp_path).get(key, ONE) is not None for key in "abc") == 2
    monkeypatch.setattr(caching, "_MOST_BYTES", 10)
    cache = Cache(tmp_path)
    cache.put("large", ONE, KNOWN)
    assert cache.get("large", ONE) is None


def test_files_of_other_versions_go_when_there_are_many(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"lint-{number}.msgpack").write_text("")
        os.utime(tmp_path / f"lint-{number}.msgpack", (number, number))
    (tmp_path / "mine.txt").write_text("")
    filled(tmp_path)
    kept = [name for name in files(tmp_path) if len(name) == len("lint-0.msgpack")]
    assert kept == [f"lint-{number}.msgpack" for number in (4, 5, 6, 7, 8)]
    assert (tmp_path / "mine.txt").exists()


def test_a_name_that_is_no_text_is_not_kept(tmp_path: Path) -> None:
    filled(tmp_path, "\udcff.py", "a")
    assert Cache(tmp_path).get("a", ONE) == KNOWN


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    filled(tmp_path)
    file = only(tmp_path)
    file.unlink()
    os.mkfifo(file)
    assert Cache(tmp_path).get("a", ONE) is None
    filled(tmp_path)
    assert Cache(tmp_path).get("a", ONE) == KNOWN


def test_a_file_that_is_too_large_is_neither_read_nor_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    size = only(tmp_path).stat().st_size
    monkeypatch.setattr(caching, "_MOST_IN_ALL", size)
    assert Cache(tmp_path).get("a", ONE) == KNOWN
    filled(tmp_path, "a", "b")
    assert only(tmp_path).stat().st_size == size
    monkeypatch.setattr(caching, "_MOST_IN_ALL", size - 1)
    assert Cache(tmp_path).get("a", ONE) is None


def test_one_that_memory_has_no_room_for_is_as_good_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(payload: bytes) -> bytes:
        raise MemoryError

    filled(tmp_path)
    monkeypatch.setattr(caching, "_digest", full)
    assert Cache(tmp_path).get("a", ONE) is None
