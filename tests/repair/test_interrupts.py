"""Ctrl-C while trials run: the program is put back whole, and what was tried is shown."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stridewise.repair.trial.interrupts import check, held_back

from .programs import FAULTS

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")


def test_one_waits_for_the_next_check():
    with held_back():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
        check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_does_not_wait():
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), held_back():
        twice()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_that_nobody_checked_for_is_given_to_the_caller():
    with pytest.raises(KeyboardInterrupt), held_back():
        os.kill(os.getpid(), signal.SIGINT)


def test_handlers_of_the_program_stay():
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with held_back():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_other_threads_have_no_say():
    failures = []

    def run() -> None:
        try:
            with held_back():
                check()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert failures == []


@pytest.mark.parametrize("call", [1, 4, 12])
def test_the_command_ends_with_130_and_a_report(call, tmp_path: Path):
    source = FAULTS["permuted stream"].source.replace(
        "    def forward(self, x):\n",
        "    calls = 0\n    def forward(self, x):\n        Net.calls += 1\n"
        f"        if Net.calls == {call}:\n            os.kill(os.getpid(), signal.SIGINT)\n",
    )
    (tmp_path / "program.py").write_text("import os, signal\n" + source)
    ran = subprocess.run(
        [sys.executable, "-m", "stridewise", "fix", "--time-limit", "20", "program.py:make"],
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert ran.returncode == 130
    assert "Traceback" not in ran.stderr
    if call == 12:
        assert "Interrupted" in ran.stdout
