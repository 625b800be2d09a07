"""Edits are tried over the steps of a running script, which sees nothing of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODEL = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        self.drop = nn.Dropout(0.1)
        self.batch = nn.BatchNorm1d(16)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = x.transpose(1, 2)
        for norm in self.norms:
            y = y + norm(y)
        return self.batch(self.drop(y))
"""

TRAIN = """\
import sys
import torch
from model import Net

def main(steps):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = torch.randn(4, 32, 16)
    for number in range(steps):
        loss = (model(x) - x.transpose(1, 2).roll(1)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        {each}
    print(f"loss {loss.item():.9g} random {torch.rand(()).item():.9g} calls {model.calls}")

main(int(sys.argv[1]))
"""


DETERMINISTIC = MODEL.replace("self.drop(y)", "y")


def script(folder: Path, each: str = "pass", model: str = DETERMINISTIC) -> None:
    (folder / "model.py").write_text(model)
    (folder / "train.py").write_text(TRAIN.replace("{each}", each))


def python(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},  # two threads wait for each other on busy cores
        capture_output=True,
        text=True,
        timeout=110,
    )


def fixed(folder: Path, *arguments: str, **variables: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    ran = python(
        folder, "-m", "stridewise", "fix", "--time-limit", "10", "--only", "copy-at-origin", "--format", "json",
        "--output", "repair.json", *arguments, **variables,
    )  # fmt: skip
    result = folder / "repair.json"
    return ran, json.loads(result.read_text()) if result.exists() else {}


@pytest.mark.parametrize("model", [DETERMINISTIC, MODEL], ids=["deterministic", "dropout"])
def test_a_script_runs_as_it_does_without(model, tmp_path):
    script(tmp_path, model=model)
    plain = python(tmp_path, "train.py", "400")
    ran, repair = fixed(tmp_path, "train.py", "400")
    assert ran.returncode == 0
    # Steps with an edit round otherwise; all else is the same.
    (loss, *rest), (plain_loss, *plain_rest) = ran.stdout.split()[1:], plain.stdout.split()[1:]
    assert rest == plain_rest
    assert float(loss) == pytest.approx(float(plain_loss), rel=1e-3)
    (trial,) = repair["trials"] + repair["untried"]
    assert trial["candidate"] == "copy-at-origin"
    assert (tmp_path / "model.py").read_text() == model


@pytest.mark.needs_torch("2.7", "dropout draws in the order of indices, whatever the strides")
def test_an_edit_that_would_draw_other_numbers_is_refused(tmp_path):
    script(tmp_path, model=MODEL)
    _, repair = fixed(tmp_path, "train.py", "400")
    (trial,) = repair["trials"]
    assert trial["verdict"] == "refused"
    assert "drawn in another order" in trial["reason"]


def test_a_trial_compares_results_and_counts_copies(tmp_path):
    script(tmp_path)
    _, repair = fixed(tmp_path, "--stop", "train.py", "100000")
    (trial,) = repair["trials"]
    assert trial["equal"]
    assert trial["copies_before"] > trial["copies_after"]
    assert trial["pairs"] >= 6


def test_a_script_may_be_ended_with_the_trials(tmp_path):
    script(tmp_path)
    ran, repair = fixed(tmp_path, "--stop", "train.py", "1000000")
    assert ran.returncode == 0
    assert "loss" not in ran.stdout
    assert repair["trials"]


def test_too_few_steps_are_said(tmp_path):
    script(tmp_path)
    ran, repair = fixed(tmp_path, "train.py", "3")
    assert ran.returncode == 0
    assert ran.stdout.startswith("loss")
    assert "Nothing was tried: the script ended before enough of its steps were recorded." in ran.stderr
    assert repair == {}


def test_a_script_that_ends_too_soon_leaves_a_note(tmp_path):
    script(tmp_path)
    _, repair = fixed(tmp_path, "train.py", "12")
    assert repair["untried"]
    assert any("The script ended" in note for note in repair["notes"])


@pytest.mark.parametrize(
    ("error", "code"), [("raise ValueError('mine')", 1), ("raise KeyboardInterrupt", 130), ("sys.exit(7)", 7)]
)
def test_a_script_ends_as_it_wants_to(error, code, tmp_path):
    script(tmp_path, f"if number == 30: {error}")
    ran, repair = fixed(tmp_path, "train.py", "400")
    assert ran.returncode == code
    assert ("ValueError: mine" in ran.stderr) == (code == 1)
    assert "stridewise" not in ran.stderr
    assert repair["trials"] or repair["untried"]
    assert (tmp_path / "model.py").read_text() == DETERMINISTIC


def test_several_ranks_are_refused(tmp_path):
    script(tmp_path)
    ran, _ = fixed(tmp_path, "train.py", "400", WORLD_SIZE="2", RANK="0")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert "one of 2 ranks" in ran.stderr


def test_what_runs_in_the_script_itself_is_not_edited(tmp_path):
    (tmp_path / "train.py").write_text(
        MODEL + "\ntorch.manual_seed(0)\nnorms = [nn.LayerNorm(32) for _ in range(3)]\nnet = nn.Linear(16, 16)\n"
        "for number in range(200):\n    y = net(torch.randn(4, 32, 16)).transpose(1, 2)\n"
        "    for norm in norms:\n        y = y + norm(y)\n"
    )
    _, repair = fixed(tmp_path, "train.py")
    assert all(trial["verdict"] == "refused" for trial in repair["trials"])
    assert all("module level" in trial["reason"] for trial in repair["trials"])
    assert repair["trials"]


def same_as_plain(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """Run a script plainly and with trials: what it prints is the same."""
    (folder / "train.py").write_text(source)
    plain = python(folder, "train.py")
    ran, _ = fixed(folder, "train.py")
    assert (ran.returncode, ran.stdout) == (plain.returncode, plain.stdout)
    return ran


def test_an_optimizer_that_steps_in_backward_is_left_to_the_script(tmp_path):
    ran = same_as_plain(
        tmp_path,
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\nnet = nn.Linear(8, 8)\n"
        "optimizers = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in net.parameters()}\n"
        "def step(p):\n    optimizers[p].step(); optimizers[p].zero_grad()\n"
        "for p in net.parameters():\n    p.register_post_accumulate_grad_hook(step)\n"
        "x = torch.randn(4, 8)\nfor _ in range(60):\n    net(x).square().mean().backward()\n"
        "print(sum(p.sum().item() for p in net.parameters()))\n",
    )
    assert "changes its parameters" in ran.stderr


def test_what_forward_keeps_in_python_is_the_scripts_own(tmp_path):
    same_as_plain(
        tmp_path,
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\nN = 0\nseen = []\n"
        "class Net(nn.Linear):\n    def forward(self, x):\n        global N\n        N += 1\n        seen.append(N)\n"
        "        return super().forward(x) * min(1, N / 30)\n"
        "net = Net(8, 8)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nx = torch.randn(4, 8)\n"
        "for _ in range(60):\n    net(x).square().mean().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
        "print(N, len(seen), sum(p.sum().item() for p in net.parameters()))\n",
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_runs_the_model_and_ends(tmp_path):
    (tmp_path / "model.py").write_text(DETERMINISTIC)
    same_as_plain(
        tmp_path,
        "import os, torch\nfrom model import Net\ntorch.manual_seed(0)\ntorch.set_num_threads(1)\nnet = Net()\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nx = torch.randn(4, 32, 16)\n"
        "def step():\n    net(x).square().mean().backward()\n    optimizer.step()\n"
        "for number in range(60):\n    step()\n    if number == 40:\n"
        "        child = os.fork()\n        if not child:\n            step()\n            step()\n"
        "            os._exit(3)\n"
        "        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n",
    )
