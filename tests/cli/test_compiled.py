"""`stridewise run --compiled` and `stridewise trace --compiled`: what was compiled, seen live and in logs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, image):
        return torch.relu(self.conv(image)).mean()

torch.manual_seed(0)
net = torch.compile(Net())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    net(torch.randn(2, 3, 8, 8)).backward()
    optimizer.step()
    optimizer.zero_grad()
print("it is", "done")
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "eager.py").write_text("import torch\nprint((torch.randn(4, 4) @ torch.randn(4, 4)).shape)\n")
    return folder


@pytest.fixture(scope="module")
def logs(folder: Path) -> Path:
    """What the script logs without stridewise."""
    written = folder / "logs"
    environment = os.environ | {"TORCH_TRACE": str(written)}
    subprocess.run([sys.executable, "train.py"], cwd=folder, env=environment, check=True, capture_output=True)
    return written


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STRIDEWISE")}
    command = [sys.executable, "-m", "stridewise", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_script_is_run_and_what_was_compiled_is_told(folder: Path) -> None:
    ran = call(folder, "run", "--compiled", "train.py", "3")
    assert ran.returncode == 3, ran.stderr
    assert "it is done" in ran.stdout
    assert "torch.compile made 2 graphs, 1 of them for a backward" in ran.stdout
    assert "warning[SW501] relayout-kernel" in ran.stdout
    assert "train.py:12" in ran.stdout


def test_json_has_it_beside_the_recording(folder: Path) -> None:
    ran = call(folder, "run", "--compiled", "--format", "json", "--output", "out.json", "train.py")
    assert ran.returncode == 0, ran.stderr
    found = json.loads((folder / "out.json").read_text())
    assert [graph["phase"] for graph in found["compiled"]["graphs"]] == ["forward", "backward"]
    assert {copy["source"] for copy in found["compiled"]["graphs"][0]["copied"]} >= {"parameter `conv.weight`"}
    assert found["totals"]["steps"] == 3


def test_other_formats_have_its_findings_and_budgets_see_them(folder: Path) -> None:
    ran = call(folder, "run", "--compiled", "--format", "github", "--budget", "forbid=SW501", "train.py")
    assert ran.returncode == 1
    assert "SW501" in ran.stdout
    assert "over budget: forbid: SW501 found at train.py:12" in ran.stderr


def test_without_the_option_nothing_is_said_of_it(folder: Path) -> None:
    ran = call(folder, "run", "--format", "json", "--output", "plain.json", "train.py")
    assert ran.returncode == 0, ran.stderr
    assert "compiled" not in json.loads((folder / "plain.json").read_text())


def test_a_script_that_compiles_nothing(folder: Path) -> None:
    ran = call(folder, "run", "--compiled", "eager.py")
    assert ran.returncode == 0, ran.stderr
    assert "torch.compile compiled nothing." in ran.stdout


def test_logs_are_read_without_torch(folder: Path, logs: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "stridewise", "trace", "--compiled", str(logs)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "torch.compile made 2 graphs" in ran.stdout
    imported = {line.split("|")[-1].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert "torch" not in imported


def test_logs_and_code_are_shown(folder: Path, logs: Path) -> None:
    ran = call(folder, "trace", "--compiled", "--code", "logs")
    assert "Code of 0/0 forward" in ran.stdout
    assert "async_compile" in ran.stdout


def test_logs_of_several_processes_are_told_apart(folder: Path, logs: Path) -> None:
    (file,) = logs.iterdir()
    several = folder / "ranks"
    several.mkdir()
    for rank in (0, 1):
        (several / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_text(file.read_text())
    ran = call(folder, "trace", "--compiled", "ranks")
    assert "dedicated_log_torch_trace_rank_1_x.log" in ran.stdout
    found = json.loads(call(folder, "trace", "--compiled", "--format", "json", "ranks").stdout)
    assert [len(result["graphs"]) for result in found.values()] == [2, 2]
    forbidden = call(folder, "trace", "--compiled", "--budget", "forbid=SW5", "ranks")
    assert forbidden.returncode == 1
    assert "over budget: forbid: SW5" in forbidden.stderr
    for format in ("html", "sarif", "junit"):
        refused = call(folder, "trace", "--compiled", "--format", format, "ranks")
        assert refused.returncode == 2
        assert f"--format {format} takes the log of one process, and there are 2: name one file" in refused.stderr
    (several / "dedicated_log_torch_trace_rank_2_x.log").write_bytes(b"\x00\xff nothing")
    mixed = call(folder, "trace", "--compiled", "ranks")
    assert mixed.returncode == 0
    assert "rank_2_x.log holds nothing that torch.compile logs." in " ".join(mixed.stdout.split())


def test_codes_are_selected(folder: Path, logs: Path) -> None:
    assert "SW501" not in call(folder, "trace", "--compiled", "--ignore", "SW501", "logs").stdout


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("nowhere", "There is no nowhere."),
        ("train.py", "train.py holds nothing that torch.compile logs."),
        (".", ". holds no file that torch.compile logs to."),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, argument: str, said: str) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    ran = call(tmp_path, "trace", "--compiled", argument)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_file_that_was_cut_gives_what_is_there(folder: Path, logs: Path) -> None:
    (file,) = logs.iterdir()
    text = file.read_bytes()
    for share in (0.3, 0.6, 0.9):
        (folder / "cut.log").write_bytes(text[: int(share * len(text))])
        ran = call(folder, "trace", "--compiled", "cut.log")
        assert ran.returncode == 0, ran.stderr
        assert "Traceback" not in ran.stderr
