"""The GitHub Action: its file as a runner reads it, and its steps as a runner would run them, without a network."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ..report import sarif_shape

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
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
    assert runner.outputs == {"exit-code": "2"}


def test_a_mistake_can_not_forge_a_command_of_the_runner(runner):
    assert runner.run(command="lint 'a\n::set-env name=x::y") == 2
    assert not re.search(r"^::set-env", runner.said, re.MULTILINE)


def test_a_budget_goes_to_the_command(runner):
    assert runner.run(command="run nothing.py", budget="copies=0") == 2
    assert "there is no script nothing.py" in runner.said
    runner.run(command="run bad.py", budget="copies=lots")
    assert "copies: `lots` is not a number of copies" in runner.said
