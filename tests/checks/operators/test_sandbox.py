"""An operator may crash, hang, leave or write where it likes: the program that checks it goes on and is told."""

import contextlib
import ctypes
import faulthandler
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stridewise.checks.operators import sandbox
from stridewise.checks.operators.case import Arrangement, Case, Outcome
from stridewise.checks.operators.operands import Bound
from stridewise.checks.operators.options import Options
from stridewise.checks.operators.sandbox import Executed, Sandbox
from stridewise.errors import UsageError

CONTIGUOUS = Case()
PERMUTED = Case({"x": Arrangement("x.t()", order=(1, 0))})
SHIFTED = Case({"x": Arrangement("x, one element into its storage", offset=1)})


def contained(fn: Callable[..., object], *sample: object, timeout_s: float = 10.0) -> Sandbox:
    options = Options(timeout_s=timeout_s, gradients=False, fake=False)
    bound = Bound(fn, sample or (torch.arange(6.0).reshape(2, 3),), {})
    made = sandbox.runner(bound, options, "op", None, spawn=False)
    assert isinstance(made, Sandbox)
    return made


def when_permuted(does: Callable[[], object]) -> Callable[[Tensor], Tensor]:
    def op(x: Tensor) -> Tensor:
        if not x.is_contiguous():
            does()
        return 2 * x

    return op


def segfault() -> None:
    ctypes.string_at(0)


def print_and_abort() -> None:
    os.write(2, b"first line\n\nfree(): invalid pointer\n")
    os.abort()


def leave_from_a_thread() -> None:
    thread = threading.Thread(target=os._exit, args=(5,))
    thread.start()
    thread.join()


def raise_interrupt() -> None:
    raise KeyboardInterrupt


def close_files() -> None:
    os.closerange(3, 1024)


class WriteEverywhere:
    """Into all files that this process had not open before."""

    __name__ = "write_everywhere"

    def __init__(self) -> None:
        self._known = set(map(int, os.listdir("/proc/self/fd")))

    def __call__(self) -> None:
        for end in set(map(int, os.listdir("/proc/self/fd"))) - self._known:
            with contextlib.suppress(OSError):
                os.write(end, b"garbage" * 100)


def leave_child_behind() -> None:
    """Another process holds the pipes open when this one ends."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(3)


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (segfault, "its process was ended by SIGSEGV (Segmentation fault)"),
        (print_and_abort, "its process was ended by SIGABRT (Aborted); its last words: free(): invalid pointer"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "ended by SIGKILL (Killed), as happens where memory runs out"),
        (lambda: os.kill(os.getpid(), signal.SIGINT), "ended by SIGINT"),
        (lambda: os._exit(0), "it ended the process (0)"),
        (leave_from_a_thread, "it ended the process (5)"),
        (lambda: sys.exit(3), "it raises SystemExit(3), which ends a program"),
        (raise_interrupt, "it raises KeyboardInterrupt(), which ends a program"),
        (close_files, "it closed files that are not its own"),
        (WriteEverywhere(), "it writes into files that are not its own"),
        (leave_child_behind, "it ended the process (3)"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_end_of_the_process_is_a_crash_of_that_case(does: Callable[[], object], said: str) -> None:
    with contained(when_permuted(does)) as runner:
        runner.describe()
        outcomes = [runner.run(case) for case in (CONTIGUOUS, PERMUTED, SHIFTED)]
    assert [outcome.status for outcome in outcomes] == ["ran", "crashed", "ran"]
    assert said in str(outcomes[1].message)
    assert runner.notes == []


def in_python() -> None:
    while True:
        pass


def in_c() -> None:
    ctypes.CDLL(None).pause()


@pytest.mark.parametrize("does", [in_python, in_c])
def test_what_does_not_come_back_hangs(does: Callable[[], object]) -> None:
    with contained(when_permuted(does), timeout_s=0.5) as runner:
        runner.describe()
        outcomes = [runner.run(case) for case in (CONTIGUOUS, PERMUTED, SHIFTED)]
    assert [outcome.status for outcome in outcomes] == ["ran", "hung", "ran"]
    assert "no answer within 0.5 s" in str(outcomes[1].message)


@pytest.mark.parametrize("does", [segfault, in_python])
def test_an_operator_that_fails_for_contiguous_operands_is_no_sample(does: Callable[[], object]) -> None:
    def op(x: Tensor) -> Tensor:
        does()
        return x

    with contained(op, timeout_s=0.1) as runner, pytest.raises(UsageError, match="for contiguous operands"):
        runner.describe()


def test_an_exception_for_contiguous_operands_is_no_sample() -> None:
    def op(x: Tensor) -> Tensor:
        raise ValueError("no")

    with contained(op) as runner, pytest.raises(UsageError, match="ValueError: no"):
        runner.describe()


# ------------------------------------------------------------------------------------------------ what is kept apart


def test_what_it_prints_is_not_ours_to_print(capfd: pytest.CaptureFixture[str]) -> None:
    def op(x: Tensor) -> Tensor:
        print("printed")
        os.write(1, b"written" * 50_000)
        os.system("echo from a shell; echo to stderr >&2")
        assert sys.stdin.read() == ""
        return 2 * x

    print("before", end="")
    with contained(op) as runner:
        runner.describe()
        assert runner.run(PERMUTED).status == "ran"
    assert capfd.readouterr() == ("before", "")


def test_a_copy_that_it_makes_of_the_process_does_not_answer_for_it() -> None:
    def op(x: Tensor) -> Tensor:
        os.fork()
        return 2 * x

    with contained(op) as runner:
        runner.describe()
        assert [runner.run(case) for case in (PERMUTED, SHIFTED)] == [
            Outcome(PERMUTED, "ran", layouts=runner.run(PERMUTED).layouts),
            Outcome(SHIFTED, "ran", layouts=runner.run(SHIFTED).layouts),
        ]


def test_threads_that_it_leaves_do_not_matter() -> None:
    def op(x: Tensor) -> Tensor:
        threading.Thread(target=threading.Event().wait).start()
        return 2 * x

    with contained(op) as runner:
        runner.describe()
        assert runner.run(PERMUTED).status == "ran"


def test_what_it_starts_ends_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    def op(x: Tensor) -> Tensor:
        started = subprocess.Popen(["sleep", "600"])
        with pids.open("a") as file:
            print(os.getpid(), started.pid, file=file)
        return 2 * x

    with contained(op) as runner:
        runner.describe()
    assert not [pid for pid in map(int, pids.read_text().split()) if _runs(pid)]


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
def test_no_child_survives_its_program(tmp_path: Path, way: signal.Signals) -> None:
    written = tmp_path / "pid"
    program = f"""
import os, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_sandbox import PERMUTED, contained, when_permuted

def hang():
    with open({str(written)!r}, "w") as file:
        file.write(str(os.getpid()))
    os.kill(os.getppid(), {way.value})
    time.sleep(600)

with contained(when_permuted(hang), timeout_s=600) as runner:
    runner.describe()
    runner.run(PERMUTED)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == -way, ended.stderr
    assert not _runs(int(written.read_text()))


def _runs(pid: int) -> bool:
    for _ in range(200):  # a process that was told to end may still be about to
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        os.sched_yield()
        threading.Event().wait(0.01)
    return True


def test_ends_of_pipes_are_closed() -> None:
    def open_files() -> list[str]:
        return os.listdir("/proc/self/fd")

    before = open_files()
    for _ in range(3):
        with contained(when_permuted(segfault)) as runner:
            runner.describe()
            runner.run(PERMUTED)
    assert len(open_files()) == len(before)


def test_two_at_once_from_threads_of_a_program_with_threads() -> None:
    """Each child is ended by the other's neither, and autograd and OpenMP ran before in the parent."""
    torch.randn(64, 64, requires_grad=True).mm(torch.randn(64, 64)).sum().backward()
    done = threading.Event()
    others = [threading.Thread(target=done.wait) for _ in range(4)]
    found: dict[int, list[str]] = {}

    def check(number: int) -> None:
        with contained(when_permuted(segfault if number % 2 else lambda: None)) as runner:
            runner.describe()
            found[number] = [runner.run(case).status for case in (CONTIGUOUS, PERMUTED, SHIFTED)]

    checks = [threading.Thread(target=check, args=(number,)) for number in range(4)]
    for thread in (*others, *checks):
        thread.start()
    for thread in checks:
        thread.join()
    done.set()
    assert found == {n: ["ran", "crashed" if n % 2 else "ran", "ran"] for n in range(4)}


def test_a_fork_from_a_thread_other_than_the_main_one_has_signals() -> None:
    def op(x: Tensor) -> Tensor:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # in the main thread only
        return 2 * x

    found = []

    def check() -> None:
        with contained(op) as runner:
            runner.describe()
            found.append(runner.run(PERMUTED).status)

    thread = threading.Thread(target=check)
    thread.start()
    thread.join()
    assert found == ["ran"]


def test_nothing_of_the_parent_changes() -> None:
    x = torch.randn(3, 4).t().requires_grad_()
    x.sum().backward()

    def state() -> tuple[object, ...]:
        return (
            random.getstate(),
            torch.get_rng_state().tolist(),
            torch.get_num_threads(),
            x.tolist(),
            x.stride(),
            x._version,
            x.grad is not None and x.grad.tolist(),
            signal.getsignal(signal.SIGINT),
            faulthandler.is_enabled(),
            sys.stdout,
            os.getpgid(0),
        )

    before = state()
    with contained(lambda x: x.mul_(torch.rand_like(x)), x) as runner:
        runner.describe()
        runner.run(PERMUTED)
    assert state() == before


# ----------------------------------------------------------------------------------------------------- what is damaged


def test_a_crash_that_another_run_caused_is_that_ones() -> None:
    """As of a heap that is damaged in one run, and found to be so in the next."""
    damaged: list[bool] = []

    def op(x: Tensor) -> Tensor:
        if not x.is_contiguous():
            damaged.append(True)
        elif damaged:
            os.abort()
        return 2 * x

    with contained(op) as runner:
        runner.describe()
        outcomes = [runner.run(case) for case in (CONTIGUOUS, PERMUTED, SHIFTED)]
        revised = runner.revised(outcomes)
    assert [outcome.status for outcome in outcomes] == ["ran", "ran", "ran"]
    assert [outcome.status for outcome in revised] == ["ran", "crashed", "ran"]
    assert "it damages the memory of its process" in str(revised[1].message)
    assert "SIGABRT" in str(revised[1].message)


def test_a_crash_that_is_not_seen_again_is_told(tmp_path: Path) -> None:
    once = tmp_path / "once"

    def op(x: Tensor) -> Tensor:
        if not x.is_contiguous() and not once.exists():
            once.touch()
            os.abort()
        return 2 * x

    with contained(op) as runner:
        runner.describe()
        outcomes = [runner.run(case) for case in (CONTIGUOUS, PERMUTED)]
        assert runner.revised(outcomes) == outcomes
        assert ["crashed once after many runs" in note for note in runner.notes] == [True]
    assert [outcome.status for outcome in outcomes] == ["ran", "ran"]


def test_a_process_is_used_no_more_once_it_was_written_to_in_the_wrong_place() -> None:
    def op(x: Tensor, out: Tensor) -> Tensor:
        return out.as_strided((7,), (1,)).fill_(1.0)

    with contained(op, torch.ones(2, 3), torch.zeros(2, 3)) as runner:
        runner.describe()
        before = runner._child
        outcome = runner.run(Case())
        assert {fault.verdict for fault in outcome.faults} == {"writes outside"}
        assert before is not None
        assert runner._child is None


def test_freed_memory_does_not_keep_its_values() -> None:
    """The address of a temporary gives other values than those that were there."""

    def op(x: Tensor) -> Tensor:
        address = x.contiguous().clone().data_ptr() if not x.is_contiguous() else x.data_ptr()
        return torch.frombuffer(bytearray(ctypes.string_at(address, 4 * x.numel())), dtype=torch.float32).view(x.shape)

    with contained(op) as runner:
        runner.describe()
        found = runner.run(PERMUTED)
    assert [fault.verdict for fault in found.faults] == ["wrong values"]


# -------------------------------------------------------------------------------------------------- programs, and spawn


def test_programs_run_in_the_child() -> None:
    with contained(when_permuted(segfault)) as runner:
        passed = runner.execute("import torch\nassert op(torch.ones(2, 3)).sum() == 12")
        raised = runner.execute("assert False, 'so it is'")
        crashed = runner.execute("import torch\nop(torch.ones(2, 3).t())")
    assert passed == Executed("passed")
    assert raised == Executed("raised", "AssertionError", "so it is")
    assert crashed is not None
    assert crashed.how == "crashed"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "of_a_user.py").write_text(
        "import ctypes\ndef op(x):\n    if not x.is_contiguous():\n        ctypes.string_at(0)\n    return 2 * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "of_a_user"
    sys.modules.pop("of_a_user", None)


def test_where_no_fork_can_be_a_new_interpreter_imports_the_operator(module: str) -> None:
    import of_a_user  # type: ignore[import-not-found]

    bound = Bound(of_a_user.op, (torch.ones(2, 3),), {})
    options = Options(gradients=False, fake=False)
    with sandbox.runner(bound, options, "op", f"{module}:op", spawn=True) as runner:
        assert runner.contained == "in a child process, started anew, on one thread"
        assert runner.describe().op == "op"
        found = [runner.run(case) for case in (CONTIGUOUS, PERMUTED)]
    assert [outcome.status for outcome in found] == ["ran", "crashed"]
    assert "SIGSEGV" in str(found[1].message)


def test_where_no_fork_can_be_a_local_function_is_refused() -> None:
    bound = Bound(lambda x: x, (torch.ones(2),), {})
    with pytest.raises(UsageError, match="rules out a fork"):
        sandbox.runner(bound, Options(), "op", None, spawn=True)


def test_without_containment_it_runs_here() -> None:
    seen = []

    def op(x: Tensor) -> Tensor:
        seen.append(os.getpid())
        return 2 * x

    with sandbox.runner(Bound(op, (torch.ones(2, 3),), {}), Options(contain=False), "op", None) as runner:
        runner.describe()
        assert runner.run(PERMUTED).status == "ran"
        assert runner.execute("pass") is None
    assert set(seen) == {os.getpid()}
