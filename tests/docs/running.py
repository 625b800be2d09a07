"""Does what a page says, from top to bottom, in a folder of its own."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from .output import agrees, difference
from .page import Block, Command, blocks, commands

LIMIT_S = 110
"""For one command; pytest's own limit is for the page."""

# The interpreter of a page: a line of JSON names a file to run; it answers with a traceback, or null. What blocks print
# goes elsewhere, and so does what processes print that they start.
_LOOP = """
import json, os, sys, traceback, warnings
asked, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)
namespace = sys.modules["__main__"].__dict__
for line in asked:
    path = json.loads(line)
    try:
        warnings.simplefilter("error")
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec")
        exec(code, namespace)
        answer = None
    except BaseException:
        answer = traceback.format_exc()
    print(json.dumps(answer), file=answers, flush=True)
"""


def run_page(page: Path, folder: Path) -> None:
    """Run every block of a page in `folder`, which is empty. Raises PageError for the first that fails."""
    found = blocks(page)
    for block in found:
        if block.language == "console":
            commands(block)  # how it is written is looked at even where it is not run
    with tempfile.TemporaryDirectory(prefix="stridewise-page-") as beside, _Python(folder, Path(beside)) as python:
        for block in found:
            if block.title is not None:
                path = folder / block.title
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif block.skipped is not None:
                continue
            elif block.language == "python":
                python.run(block)
            elif block.language == "console":
                for command in commands(block):
                    _run(block, command, folder)


def _run(block: Block, command: Command, folder: Path) -> None:
    ended = subprocess.run(
        ["sh", "-c", command.text],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
    )
    got = ended.stdout.decode("utf-8", "replace")
    shown = f"  $ {command.text}"
    if ended.returncode != block.exit_code:
        wrong = f"it exits with {ended.returncode}, not with {block.exit_code}"
        raise block.fail(wrong, shown, got.rstrip(), line=command.line)
    wanted = "\n".join(command.output)
    if wanted.strip() and not agrees(wanted, got):
        raise block.fail("it prints something else", shown, difference(wanted, got), line=command.line)


def environment() -> dict[str, str]:
    """Of commands: the tests' own programs first, a dumb terminal of 100 columns, and nothing of pytest's or CI's."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "GITHUB_", "RUNNER_", "COV_")) and name not in ("CI", "FORCE_COLOR")
    }
    bin_of_tests = os.path.dirname(sys.executable)
    return {
        **kept,
        "PATH": os.pathsep.join((bin_of_tests, os.environ.get("PATH", os.defpath))),
        "TERM": "dumb",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
        "OMP_NUM_THREADS": "1",  # tests run beside it: two threads would wait for each other
    }


class _Python:
    """The namespace of a page, in a process of its own that starts with the page's first block of Python."""

    def __init__(self, folder: Path, beside: Path) -> None:
        self._folder = folder
        self._beside = beside
        self._process: subprocess.Popen[str] | None = None
        self._printed: IO[str] | None = None

    def __enter__(self) -> "_Python":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._printed):
                assert stream is not None
                stream.close()

    def run(self, block: Block) -> None:
        """Run a block. It is a file with the page's line numbers, so that a traceback tells them."""
        path = self._beside / f"{block.page.stem}_{block.line}.py"
        path.write_text("\n" * block.line + block.text, encoding="utf-8")
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(str(path)), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        if not answer:
            raise block.fail(f"the process ended with {process.wait()}", self._last_words())
        if failed := json.loads(answer):
            raise block.fail("it raises", failed.replace(str(path), str(block.page)).rstrip())

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None:
            self._printed = (self._beside / "printed").open("w+", encoding="utf-8")
            self._process = subprocess.Popen(
                [sys.executable, "-c", _LOOP],
                cwd=self._folder,
                env={**environment(), "PYTHONPATH": str(self._folder)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed,
                text=True,
            )
        return self._process

    def _last_words(self) -> str:
        assert self._printed is not None
        self._printed.seek(0)
        return self._printed.read()[-2000:]
