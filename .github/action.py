"""What the action of action.yml runs: the command, and once more for SARIF if that is asked for. Needs no torch.

Its inputs come in the environment. The command is split as a shell would split it, and no shell sees it.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path


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
    code = stridewise([*head, f"--format={os.environ.get('STRIDEWISE_FORMAT') or 'github'}", *options, *tail])
    if sarif and code in (0, 1):
        again = stridewise([*head, "--format=sarif", f"--output={sarif}", *tail], quiet=True)
        code = max(code, again)
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
    sys.exit(main())
