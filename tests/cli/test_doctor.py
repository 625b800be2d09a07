"""`stridewise doctor` on this machine, and on one without torch."""

import json
import os
import subprocess
import sys

import pytest
import torch
from jsonschema import validate

import stridewise
from stridewise.cli import main
from stridewise.report.schema import schema

NO_TORCH = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("torch is blocked by the test", name=name)
sys.meta_path.insert(0, Block())
"""


@pytest.fixture(scope="module")
def found():
    result = subprocess.run(
        [sys.executable, "-m", "stridewise", "doctor", "--quick", "--format", "json"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_what_works_here(found):
    validate(found, schema("doctor"))
    assert found["stridewise"] == stridewise.__version__
    assert found["torch"] == torch.__version__
    assert found["executable"] == sys.executable
    health = {row["name"]: row["health"] for row in found["abilities"]}
    assert list(health) == ["recording", "expressions", "all threads", "oneDNN", "gloo", "GPU"]
    assert health["recording"] == health["expressions"] == health["gloo"] == "works"
    assert health["oneDNN"] == ("works" if torch.backends.mkldnn.is_available() else "absent")
    assert health["GPU"] == ("works" if torch.cuda.is_available() else "absent")
    assert ("CUDA" in found["build"]) is (torch.version.cuda is not None)
    assert found["notes"] == ["The compiler was not tried: leave --quick out."]


@pytest.mark.real
def test_the_compiler(capsys):
    from stridewise.checks.machine.examine import _tried

    rows = _tried(["compile"], lambda _: None)
    assert [(row.name, row.health) for row in rows] == [("compile", "works"), ("compiled code", "works")]


def examined_with(folder):
    """What doctor says where this folder comes first among those that Python imports from."""
    return subprocess.run(
        [sys.executable, "-m", "stridewise", "doctor"],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_torch(tmp_path):
    """Nor has any process that it starts."""
    (tmp_path / "sitecustomize.py").write_text(NO_TORCH)
    result = examined_with(tmp_path)
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.startswith("torch is not installed: ")
    assert "Extras" in result.stdout


def test_a_torch_that_fails(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise OSError('libtorch_cpu.so: cannot open shared object file')")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.9.0+cpu'\n")
    result = examined_with(tmp_path)
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.startswith("Nothing can be recorded here: torch does not work.")
    assert "libtorch_cpu.so" in result.stdout
    assert "2.9.0+cpu" in result.stdout


def test_the_file_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--output", str(tmp_path / "doctor.txt")])
    assert caught.value.code == 1
    assert (tmp_path / "doctor.txt").read_text().startswith("torch is not installed")


@pytest.mark.parametrize("name", ["report", "doctor"])
def test_schemas_are_printed(capsys, name):
    with pytest.raises(SystemExit) as caught:
        main(["schema", name])
    assert caught.value.code == 0
    assert json.loads(capsys.readouterr().out) == schema(name)


def test_schemas_are_listed(capsys):
    with pytest.raises(SystemExit):
        main(["schema"])
    out = capsys.readouterr().out
    assert "lint-statistics  stridewise lint --statistics\n" in out
    with pytest.raises(SystemExit) as caught:
        main(["schema", "reprot"])
    assert caught.value.code == 2
    assert "there is no result `reprot`: it is one of artefact, " in capsys.readouterr().err
