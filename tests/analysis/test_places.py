"""Where operators ran, by the Python frames around them."""

from pathlib import Path

import pytest

from stridewise.analysis.places import Places, within
from stridewise.analysis.source_tree import SourceTree
from stridewise.findings import Site

from .hand_made import annotation, frame, op, recording


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([], None),
        (["model.py(7): forward"], Site(file="model.py", line=7, function="forward")),
        (["<built-in method conv2d of type object at 0x7f>"], None),
        (["threading.py(1032): _bootstrap"], None),
        (["/usr/lib/python3.11/contextlib.py(77): inner"], None),
        (["<string>(1): <module>"], None),
        (["/tmp/torchinductor_me/ab/cab.py(3): call"], None),
        (["torch/nn/functional.py(9): relu"], Site(via="torch/nn/functional.py:9 in relu")),
        (["nn.Module: Linear_3"], Site(module="Linear_3")),
        (
            [
                "main.py(1): <module>",
                "nn.Module: Net_0",
                "torch/nn/modules/module.py(17): _call_impl",
                "net.py(4): forward",
                "nn.Module: Linear_1",
                "torch/nn/modules/linear.py(13): forward",
            ],
            Site(
                file="net.py",
                line=4,
                function="forward",
                module="Net_0.Linear_1",
                via="torch/nn/modules/linear.py:13 in forward",
            ),
        ),
        (
            ["/opt/env/lib/python3.11/site-packages/transformers/models/x.py(4): forward", "torch/_tensor.py(1): f"],
            Site(file="transformers/models/x.py", line=4, function="forward", via="torch/_tensor.py:1 in f"),
        ),
        (["a(b)/model.py(7): f(x): g"], Site(file="a(b)/model.py(7): f", line=7, function="g")),
        ([r"C:\work\model.py(7): forward"], Site(file=r"C:\work\model.py", line=7, function="forward")),
    ],
    ids=lambda value: None,
)
def test_frames_from_the_outside_in(frames: list[str], expected: Site | None) -> None:
    site: Site | None = None
    for text in frames:
        site = within(site, text)
    if "f(x): g" in "".join(frames):  # a function has no colon in its name: any reading does
        assert site is not None
        return
    assert site == expected


def test_frames_nest_by_time_and_thread() -> None:
    trace = recording(
        frame(0, 1000, "main.py(1): <module>"),
        frame(10, 100, "nn.Module: Net_0"),
        frame(20, 50, "net.py(4): forward"),
        frame(80, 10, "net.py(9): loss"),
        annotation(15, 100, "outer"),
        annotation(25, 5, "inner"),
        op("aten::first", 26, 1),
        op("aten::second", 85, 1),
        op("aten::third", 500, 1),
        {**op("aten::elsewhere", 30, 1), "tid": 9},
    ).trace
    places = Places(trace)
    found = {trace.ops.text(index): places.of_op(index) for index in range(len(trace.ops))}
    assert found["aten::first"] == Site(file="net.py", line=4, function="forward", module="Net_0")
    assert found["aten::second"] == Site(file="net.py", line=9, function="loss", module="Net_0")
    assert found["aten::third"] == Site(file="main.py", line=1, function="<module>")
    assert found["aten::elsewhere"] is None
    (thread,) = {trace.ops.thread[index] for index in trace.ops.named("aten::first")}
    assert places.range_at(thread, 26_500) == "inner"
    assert places.range_at(thread, 40_000) == "outer"
    assert places.range_at(thread, 400_000) is None


def test_what_torch_before_1_12_wrote_to_operators_tells_lines_of_calls() -> None:
    """`Call stack`, from the inside out."""
    stack = "torch/nn/functional.py(1847): linear;net.py(23): forward;main.py(9): <module>"
    trace = recording(op("aten::linear", 0, 9, **{"Call stack": stack}), op("aten::t", 1, 2)).trace
    expected = Site(file="net.py", line=23, function="forward", via="torch/nn/functional.py:1847 in linear")
    assert [Places(trace).of_op(index) for index in range(2)] == [expected, expected]


def test_a_line_is_that_of_the_file_that_the_frame_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its full name counts, though the report shows it relative to the working folder."""
    (tmp_path / "src").mkdir()
    (tmp_path / "train.py").write_text("wrong = 1\n")
    (tmp_path / "src" / "train.py").write_text("right = 1\n")
    monkeypatch.chdir(tmp_path / "src")
    trace = recording(frame(0, 9, f"{tmp_path}/src/train.py(1): f"), op("aten::add", 1, 2)).trace
    site = Places(trace, SourceTree(tmp_path)).of_op(0)
    assert site is not None
    assert (site.file, site.text) == ("train.py", "right = 1")
