"""The examples run as they stand."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_it_runs(path: Path) -> None:
    result = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=120, env={**os.environ, "NO_COLOR": "1"}
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout
    assert result.stderr == ""


def test_there_are_examples() -> None:
    assert {"train.py", "record.py", "diagnose.py", "fix.py", "lint.py"} <= {path.name for path in EXAMPLES}
