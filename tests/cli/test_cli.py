"""The command line as a newcomer and a script meet it: exit codes, messages of few lines, nothing imported in vain."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from stridewise import __version__
from stridewise.cli import main
from stridewise.report.codes import all_docs

NO_TORCH = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("torch is blocked by the test", name=name)
sys.meta_path.insert(0, Block())
from stridewise.cli import main
main(sys.argv[1:])
"""


BIG = "99999999999999999999"
VERSIONS = f"stridewise {__version__} (torch {torch.__version__}, Python {platform.python_version()})"


def call(*arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    out, err = capsys.readouterr()
    return caught.value.code, out, err


def python(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, **options)


def test_without_a_command_it_shows_its_help(capsys):
    code, out, err = call(capsys=capsys)
    assert (code, err) == (0, "")
    for command in ("demo", "run", "trace", "explain", "rule"):
        assert command in out


@pytest.mark.parametrize("command", ["demo", "run", "trace", "explain", "rule"])
def test_each_command_has_help(command, capsys):
    code, out, err = call(command, "--help", capsys=capsys)
    assert (code, err) == (0, "")
    assert f"stridewise {command}" in out


def test_help_in_a_pipe_has_no_colour():
    result = python("-m", "stridewise", "run", "--help", env={**os.environ, "GITHUB_ACTIONS": "true"})
    assert result.returncode == 0
    assert "\x1b" not in result.stdout


def test_version(capsys):
    assert call("--version", capsys=capsys) == (0, f"{VERSIONS}\n", "")


def test_the_version_imports_no_torch():
    code = "import sys; from stridewise.cli import main\ntry: main(['--version'])\n"
    code += "finally: assert 'torch' not in sys.modules"
    assert python("-c", code).returncode == 0


def test_the_version_without_torch():
    result = python("-c", NO_TORCH, "--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"stridewise {__version__} (no torch, Python {platform.python_version()})\n"


def test_what_needs_torch_says_so_where_there_is_none():
    result = python("-c", NO_TORCH, "lab", "--list")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "stridewise: this needs torch, which is not installed here\n"


def test_a_script_that_needs_torch_is_told_that_there_is_none(tmp_path):
    script = tmp_path / "job.py"
    script.write_text("import torch\n")
    result = python("-c", NO_TORCH, "run", str(script))
    assert (result.returncode, result.stdout) == (1, "")
    assert "ModuleNotFoundError" in result.stderr
    assert result.stderr.endswith("torch is not installed here: there is nothing to record.\n")


def test_python_m_is_the_same_program():
    result = python("-m", "stridewise", "--version")
    assert (result.returncode, result.stdout) == (0, f"{VERSIONS}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["trace", "--fromat", "json", "x"], "No such option: --fromat"),
        (["trace"], "Missing argument 'FILE"),
        (["trace", "--format", "pdf", "x"], "'pdf' is not one of 'text', 'json', 'sarif', 'github'"),
        (["run", "--steps", "0", "x.py"], "--steps"),
        (["run", "--steps", "many", "x.py"], "--steps"),
        (["rule", "SW101", "SW102"], "SW102"),
        (["trace", "--budget", "copies", "x"], "budget `copies`"),
        (["trace", "--min-share", "lots", "x"], "`lots` is not a percentage"),
        (["trace", "--select", "E501", "x"], "`E501` is no code"),
        (["trace", "no/such/file.json"], "no/such/file.json"),
        (["run", "--steps", BIG, "x.py"], "--steps"),
        (["run", "--warmup", BIG, "x.py"], "--warmup"),
        (["run", "--max-ops", BIG, "x.py"], "--max-ops"),
        (["trace", "--workers", BIG, "x"], "--workers"),
        (["lint", "--jobs", BIG, "x"], "--jobs"),
        (["lab", "--threads", BIG, "to-device"], "threads"),
        (["check", "model", "--batches", BIG, "x.py:make"], "--batches"),
        (["explain", "2,3", "--offset", BIG], "--offset"),
        (["trace", "--budget", ",", "x"], "it has no limit"),
        (["trace", "--budget", "forbid=+", "x"], "forbid: `` is no code"),
        (["trace", "--select", "", "x"], "`` is no code"),
        (["trace", "--budget", "forbid=SW3", "x"], "--budget: forbid names SW3, which only `stridewise lint` finds"),
        (["trace", "--select", "SW313", "x"], "--select names SW313, which only `stridewise lint` finds"),
        (["trace", "--ignore", "SW401", "x"], "--ignore names SW401, which only `stridewise check` finds"),
        (["check", "op", "--select", "SW101", "x.py:op"], "--select names SW101, which only a recording has"),
        (["trace", "--budget", "forbid=SW103", "--ignore", "SW1", "x"], "forbid names SW103, which ignore leaves out"),
        (["run", "--budget", "copies=0,forbid=SW5", "x.py"], "budget: forbid=SW5 is not checked without --compiled"),
        (["trace", "--budget", "forbid=SW501", "x"], "budget: forbid=SW501 is not checked without --compiled"),
        (
            ["trace", "--compiled", "--budget", "copies=0,forbid=SW5+SW1", "x"],
            "budget: copies=0,forbid=SW1 is not checked with --compiled",
        ),
    ],
)
def test_a_mistake_is_one_message_and_code_2(arguments, message, capsys):
    code, out, err = call(*arguments, capsys=capsys)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("stridewise: ")
    assert len(err.splitlines()) <= 3


def test_a_defect_of_ours_shows_its_traceback():
    code = (
        "import stridewise.api as api; from stridewise.cli import main\n"
        "def load(*a, **k): raise ZeroDivisionError('ours')\n"
        "api.load = load; main(['trace', 'x'])"
    )
    result = python("-c", code)
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError: ours" in result.stderr


def test_an_interrupt_is_quiet(capsys, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("stridewise.api.load", interrupted)
    code, out, err = call("trace", "x", capsys=capsys)
    assert (code, out) == (130, "")
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [["rule"], ["rule", "SW101"], ["explain", "2,3", "1,2"], ["trace", "none.json"]])
def test_these_never_import_torch(arguments):
    result = python("-c", NO_TORCH, *arguments)
    assert "torch is blocked" not in result.stderr
    assert result.returncode == (2 if arguments[0] == "trace" else 0), result.stderr


def test_a_reader_that_goes_away_ends_it_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(
        [sys.executable, "-m", "stridewise", "rule"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


# --------------------------------------------------------------------------------------------------------------- rule


def test_rule_lists_all_codes(capsys):
    code, out, _ = call("rule", capsys=capsys)
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == sorted([doc.code, doc.title] for doc in all_docs())
    assert {"SW104", "SW109"} < {doc.code for doc in all_docs()}


@pytest.mark.parametrize("rule", all_docs(), ids=lambda rule: rule.code)
def test_rule_explains_each_code(rule, capsys):
    code, out, _ = call("rule", rule.code.lower(), capsys=capsys)
    assert code == 0
    assert out.startswith(f"{rule.code} {rule.title}: {rule.summary}\n\n")
    for heading in ("What it means", "Why it happens", "How to fix it", "When to ignore it"):
        assert f"\n{heading}\n" in out
    assert call("rule", rule.title, capsys=capsys)[1] == out


def test_an_unknown_code_names_near_ones(capsys):
    code, _, err = call("rule", "SW10", capsys=capsys)
    assert code == 2
    assert "did you mean SW101 or SW102 or SW103" in err
    assert "`stridewise rule` lists all codes" in call("rule", "xyz\x1b", capsys=capsys)[2]


# ------------------------------------------------------------------------------------------------------------ explain


@pytest.fixture
def explained(monkeypatch):
    calls = []

    def explain_layout(sizes, strides, offset=0):
        calls.append((sizes, strides, offset))
        return "permuted: because."

    monkeypatch.setattr("stridewise.api.explain_layout", explain_layout, raising=False)
    return calls


@pytest.mark.parametrize(
    "text", ["2,3,4", "(2, 3, 4)", "[2,3,4]", "2x3x4", "2 3 4", " 2 x 3 × 4 ", "torch.Size([2, 3, 4])"]
)
def test_explain_reads_sizes_however_they_are_written(text, explained, capsys):
    assert call("explain", text, "(12, 1, 3)", "--offset", "5", capsys=capsys) == (0, "permuted: because.\n", "")
    assert explained == [((2, 3, 4), (12, 1, 3), 5)]


def test_explain_takes_contiguous_strides_unless_given(explained, capsys):
    call("explain", "2,3,4", capsys=capsys)
    call("explain", "()", capsys=capsys)
    call("explain", "(7,)", capsys=capsys)
    assert explained == [((2, 3, 4), (12, 4, 1), 0), ((), (), 0), ((7,), (1,), 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["2,a"], "sizes `2,a`: expected whole numbers from 0 on"),
        (["2,3", "1,,2"], "strides `1,,2`: expected whole numbers"),
        ([""], "sizes ``: expected whole numbers"),
        (["2.5"], "sizes `2.5`: expected whole numbers"),
        (["2,3", "(1"], "strides `(1`: expected whole numbers"),
        (["9" * 5000], "expected whole numbers"),
        (["2,3", "1"], "2 sizes, but 1 strides"),
    ],
)
def test_explain_refuses_on_one_line(arguments, message, explained, capsys):
    code, out, err = call("explain", *arguments, capsys=capsys)
    assert (code, out, explained) == (2, "", [])
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('select = ["SW9"]', "select names SW9, which no rule has"),
        ('select = ["SW313"]', "select names SW313, which only `stridewise lint` finds"),
        ('ignore = ["SW104"]', "ignore names SW104, which only `stridewise fix` finds"),
        ('budget = "forbid=SW999"', "budget: forbid names SW999, which no rule has"),
        ('budget = { forbid = ["SW401"] }', "budget: forbid names SW401, which only `stridewise check` finds"),
        (
            'ignore = ["SW103"]\nbudget = { forbid = ["SW103"] }',
            "budget: forbid names SW103, which ignore leaves out of the report",
        ),
        ('kernel-patterns = { x = "sideways" }', "kernel-patterns: 'sideways' is no cause for 'x': one of transpose"),
        ('kernel-patterns = { "(" = "copy" }', "kernel-patterns: '(' is no regular expression: missing )"),
        ('kernel-patterns = { ".*" = "copy" }', "kernel-patterns: '.*' fits every name"),
    ],
)
def test_a_mistake_in_the_settings_is_one_line_with_file_and_key(text, said, tmp_path, monkeypatch, capsys):
    file = tmp_path / "pyproject.toml"
    file.write_text(f"[tool.stridewise]\n{text}\n")
    (tmp_path / "x.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    for arguments in (["run", "x.py"], ["check", "op", "x.py:op"]):
        code, out, err = call(*arguments, capsys=capsys)
        assert (code, out) == (2, "")
        assert err.startswith(f"stridewise: {file}: {said}")
        assert len(err.splitlines()) == 1


def test_settings_that_some_command_can_use_are_fine(tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text('[tool.stridewise]\nselect = ["SW4", "SW5", "SW101"]\n')
    monkeypatch.chdir(tmp_path)
    code, _, err = call("trace", "none.json", capsys=capsys)
    assert code == 2
    assert "none.json" in err
    assert "select" not in err


def test_a_limit_of_the_project_that_is_not_checked_is_said(tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text('[tool.stridewise.budget]\ncopies = 0\nforbid = ["SW501", "SW103"]\n')
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path)
    _, _, err = call("trace", "none.json", capsys=capsys)
    assert err.startswith("stridewise: budget: forbid=SW501 is not checked without --compiled\n")
    _, _, err = call("trace", "--compiled", "logs", capsys=capsys)
    assert err.startswith("stridewise: budget: copies=0,forbid=SW103 is not checked with --compiled\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--select", "SW103"), ["forbid=SW501 is not checked without --compiled"]),
        (("--ignore", "SW5"), ["forbid=SW501 is not checked without --compiled"]),
        (
            ("--ignore", "SW1"),
            [
                "forbid=SW501 is not checked without --compiled",
                "forbid=SW103 is not checked with this --select or --ignore",
            ],
        ),
        (("--compiled", "--select", "SW501"), ["forbid=SW103 is not checked with --compiled"]),
        (
            ("--compiled", "--ignore", "SW5"),
            [
                "forbid=SW103 is not checked with --compiled",
                "forbid=SW501 is not checked with this --select or --ignore",
            ],
        ),
    ],
)
def test_a_projects_budget_keeps_nobody_from_looking_at_a_part(given, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text('[tool.stridewise.budget]\nforbid = ["SW501", "SW103"]\n')
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path)
    _, _, err = call("trace", *given, "logs" if "--compiled" in given else "none.json", capsys=capsys)
    assert [line.removeprefix("stridewise: budget: ") for line in err.splitlines() if "forbid" in line] == said


@pytest.mark.parametrize(
    "content",
    [
        b'x = 1\ny = "\xff\xfe"\n',
        b"\xff\xfex\x00=\x001\x00",
        b"x = 1\n\x00y = 2\n",
        b"# coding: nope\nx = 1\n",
        b"x = (\n",
    ],
    ids=["no text", "UTF-16", "a null byte", "no encoding", "not closed"],
)
def test_a_script_that_is_no_python_fails_in_the_words_of_python(content, tmp_path):
    (tmp_path / "job.py").write_bytes(content)
    plain = python("job.py", cwd=tmp_path)
    result = python("-m", "stridewise", "run", "job.py", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (plain.returncode, "")
    *said, last = result.stderr.splitlines()
    assert said == plain.stderr.splitlines()
    assert last == "stridewise: The script did not import torch: there is nothing to report."
