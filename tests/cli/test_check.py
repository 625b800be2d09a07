"""`stridewise check`: targets, samples, formats and exit codes, in a process as people call it."""

import json
import os
import subprocess
import sys

import pytest

KERNELS = """
import ctypes
import torch
from torch import nn

def flat(x):
    y = torch.empty(x.shape)
    ctypes.memmove(y.data_ptr(), x.data_ptr(), 4 * x.numel())
    return y

def right(x):
    return 2 * x

def raising(x):
    raise ValueError("never")

def sample():
    print("a sample is made")
    return (torch.arange(12.0).reshape(3, 4),)

def broken_sample():
    raise RuntimeError("no sample today")

flat_sample = raising_sample = sample

def healthy():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), fused=True), "sample": sample()}

def hazard():
    model = nn.Linear(4, 8)
    model.weight = nn.Parameter(torch.randn(8, 8)[:, ::2])
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), fused=True)}

def gives_none(x):
    return None

def gives_text(x):
    return str(x.shape)

def gives_generator(x):
    return (row for row in x)

calls = iter(range(10**9))

def random(x):
    return x + next(calls)

def writes(x):
    x.mul_(2)

gives_none_sample = gives_text_sample = gives_generator_sample = random_sample = writes_sample = sample

def raises():
    raise ValueError("no model today")

def wrong_key():
    return {"modle": nn.Linear(2, 2)}

def nothing():
    return {}

def leaves():
    raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("check")
    (path / "kernels.py").write_text(KERNELS)
    return path


def check(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "stridewise", "check", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=100, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip


def test_a_wrong_operator_exits_with_1_and_shows_the_smallest_layout(folder):
    ran = check(folder, "op", "kernels.py:flat")
    assert (ran.returncode, "Traceback" in ran.stderr) == (1, False)
    assert ran.stdout.startswith("`flat` gives wrong values for ")
    assert "error[SW401] wrong-values" in ran.stdout
    assert "a sample is made" not in ran.stdout  # what the target prints is no report
    assert all(len(line) <= 100 for line in ran.stdout.splitlines())


def test_a_right_one_exits_with_0(folder):
    ran = check(folder, "op", "kernels.py:right", "--sample", "kernels.py:sample")
    assert (ran.returncode, ran.stdout.split(":")[0]) == (0, "`right` honours strides")


def test_json_holds_every_layout(folder):
    ran = check(folder, "op", "kernels.py:flat", "--format", "json", "--contract")
    found = json.loads(ran.stdout)
    assert found["contract"] == '@stridewise.expect_layout(x="contiguous", mode="convert")'
    assert found["contract_holds"] is True
    assert {case["verdict"] for case in found["cases"]} == {"honours strides", "wrong values"}


def test_codes_can_be_left_out(folder):
    assert check(folder, "op", "kernels.py:flat", "--ignore", "SW401").returncode == 0


def test_a_model_with_a_hazard_exits_with_1(folder):
    ran = check(folder, "model", "kernels.py:hazard", "--format", "sarif")
    assert ran.returncode == 1
    (run,) = json.loads(ran.stdout)["runs"]
    assert "SW204" in {result["ruleId"] for result in run["results"]}


@pytest.mark.parametrize(
    "target", ["kernels.py:gives_none", "kernels.py:gives_text", "kernels.py:gives_generator", "kernels.py:random"]
)
def test_an_operator_of_which_nothing_can_be_compared_does_not_pass(folder, target):
    ran = check(folder, "op", target)
    assert ran.returncode == 2
    assert ran.stdout.startswith(f"`{target.partition(':')[2]}` gives nothing that can be compared")
    said = ran.stderr.splitlines()[-1]  # behind what the sample writes
    name = target.partition(":")[2]
    assert said == f"stridewise: nothing was compared: `{name}` gives no tensor, or other values at each call"


def test_what_a_target_raises_is_shown_as_its_own_and_then_in_one_line(folder):
    ran = check(folder, "model", "kernels.py:raises")
    assert (ran.returncode, ran.stdout) == (2, "")
    first, *_, raised, said = ran.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert raised == "ValueError: no model today"
    assert said == "stridewise: the target failed: ValueError: no model today"
    files = [line.split('"')[1] for line in ran.stderr.splitlines() if line.startswith("  File ")]
    assert files == [str(folder / "kernels.py")]  # no frame of stridewise


def test_one_that_only_writes_is_compared_by_that(folder):
    assert check(folder, "op", "kernels.py:writes").returncode == 0


def test_a_healthy_model_exits_with_0(folder):
    ran = check(folder, "model", "kernels.py:healthy")
    assert ran.returncode == 0
    assert ran.stdout.startswith("No hazard found in 4 parameters; AdamW, fused; the sample")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("op", "kernels.py:right"), "There is no sample of arguments for right."),
        (("op", "kernels.py:raising"), "`raising` fails for contiguous operands: ValueError: never"),
        (("op", "kernels.py:missing"), "missing is not there in kernels.py."),
        (("op", "missing.py:f"), "There is no file missing.py."),
        (("op", "kernels.py"), "kernels.py is no target."),
        (("op", "kernels.py:right", "--sample", "kernels.py:broken_sample"), "no sample today"),
        (("op", "kernels.py:flat", "--timeout", "0"), "A timeout of 0.0 was given."),
        (("op", "kernels.py:flat", "--select", "SW999"), "select names SW999, which no rule has"),
        (("op", "kernels.py:flat", "--ignore", "SW9"), "ignore names SW9, which no rule has"),
        (("model", "kernels.py:wrong_key"), "returned a dict with `modle` in it."),
        (("model", "kernels.py:nothing"), "preflight() was given nothing to look at."),
        (("model", "kernels.py:leaves"), "the target ended the process (sys.exit(3))"),
        (("model", "kernels.py:sample"), "kernels.py:sample returned tuple."),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_mistakes_are_one_message_and_code_2(folder, arguments, said):
    ran = check(folder, *arguments)
    assert ran.returncode == 2
    assert ran.stdout == ""
    last = ran.stderr[ran.stderr.rindex("stridewise: ") :]
    assert said in last
    assert len(last.splitlines()) <= 3
