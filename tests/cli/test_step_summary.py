"""With `--format github` the report is in the summary of the step too."""

from pathlib import Path

import pytest

from stridewise.cli import main, step_summary

BAD = "import torch\n\n\ndef f(x):\n    x.contiguous()\n    return x\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("bad.py").write_text(BAD)
    return tmp_path


def call(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_it_is_appended(here, capsys):
    Path("summary.md").write_text("before\n\n")
    assert call("lint", "bad.py", "--format", "github") == 1
    text = Path("summary.md").read_text()
    assert text.startswith("before\n\n## stridewise lint\n\n<p><b>1 finding in 1 file")
    assert "<code>bad.py:5</code>" in text
    out = capsys.readouterr()
    assert out.out.startswith("::error file=bad.py")
    assert out.err == ""


@pytest.mark.parametrize("format", ["text", "json", "sarif", "junit", "markdown"])
def test_other_formats_leave_it_alone(here, format, capsys):
    assert call("lint", "bad.py", "--format", format) == 1
    assert not Path("summary.md").exists()
    if format == "markdown":
        assert capsys.readouterr().out.startswith("## stridewise lint\n")


def test_without_a_summary(here, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "")
    assert call("lint", "bad.py", "--format", "github") == 1
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("path", ["nowhere/summary.md", ".", "a\0b"])
def test_one_that_can_not_be_written_is_a_line(here, monkeypatch, capsys, path):
    variables = dict(step_summary.os.environ) | {"GITHUB_STEP_SUMMARY": path}
    monkeypatch.setattr(step_summary.os, "environ", variables)
    assert call("lint", "bad.py", "--format", "github") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("stridewise: the step summary ")


def test_it_never_gets_larger_than_what_github_shows(here, monkeypatch):
    call("lint", "bad.py", "--format", "github")
    size = Path("summary.md").stat().st_size
    monkeypatch.setattr(step_summary, "_MOST_BYTES", 2 * size - 1)
    call("lint", "bad.py", "--format", "github")
    text = Path("summary.md").read_text()
    assert len(text.encode()) < 2 * size
    assert text.endswith("<p>Cut here: GitHub takes 1 MiB of summary a step. The annotations have all of it.</p>\n\n")
    assert text.count("## stridewise lint") == 2


@pytest.mark.parametrize(("before", "between"), [("", ""), ("<p>x</p>", "\n\n"), ("x\n", "\n"), ("x\n\n", "")])
def test_it_begins_behind_an_empty_line(here, before, between):
    Path("summary.md").write_text(before)
    call("lint", "bad.py", "--format", "github")
    assert Path("summary.md").read_text().startswith(f"{before}{between}## stridewise lint\n\n")


def test_no_room_at_all_is_a_line(here, monkeypatch, capsys):
    Path("summary.md").write_text("before")
    monkeypatch.setattr(step_summary, "_MOST_BYTES", 10)
    assert call("lint", "bad.py", "--format", "github") == 1
    assert Path("summary.md").read_text() == "before"
    assert capsys.readouterr().err == (
        "stridewise: the step summary has no room left: GitHub takes 1 MiB of it a step\n"
    )
