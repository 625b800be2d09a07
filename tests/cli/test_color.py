"""Colours on a terminal, and who takes them away: in reports, in help, in errors, and in what is drawn meanwhile."""

import os
import pty
import re
import select
import subprocess
import sys

import pytest

HELP, ERROR, RULE = ["run", "--help"], ["trace", "no/such/file"], ["lint", "--no-cache", "faulty.py"]
COLOR = re.compile(r"\x1b\[(?:\d+;)*(?:3|4|9|10)\d[\d;]*m")


def on_a_terminal(arguments, cwd, **environment):
    """What a terminal receives of both streams."""
    main, other = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "stridewise", *arguments],
        cwd=cwd,
        env={**clean, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
        stdin=subprocess.DEVNULL,
        stdout=other,
        stderr=other,
    )
    os.close(other)
    text = b""
    while select.select([main], [], [], 60)[0]:
        try:
            piece = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        text += piece
    os.close(main)
    process.wait(timeout=60)
    return text.decode()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "faulty.py").write_text("import torch\n\n\ndef f(x):\n    x.contiguous()\n    return x\n")
    return tmp_path


@pytest.mark.parametrize("arguments", [HELP, RULE], ids=["help", "report"])
def test_a_terminal_gets_colours(folder, arguments):
    assert COLOR.search(on_a_terminal(arguments, folder))


@pytest.mark.parametrize("variable", ["NO_COLOR=1", "TERM=dumb", "CLICOLOR=0"])
@pytest.mark.parametrize("arguments", [HELP, RULE, ERROR], ids=["help", "report", "error"])
def test_who_takes_them_away(folder, arguments, variable):
    name, _, value = variable.partition("=")
    text = on_a_terminal(arguments, folder, **{name: value})
    assert not COLOR.search(text)
    assert "\x1b" not in text or arguments is ERROR  # what is drawn meanwhile moves the cursor, and hides it
    assert {"run": "stridewise run", "trace": "no/such/file", "lint": "SW301"}[arguments[0]] in text


@pytest.mark.parametrize("arguments", [HELP, RULE], ids=["help", "report"])
def test_a_pipe_gets_them_when_they_are_forced(folder, arguments):
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "CLICOLOR")}
    environment |= {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "stridewise", *arguments]

    def piped(**more):
        options = {"capture_output": True, "text": True, "timeout": 60, "cwd": folder}
        return subprocess.run(command, env={**environment, **more}, **options).stdout

    assert "\x1b[" in piped()
    assert "\x1b" not in piped(NO_COLOR="1")
    assert "\x1b" not in piped(FORCE_COLOR="")


def test_nothing_is_drawn_on_a_dumb_terminal_or_in_quiet(folder):
    assert "Reading file" in on_a_terminal(ERROR, folder)
    for arguments, environment in ((ERROR, {"TERM": "dumb"}), ([*ERROR, "-q"], {})):
        text = on_a_terminal(arguments, folder, **environment)
        assert text.startswith("stridewise: no/such/file")
        assert "\x1b" not in text
