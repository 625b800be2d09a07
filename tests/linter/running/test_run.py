"""Runs over files: what comes of each, of odd ones and of defects, in one process and in several."""

import os
import pickle
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stridewise.linter.files.discover import Found
from stridewise.linter.files.settings import Settings
from stridewise.linter.running import checking, parallel
from stridewise.linter.running import run as running
from stridewise.linter.running.checking import Checker, Job, Outcome
from stridewise.linter.running.run import Options, lint_paths, lint_text
from stridewise.results.lint import LintRun, Refused
from stridewise.source.file import SourceFile

from ..toys import HEAD, fails, found, names, renames, toys

OLD = renames("SW391", "old", "new")
UNSAFE = renames("SW392", "risky", "better", safety="unsafe")
RULES = toys(OLD, UNSAFE, unused=False)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(name: str, text: str | bytes = HEAD + "old()\n") -> Path:
    path = Path(name).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def lint(monkeypatch: pytest.MonkeyPatch) -> Callable[..., LintRun]:
    """Lint with rules of the tests' own, but otherwise as the command does."""

    def lint(*paths: str, settings: Settings = RULES, **options: Any) -> LintRun:
        discover = running.discover

        def ours(*given: Any, **keywords: Any) -> Any:
            files, unread = discover(*given, **keywords)
            return tuple(Found(file.path, file.name, settings) for file in files), unread

        with monkeypatch.context() as patch:
            patch.setattr(running, "discover", ours)
            return lint_paths(paths, options=Options(**options))

    return lint


def where(run: LintRun) -> list[str]:
    return [f"{finding.site.where} {finding.code}" for finding in run.findings]


# ------------------------------------------------------------------------------------------------------ what is found


def test_findings_come_by_file_and_place(lint: Callable[..., LintRun]) -> None:
    put("b.py", HEAD + "risky()\nold()\n")
    put("a/c.py", HEAD + "x = 1\nold(); risky()\n")
    put("empty.py", "")
    run = lint()
    assert where(run) == ["a/c.py:3 SW391", "a/c.py:3 SW392", "b.py:2 SW392", "b.py:3 SW391"]
    assert (run.files, run.lines, run.unread, run.ok) == (3, 6, (), False)


def test_comments_and_per_file_ignores_are_heard(lint: Callable[..., LintRun]) -> None:
    put("a.py", HEAD + "old()  # stridewise: ignore[SW391]\nrisky()\nold()\n")
    run = lint(settings=toys(OLD, UNSAFE, ignored=frozenset({"SW392"}), unused=False))
    assert where(run) == ["a.py:4 SW391"]
    assert run.suppressed == 2


ODD = {
    "syntax.py": (b"x = 1\ndef f(:\n", 2, "can't be read as Python"),
    "python2.py": (b"import torch\n\nprint 'x'\n", 3, "can't be read as Python"),
    "cookie.py": (b"# coding: no-such-code\nold()\n", None, "can't be read as Python"),
    "nul.py": (b"x = '\0'\n", None, "can't be read as Python"),
    "deep.py": (b"x = " + b"(" * 500 + b")" * 500 + b"\n", None, "can't be read as Python"),
    "not_utf8.py": (b"x = '\xff'\n", None, "can't be read as Python"),
}


@pytest.mark.parametrize("processes", [1, 2])
def test_odd_files_are_told_and_the_rest_is_linted(processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_WORTH_BYTES", 1)
    for name, (content, _, _) in ODD.items():
        put(name, content)
    Path("gone.py").symlink_to("nowhere.py")
    put("good.py", HEAD + "def f(x):\n    x.contiguous()\n    return x\n")
    put("marked.py", b"\xef\xbb\xbf# coding: utf-8\r\nimport torch\r\n")
    put("latin.py", "# coding: latin-1\nx = 'é'\n".encode("latin-1"))
    put("feed.py", b"x = 1\n\x0c\ny = 2")
    put("mac.py", b"x = 1\ry = 2\r")
    put("empty.py", b"")
    run = lint_paths(options=Options(processes=processes))
    unread = {each.file: each for each in run.unread}
    assert sorted(unread) == sorted([*ODD, "gone.py"])
    for name, (_, line, reason) in ODD.items():
        assert unread[name].reason.startswith(f"{name}:{line} " if line else name)
        assert reason in unread[name].reason
        assert line is None or unread[name].line == line
    assert [finding.site.file for finding in run.findings] == ["good.py"]
    assert (run.files, run.lines) == (6, 4 + 2 + 2 + 3 + 2)


def test_a_file_that_goes_before_it_is_read(lint: Callable[..., LintRun], monkeypatch: pytest.MonkeyPatch) -> None:
    path = put("a.py")
    put("b.py")
    discover = running.discover

    def late(*given: Any, **keywords: Any) -> Any:
        result = discover(*given, **keywords)
        path.unlink(missing_ok=True)
        return result

    monkeypatch.setattr(running, "discover", late)
    run = lint(cache=Path("cache"))
    assert [each.file for each in run.unread] == ["a.py"]
    assert where(run) == ["b.py:2 SW391"]


def test_a_rule_that_fails_is_named_and_the_others_are_heard(lint: Callable[..., LintRun]) -> None:
    put("a.py", HEAD + "broken()\nold()\n")
    put("b.py")
    run = lint(settings=toys(fails("SW399", "broken", KeyError("shape")), OLD), cache=Path("cache"))
    assert where(run) == ["a.py:3 SW391", "b.py:2 SW391"]
    (unread,) = run.unread
    assert unread.reason.startswith("a.py was not checked for SW399: that failed with KeyError: 'shape' (")
    assert unread.reason.endswith("), a defect of stridewise: please report it.")
    again = lint(settings=toys(fails("SW399", "broken", KeyError("shape")), OLD), cache=Path("cache"))
    assert again.unread == run.unread  # a defect is not kept in the cache


def test_what_is_too_deep_for_a_rule_is_no_defect(lint: Callable[..., LintRun]) -> None:
    put("a.py", HEAD + "deep()\nold()\n")
    run = lint(settings=toys(fails("SW399", "deep", RecursionError()), OLD))
    assert where(run) == ["a.py:3 SW391"]
    assert [each.reason for each in run.unread] == [
        "a.py was not checked for SW399: it is nested too deeply, or too large."
    ]


@pytest.mark.parametrize("part", ["suppress.apply", "fixing.mend"])
def test_a_defect_elsewhere_stops_its_file_alone(
    lint: Callable[..., LintRun], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    put("a.py")
    put("b.py")
    module, name = part.split(".")
    call = getattr(getattr(checking, module), name)

    def broken(source: SourceFile, *rest: Any) -> Any:
        if source.name == "a.py":
            raise KeyError("shape")
        return call(source, *rest)

    monkeypatch.setattr(getattr(checking, module), name, broken)
    run = lint(fix="safe")
    assert (names(Path("a.py").read_text()), names(Path("b.py").read_text())) == (["old"], ["new"])
    ((file, reason),) = [(each.file, each.reason) for each in (*run.unread, *run.refused)]
    assert file == "a.py"
    assert "that failed with KeyError: 'shape' (" in reason


# --------------------------------------------------------------------------------------------------------- the cache


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are looked at from now on."""
    looked: list[str] = []
    check = Checker.check

    def counting(self: Checker, job: Job) -> Outcome:
        looked.append(job.found.name)
        return check(self, job)

    monkeypatch.setattr(Checker, "check", counting)
    return looked


def test_what_did_not_change_is_not_looked_at_again(
    lint: Callable[..., LintRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a.py", HEAD + "old()\nrisky()  # noqa: SW392\n")
    put("b.py")
    first = lint(cache=Path("cache"))
    looked = counted(monkeypatch)
    assert lint(cache=Path("cache")) == first
    assert looked == []
    put("b.py", HEAD + "\nold()\n")
    assert where(lint(cache=Path("cache"))) == ["a.py:2 SW391", "b.py:3 SW391"]
    assert looked == ["b.py"]
    assert lint().findings == lint(cache=Path("cache")).findings


def test_other_settings_are_other_entries(lint: Callable[..., LintRun], monkeypatch: pytest.MonkeyPatch) -> None:
    put("a.py", HEAD + "old()\nrisky()\n")
    different = [RULES, toys(OLD), toys(OLD, UNSAFE, ignored=frozenset({"SW391"})), toys(OLD, UNSAFE)]
    first = [lint(settings=settings, cache=Path("cache")) for settings in different]
    assert [len(run.findings) for run in first] == [2, 1, 1, 2]
    looked = counted(monkeypatch)
    assert [lint(settings=settings, cache=Path("cache")) for settings in different] == first
    assert looked == []


def test_a_run_over_one_file_keeps_what_is_known_of_the_others(
    lint: Callable[..., LintRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    put("a.py")
    put("b.py")
    lint(cache=Path("cache"))
    put("a.py", HEAD)
    lint("a.py", cache=Path("cache"))
    looked = counted(monkeypatch)
    lint(cache=Path("cache"))
    assert looked == []


# ------------------------------------------------------------------------------------------------------------- fixes


def test_fixes_are_written(lint: Callable[..., LintRun]) -> None:
    path = put("a.py", b"import torch\r\nold()\r\nrisky()\r\n")
    path.chmod(0o751)
    put("b.py", HEAD)
    untouched = Path("b.py").stat().st_mtime_ns
    run = lint(fix="safe", cache=Path("cache"))
    assert path.read_bytes() == b"import torch\r\nnew()\r\nrisky()\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert Path("b.py").stat().st_mtime_ns == untouched
    assert where(run) == ["a.py:3 SW392"]
    assert [(each.file, each.fixes) for each in run.fixed] == [("a.py", {"SW391": 1})]
    assert (run.written, run.diff, run.refused) == (True, "", ())
    again = lint(fix="safe", cache=Path("cache"))
    assert (where(again), again.fixed, again.written) == (["a.py:3 SW392"], (), False)
    assert sorted(os.listdir()) == ["a.py", "b.py", "cache"]


def test_a_diff_is_what_fixes_would_change(lint: Callable[..., LintRun], here: Path) -> None:
    path = put("sub/a.py", HEAD + "old()\nrisky()")
    run = lint(fix="unsafe", diff=True, cache=Path("cache"))
    assert path.read_text() == HEAD + "old()\nrisky()"
    assert (run.written, run.findings) == (False, ())
    assert [(each.file, each.fixes) for each in run.fixed] == [("sub/a.py", {"SW391": 1, "SW392": 1})]
    subprocess.run(["git", "apply"], input=run.diff, cwd=here, text=True, check=True)
    assert path.read_text() == HEAD + "new()\nbetter()"
    assert lint(cache=Path("cache")).findings == ()


def test_what_is_not_written_is_told_and_left_as_it_is(lint: Callable[..., LintRun]) -> None:
    locked = put("locked.py")
    locked.chmod(0o444)
    put("good.py")
    run = lint(fix="safe")
    assert run.refused == (Refused("locked.py", "it is read-only"),)
    assert where(run) == ["locked.py:2 SW391"]
    assert (names(locked.read_text()), names(Path("good.py").read_text())) == (["old"], ["new"])


def test_a_file_that_was_edited_meanwhile_is_left_as_it_is(
    lint: Callable[..., LintRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put("a.py")
    check = Checker.check

    def late(self: Checker, job: Job) -> Outcome:
        outcome = check(self, job)
        if job.fix:
            put("a.py", HEAD + "old()\nmine()\n")
        return outcome

    monkeypatch.setattr(Checker, "check", late)
    run = lint(fix="safe")
    assert run.refused == (Refused("a.py", "it was edited since it was linted"),)
    assert path.read_text() == HEAD + "old()\nmine()\n"


def test_links_are_followed_within_the_given_paths_only(lint: Callable[..., LintRun]) -> None:
    outside = put("outside/a.py")
    Path("project").mkdir()
    Path("project/link.py").symlink_to(outside)
    run = lint("project", fix="safe")
    assert names(outside.read_text()) == ["old"]
    assert run.refused == (
        Refused("project/link.py", f"it is a link to {outside}, which lies outside of the given paths"),
    )
    run = lint("project/link.py", fix="safe")
    assert names(outside.read_text()) == ["new"]
    assert Path("project/link.py").is_symlink()
    assert (run.refused, run.findings) == ((), ())


def test_fixes_without_an_end_are_told(lint: Callable[..., LintRun]) -> None:
    path = put("a.py", HEAD + "a()\n")
    run = lint(settings=toys(renames("SW391", "a", "b"), renames("SW392", "b", "a")), fix="safe")
    assert [each.file for each in run.refused] == ["a.py"]
    assert "defect of stridewise" in run.refused[0].reason
    assert path.read_text() == HEAD + "a()\n"
    assert where(run) == ["a.py:2 SW391"]


def test_an_interrupted_run_leaves_whole_files(
    lint: Callable[..., LintRun], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    for number in range(4):
        put(f"{number}.py", HEAD + "old()\n" * 3)
    replace, done = running.replace, []

    def interrupted(*given: Any, **keywords: Any) -> Path:
        done.append(given)
        if len(done) == 3:
            raise KeyboardInterrupt
        return replace(*given, **keywords)

    monkeypatch.setattr(running, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lint(fix="safe")
    assert [names(path.read_text()) for path in sorted(here.glob("*.py"))] == [["new"] * 3] * 2 + [["old"] * 3] * 2
    assert len(os.listdir()) == 4


def test_a_text_of_an_editor() -> None:
    content = (HEAD + "old()\nrisky()\n").encode()
    file = found(Path("unsaved.py"), RULES)
    run, after = lint_text(content, file)
    assert (where(run), after) == (["unsaved.py:2 SW391", "unsaved.py:3 SW392"], content)
    run, after = lint_text(content, file, Options(fix="safe"))
    assert (where(run), names(after), run.written) == (["unsaved.py:3 SW392"], ["new", "risky"], True)
    run, after = lint_text(content, file, Options(fix="safe", diff=True))
    assert after == content
    assert "-old()\n+new()\n" in run.diff
    run, after = lint_text(b"def (", file, Options(fix="safe"))
    assert (len(run.unread), after) == (1, b"def (")
    assert os.listdir() == []


# --------------------------------------------------------------------------------------------------------- processes


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list["subprocess.Popen[bytes]"]:
    """The processes that are started, of which small files are worth two."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            started.append(self)

    monkeypatch.setattr(parallel.subprocess, "Popen", Noted)
    monkeypatch.setattr(parallel, "_WORTH_BYTES", 1)
    monkeypatch.setattr(parallel, "_BATCH_BYTES", 1)
    return started


def boot(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run this in each process before it begins."""
    monkeypatch.setattr(parallel, "_BOOT", parallel._BOOT.replace("main()", f"{code}; main()"))


def jobs(*files: str) -> list[Job]:
    settings = Settings(("SW301",))
    paths = [put(name, HEAD + "def f(x):\n    x.contiguous()\n    return x\n") for name in files]
    return [Job(found(path, settings), path.stat().st_size) for path in paths]


FILES = tuple(f"{number}.py" for number in range(8))


def by_name(answers: Sequence[parallel.Answer]) -> dict[str, Outcome]:
    return {job.found.name: outcome for job, outcome in answers}


def test_processes_find_what_one_finds(processes: list[Any]) -> None:
    given = jobs(*FILES)
    several = by_name(list(parallel.check_all(Checker(), given, 2)))
    started = len(processes)
    assert started
    assert several == by_name(list(parallel.check_all(Checker(), given, 1)))
    assert len(processes) == started
    assert [len(outcome.findings) for outcome in several.values()] == [1] * 8
    assert all(process.poll() is not None for process in processes)


def test_the_order_does_not_depend_on_processes(processes: list[Any]) -> None:
    jobs(*FILES)
    assert lint_paths(options=Options(processes=3)) == lint_paths()
    assert processes


def test_little_source_is_linted_here(processes: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_WORTH_BYTES", 1 << 20)
    assert len(list(parallel.check_all(Checker(), jobs(*FILES), 8))) == 8
    assert processes == []


def test_what_ends_a_process_is_told_and_the_rest_is_linted(
    processes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_BATCH_BYTES", 200)
    boot(
        monkeypatch,
        "import os; from stridewise.linter.running.checking import Checker; check = Checker.check; "
        "Checker.check = lambda self, job: os.kill(os.getpid(), 9) if job.found.name == '3.py' else check(self, job)",
    )
    outcomes = by_name(list(parallel.check_all(Checker(), jobs(*FILES), 2)))
    assert sorted(outcomes) == sorted(FILES)
    assert {name for name, outcome in outcomes.items() if outcome.unread} == {"3.py"}
    assert "was ended from outside" in outcomes["3.py"].unread[0].reason
    assert all(process.poll() is not None for process in processes)


@pytest.mark.parametrize("why", ["no such program", "another program", "no stridewise"])
def test_where_no_process_starts_all_is_linted_here(
    processes: list[Any], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    given = jobs(*FILES)
    if why == "no stridewise":
        boot(monkeypatch, "raise ImportError")
    else:
        monkeypatch.setattr(sys, "executable", {"no such program": "/nowhere", "another program": "/bin/echo"}[why])
    outcomes = by_name(list(parallel.check_all(Checker(), given, 2)))
    assert [len(outcomes[name].findings) for name in FILES] == [1] * 8


@pytest.mark.parametrize("most", [0, 1])
def test_where_no_more_threads_start_those_that_there_are_do_it(
    processes: list[Any], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    started: list[object] = []

    class Few(parallel.Thread):
        def start(self) -> None:
            if len(started) >= most:
                raise RuntimeError("can't start new thread")
            started.append(self)
            super().start()

    given = jobs(*FILES)
    monkeypatch.setattr(parallel, "Thread", Few)
    outcomes = by_name(list(parallel.check_all(Checker(), given, 3)))
    assert [len(outcomes[name].findings) for name in FILES] == [1] * 8
    assert len(processes) == most


def test_processes_import_nothing_from_the_current_folder(
    processes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = jobs(*FILES)
    put("queue.py", "open('imported', 'w').close()\nraise SystemExit\n")
    put("lib/msgspec.py", "open('imported', 'w').close()\nraise SystemExit\n")
    monkeypatch.setattr(sys, "path", ["", "lib", *sys.path])
    outcomes = by_name(list(parallel.check_all(Checker(), given, 2)))
    assert [len(outcomes[name].findings) for name in FILES] == [1] * 8
    assert len(processes) == 2
    assert not Path("imported").exists()


def test_processes_end_with_whoever_asks(processes: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are at something that takes for ever."""
    boot(
        monkeypatch,
        "import signal; from stridewise.linter.running.checking import Checker; check = Checker.check; "
        "Checker.check = lambda self, job: signal.pause() if job.found.name != '0.py' else check(self, job)",
    )
    answers = parallel.check_all(Checker(), jobs(*FILES), 2)
    assert next(answers)[0].found.name == "0.py"
    assert {process.poll() for process in processes} == {None}
    answers.close()
    assert {process.returncode for process in processes} == {-signal.SIGKILL}


def test_a_script_without_a_guard_is_not_run_again(here: Path) -> None:
    jobs(*FILES)
    put(
        "script.txt",
        "print('once')\n"
        "import stridewise.api\n"
        "from stridewise.linter.running import parallel\n"
        "parallel._WORTH_BYTES = 1\n"
        "run = stridewise.api.lint('.', jobs=2)\n"
        "print(len(run.findings))\n",
    )
    ran = subprocess.run([sys.executable, "script.txt"], cwd=here, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["once", "8"]


def test_a_process_loads_no_more_than_it_needs(here: Path) -> None:
    (job,) = jobs("a.py")
    loaded = "print({'torch', 'numpy', 'typer', 'rich'} & set(sys.modules))"
    code = f"import sys; from stridewise.linter.running import worker; {loaded}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
    assert pickle.loads(pickle.dumps(job)) == job
