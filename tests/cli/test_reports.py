"""demo, trace and run: what they hand to the api, where the report goes, and what they exit with."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from stridewise.cli import main
from stridewise.errors import UsageError
from stridewise.report.headline import headline

from ..report import samples

READING = {"kernel_patterns": {}, "source_root": None, "paths": False, "timeline": False}


def call(*arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    return caught.value.code, out, err


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def traced(monkeypatch):
    """The calls of `api.analyze`, which gives the rich sample for every file."""
    calls = []

    def analyze(source, **options):
        calls.append((str(source), options))
        return samples.RICH

    monkeypatch.setattr("stridewise.api.load", lambda file: file)
    monkeypatch.setattr("stridewise.api.analyze", analyze)
    return calls


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """What `api.run_script` is called with, and what it gives."""
    state = SimpleNamespace(
        argv=None, options=None, report=samples.RICH, exit_code=0, message=None, script=lambda: None
    )

    def run_script(argv, **options):
        state.argv, state.options = argv, options
        state.script()
        return SimpleNamespace(
            report=state.report, exit_code=state.exit_code, message=state.message, compiled=None, saved=True
        )

    monkeypatch.setattr("stridewise.api.run_script", run_script, raising=False)
    (tmp_path / "train.py").write_text("")
    return state


# --------------------------------------------------------------------------------------------------------- demo, trace


def test_demo(monkeypatch, capsys):
    monkeypatch.setattr("stridewise.api.demo", lambda **_: samples.EVERYTHING, raising=False)
    code, out, err = call("demo", "--modules", "--copies", capsys=capsys)
    assert (code, err) == (0, "")
    assert out.startswith("Layout costs 3.2 % of a step")
    assert "Layouts by module" in out
    assert "4 copies in the whole recording" in out


def test_trace(traced, capsys):
    code, out, err = call("trace", "a.json", capsys=capsys)
    assert (code, err) == (0, "")
    assert out.startswith("Layout costs 4.1 % of a step")
    assert "\x1b" not in out
    assert traced == [("a.json", {"min_share": 0.001, "select": None, "ignore": None} | READING)]


def test_options_go_before_pyproject_and_pyproject_before_defaults(traced, capsys):
    Path("pyproject.toml").write_text('[tool.stridewise]\nselect = ["SW1"]\nmin-share = "1%"\nbudget = "copies=0"')
    assert call("trace", "a.json", capsys=capsys)[0] == 1
    call(
        "trace",
        "--select",
        "SW101,SW103",
        "--select",
        "sw105",
        "--ignore",
        "SW11",
        "--budget",
        "",
        "a.json",
        capsys=capsys,
    )
    assert [options for _, options in traced] == [
        {"min_share": 0.01, "select": ("SW1",), "ignore": None} | READING,
        {"min_share": 0.01, "select": ("SW101", "SW103", "SW105"), "ignore": ("SW11",)} | READING,
    ]


@pytest.mark.parametrize("format", ["json", "sarif"])
def test_formats_that_programs_read(format, traced, capsys):
    assert json.loads(call("trace", "--format", format, "a.json", capsys=capsys)[1])


def test_a_budget_says_what_is_exceeded_and_exits_with_1(traced, capsys):
    code, out, err = call("trace", "--budget", "copies=0,share=50%", "a.json", capsys=capsys)
    assert code == 1
    assert out.startswith("Layout costs")
    assert err == "stridewise: over budget: copies: 27 a step, the budget allows 0\n"
    assert call("trace", "--budget", "copies=99", "a.json", capsys=capsys)[::2] == (0, "")


# --------------------------------------------------------------------------------------------------------------- output


def test_a_page_goes_into_a_file_and_its_sentence_to_people(traced, tmp_path, capsys):
    code, out, err = call("trace", "t.json", "--format", "html", "--output", "report.html", capsys=capsys)
    assert (code, out) == (0, "")
    assert err == f"stridewise: {headline(samples.RICH)} The page is {tmp_path / 'report.html'}.\n"
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert traced[0][1]["timeline"]
    assert call("trace", "-q", "t.json", "--format", "html", "--output", "report.html", capsys=capsys)[2] == ""


def test_text_is_not_called_a_page(traced, tmp_path, capsys):
    code, _, err = call("trace", "t.json", "--output", "report.html", capsys=capsys)
    assert (code, err) == (2, "stridewise: report.html would hold plain text: add --format html\n")
    assert not (tmp_path / "report.html").exists()


def test_a_page_is_not_written_to_a_terminal(traced, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, _, err = call("trace", "t.json", "--format", "html", capsys=capsys)
    assert (code, err) == (2, "stridewise: --format html makes a page for a browser: add --output report.html\n")


def test_options_in_front_of_the_command_are_told_where_they_belong(capsys):
    code, _, err = call("--quiet", "trace", "t.json", capsys=capsys)
    assert code == 2
    assert err.endswith("Options stand behind the command: stridewise COMMAND --quiet.\n")


def test_output_is_a_whole_file_or_none(traced, tmp_path, capsys):
    target = tmp_path / "report.txt"
    target.write_text("old")
    target.chmod(0o640)
    code, out, err = call("trace", "--output", target, "a.json", capsys=capsys)
    assert (code, out, err) == (0, "", "")
    assert target.read_text(encoding="utf-8").startswith("Layout costs 4.1 %")
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["report.txt"]


def test_a_failure_keeps_the_old_file(traced, tmp_path, monkeypatch):
    target = tmp_path / "report.txt"
    target.write_text("old")

    def broken(report, out, **options):
        out.write("half")
        raise ZeroDivisionError

    monkeypatch.setattr("stridewise.report.terminal.render", broken)
    with pytest.raises(ZeroDivisionError):
        main(["trace", "--output", str(target), "a.json"])
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.txt"]


def test_a_link_stays_a_link(traced, tmp_path, capsys):
    (tmp_path / "link").symlink_to("real")
    assert call("trace", "--output", "link", "a.json", capsys=capsys)[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text(encoding="utf-8").startswith("Layout costs")


def test_devices_are_written_to_and_not_replaced(traced, capsys):
    assert call("trace", "--output", "/dev/null", "a.json", capsys=capsys)[0] == 0
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("output", ["no/such/folder/report.txt", "."])
def test_output_that_cannot_be_written_is_refused_before_anything_runs(output, traced, ran, capsys):
    for arguments in (["trace", "--output", output, "a.json"], ["run", "--output", output, "train.py"]):
        code, out, err = call(*arguments, capsys=capsys)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
    assert (traced, ran.argv) == ([], None)


# ------------------------------------------------------------------------------------------------------------------ run


@pytest.mark.parametrize(
    ("arguments", "argv", "module"),
    [
        (["train.py"], ["train.py"], False),
        (
            ["train.py", "--steps", "9", "-m", "--format", "x"],
            ["train.py", "--steps", "9", "-m", "--format", "x"],
            False,
        ),
        (["train.py", "--", "--help"], ["train.py", "--", "--help"], False),
        (["--", "train.py", "--", "-x"], ["train.py", "--", "-x"], False),
        (["-m", "package.module", "--steps", "9"], ["package.module", "--steps", "9"], True),
        (["--steps", "7", "-m", "package.module", "-m"], ["package.module", "-m"], True),
        (["train.py", "", "a b", "--x=[1]"], ["train.py", "", "a b", "--x=[1]"], False),
    ],
)
def test_what_follows_the_script_is_the_scripts(arguments, argv, module, ran, capsys):
    assert call("run", *arguments, capsys=capsys)[0] == 0
    assert ran.argv == argv
    assert ran.options["module"] is module


def test_run_hands_everything_on(ran, tmp_path, capsys):
    options = ["--steps", 5, "--warmup", 0, "--module-step", "Net", "--save", "r.json", "--library-copies"]
    options += ["--max-ops", 77, "--min-share", "2%", "--select", "SW1", "--ignore", "SW114", "--compiled"]
    assert call("run", *options, "train.py", capsys=capsys)[0] == 0
    assert ran.options == {
        "module": False,
        "steps": 5,
        "warmup": 0,
        "module_step": "Net",
        "save": tmp_path / "r.json",
        "library_copies": True,
        "max_ops": 77,
        "min_share": 0.02,
        "select": ("SW1",),
        "ignore": ("SW114",),
        "kernel_patterns": {},
        "paths": False,
        "timeline": False,
        "compiled": True,
    }


def test_the_report_comes_after_what_the_script_wrote(ran, capsys):
    ran.script = lambda: print("epoch 1")
    code, out, err = call("run", "train.py", capsys=capsys)
    assert (code, err) == (0, "")
    assert out.startswith("epoch 1\nLayout costs 4.1 %")


def test_paths_stay_where_they_were_when_the_script_changes_the_folder(ran, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    ran.script = lambda: os.chdir("elsewhere")
    assert call("run", "--output", "report.json", "--format", "json", "train.py", capsys=capsys)[0] == 0
    assert json.loads((tmp_path / "report.json").read_text())["totals"]["copies"] == 27


@pytest.mark.parametrize(
    ("script_code", "budget", "code"),
    [(0, "copies=99", 0), (0, "copies=0", 1), (3, "copies=99", 3), (3, "copies=0", 3), (2, "", 2)],
)
def test_exit_codes(script_code, budget, code, ran, capsys):
    ran.exit_code = script_code
    assert call("run", "--budget", budget, "train.py", capsys=capsys)[0] == code


def test_without_a_recording_no_budget_is_kept(ran, capsys):
    ran.report, ran.message = None, "the script ended before its first step"
    code, out, err = call("run", "--budget", "copies=0", "train.py", capsys=capsys)
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "stridewise: the script ended before its first step",
        "stridewise: over budget: nothing was recorded",
    ]
    assert call("run", "train.py", capsys=capsys)[0] == 0


def test_a_report_that_cannot_be_written_afterwards(ran, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    ran.script = lambda: (tmp_path / "out").rmdir()
    code, _, err = call("run", "--output", "out/report.txt", "train.py", capsys=capsys)
    assert code == 2
    assert err == f"stridewise: {tmp_path / 'out' / 'report.txt'} cannot be written: No such file or directory\n"


def test_a_script_that_closes_standard_output(ran, capsys, monkeypatch):
    with open(os.devnull, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        ran.script = stream.close
        with pytest.raises(SystemExit) as caught:
            main(["run", "train.py"])
    assert caught.value.code == 2
    assert "standard output is closed: use --output FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("nope.py", "there is no script nope.py\n"),
        ("package.module", "there is no script package.module\nfor a module: stridewise run -m package.module\n"),
        ("folder", "folder is a folder without a __main__.py\n"),
    ],
)
def test_a_script_that_is_not_there(script, message, ran, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    code, out, err = call("run", script, capsys=capsys)
    assert (code, out, err) == (2, "", f"stridewise: {message}")
    assert ran.argv is None


def test_what_the_api_refuses_is_code_2(ran, capsys):
    def refuse():
        raise UsageError("no module named package", advice="check the name")

    ran.script = refuse
    assert call("run", "-m", "package", capsys=capsys) == (
        2,
        "",
        "stridewise: no module named package\ncheck the name\n",
    )
