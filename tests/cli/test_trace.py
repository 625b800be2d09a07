"""`stridewise trace` on a real file: its tables, marks, sources and patterns, without torch."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..analysis.hand_made import frame, kernel, launch, op

TRANSPOSE = "my_vendor_relayout_kernel"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    events = [
        frame(0, 1000, "model.py(2): forward"),
        op("aten::contiguous", 5, 20, [[4, 8]], [[1, 4]]),
        op("aten::copy_", 8, 9, [[4, 8], [4, 8]], [[8, 1], [1, 4]]),
        launch(10, 1),
        kernel(50, 5, "void at::native::direct_copy_kernel_cuda()", 1),
        op("aten::mm", 30, 9, [[4, 8], [8, 4]], [[8, 1], [4, 1]]),
        launch(32, 2),
        kernel(60, 15, TRANSPOSE, 2),
    ]
    file = {"traceEvents": events, "host_name": "secret-host", "env": {"TOKEN": "secret-token"}}
    (tmp_path / "trace.json").write_text(json.dumps(file))
    project = tmp_path / "project"
    project.mkdir()
    (project / "model.py").write_text("class Net:\n    def forward(self, x):\n        return x.t().contiguous()\n")
    return tmp_path


def trace(folder: Path, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-X", "importtime", "-m", "stridewise", "trace", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STRIDEWISE")}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = ran.stderr.splitlines()
    assert not [line for line in lines if line.startswith("import time:") and line.split("|")[-1].strip() == "torch"]
    errors = "\n".join(line for line in lines if not line.startswith("import time:"))
    assert ran.returncode == code, errors
    return ran.stdout + errors


def test_source_lines_come_from_the_project_only(folder: Path) -> None:
    assert "def forward(self, x)" not in trace(folder, "trace.json")
    assert "def forward(self, x)" in trace(folder, "trace.json", "--source-root", "project")
    (folder / "project" / "pyproject.toml").write_text("")
    assert "def forward(self, x)" in trace(folder / "project", "../trace.json")


def test_kernels_and_paths_are_listed_when_asked(folder: Path) -> None:
    plain = trace(folder, "trace.json")
    assert TRANSPOSE not in plain
    listed = trace(folder, "trace.json", "--kernels", "--paths")
    assert TRANSPOSE in listed
    assert "aten::mm" in listed
    assert set(json.loads(trace(folder, "trace.json", "--format", "json"))) >= {"kernels", "streams"}


def test_a_project_names_kernels_that_change_layout(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(f'[tool.stridewise.kernel-patterns]\n"^{TRANSPOSE}$" = "transpose"\n')
    totals: Any = json.loads(trace(folder, "trace.json", "--format", "json"))["totals"]
    assert totals["layout_kernels"]["by_cause"]["transpose"]["count"] == 1
    assert totals["layout_kernels"]["share"] == 1
    (folder / "pyproject.toml").write_text('[tool.stridewise.kernel-patterns]\n"(" = "transpose"\n')
    assert "regular expression" in trace(folder, "trace.json", code=2)


def test_a_trace_is_written_with_its_copies_marked(folder: Path) -> None:
    trace(folder, "trace.json", "--annotate", "marked.json.gz")
    text = gzip.decompress((folder / "marked.json.gz").read_bytes())
    assert b"secret" not in text
    file = json.loads(text)
    before = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert file["traceEvents"][: len(before)] == before
    marks = file["traceEvents"][len(before) :]
    assert len({mark["pid"] for mark in marks}) == 1
    named = [mark["name"] for mark in marks if mark["ph"] == "X"]
    assert named == ["SW114 reorder in aten::contiguous"] * 2  # on its stream, and on its thread
    spans = {(mark["ts"], mark["dur"]) for mark in marks if mark["ph"] == "X"}
    assert spans == {(50, 5), (8, 9)}
    assert trace(folder, "marked.json.gz").splitlines()[0] == trace(folder, "trace.json").splitlines()[0]


@pytest.mark.parametrize("target", ["/nowhere/out.json", "."])
def test_where_marks_cannot_be_written(folder: Path, target: str) -> None:
    message = trace(folder, "trace.json", "--annotate", target, code=2)
    assert "be written" in message or "is a folder" in message


def test_only_one_trace_is_annotated(folder: Path) -> None:
    (folder / "other.json").write_text((folder / "trace.json").read_text())
    assert "--annotate takes one FILE" in trace(folder, "trace.json", "other.json", "--annotate", "out.json", code=2)


def test_a_pipe_is_read_once(folder: Path) -> None:
    content = (folder / "trace.json").read_text()
    os.mkfifo(folder / "pipe.json")
    with subprocess.Popen(["sh", "-c", "cat > pipe.json"], cwd=folder, stdin=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        writer.stdin.write(content)
        writer.stdin.close()
        assert trace(folder, "pipe.json").startswith("Layout costs")
    with subprocess.Popen(["sh", "-c", "cat > pipe.json"], cwd=folder, stdin=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        writer.stdin.write(content)
        writer.stdin.close()
        assert "is a pipe" in trace(folder, "pipe.json", "--annotate", "out.json", code=2)


def test_what_would_take_the_place_of_something_is_refused(folder: Path) -> None:
    assert "take its own place" in trace(folder, "trace.json", "--annotate", "trace.json", code=2)
    assert "name the same file" in trace(folder, "trace.json", "--annotate", "x.json", "--output", "x.json", code=2)
    assert "is no folder" in trace(folder, "trace.json", "--source-root", "nowhere", code=2)


def test_marks_are_not_doubled(folder: Path) -> None:
    trace(folder, "trace.json", "--annotate", "once.json")
    trace(folder, "once.json", "--annotate", "twice.json")
    assert json.loads((folder / "once.json").read_text()) == json.loads((folder / "twice.json").read_text())
