"""Reading many files in this process: what comes back, whatever they hold."""

import gzip
import subprocess
import sys
from pathlib import Path

import fsspec
import msgspec
import pytest

import stridewise
from stridewise import api
from stridewise.analysis import analyze_trace
from stridewise.analysis.summary import Summary
from stridewise.errors import InputError, UsageError
from stridewise.fleet import read
from stridewise.fleet.work import Answer, decode

from . import traces


def test_ranks_and_all_of_them(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    traces.fleet(tmp_path, 4, odd=2)
    fleet = api.analyze_fleet([tmp_path], progress=lambda read, files: calls.append((read, files)))
    assert [(row.at.rank, row.copies, row.steps) for row in fleet.rows] == [(0, 2, 3), (1, 2, 3), (2, 9, 3), (3, 2, 3)]
    assert {outlier.at.rank for outlier in fleet.outliers} == {2}
    (finding,) = fleet.findings
    assert (finding.files, finding.mean.copies, finding.most.copies) == (4, 3.75, 9)
    assert finding.most_at.rank == 2
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert str(fleet).startswith("On all 4 ranks layout costs")
    assert msgspec.json.decode(fleet.to_json())["rows"][2]["copies"] == 9


def test_each_row_is_what_its_file_alone_says(tmp_path: Path) -> None:
    files = traces.fleet(tmp_path, 3, odd=1)
    for file, row in zip(files, api.analyze_fleet(files).rows, strict=True):
        totals = stridewise.analyze(file).totals
        names = ("steps", "step_ns", "copies", "bytes_moved", "duration_ns", "share")
        assert [getattr(row, name) for name in names] == [getattr(totals, name) for name in names]


def test_a_bad_file_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    files = traces.fleet(tmp_path, 2)
    (tmp_path / "rank7.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [{}]}' * 90)[:40])
    (tmp_path / "rank8.json").write_text("nonsense")
    gone = str(tmp_path / "rank9.json")
    fleet = api.analyze_fleet([*files, str(tmp_path / "rank7.json.gz"), str(tmp_path / "rank8.json"), gone])
    assert [row.at.rank for row in fleet.rows] == [0, 1]
    assert [failed.at.rank for failed in fleet.failures] == [7, 8, 9]
    assert fleet.failures[2].message == f"{gone} does not exist."
    assert all("\n" not in failed.message for failed in fleet.failures)


def test_a_defect_of_ours_costs_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = traces.fleet(tmp_path, 2)
    calls: list[object] = []

    def broken(trace: object, **options: object) -> object:
        calls.append(trace)
        if len(calls) == 1:
            raise ZeroDivisionError("half\nof it")
        return analyze_trace(trace, **options)

    monkeypatch.setattr("stridewise.fleet.work.analyze_trace", broken)
    fleet = api.analyze_fleet(files)
    assert len(fleet.rows) == 1
    assert fleet.failures[0].message.endswith("ZeroDivisionError: half of it")


def test_nothing_that_can_be_read(tmp_path: Path) -> None:
    files = [str(tmp_path / f"rank{rank}.json") for rank in range(3)]
    with pytest.raises(InputError) as caught:
        api.analyze_fleet(files)
    assert str(caught.value).splitlines() == [
        "None of 3 files could be read.",
        f"The first: {files[0]} does not exist.",
    ]
    with pytest.raises(InputError, match="does not exist"):
        api.analyze_fleet(files[:1])
    with pytest.raises(UsageError, match="No files"):
        api.analyze_fleet([])


def test_urls(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    for file in traces.fleet(tmp_path, 3):
        store.pipe(f"/fleet/{Path(file).name}", Path(file).read_bytes())
    fleet = api.analyze_fleet(["memory://fleet/rank*.json", "memory://fleet/rank9.json"], workers=2)
    assert [row.at.file for row in fleet.rows] == [f"memory:///fleet/rank{rank}.json" for rank in range(3)]
    assert "does not exist" in fleet.failures[0].message


def test_budgets_are_held_against_each_file(tmp_path: Path) -> None:
    fleet = api.analyze_fleet(traces.fleet(tmp_path, 3, odd=1), budget="copies=5,forbid=SW107")
    assert [row.over_budget for row in fleet.rows] == [(), ("copies: 9 a step, the budget allows 5",), ()]
    with pytest.raises(UsageError, match="budget"):
        api.analyze_fleet([tmp_path], budget="copies")


def test_select_and_ignore(tmp_path: Path) -> None:
    files = traces.fleet(tmp_path, 2)
    assert api.analyze_fleet(files, select="SW107").findings == ()
    assert api.analyze_fleet(files, ignore=["SW1"]).findings == ()
    assert api.analyze_fleet(files, select=["sw1"]).findings


def test_patterns_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        api.analyze_fleet(traces.fleet(tmp_path, 2), kernel_patterns={"(": "transpose"})


def test_an_answer_of_another_version_is_refused() -> None:
    with pytest.raises(UsageError, match=r"workers run stridewise 0\.0\.1"):
        decode(msgspec.json.encode(Answer("0.0.1", Summary())))
    with pytest.raises(UsageError, match=r"workers run stridewise 9"):
        decode(b'{"version":"9","summary":{"rows":"of another shape"}}')


@pytest.mark.parametrize(
    ("count", "size", "wanted", "expected"),
    [
        (2, 10**9, None, 1),
        (7, 10**9, None, 1),
        (8, 10**9, None, 4),
        (8, 1000, None, 1),
        (64, 10**6, None, 4),
        (64, 10**6, 9, 9),
        (3, 1, 9, 3),
        (64, 10**9, 1, 1),
    ],
)
def test_how_many_processes(
    count: int, size: int, wanted: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "_size", lambda path: size)
    monkeypatch.setattr(read, "_cores", lambda: 4)
    monkeypatch.setattr(read, "_memory", lambda: 10**11)
    assert read._workers([("", "", b"")] * count, wanted) == expected


def test_processes_have_memory_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_size", lambda path: 10**9)
    monkeypatch.setattr(read, "_cores", lambda: 64)
    monkeypatch.setattr(read, "_memory", lambda: 7 * 10**9)
    assert read._workers([("", "", b"")] * 99, None) == 3


def test_without_dask_files_are_read_here_and_a_note_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_has_dask", lambda: False)
    monkeypatch.setattr(read, "_size", lambda path: 10**9)
    monkeypatch.setattr(read, "_cores", lambda: 4)
    files = traces.fleet(tmp_path, 8)
    hint = "The files were read one after another: pip install 'stridewise[fleet]' reads several at once."
    assert hint in [note.text for note in api.analyze_fleet(files).notes]
    assert hint not in [note.text for note in api.analyze_fleet(files[:3]).notes]
    for options in ({"cluster": "tcp://127.0.0.1:8786"}, {"workers": 2}):
        with pytest.raises(UsageError, match="takes Dask"):
            api.analyze_fleet(files, **options)


@pytest.mark.parametrize("address", ["", "http://127.0.0.1:8787/status", "foo://x", "tcp://host", "host", "a b:1"])
def test_what_is_no_address(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no address of a Dask scheduler"):
        api.analyze_fleet(traces.fleet(tmp_path, 2), cluster=address)


def test_neither_torch_nor_dask_is_imported_for_a_few_files(tmp_path: Path) -> None:
    traces.fleet(tmp_path, 3)
    code = (
        "import sys; from stridewise import api; api.analyze_fleet(sys.argv[1:]);"
        "print({'torch', 'dask', 'distributed', 'fsspec'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "set()\n", "")
