"""The shells' own protocol, in a process as they start it, and bash itself."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stridewise.cli import completion
from stridewise.report.codes import all_docs

SHELL = shutil.which("bash")


def complete(*words, shell="bash", incomplete=True, **environment):
    """What a shell is offered for a call whose last word is not finished."""
    line = " ".join(("stridewise", *words))
    variables = {"_STRIDEWISE_COMPLETE": f"complete_{shell}", **environment}
    if shell == "bash":
        variables |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    else:
        variables |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    result = subprocess.run(
        [sys.executable, "-m", "stridewise"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.stderr == ""
    assert result.returncode == 0
    return result.stdout.split() if shell == "bash" else result.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "offered", "not_offered"),
    [
        (["do"], ["doctor"], ["demo"]),
        (["check", ""], ["op", "model", "artefact"], ["run"]),
        (["trace", "--sel"], ["--select"], []),
        (["trace", "--select", "SW10"], ["SW101", "SW103"], ["SW301", "SW201"]),
        (["trace", "--select", "SW101,SW10"], ["SW101,SW103"], ["SW101,SW101"]),
        (["lint", "--extend-select", "SW"], ["SW301"], ["SW101"]),
        (["rule", "SW1"], ["SW101"], ["SW201"]),
        (["rule", "strided"], ["strided-stream"], ["SW101"]),
        (["fix", "--only", "channels"], ["channels-last-model"], ["hoist"]),
        (["trace", "--format", ""], ["text", "json", "sarif", "github", "junit"], []),
        (["diff", "--format", "j"], ["json", "junit"], ["text"]),
        (["schema", "rep"], ["report", "repair"], ["lint"]),
    ],
)
def test_bash(words, offered, not_offered):
    found = complete(*words)
    assert set(offered) <= set(found)
    assert not set(not_offered) & set(found)


@pytest.mark.parametrize("variables", [{}, {"COMP_WORDS": "stridewise", "COMP_CWORD": "abc"}], ids=["none", "odd"])
def test_a_shell_that_says_nothing_of_use_is_offered_nothing(variables):
    environ = {key: value for key, value in os.environ.items() if not key.startswith("COMP_")}
    command = [sys.executable, "-m", "stridewise"]
    environ |= {"_STRIDEWISE_COMPLETE": "complete_bash", **variables}
    result = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "")


def test_files_are_the_shells_own(tmp_path):
    assert complete("trace", "") == []
    assert complete("run", "--save", "") == []


def test_zsh_and_fish_show_titles():
    assert '"SW103":"hidden-copy"' in complete("rule", "SW103", shell="zsh")[0]
    assert complete("rule", "SW103", shell="fish") == ["SW103\thidden-copy"]


def test_nothing_imports_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from stridewise.cli import completion as c; "
        "print(len([*c.codes('SW101,SW'), *c.kinds(''), *c.results(''), *c.code_or_title('s'), *c.source_codes('')]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert int(result.stdout) > 100, result.stderr


def test_every_code_has_its_title():
    assert dict(completion.code("")) == {doc.code: doc.title for doc in all_docs()}


@pytest.mark.skipif(SHELL is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("words", "offered"), [(["do"], ["doctor"]), (["rule", "SW103"], ["SW103"]), (["fix", "--only", "hoi"], ["hoist"])]
)
def test_bash_itself(tmp_path, words, offered):
    program = tmp_path / "bin" / "stridewise"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stridewise "$@"\n')
    program.chmod(0o755)
    script = tmp_path / "completion.sh"
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    shown = subprocess.run(
        ["stridewise", "--show-completion", "bash"],
        env={**environment, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stderr
    script.write_text(shown.stdout)
    given = " ".join(f"'{word}'" for word in ("stridewise", *words))
    code = f"""
    source {script}
    complete -p stridewise || exit 9
    COMP_WORDS=({given}); COMP_CWORD={len(words)}
    _stridewise_completion stridewise
    printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    result = subprocess.run([SHELL, "--norc", "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    registered, *found = result.stdout.splitlines()
    assert "-F _stridewise_completion stridewise" in registered
    assert found == offered


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".bash_completions/stridewise.sh"),
        ("zsh", ".zfunc/_stridewise"),
        ("fish", ".config/fish/completions/stridewise.fish"),
    ],
)
def test_it_installs_itself(tmp_path, shell, file):
    result = subprocess.run(
        [sys.executable, "-m", "stridewise", "--install-completion", shell],
        env={**os.environ, "HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    assert f"{shell} completion installed in" in result.stdout
    assert f"_STRIDEWISE_COMPLETE=complete_{shell}" in (tmp_path / Path(file)).read_text()
