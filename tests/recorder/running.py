"""Scripts, run plainly and recorded."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

from stridewise import api
from stridewise.results import ScriptOutcome

DRIVER = """
import json, sys
from stridewise import api
options, outcomes, *argv = sys.argv[1:]
out = api.run_script(argv, **json.loads(options))
report = out.report
with open(outcomes, "a") as file:
    print(json.dumps({
        "code": out.exit_code,
        "message": out.message,
        "steps": report and report.totals.steps,
        "notes": report and report.notes,
        "torch": "torch" in sys.modules,
    }), file=file)
sys.exit(out.exit_code)
"""


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def plainly(*arguments: str, cwd: Path) -> Ended:
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def recorded(*argv: str, cwd: Path, **options: Any) -> tuple[Ended, list[dict[str, Any]]]:
    """What the process did, and the outcomes that it wrote: one, or something is wrong."""
    outcomes = cwd / "outcomes"
    outcomes.unlink(missing_ok=True)
    ended = plainly("-c", DRIVER, json.dumps(options), str(outcomes), *argv, cwd=cwd)
    lines = outcomes.read_text().splitlines() if outcomes.exists() else []
    return ended, [json.loads(line) for line in lines]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))
    return path


def run_here(tmp_path: Path, text: str, *arguments: str, **options: Any) -> ScriptOutcome:
    return api.run_script([str(write(tmp_path / "script.py", text)), *arguments], **options)
