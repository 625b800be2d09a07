"""`stridewise lint`: what it takes, what it writes where, and what it exits with."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from msgspec.structs import replace

from stridewise import api
from stridewise.cli import lint as command
from stridewise.cli import main
from stridewise.errors import UsageError
from stridewise.linter.files.discover import found_by_name
from stridewise.linter.running import parallel
from stridewise.linter.running import run as running
from stridewise.linter.running.run import Options, lint_paths, lint_text

ROOT = Path(__file__).parents[2]
DISCARDED = "import torch\n\n\ndef f(x):\n    x.contiguous()\n    return x\n"
TWICE = "import torch\n\n\ndef f(x):\n    return torch.ones(2, 3).t().clone().contiguous()\n"
ONCE = TWICE.replace(".clone().contiguous()", ".clone(memory_format=torch.contiguous_format)")
CLEAN = "import torch\n"

Call = tuple[int, str, str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRIDEWISE_CACHE_DIR", raising=False)
    return tmp_path


def put(**texts: str) -> None:
    for name, text in texts.items():
        Path(f"{name}.py").write_text(text)


def call(capsys: pytest.CaptureFixture[str], *arguments: str, given: str | None = None) -> Call:
    before = sys.stdin
    if given is not None:
        sys.stdin = SimpleNamespace(buffer=io.BytesIO(given.encode()))  # type: ignore[assignment]
    try:
        with pytest.raises(SystemExit) as caught:
            main(["lint", *arguments])
    finally:
        sys.stdin = before
    out, err = capsys.readouterr()
    assert isinstance(caught.value.code, int)
    return caught.value.code, out, err


def found(out: str) -> list[str]:
    return [f"{each['site']['file']} {each['code']}" for each in json.loads(out)["findings"]]


# ---------------------------------------------------------------------------------------------------------- exit codes


def test_findings_are_1_and_none_are_0(capsys: pytest.CaptureFixture[str]) -> None:
    put(a=CLEAN)
    assert call(capsys)[0] == 0
    put(b=DISCARDED)
    code, out, err = call(capsys)
    assert (code, err) == (1, "")
    assert out.startswith("b.py:5:5 SW301 ")
    assert "\x1b" not in out
    assert call(capsys, "a.py")[0] == 0
    assert call(capsys, "--exit-zero")[0] == 0


def test_notes_alone_are_0(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    put(a=DISCARDED)
    run = lint_paths()
    for severity, code in (("note", 0), ("warning", 1), ("error", 1)):
        findings = tuple(replace(finding, severity=severity) for finding in run.findings)
        monkeypatch.setattr(running, "lint_paths", lambda *_, of=findings, **__: replace(run, findings=of))
        assert call(capsys)[0] == code


def test_what_can_not_be_read_is_2_and_the_rest_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    put(bad="print 'x'\n", good=DISCARDED)
    code, out, err = call(capsys)
    assert (code, err) == (2, "")
    assert "good.py:5:5 SW301 " in out
    assert "bad.py:1 can't be read as Python" in out
    code, out, err = call(capsys, "--format", "json", "--exit-zero")
    assert (code, found(out)) == (2, ["good.py SW301"])
    assert err.startswith("stridewise: bad.py:1 can't be read as Python: ")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nowhere", "nowhere does not exist"),
        ("--unsafe-fixes", "give it with --fix or --diff"),
        ("--select SW399", "select names SW399, which no source rule has"),
        ("--select torch", "`torch` is no code"),
        ("--per-file-ignores SW301", "`SW301` is not a pattern and a code"),
        ("--stdin-filename a.py b.py", "b.py is given too"),
        ("- a.py", "call once for each"),
        ("--statistics --format sarif", "--statistics are text or json"),
        ("--format pdf", "'pdf' is not one of"),
        ("--jobs 0", "--jobs"),
        ("--output no/such/folder/x", "cannot be written"),
        ("--with nowhere.json", "nowhere.json"),
    ],
)
def test_mistakes_are_one_message(capsys: pytest.CaptureFixture[str], arguments: str, message: str) -> None:
    put(a=CLEAN)
    code, out, err = call(capsys, *arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("stridewise: ")
    assert message in err
    assert "Traceback" not in err
    assert sorted(os.listdir()) == ["a.py"]


def test_control_c_is_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    put(a=DISCARDED)
    monkeypatch.setattr("stridewise.linter.running.checking.Checker.check", interrupt)
    code, out, _ = call(capsys)
    assert (code, out) == (130, "")


# ------------------------------------------------------------------------------------------------- rules and files


def test_rules_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    put(a=DISCARDED, b=TWICE)

    def codes(*arguments: str) -> list[str]:
        return found(call(capsys, "--format", "json", *arguments)[1])

    assert codes() == ["a.py SW301", "b.py SW311"]
    assert codes("--select", "SW301") == codes("--ignore", "SW311,SW310") == ["a.py SW301"]
    assert codes("--extend-ignore", "SW3", "--extend-select", "SW311") == ["b.py SW311"]
    assert codes("--per-file-ignores", "a.py:SW3") == ["b.py SW311"]
    assert codes("--exclude", "b.py") == codes("--extend-exclude", "b*") == ["a.py SW301"]
    assert codes("--exclude", "b.py", "a.py", "b.py") == ["a.py SW301", "b.py SW311"]
    assert codes("--exclude", "b.py", "--force-exclude", "a.py", "b.py") == ["a.py SW301"]


def test_gitignore_is_respected_unless_not(capsys: pytest.CaptureFixture[str]) -> None:
    put(a=DISCARDED)
    subprocess.run(["git", "init", "-q"], check=True)
    Path(".gitignore").write_text("a.py\n")
    assert call(capsys)[0] == 0
    assert call(capsys, "--no-respect-gitignore")[0] == 1


def test_a_project_says_what_it_wants(capsys: pytest.CaptureFixture[str]) -> None:
    put(a=DISCARDED, b=TWICE)
    Path("pyproject.toml").write_text('[tool.stridewise.lint]\nselect = ["SW311"]\n')
    assert found(call(capsys, "--format", "json")[1]) == ["b.py SW311"]
    assert found(call(capsys, "--format", "json", "--select", "SW301")[1]) == ["a.py SW301"]


# --------------------------------------------------------------------------------------------------------------- fixes


def test_safe_fixes_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    put(a=DISCARDED, b=TWICE)
    code, out, _ = call(capsys, "--fix")
    assert code == 1
    assert (Path("a.py").read_text(), Path("b.py").read_text()) == (DISCARDED, ONCE)
    assert "SW311" in out
    assert call(capsys, "b.py", "--fix")[0] == 0
    assert call(capsys, "--fix", "--unsafe-fixes")[0] == 0
    assert "x = x.contiguous()" in Path("a.py").read_text()


def test_a_diff_can_be_applied(capsys: pytest.CaptureFixture[str]) -> None:
    put(a=DISCARDED, b=TWICE)
    code, out, _ = call(capsys, "--diff")
    assert code == 1
    assert (Path("a.py").read_text(), Path("b.py").read_text()) == (DISCARDED, TWICE)
    subprocess.run(["git", "apply"], input=out, text=True, check=True)
    assert (Path("a.py").read_text(), Path("b.py").read_text()) == (DISCARDED, ONCE)
    code, out, err = call(capsys, "--diff")
    assert (code, out) == (0, "")
    assert err == "stridewise: no finding has a safe fix; --unsafe-fixes would fix 1 of 1\n"
    assert call(capsys, "--diff", "b.py") == (0, "", "stridewise: there is nothing to fix\n")


@pytest.mark.parametrize(
    "name", ["a", "no\xa0break \u3000", "::error::", "##[error]", "back\\slash", os.fsdecode(b"\xe9")]
)
@pytest.mark.parametrize("output", [True, False])
def test_a_diff_of_odd_text_can_be_applied(capsys: pytest.CaptureFixture[str], name: str, output: bool) -> None:
    odd = "    # \xa0\u3000\U0001f468\u200d\U0001f469\x0c\n    # ##[error] \n    #\n"
    text = TWICE.replace("    return", f"{odd}    return")
    Path(f"{name}.py").write_text(text)
    code, out, err = call(capsys, "--diff", *(["--output", "x.diff"] if output else []))
    assert (code, err) == (1, "")
    if not output:
        Path("x.diff").write_text(out)
    subprocess.run(["git", "apply", "x.diff"], check=True)
    assert Path(f"{name}.py").read_text() == ONCE.replace("    return", f"{odd}    return")


@pytest.mark.parametrize("given", [True, False])
def test_a_file_that_no_diff_can_show_is_told(capsys: pytest.CaptureFixture[str], given: bool) -> None:
    put(a=TWICE)
    content = ("# coding: latin-1\n" + TWICE.replace("def", "# \xe9\ndef")).encode("latin-1")
    reason = "its encoding, iso-8859-1, can't be shown in a diff; --fix writes it"
    if given:
        run, after = lint_text(content, cast(Any, found_by_name("b.py")), Options(fix="safe", diff=True))
        assert (run.diff, run.fixed, after) == ("", (), content)
    else:
        Path("b.py").write_bytes(content)
        code, out, _ = call(capsys, "--diff")
        assert code == 1
        assert f"b.py: {reason}" in " ".join(out.split())
        run = lint_paths(options=Options(fix="safe", diff=True))
        assert run.diff.count("+++ ") == 1
    assert [(each.file, each.reason) for each in run.refused] == [("b.py", reason)]
    assert "SW311" in [each.code for each in run.findings if each.site.file == "b.py"]
    if not given:
        assert call(capsys, "--fix")[0] == 0
        assert b"\xe9" in Path("b.py").read_bytes()
        assert b"memory_format" in Path("b.py").read_bytes()


@pytest.mark.parametrize("encoding", ["idna", "utf-7"])
def test_a_codec_that_reads_no_diff(capsys: pytest.CaptureFixture[str], encoding: str) -> None:
    text = f"# coding: {encoding}\n{TWICE}"
    put(a=text)
    code, out, _ = call(capsys, "--diff")
    if code == 1:  # else it can't be read as Python
        subprocess.run(["git", "apply"], input=out, text=True, check=True)
        assert Path("a.py").read_text() == f"# coding: {encoding}\n{ONCE}"
    assert (code == 1) or "a.py" in out


def test_what_is_not_written_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    put(b=TWICE)
    Path("b.py").chmod(0o444)
    code, out, err = call(capsys, "--fix")
    assert (code, err) == (2, "")
    assert "b.py: it is read-only" in out
    code, out, err = call(capsys, "--fix", "--quiet")
    assert (code, err) == (2, "stridewise: b.py was not fixed: it is read-only\n")
    assert out.startswith("b.py:")


# ------------------------------------------------------------------------------------------------------ standard input


def test_standard_input_is_linted_as_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text('[tool.stridewise.lint]\nper-file-ignores = {"tests/*" = ["SW301"]}\n')
    code, out, _ = call(capsys, "--stdin-filename", "src/new.py", "--format", "json", given=DISCARDED)
    assert (code, found(out)) == (1, ["src/new.py SW301"])
    code, out, _ = call(capsys, "--stdin-filename", "tests/new.py", "--format", "json", "-", given=DISCARDED)
    assert (code, found(out)) == (0, [])
    code, out, _ = call(capsys, "-", given=DISCARDED)
    assert (code, out.splitlines()[0].split(":")[0]) == (1, "<stdin>")
    assert os.listdir() == ["pyproject.toml"]


def test_fixed_text_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    put(saved=CLEAN)
    code, out, err = call(capsys, "--stdin-filename", "saved.py", "--fix", given=TWICE)
    assert (code, out) == (0, ONCE)
    assert "SW311" in err
    code, out, err = call(capsys, "--stdin-filename", "saved.py", "--fix", "--quiet", given=DISCARDED)
    assert (code, out, err) == (1, DISCARDED, "")
    code, out, err = call(capsys, "--stdin-filename", "saved.py", "--fix", given="def f(:\r\n")
    assert (code, out.encode()) == (2, b"def f(:\r\n")
    assert "saved.py:1 can't be read as Python" in err
    assert Path("saved.py").read_text() == CLEAN


def test_the_diff_of_standard_input(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--stdin-filename", "a.py", "--diff", given=TWICE)
    assert code == 1
    assert out.startswith("--- a/a.py\n+++ b/a.py\n@@ ")


def test_excluded_standard_input_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--stdin-filename", "build/a.py", "--fix"]
    assert call(capsys, *options, given=TWICE)[:2] == (0, ONCE)
    assert call(capsys, *options, "--force-exclude", given=TWICE)[:2] == (0, TWICE)


# -------------------------------------------------------------------------------------------------------------- output


@pytest.mark.parametrize("format", ["text", "json", "sarif", "github", "junit"])
def test_formats_go_to_standard_output_or_a_file(capsys: pytest.CaptureFixture[str], format: str) -> None:
    put(a=DISCARDED)
    code, out, err = call(capsys, "--format", format)
    assert (code, err) == (1, "")
    assert "SW301" in out
    assert call(capsys, "--format", format, "--output", "report") == (1, "", "")
    assert Path("report").read_text() == out


def test_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    put(a=DISCARDED, b=DISCARDED)
    code, out, _ = call(capsys, "--statistics")
    assert code == 1
    assert out.split()[:2] == ["2", "SW301"]
    counts = json.loads(call(capsys, "--statistics", "--format", "json")[1])["statistics"]
    assert [(row["code"], row["count"]) for row in counts] == [("SW301", 2)]


def test_quiet_is_a_line_for_each_finding(capsys: pytest.CaptureFixture[str]) -> None:
    put(a=DISCARDED)
    code, out, err = call(capsys, "-q")
    assert (code, err, out.count("\n")) == (1, "", 1)
    assert re.match(r"a\.py:\d+:\d+: SW301 ", out)
    assert call(capsys, "-q", "--output", "report") == (1, "", "")
    assert "SW301" in Path("report").read_text()


# --------------------------------------------------------------------------------------------- the cache and processes


def test_the_cache_lies_in_the_project_or_where_it_is_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    put(a=DISCARDED)
    Path("pyproject.toml").write_text("")
    Path("sub").mkdir()
    call(capsys, "--no-cache")
    assert not Path(".stridewise_cache").exists()
    monkeypatch.chdir("sub")
    first = call(capsys, "..")
    assert (here / ".stridewise_cache" / "CACHEDIR.TAG").exists()
    assert call(capsys, "..") == first
    call(capsys, "..", "--cache-dir", "one")
    monkeypatch.setenv("STRIDEWISE_CACHE_DIR", "other")
    call(capsys, "..")
    assert sorted(os.listdir()) == ["one", "other"]


def test_processes_are_as_many_as_wanted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    put(**{f"a{number}": DISCARDED for number in range(5)})
    wanted: list[int] = []
    monkeypatch.setattr(parallel, "_WORTH_BYTES", 1)
    monkeypatch.setattr(parallel, "cores", lambda: 4)
    monkeypatch.setattr(
        parallel, "_elsewhere", lambda checker, jobs, count: (yield from ()) or wanted.append(count) or jobs
    )
    for options in ([], ["--jobs", "3"], ["-j1"]):
        assert call(capsys, "--no-cache", *options)[0] == 1
    assert wanted == [4, 3]


def test_a_bar_shows_on_a_terminal_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    now = 0.0
    monkeypatch.setattr(command.time, "monotonic", lambda: now)
    with command._progress(quiet=False) as progress:
        assert progress is not None
        progress(1, 9)
        assert terminal.getvalue() == ""
        now = 3.0
        progress(2, 9)
    assert "Linting files" in terminal.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with command._progress(quiet=False) as progress:
        assert progress is None


# ------------------------------------------------------------------------------------------------- the program itself


def test_neither_torch_nor_the_project_is_imported(here: Path) -> None:
    put(a=DISCARDED + "raise SystemExit('imported')\n")
    program = [sys.executable, "-X", "importtime", "-m", "stridewise", "lint", "--fix", "--unsafe-fixes"]
    ran = subprocess.run(program, cwd=here, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.stderr.splitlines()}
    assert "stridewise" in loaded
    assert not loaded & {"torch", "numpy", "a", "networkx"}


def test_the_library_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    put(a=DISCARDED, b=TWICE)
    run = api.lint(".")
    assert f"{run}\n" == call(capsys)[1]
    assert run.to_json() == call(capsys, "--format", "json")[1]
    assert [finding.code for finding in api.lint("a.py", "b.py", ignore="SW301").findings] == ["SW311"]
    assert api.lint(per_file_ignores={"*.py": ["SW3"]}).suppressed == 2
    assert api.lint("b.py", diff=True).diff.startswith("--- a/b.py\n")
    assert api.lint("b.py", fix=True).written
    assert Path("b.py").read_text() == ONCE
    assert not api.lint(extend_exclude="a.py").findings
    with pytest.raises(UsageError, match="0 jobs"):
        api.lint(jobs=0)
    with pytest.raises(UsageError, match="unsafe_fixes alone"):
        api.lint(unsafe_fixes=True)


def test_the_function_is_there_whatever_is_imported() -> None:
    code = "import stridewise.linter.running.run, stridewise; print(callable(stridewise.lint))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "True\n"


def test_hooks_for_pre_commit(here: Path) -> None:
    """What pre-commit does: it runs the entry with the names of the files that are staged."""
    hooks: list[dict[str, Any]] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {hook["id"]: hook["language"] for hook in hooks} == {
        "stridewise-lint": "python",
        "stridewise-lint-system": "system",
    }
    put(a=DISCARDED)
    (here / "build").mkdir()
    (here / "build" / "b.py").write_text(DISCARDED)
    for hook in hooks:
        assert set(hook) >= {"id", "name", "description", "entry", "language", "types_or", "require_serial"}
        program, *arguments = shlex.split(hook["entry"])
        assert program == "stridewise"
        command = [sys.executable, "-m", program, *arguments, "a.py", "build/b.py"]
        ran = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
        assert ran.returncode == 1, ran.stderr
        assert "a.py:5:5 SW301" in ran.stdout
        assert "build/b.py" not in ran.stdout


def test_nothing_of_the_project_is_imported(here: Path) -> None:
    """`-m` puts the current folder first on the path, and lint imports what it needs when it needs it."""
    put(a=DISCARDED)
    for name in ("queue", "pickle", "difflib", "tokenize"):
        (here / f"{name}.py").write_text("raise SystemExit('imported')\n")
    ran = subprocess.run([sys.executable, "-m", "stridewise", "lint", "--no-cache"], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "SW301" in ran.stdout


def test_without_docstrings(here: Path) -> None:
    put(a=DISCARDED)
    command = [sys.executable, "-OO", "-m", "stridewise", "lint", "--no-cache"]
    assert subprocess.run(command, capture_output=True).returncode == 1


def test_standard_input_that_is_closed(here: Path) -> None:
    command = [sys.executable, "-m", "stridewise", "lint", "-"]
    ran = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (2, "stridewise: standard input is closed: give a path\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "a.py"], "is a source file"),
        (["--cache-dir", ""], "is the current folder"),
    ],
)
def test_places_that_are_none_for_it(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    put(a=CLEAN)
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert message in err
    assert Path("a.py").read_text() == CLEAN
