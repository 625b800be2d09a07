"""Files that torch.compile logs to, also those that are cut, mixed with other text, or something else."""

from pathlib import Path

import pytest

from stridewise.compiled import trace_log
from stridewise.compiled.trace_log import Entry
from stridewise.errors import InputError

HEAD = "V1130 08:33:01.123456 4711 torch/_dynamo/output_graph.py:1 {json}"


def line(json: str, head: str = "V1130 08:33:01.123456 4711 torch/_inductor/graph.py:7] ") -> str:
    return f"{head}{json}\n"


GOOD = line('{"inductor_output_code": {"filename": "a.py"}, "frame_id": 3, "frame_compile_id": 1, "attempt": 0}')


def test_an_entry_has_its_payload() -> None:
    (found,) = trace_log.read_lines([GOOD, "\tdef call(args):\n", "\t    return ()\n"])
    assert found == Entry(
        "inductor_output_code", {"filename": "a.py"}, "3/1", 0, "def call(args):\n    return ()\n", None
    )


def test_an_artifact_is_known_by_its_name() -> None:
    (found,) = trace_log.read_lines([line('{"artifact": {"name": "recompile_reasons"}, "rank": 2}'), "\tbecause\n"])
    assert (found.kind, found.payload, found.rank, found.compile_id) == ("recompile_reasons", "because\n", 2, "")


@pytest.mark.parametrize(
    "text",
    [
        "hello\n",
        "V1130 08:33:01.123456 4711 torch/x.py:7] {broken\n",
        "V1130 08:33:01.123456 4711 torch/x.py:7] [1, 2]\n",
        "\ta payload of nothing\n",
        line('{"chromium_event": {}}'),
        line('{"frame_id": 1}'),
        "\x00\x00\n",
        line('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    ],
)
def test_what_is_no_entry_is_passed_over(text: str) -> None:
    found = list(trace_log.read_lines([text, "\tits payload\n", GOOD]))
    assert [entry.kind for entry in found] == ["inductor_output_code"]


def test_frames_are_counted_from_0() -> None:
    rows = [Entry("a", {}, compile_id, 0, "") for compile_id in ("12/0", "", "7/1", "12/2")]
    assert [entry.compile_id for entry in trace_log.renumbered(rows)] == ["0/0", "", "1/1", "0/2"]


def test_files_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "rank").mkdir()
    for name in ("dedicated_log_torch_trace_b.log", "rank/dedicated_log_torch_trace_rank_0_a.log", "other.txt"):
        (tmp_path / name).write_text(GOOD)
    found = trace_log.files_of(tmp_path)
    assert [file.name for file in found] == [
        "dedicated_log_torch_trace_b.log",
        "dedicated_log_torch_trace_rank_0_a.log",
    ]
    assert trace_log.files_of(found[0]) == (found[0],)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no"):
        trace_log.files_of(tmp_path / "none")
    with pytest.raises(InputError, match="holds no file"):
        trace_log.files_of(tmp_path)
    (tmp_path / "x.log").write_bytes(b"\xff\xfe\x00 nothing")
    with pytest.raises(InputError, match="holds nothing that torch"):
        trace_log.read_file(tmp_path / "x.log")
    with pytest.raises(InputError, match="can't be read"):
        trace_log.read_file(tmp_path)
