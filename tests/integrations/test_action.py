"""The GitHub Action: its file as a runner reads it, and its steps as a runner would run them, without a network."""

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest
import typer
import yaml
from packaging.requirements import Requirement

from stridewise.cli.app import app

from ..report import sarif_shape

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
_spec = importlib.util.spec_from_file_location("action", ROOT / ".github" / "action.py")
SCRIPT = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(SCRIPT)
BAD = "import torch\n\n\ndef f(x):\n    x.contiguous()\n    return x\n"
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


class Runner:
    """Runs the steps of the action that have a script, with the variables that GitHub sets."""

    def __init__(self, folder):
        self.folder = folder
        self.summary, self.output = folder.parent / "summary.md", folder.parent / "output.txt"
        self.summary.touch()
        self.output.touch()
        self.said = ""

    def run(self, **inputs):
        values = {name: item["default"] for name, item in ACTION["inputs"].items()} | {"version": "none"} | inputs
        assert values.keys() == ACTION["inputs"].keys()
        context = {f"inputs.{name}": value for name, value in values.items()} | {"github.action_path": str(ROOT)}
        for step in STEPS:
            if "run" not in step:
                continue
            env = {name: EXPRESSION.sub(lambda at: context[at[1]], text) for name, text in step["env"].items()}
            where = EXPRESSION.sub(lambda at: context[at[1]], step.get("working-directory", "."))
            code = self._bash(step["run"], env, self.folder / where)
            if code:
                return code
        return 0

    def _bash(self, script, env, where):
        variables = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_WORKSPACE": str(self.folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        path = self.folder.parent / "step.sh"
        path.write_text(script)
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(path)]  # as GitHub's `shell: bash`
        environment = os.environ | variables | env
        ran = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
        self.said += ran.stdout + ran.stderr
        return ran.returncode

    @property
    def outputs(self):
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())


@pytest.fixture
def runner(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "bad.py").write_text(BAD)
    return Runner(folder)


def test_the_file_is_an_action_with_all_that_a_step_needs():
    assert ACTION["runs"]["using"] == "composite"
    assert ACTION["name"]
    assert ACTION["description"]
    for item in ACTION["inputs"].values():
        assert item["description"]
        assert isinstance(item["default"], str)
    for step in STEPS:
        assert ("run" in step) != ("uses" in step)
        assert "uses" in step or step["shell"] == "bash"
    used = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert used == ACTION["inputs"].keys()


def test_no_input_is_part_of_a_script():
    scripts = [step["run"] for step in STEPS if "run" in step]
    assert len(scripts) == 2
    assert not any("${{" in script for script in scripts)


def test_findings_are_annotations_a_summary_and_sarif(runner):
    assert runner.run(command="lint .", sarif="out.sarif") == 1
    assert "::error file=bad.py,line=5,endLine=5,col=5" in runner.said
    assert runner.summary.read_text().count("## stridewise lint") == 1
    assert "bad.py:5" in runner.summary.read_text()
    document = json.loads((runner.folder / "out.sarif").read_text())
    sarif_shape.check(document)
    assert [result["ruleId"] for result in document["runs"][0]["results"]] == ["SW301"]
    assert runner.outputs == {"exit-code": "1", "sarif": "out.sarif"}


def test_nothing_to_find(runner):
    (runner.folder / "bad.py").write_text("import torch\n")
    assert runner.run(command="stridewise lint .") == 0
    assert runner.outputs == {"exit-code": "0", "sarif": ""}
    assert "No layout problems" in runner.summary.read_text()


def test_a_working_directory_and_a_format(runner):
    (runner.folder / "sub").mkdir()
    (runner.folder / "bad.py").rename(runner.folder / "sub" / "bad.py")
    assert runner.run(command="lint bad.py", format="text", sarif="out.sarif", **{"working-directory": "sub"}) == 1
    assert "::error" not in runner.said
    assert runner.outputs["sarif"] == "sub/out.sarif"


@pytest.mark.parametrize("name", ["command", "budget", "format", "sarif", "version"])
def test_what_is_in_an_input_is_never_run(runner, name):
    evil = "x; touch evil $(touch evil) `touch evil` '\"; touch evil"
    assert runner.run(**{"command": "lint bad.py", name: evil if name != "command" else f"lint bad.py; {evil}"}) != 0
    assert not list(runner.folder.rglob("evil*"))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"command": ""}, "the input `command` is empty"),
        ({"command": "lint 'a"}, "the input `command` can't be split: No closing quotation"),
        ({"command": "run train.py", "sarif": "a.sarif"}, "the input `sarif` goes with lint, trace and check"),
    ],
)
def test_mistakes_are_one_line(runner, inputs, said):
    assert runner.run(**inputs) == 2
    assert f"::error title=stridewise::{said}" in runner.said
    assert runner.outputs == {"exit-code": "2", "sarif": ""}


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("", str(ROOT)),
        ("0.1.0", "stridewise==0.1.0"),
        (" v0.1.0 ", "stridewise==0.1.0"),
        ("1.0rc1", "stridewise==1.0rc1"),
        ("0.1.*", "stridewise==0.1.*"),
        (">=0.1,<1", "stridewise >=0.1,<1"),
        ("==0.1", "stridewise ==0.1"),
        ("~=0.1", "stridewise ~=0.1"),
        ("!=0.2", "stridewise !=0.2"),
        ("[lightning]==0.1", "stridewise [lightning]==0.1"),
        ("@ git+https://example.com/a.git", "stridewise @ git+https://example.com/a.git"),
        ("none", None),
    ],
)
def test_what_is_installed(monkeypatch, version, wanted):
    calls = []
    monkeypatch.setattr(SCRIPT.subprocess, "run", lambda call, **_: calls.append(call) or SimpleNamespace(returncode=0))
    monkeypatch.setenv("STRIDEWISE_VERSION", version)
    monkeypatch.setenv("STRIDEWISE_ACTION", str(ROOT))
    assert SCRIPT.install() == 0
    assert [call[-1] for call in calls] == ([wanted] if wanted else [])
    if wanted and version:
        assert Requirement(wanted).name == "stridewise"


@pytest.mark.parametrize("version", ["latest", "stridewise==0.1.0", "-r x", "v", "1.0 x", "0.1.0\n>=1", "main", "wise"])
def test_no_other_project_is_ever_installed(runner, version):
    assert runner.run(version=version) == 2
    assert "::error title=stridewise::the input `version` is " in runner.said
    assert runner.outputs == {"exit-code": "2", "sarif": ""}


def test_an_output_of_the_command_and_sarif_are_two_files(runner):
    assert runner.run(command="lint --format json --output mine.json bad.py", sarif="out.sarif") == 1
    assert json.loads((runner.folder / "mine.json").read_text())["findings"]
    sarif_shape.check(json.loads((runner.folder / "out.sarif").read_text()))
    assert runner.run(command="lint --output=mine.txt -- bad.py", sarif="out.sarif") == 1
    assert "$schema" not in (runner.folder / "mine.txt").read_text()
    sarif_shape.check(json.loads((runner.folder / "out.sarif").read_text()))


@pytest.mark.parametrize("command", ["lint nothing.py", "lint --no-such-option ."])
def test_sarif_of_an_earlier_run_is_not_put_out(runner, command):
    (runner.folder / "out.sarif").write_text("{}")
    assert runner.run(command=command, sarif="out.sarif") == 2
    assert runner.outputs == {"exit-code": "2", "sarif": ""}
    assert not (runner.folder / "out.sarif").exists()


@pytest.mark.parametrize("command", ["--version", "rule SW103", "schema"])
def test_commands_without_formats(runner, command):
    assert runner.run(command=command) == 0
    assert runner.outputs == {"exit-code": "0", "sarif": ""}


def test_commands_with_formats_are_known():
    commands = typer.main.get_command(app).commands
    single = {name: one for name, each in commands.items() for one in getattr(each, "commands", {"": each}).values()}
    hints = {name: get_type_hints(inspect.unwrap(one.callback)) for name, one in single.items()}
    formats = {name: _values(hint.get("format")) for name, hint in hints.items()}
    assert {name for name, known in formats.items() if {"github", "json", "text"} <= known} == SCRIPT.FORMATTED


def _values(hint):
    """Of the enumeration that an option takes, which may be left out."""
    kinds = (kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and issubclass(kind, Enum))
    return {each.value for kind in kinds for each in kind}


def test_a_mistake_can_not_forge_a_command_of_the_runner(runner):
    assert runner.run(command="lint 'a\n::set-env name=x::y") == 2
    assert not re.search(r"^::set-env", runner.said, re.MULTILINE)


def test_a_budget_goes_to_the_command(runner):
    assert runner.run(command="run nothing.py", budget="copies=0") == 2
    assert "there is no script nothing.py" in runner.said
    runner.run(command="run bad.py", budget="copies=lots")
    assert "copies: `lots` is not a number of copies" in runner.said
