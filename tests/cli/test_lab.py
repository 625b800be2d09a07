"""`stridewise lab`: what runs, what is written where, and mistakes in the call."""

import io
import json
import signal
import subprocess
import sys

import pytest
from jsonschema import validate
from msgspec.structs import replace
from tests.report import labs
from tests.report.test_lab import lab as report

import stridewise
from stridewise.cli import main
from stridewise.report.schema import schema
from stridewise.results.lab import Arm, Lab, Prediction, Ratio

FAST = "contiguity-condition"


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["lab", *map(str, arguments)])
    return ended.value.code


@pytest.fixture
def saved(tmp_path):
    """Two runs in files."""
    paths = []
    for name, found in (("here", labs.WHOLE), ("there", labs.ON_GPU)):
        path = tmp_path / f"{name}.json"
        with path.open("w") as out:
            report.render(found, out, format="json")
        paths.append(path)
    return paths


def test_one_experiment(capsys, tmp_path):
    assert run("--quick", FAST, "--save", tmp_path / "run.json") == 0
    shown = capsys.readouterr()
    assert "C16" in shown.out
    assert shown.err == ""
    found = json.loads((tmp_path / "run.json").read_text())
    validate(found, schema("lab"))
    assert [each["name"] for each in found["experiments"]] == [FAST]
    assert found["quick"] is True
    assert found["whole"] is True


@pytest.mark.parametrize("option", [["--json"], ["--format", "json"]])
def test_json(capsys, option):
    assert run("--quick", FAST, *option) == 0
    validate(json.loads(capsys.readouterr().out), schema("lab"))


def test_a_page(tmp_path):
    assert run("--quick", FAST, "--html", "--output", tmp_path / "lab.html") == 0
    text = (tmp_path / "lab.html").read_text()
    assert text.startswith("<!doctype html>")
    assert FAST in text


def test_the_list_runs_nothing(capsys):
    assert run("--list") == 0
    every = capsys.readouterr().out.splitlines()
    assert len(every) >= 40
    assert run("--list", "C58") == 0
    some = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in some] == ["bmm-transposed"]
    assert some[0].endswith("(section 3.2: C58)")
    assert run("--list", "C58", "--details") == 0
    assert "`q.transpose(0, 1)`" in capsys.readouterr().out


def test_side_by_side(capsys, saved, tmp_path):
    assert run("--compare", *saved) == 0
    out = capsys.readouterr().out
    assert out.startswith("2 runs disagree on 1 of 1 claim that more than one tested.")
    assert "A  here:" in out
    assert run("--compare", *saved, "--json") == 0
    validate(json.loads(capsys.readouterr().out), schema("lab-comparison"))
    assert run("--compare", *saved, "--html", "--output", tmp_path / "beside.html") == 0
    assert "Ratios of time" in (tmp_path / "beside.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing-such"], "no experiment, claim or section named nothing-such"),
        (["bmm-transpose"], "did you mean bmm-transposed?"),
        (["qkv"], "did you mean qkv-projection?"),
        (["--device", "tpu"], "tpu"),
        (["--threads", "0"], "there have to be 1 to 1024"),
        (["--threads", "100000"], "there have to be 1 to 1024"),
        (["--threads", "9" * 20], "there have to be 1 to 1024"),
        (["--compare", "a.json", "--quick", "--save", "b.json"], "runs nothing: leave --quick, --save out"),
        (["--list", "--compare"], "runs nothing"),
        (["--json", "--format", "html"], "give one of them"),
        (["--quick", "slices", "--save", "one.json", "--output", "one.json"], "name the same file"),
        ([""], "A name is empty"),
        (["--compare", "/dev/zero"], "it is no file"),
        (["--json", "--html"], "give one of them"),
        (["--compare"], "needs the files"),
        (["--compare", "nothing.json"], "nothing.json cannot be read"),
        (["--quick", FAST, "--save", "no/such/folder/run.json"], "cannot be written"),
        (["--quick", FAST, "--output", "run.html"], "add --format html"),
    ],
)
def test_mistakes(capsys, arguments, said):
    assert run(*arguments) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err


def spoiled(old: str, new: str) -> bytes:
    """A result with something in it that cannot be."""
    text = labs_text(labs.WHOLE)
    assert old in text
    return text.replace(old, new, 1).encode()


def labs_text(found) -> str:
    out = io.StringIO()
    report.render(found, out, format="json")
    return out.getvalue()


SPOILED = [
    ('"number": "C58"', '"number": "Cx"'),
    ('"number": "C58"', '"number": "C²"'),
    ('"number": "C58"', f'"number": "C{"9" * 5000}"'),
    ('"middle": 0.96', '"middle": 0'),
    ('"low": 0.94', '"low": -1'),
    ('"high": 0.99', '"high": 1e300'),
    ('"median_ns": 407000.0', '"median_ns": 1e300'),
    ('"copies": 2', f'"copies": 1{"0" * 400}'),
    ('"cores": 2', '"cores": -1'),
]


def bmm(**changes) -> Lab:
    return replace(labs.WHOLE, experiments=(replace(labs.BMM, **changes),))


def arms(*made: Arm) -> Lab:
    return bmm(comparisons=(replace(labs.BMM.comparisons[0], arms=made),))


FIRST, VIEW, *_ = labs.BMM.comparisons[0].arms
FAULTS = {
    "outside of its interval": arms(FIRST, replace(VIEW, ratio=Ratio(0.96, 0.99, 0.94))),
    "lies outside": arms(FIRST, replace(VIEW, ratio=Ratio(2.0, 0.94, 0.99))),
    "compared with itself": arms(VIEW, replace(VIEW, name="other")),
    "the first arm of": arms(replace(FIRST, same="different"), VIEW),
    "has no ratio": arms(FIRST, replace(VIEW, ratio=None)),
    "the arm 'bmm(view, k)' is twice": arms(FIRST, VIEW, VIEW),
    "the comparison 'bmm of a batch-transposed operand' is twice": bmm(comparisons=labs.BMM.comparisons * 2),
    "C57 is twice": bmm(claims=labs.BMM.claims * 2),
    "left open and decided at once": bmm(
        claims=(labs.claim("C1", "1", "It is.", "It is.", Prediction("it is", True, "seen", unclear=True)),)
    ),
    "the experiment 'bmm-transposed' is in it twice": replace(labs.WHOLE, experiments=(labs.BMM, labs.BMM)),
    "its device is 'tpu\\x1b[31m'": replace(labs.WHOLE, device="tpu\x1b[31m"),
    "'2026-13-30' is no date": replace(labs.WHOLE, date="2026-13-30"),
    "'' is no date": replace(labs.WHOLE, date=""),
    "…' is no date": replace(labs.WHOLE, date="9" * 10_000),
}


@pytest.mark.parametrize(("said", "found"), FAULTS.items(), ids=range(len(FAULTS)))
def test_what_can_not_be_is_refused_in_a_line(capsys, tmp_path, said, found):
    path = tmp_path / "odd.json"
    path.write_text(labs_text(found))
    assert run("--compare", path) == 2
    error = capsys.readouterr().err
    assert "odd.json is no result of the lab" in " ".join(error.split())
    assert said in " ".join(error.split())
    assert "\x1b" not in error
    assert len(error) < 400


def test_what_does_not_follow_is_refused(capsys, tmp_path):
    text = labs_text(labs.WHOLE)
    for changed, said in (
        (text.replace('"verdict": "does not hold"', '"verdict": "holds"'), "does not follow from its predictions"),
        (text.replace('"schema_version": 1', '"schema_version": 99'), "follows version 99"),
    ):
        path = tmp_path / "odd.json"
        path.write_text(changed)
        assert run("--compare", path) == 2
        assert said in capsys.readouterr().err


def test_runs_whose_names_are_alike_all_stand_beside_each_other(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x", "x.json", "x.json.json"):
        (tmp_path / name).write_bytes(saved[0].read_bytes())
    found = stridewise.compare_labs(["x", "x.json", "x.json.json"])
    assert [side.name for side in found.sides] == ["x", "x.json", "x.json.json"]


@pytest.mark.parametrize("name", ["a\0.json", "loop.json"])
def test_names_of_no_file(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.json").symlink_to("loop.json")
    with pytest.raises(stridewise.errors.InputError, match="no such file"):
        stridewise.compare_labs([name])


def test_the_same_file_twice(capsys, saved):
    assert run("--compare", saved[0], saved[0].parent / "." / saved[0].name) == 2
    assert "given twice" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"experiments": 3}',
        b"[" * 100_000,
        b'{"traceEvents": []}',
        *(spoiled(*change) for change in SPOILED),
    ],
    ids=["empty", "no fields", "a list", "no text", "null", "wrong type", "deep", "a trace", *map(str, SPOILED)],
)
def test_files_that_are_no_result(capsys, tmp_path, text):
    path = tmp_path / "odd.json"
    path.write_bytes(text)
    assert run("--compare", path) == 2
    error = capsys.readouterr().err
    assert "odd.json is no result of the lab" in error
    assert len(error.splitlines()) <= 3
    assert "\x1b" not in error


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_an_interruption_shows_what_there_is():
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, "lab", "--quick", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline() == "second\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    found = json.loads(out)
    assert (process.returncode, error) == (130, "")
    assert [each["name"] for each in found["experiments"]] == ["first"]
    assert found["whole"] is False


SLOW = """
import sys, time
from stridewise.lab import catalogue
from stridewise.lab.experiment import Claim, Experiment

def first(bench):
    bench.expect("C1", "it is seen", True, "seen")

def second(bench):
    print("second", file=sys.stderr, flush=True)
    time.sleep(60)

claims = {"C1": Claim("1", "It is so.", "It is.")}
catalogue.experiments = lambda: (
    Experiment("first", "First", "None.", claims, first), Experiment("second", "Second", "None.", claims, second)
)
import stridewise
from stridewise.cli import main
main()
"""


def test_a_link_to_the_file_is_the_same_file(tmp_path, capsys):
    (tmp_path / "link.json").symlink_to(tmp_path / "run.json")
    assert run("--quick", FAST, "--save", tmp_path / "run.json", "--output", tmp_path / "link.json") == 2
    assert "name the same file" in capsys.readouterr().err


def test_what_was_measured_is_shown_where_it_cannot_be_saved(capsys):
    assert run("--quick", FAST, "--save", "/dev/full") == 2
    shown = capsys.readouterr()
    assert "rule " in shown.out
    assert "no space left" in shown.err.lower()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: stridewise.run_lab(FAST), "takes names in a list"),
        (lambda: stridewise.run_lab([3]), "takes names in a list"),
        (lambda: stridewise.run_lab([FAST], device="mps"), "on cpu or cuda, and not on mps"),
        (lambda: stridewise.run_lab(None), "takes names in a list"),
        (lambda: stridewise.run_lab(iter([FAST])), "takes names in a list"),
        (lambda: stridewise.run_lab([FAST], device=None), "takes the name of a device"),
        (lambda: stridewise.run_lab([FAST], threads=1.5), "takes a whole number"),
        (lambda: stridewise.run_lab([FAST], progress=3), "progress takes a function"),
        (lambda: stridewise.read_lab(3), "named by a path"),
        (lambda: stridewise.read_lab(b"run.json"), "named by a path"),
        (lambda: stridewise.compare_labs("run.json"), "takes a list of files"),
        (lambda: stridewise.compare_labs(None), "takes a list of files"),
        (lambda: stridewise.compare_labs([]), "none is given"),
        (lambda: stridewise.compare_labs([None]), "named by a path"),
    ],
)
def test_what_is_no_list_and_no_device_is_refused(call, said):
    with pytest.raises(stridewise.errors.UsageError, match=said):
        call()
