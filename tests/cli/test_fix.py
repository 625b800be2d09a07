"""`stridewise fix`: what it takes, what it hands on, and what it exits with. Trials are stubbed here."""

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from stridewise import api
from stridewise.cli import main
from stridewise.errors import InputError
from stridewise.results import Progress, Repair
from stridewise.source.patch import Written

from ..report import repairs


class Writable(Repair, frozen=True):
    """A repair that writes nothing, but says what it was asked for."""

    def write(self, patch_dir):
        Path("asked.txt").write_text(str(patch_dir))
        return (
            Written("train.py", "written", "/home/somebody/train.py", None),
            Written("lib/attention.py", "patch file", "lib-attention.patch", "it is not the project's own"),
            Written("late.py", "skipped", None, "it was edited since the trials ran"),
        )


def writable(repair, **changes):
    return Writable(**{**msgspec.structs.asdict(repair), **changes})


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The calls that were made; `asked.repair` and `asked.code` are what they give."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('the script')\n")
    calls = SimpleNamespace(made=[], repair=writable(repairs.TWO), code=0, message=None)

    def fix_target(target, **options):
        calls.made.append((target, options))
        return calls.repair

    def fix_script(argv, **options):
        calls.made.append((argv, options))
        return calls.repair, calls.code, calls.message

    monkeypatch.setattr(api, "fix_target", fix_target, raising=False)
    monkeypatch.setattr(api, "fix_script", fix_script, raising=False)
    return calls


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(["fix", *map(str, arguments)])
    out, err = capsys.readouterr()
    return caught.value.code, out, err


def test_a_target(asked, capsys):
    code, out, err = call(capsys, "train.py:make")
    assert (code, err) == (0, "")
    assert out.startswith("2 edits make a step 1.31x faster")
    assert "\nNext: `stridewise fix --write train.py:make` tries again, and writes what wins into train.py.\n" in out
    assert asked.made == [
        (
            "train.py:make",
            {
                "train": False,
                "only": (),
                "time_limit": 60.0,
                "tolerance": None,
                "library_copies": False,
                "min_share": 0.001,
                "progress": None,
            },
        )
    ]
    assert not Path("asked.txt").exists()


def test_options_are_handed_on(asked, capsys):
    options = ["--train", "--only", "hoist", "--only=channels_last", "--time-limit", "5", "--tolerance", "1e-3"]
    assert call(capsys, *options, "--library-copies", "--min-share", "2%", "package.module:make")[0] == 0
    target, given = asked.made[0]
    assert target == "package.module:make"
    assert given == {
        "train": True,
        "only": ("hoist", "channels_last"),
        "time_limit": 5.0,
        "tolerance": 1e-3,
        "library_copies": True,
        "min_share": 0.02,
        "progress": None,
    }


def test_options_may_follow_a_target(asked, capsys):
    assert call(capsys, "train.py:make", "--only", "hoist", "--train", "--write")[0] == 2  # not all was written
    assert asked.made[0][1]["only"] == ("hoist",)
    assert Path("asked.txt").exists()


def test_what_follows_a_script_is_its_own(asked, capsys):
    code, out, _ = call(capsys, "--stop", "--check", "train.py", "--write", "--check", "--epochs", "1")
    assert (code, asked.made[0][0]) == (1, ["train.py", "--write", "--check", "--epochs", "1"])
    assert (asked.made[0][1]["stop"], asked.made[0][1]["module"]) == (True, False)
    assert not Path("asked.txt").exists()
    again = "stridewise fix --write --stop train.py --write --check --epochs 1"
    assert f"`{again}`" in " ".join(out.split())


def test_a_module_is_a_script_whatever_its_name(asked, capsys):
    assert call(capsys, "-m", "package.train", "--train", "x:y")[0] == 0
    assert asked.made[0][0] == ["package.train", "--train", "x:y"]
    assert asked.made[0][1]["module"] is True


def test_a_script_may_have_a_colon_in_its_name(asked, capsys):
    Path("train:fast").write_text("")
    assert call(capsys, "train:fast")[0] == 0
    assert asked.made[0][0] == ["train:fast"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope.py:make"], "there is no file nope.py"),
        (["folder/nope:make"], "there is no file folder/nope"),
        (["no module:make"], "no module is neither a .py file nor a module's name"),
        (["train.py:"], "train.py: names no function: it reads train.py:NAME"),
        (["train.py:make()"], "`make()` in train.py:make() is no function's name: it reads train.py:NAME"),
        (["nope.py"], "there is no script nope.py"),
        (
            ["package.train"],
            "there is no script package.train\n"
            "for a module: stridewise fix -m package.train; for a function in it: stridewise fix package.train:NAME",
        ),
        (["train.py:make", "5"], "train.py:make takes no arguments, and `5` is given: only a script has its own"),
        (["train.py:make", "--stop"], "--stop ends a script, and train.py:make is none"),
        (["--train", "train.py"], "--train is for a target such as train.py:NAME: a script has its own backward"),
        (["train.py:make", "--check", "--write"], "--check only looks, and --write writes: give one of them"),
        (["train.py:make", "--patch-dir", "."], "--patch-dir says where --write puts patches: give both, or neither"),
        (["train.py:make", "--write", "--patch-dir", "train.py"], "--patch-dir train.py is no folder"),
        (["train.py:make", "--time-limit", "0"], "--time-limit 0 is no time: give seconds, more than 0"),
        (["train.py:make", "--time-limit", "nan"], "--time-limit nan is no time: give seconds, more than 0"),
        (
            ["train.py:make", "--tolerance", "-1"],
            "--tolerance -1 is no share: give a fraction such as 1e-5, or 0 for equal bits",
        ),
    ],
)
def test_mistakes_are_code_2_and_nothing_runs(arguments, message, asked, capsys):
    assert call(capsys, *arguments) == (2, "", f"stridewise: {message}\n")
    assert asked.made == []


def test_kinds_are_listed(asked, capsys):
    code, out, err = call(capsys, "--kinds")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == list(api.kinds())
    assert "drop-copy                leave out a copy that nothing behind it needs.\n" in out
    assert asked.made == []


def test_a_target_is_wanted(asked, capsys):
    code, out, err = call(capsys)
    assert (code, out) == (2, "")
    assert "Missing argument" in err


def test_what_the_trials_raise_is_one_message(asked, capsys, monkeypatch):
    def fail(*arguments, **options):
        raise InputError("train.py has no function make.", advice="It has main and step.")

    monkeypatch.setattr(api, "fix_target", fail)
    assert call(capsys, "train.py:make") == (
        2,
        "",
        "stridewise: train.py has no function make.\nIt has main and step.\n",
    )


@pytest.mark.parametrize(("repair", "code"), [(repairs.TWO, 1), (repairs.NOTHING, 0), (repairs.NO_CANDIDATES, 0)])
def test_check(repair, code, asked, capsys):
    asked.repair = writable(repair)
    assert call(capsys, "train.py:make")[0] == 0
    assert call(capsys, "train.py:make", "--check")[0] == code
    assert call(capsys, "--check", "train.py")[0] == code


def test_write(asked, capsys):
    code, out, err = call(capsys, "train.py:make", "--write", "--patch-dir", "patches")  # which is not there yet
    assert (code, err) == (2, "")  # one of them was not written
    assert Path("asked.txt").read_text() == str(Path("patches").absolute())
    assert (
        "written     train.py\npatch file  lib/attention.py → lib-attention.patch: it is not the project's own\n" in out
    )
    assert "skipped     late.py: it was edited since the trials ran\n" in out
    assert "Next:" not in out


def test_what_was_written_is_said_beside_other_formats(asked, capsys):
    _, out, err = call(capsys, "train.py:make", "--write", "--format", "json")
    assert json.loads(out)["diff"] == repairs.DIFF
    assert err.splitlines() == [
        "stridewise: written: train.py",
        "stridewise: patch file: lib/attention.py → lib-attention.patch: it is not the project's own",
        "stridewise: skipped: late.py: it was edited since the trials ran",
    ]


def test_what_was_tried_is_shown_even_if_it_cannot_be_written(asked, capsys, monkeypatch):
    def fail(self, patch_dir):
        raise InputError("patches cannot be written: no space left")

    monkeypatch.setattr(Writable, "write", fail)
    code, out, err = call(capsys, "train.py:make", "--write")
    assert (code, err) == (2, "stridewise: patches cannot be written: no space left\n")
    assert out.startswith("2 edits make a step 1.31x faster")


def test_an_interrupted_run_shows_what_was_tried_and_writes_nothing(asked, capsys):
    asked.repair = writable(repairs.INTERRUPTED)
    code, out, err = call(capsys, "train.py:make", "--write")
    assert (code, err) == (130, "stridewise: interrupted, so nothing is written\n")
    assert out.startswith("Interrupted. 1 edit makes a step 1.28x faster")
    assert "Not tried: 2 edits\n" in out
    assert "`stridewise fix train.py:make --write`" in out
    assert not Path("asked.txt").exists()
    assert call(capsys, "--check", "train.py")[0] == 130


@pytest.mark.parametrize(
    ("repair", "why"),
    [
        (
            repairs.repair(
                untried=repairs.WAITING, notes=("The time limit of 0.1 s was over before 2 edits were tried.",)
            ),
            ": The time limit of 0.1 s was over before 2 edits were tried",
        ),
        (repairs.repair(untried=repairs.WAITING), ""),
    ],
)
def test_check_of_nothing_fails(repair, why, asked, capsys):
    asked.repair = writable(repair)
    told = f"stridewise: nothing was tried, so there is nothing to check{why}\n"
    for arguments in (["train.py:make", "--check"], ["--check", "train.py"]):
        code, out, err = call(capsys, *arguments)
        assert (code, err) == (2, told)
        assert out.startswith("None of 2 edits was tried.")
    assert call(capsys, "train.py:make")[::2] == (0, "")
    asked.repair = writable(msgspec.structs.replace(repair, interrupted=True))
    assert call(capsys, "train.py:make", "--check")[::2] == (130, "")


def test_check_of_a_script_without_steps_fails(asked, capsys):
    asked.repair, asked.message = None, "Nothing was tried: the script ended before enough of its steps were recorded."
    why = "the script ended before enough of its steps were recorded"
    told = f"stridewise: nothing was tried, so there is nothing to check: {why}\n"
    assert call(capsys, "--check", "train.py") == (2, "", told)
    assert call(capsys, "train.py") == (0, "", f"stridewise: {asked.message}\n")
    asked.message = None
    assert call(capsys, "--check", "train.py")[2] == "stridewise: nothing was tried, so there is nothing to check\n"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (
            "def loss(a, b): ...\ndef _own(): ...\ndef main(): ...\ndef make(size=8, *, seed=0): ...\ndef step(): ...",
            "make",
        ),
        ("def step(*args, **options): ...", "step"),
        ("def step(*, seed): ...\nif True:\n    def inner(): ...", None),
        ("def step(x, /): ...", None),
        ("def broken(", None),
    ],
)
def test_a_script_without_steps_that_has_a_function(source, name, asked, capsys, monkeypatch):
    Path("train.py").write_text(source)
    Path("elsewhere").mkdir()

    def fix_script(argv, **options):
        monkeypatch.chdir("elsewhere")
        argv[0] = "changed"
        return None, 0, "Nothing was tried: why."

    monkeypatch.setattr(api, "fix_script", fix_script)
    hint = f"for a function in it: stridewise fix train.py:{name}\n" if name else ""
    assert call(capsys, "train.py") == (0, "", f"stridewise: Nothing was tried: why.\n{hint}")


def test_a_script_keeps_its_code(asked, capsys):
    asked.code, asked.message = 3, "it ended before all trials did"
    assert call(capsys, "--check", "train.py")[::2] == (3, "stridewise: it ended before all trials did\n")
    asked.repair = None
    assert call(capsys, "--check", "train.py") == (3, "", "stridewise: it ended before all trials did\n")
    asked.repair, asked.code, asked.message = writable(repairs.NOTHING), 0, None
    assert call(capsys, "train.py")[0] == 0


def test_a_script_that_put_another_stdout_in_place(asked, capsys, monkeypatch):
    def fix_script(argv, **options):
        sys.stdout = io.StringIO()
        return asked.repair, 0, None

    monkeypatch.setattr(api, "fix_script", fix_script)
    assert call(capsys, "train.py")[1].startswith("2 edits make a step")


@pytest.mark.parametrize("format", ["text", "json", "sarif", "github"])
def test_formats_and_output(format, asked, capsys):
    code, out, _ = call(capsys, "train.py:make", "--format", format)
    assert code == 0
    assert call(capsys, "train.py:make", "--format", format, "--output", "out.txt") == (0, "", "")
    written = Path("out.txt").read_text()
    assert written.partition("\nNext:")[0] == out.partition("\nNext:")[0]  # what comes next names the other options


def test_an_output_that_cannot_be_written_is_told_before_anything_runs(asked, capsys):
    code, out, err = call(capsys, "train.py:make", "--output", "nowhere/out.txt")
    assert (code, out) == (2, "")
    assert "nowhere/out.txt cannot be written" in err
    assert asked.made == []


# ----------------------------------------------------------------------------------------- what a target does, for real

FAILING = {
    "import": "import torch\nraise ValueError('mine\\nand more')\ndef make():\n    pass\n",
    "make": "def make():\n    raise ValueError('mine\\nand more')\n",
    "step": "def make():\n    def step():\n        raise ValueError('mine\\nand more')\n    return step\n",
    "model": "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
    "        raise ValueError('mine\\nand more')\ndef make():\n    return Model(), (torch.ones(2),)\n",
}


@pytest.fixture
def project(monkeypatch, tmp_path):
    """A folder for targets; what they import goes again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield tmp_path
    for name in ("target", "target_of_target"):
        if name not in known:
            sys.modules.pop(name, None)


@pytest.mark.parametrize("check", [(), ("--check",)])
@pytest.mark.parametrize("where", FAILING)
def test_a_target_that_raises(where, check, project, capsys):
    (project / "target.py").write_text(FAILING[where])
    code, out, err = call(capsys, "target.py:make", *check)
    assert (code, out) == (2, "")
    traceback, _, last = err.rpartition("stridewise: ")
    assert last == "the target failed: ValueError: mine and more\n"
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert traceback.endswith("ValueError: mine\nand more\n")
    assert f'File "{project / "target.py"}"' in traceback
    assert f"stridewise{os.sep}" not in traceback


@pytest.mark.parametrize(
    ("ends", "told"), [("0", "sys.exit(0)"), ("", "sys.exit()"), ("'no\\x1b data'", "sys.exit('no\\x1b data')")]
)
@pytest.mark.parametrize("where", ["make", "step"])
def test_a_target_that_ends_the_process(where, ends, told, project, capsys):
    (project / "target.py").write_text(
        f"import sys\n{FAILING[where]}".replace("raise ValueError('mine\\nand more')", f"sys.exit({ends})")
    )
    assert call(capsys, "target.py:make") == (2, "", f"stridewise: the target ended the process ({told})\n")


def test_a_target_that_is_interrupted(project, capsys):
    (project / "target.py").write_text("def make():\n    raise KeyboardInterrupt\n")
    assert call(capsys, "target.py:make", "--check") == (130, "", "")


def test_a_defect_of_ours_is_not_the_targets(project, monkeypatch):
    (project / "target.py").write_text("def make():\n    return lambda: None\n")
    monkeypatch.setattr("stridewise.repair.trial.session.report_of", None)  # it is called behind the target
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        main(["fix", "target.py:make"])


def test_what_a_target_writes_is_apart_from_the_report(asked, capsys, monkeypatch):
    def fix_target(target, **options):
        print("loading")
        return asked.repair

    monkeypatch.setattr(api, "fix_target", fix_target)
    code, out, err = call(capsys, "train.py:make", "--format", "json")
    assert (code, err) == (0, "loading\n")
    assert json.loads(out)["diff"] == repairs.DIFF


# ------------------------------------------------------------------------------------------------------------- progress


class Terminal(io.StringIO):
    """A terminal to write to."""

    def isatty(self):
        return True


STEPS = [
    Progress("recording"),
    Progress("trying", 0, 2, "copy once behind `x.mT` \x1b]0;evil\x07"),
    Progress("trying", 0, 2, "copy once behind `x.mT` \x1b]0;evil\x07", 0.8),
    Progress("trying", 1, 2, "hoist `mask`"),
    Progress("together", 0, 1),
]


def test_progress_of_a_target_on_a_terminal(asked, capsys, monkeypatch):
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")

    def fix_target(target, *, progress, **options):
        for step in STEPS:
            progress(step)
        return asked.repair

    monkeypatch.setattr(api, "fix_target", fix_target)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert call(capsys, "train.py:make")[0] == 0
    shown = terminal.getvalue()
    assert "Trying edits" in shown
    assert "1.25x" in shown
    assert "Trying winners together" in shown
    assert "\x1b]" not in shown


def test_progress_of_a_script_is_lines_on_a_terminal(asked, capsys, monkeypatch):
    terminal = Terminal()

    def fix_script(argv, *, progress, **options):
        for step in STEPS:
            progress(step)
        return asked.repair, 0, None

    monkeypatch.setattr(api, "fix_script", fix_script)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert call(capsys, "train.py")[0] == 0
    assert terminal.getvalue().splitlines() == [
        "stridewise: recording",
        "stridewise: trying edits 1 of 2, copy once behind `x.mT` \\x1b]0;evil\\x07",
        "stridewise: trying edits 2 of 2, hoist `mask`",
        "stridewise: trying winners together 1 of 1",
    ]
