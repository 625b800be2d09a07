"""What docs/how-to/ci.md tells people to put in their files works."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "ci.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
YAML = [yaml.safe_load(text) for kind, text in BLOCKS if kind == "yaml"]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
BAD = "import torch\n\n\ndef f(x):\n    x.contiguous()\n    return x\n"


@pytest.mark.parametrize(("content", "failures"), [(BAD, 1), ("import torch\n", 0)])
def test_gitlab(tmp_path, content, failures):
    (job,) = [block["layout"] for block in YAML if isinstance(block, dict) and "layout" in block]
    (tmp_path / "a.py").write_text(content)
    install, *script = job["script"]
    assert install.startswith("pip install ")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for line in script:
        ran = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == failures, ran.stderr
    report = ElementTree.parse(tmp_path / job["artifacts"]["reports"]["junit"]).getroot()
    assert report.get("failures") == str(failures)


def test_github():
    jobs = [block["jobs"] for block in YAML if isinstance(block, dict) and "jobs" in block]
    steps = [step for job in jobs for step in job["layout"]["steps"]]
    steps += [step for block in YAML if isinstance(block, list) for step in block]
    ours = [step["with"] for step in steps if step.get("uses", "").startswith("your/copy@")]
    assert len(ours) == 2
    # Neither a tag that nobody has, nor a version from an index that has no stridewise, or somebody else's.
    assert set(re.findall(r"your/copy@(\S+)|rev: (\S+)", GUIDE)) == {("COMMIT", ""), ("", "COMMIT")}
    assert not any("version" in given for given in ours)
    assert all(given.keys() <= ACTION["inputs"].keys() for given in ours)
    table = re.findall(r"^\| `([a-z-]+)` \|", GUIDE, re.MULTILINE)
    assert set(table) == ACTION["inputs"].keys()
    named = set(re.findall(r"steps\.layout\.outputs\.([a-z-]+)", GUIDE))
    assert named <= ACTION["outputs"].keys()


def test_pre_commit():
    (repository,) = [row for block in YAML if isinstance(block, dict) for row in block.get("repos", ())]
    hooks = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert {hook["id"] for hook in repository["hooks"]} <= hooks


def test_the_python_of_the_guide_is_python():
    for kind, text in BLOCKS:
        if kind == "python":
            compile(text, "ci.md", "exec")
