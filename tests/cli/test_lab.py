"""`stridewise lab`: what runs, what is written where, and mistakes in the call."""

import io
import json
import signal
import subprocess
import sys

import pytest
from jsonschema import validate
from tests.report import labs
from tests.report.test_lab import lab as report

import stridewise
from stridewise.cli import main
from stridewise.report.schema import schema

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
    assert "no result of the lab" in error
    assert len(error.splitlines()) <= 3


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
        (lambda: stridewise.compare_labs("run.json"), "takes a list of files"),
    ],
)
def test_what_is_no_list_and_no_device_is_refused(call, said):
    with pytest.raises(stridewise.errors.UsageError, match=said):
        call()
