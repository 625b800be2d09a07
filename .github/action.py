"""What the action of action.yml runs: `install`; the command, and once more for SARIF if asked for. Needs no torch.

Its inputs come in the environment. The command is split as a shell would split it, and no shell sees it.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

FORMATTED = frozenset({"check", "demo", "diff", "fix", "lint", "run", "trace"})
"""The commands whose `--format` takes what the input `format` may be."""
_RELEASE = re.compile(r"v?(\d[\w.!+*-]*)", re.ASCII)
_SPECIFIER = re.compile(r"[<>=!~\[@].*")


def install() -> int:
    version = os.environ.get("STRIDEWISE_VERSION", "").strip()
    if version == "none":
        return 0
    wanted = requirement(version) if version else os.environ["STRIDEWISE_ACTION"]
    if wanted is None:
        return refuse(f"the input `version` is {version}: give 0.1.0, a specifier such as >=0.1,<1, none, or nothing")
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", wanted]
    return subprocess.run(pip, check=False).returncode


def requirement(version: str) -> str | None:
    """What pip is to install, which is stridewise whatever the input says; None for what is no version."""
    if release := _RELEASE.fullmatch(version):
        return f"stridewise=={release[1]}"
    return f"stridewise {version}" if _SPECIFIER.fullmatch(version) else None


def main() -> int:
    try:
        arguments = shlex.split(os.environ["STRIDEWISE_COMMAND"])
    except ValueError as error:
        return refuse(f"the input `command` can't be split: {error}")
    if arguments[:1] == ["stridewise"]:
        arguments = arguments[1:]
    if not arguments:
        return refuse("the input `command` is empty")
    command = arguments[0]
    options = []
    if budget := os.environ.get("STRIDEWISE_BUDGET"):
        options.append(f"--budget={budget}")
    sarif = os.environ.get("STRIDEWISE_SARIF", "")
    if sarif and command not in ("lint", "trace", "check"):
        return refuse(f"the input `sarif` goes with lint, trace and check: `{command}` would run twice")
    # Behind the command's own name: `check op` has its options behind the second word.
    words = 2 if command == "check" else 1
    head, tail = arguments[:words], arguments[words:]
    if command in FORMATTED:
        options.insert(0, f"--format={os.environ.get('STRIDEWISE_FORMAT') or 'github'}")
    if sarif:
        try:
            Path(sarif).unlink(missing_ok=True)  # one of an earlier run must not be taken for this one's
        except OSError as error:
            return refuse(f"the file {sarif} of the input `sarif` can't be replaced: {error.strerror}")
    code = stridewise([*head, *options, *tail])
    if sarif and code in (0, 1):
        # Of options that are given twice the last counts: an `--output` of the command is not written again.
        end = tail.index("--") if "--" in tail else len(tail)
        again = [*head, *tail[:end], "--format=sarif", f"--output={sarif}", *tail[end:]]
        code = max(code, stridewise(again, quiet=True))
    put("exit-code", str(code))
    put("sarif", from_workspace(Path(sarif)) if sarif and Path(sarif).is_file() else "")
    return code


def stridewise(arguments: list[str], *, quiet: bool = False) -> int:
    environment = dict(os.environ)
    if quiet:
        environment.pop("GITHUB_STEP_SUMMARY", None)
    return subprocess.run([sys.executable, "-m", "stridewise", *arguments], env=environment, check=False).returncode


def refuse(why: str) -> int:
    # On one line, so that nothing of an input is a command of its own to the runner.
    print(f"::error title=stridewise::{re.sub(r'[^ -~]', '?', why).replace('%', '%25')}", flush=True)
    put("exit-code", "2")
    put("sarif", "")
    return 2


def put(name: str, value: str) -> None:
    if path := os.environ.get("GITHUB_OUTPUT"):
        with open(path, "a", encoding="utf-8") as outputs:
            outputs.write(f"{name}={value.splitlines()[0] if value else ''}\n")


def from_workspace(path: Path) -> str:
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    path = path.resolve()
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else str(path)


if __name__ == "__main__":
    sys.exit(install() if sys.argv[1:] == ["install"] else main())
