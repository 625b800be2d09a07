"""`api.run_script`: which steps of a script are recorded, and when recording ends."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch
import torch.nn.modules.module as nn_module
from torch.optim import optimizer as optim

from stridewise import api
from stridewise.recording.model import MODULE_MARK
from stridewise.results import ScriptOutcome

from .running import plainly, recorded, run_here, write

TRAINING = """
    import sys
    import torch
    steps, micro_batches = int(sys.argv[1]), int(sys.argv[2])
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    loss = torch.nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        for _ in range(micro_batches):
            x = torch.ones(16, 8).t().contiguous().t()
            loss(model(x), torch.ones(16, 2)).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def copies_per_step(outcome: ScriptOutcome) -> float:
    assert outcome.report is not None
    return outcome.report.totals.by_kind["explicit"].copies


@pytest.mark.parametrize("micro_batches", [1, 20])
def test_a_step_of_training_is_an_optimizers(tmp_path: Path, micro_batches: int) -> None:
    outcome = run_here(tmp_path, TRAINING, "8", str(micro_batches))
    assert outcome.report is not None
    assert outcome.message is None
    assert (outcome.report.totals.steps, outcome.report.totals.steps_found) == (3, True)
    assert outcome.report.notes == ()
    assert copies_per_step(outcome) == micro_batches


def test_the_last_step_ends_the_recording(tmp_path: Path) -> None:
    """The script looks for itself: the file is there after 2 warm-up steps, 3 more, and what came before the first."""
    saved = tmp_path / "saved.json"
    text = dedent(TRAINING) + "    print(step, __import__('os').path.exists(sys.argv[3]))\n"
    script = write(tmp_path / "script.py", text)
    done = recorded(str(script), "8", "1", str(saved), cwd=tmp_path, save=str(saved))
    assert done[0].out.splitlines() == [f"{step} {step >= 5}" for step in range(8)]
    assert api.load(saved).trace.log is not None


def test_a_step_of_inference_is_a_call_of_the_root_module(tmp_path: Path) -> None:
    text = """
        import torch
        transform = torch.nn.Sequential(torch.nn.ReLU())
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)).eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # loaded with a checkpoint, and of no use
        for _ in range(7):
            for _ in range(4):
                transform(torch.ones(2))
            model(torch.ones(16, 8).t().contiguous().t())
        torch.ones(9, 9).t().contiguous()
    """
    outcome = run_here(tmp_path, text)
    assert outcome.report is not None
    assert (outcome.report.totals.steps, outcome.report.totals.steps_found) == (3, True)
    assert copies_per_step(outcome) == 1


def test_an_optimizer_that_never_steps_is_not_awaited_for_ever(tmp_path: Path) -> None:
    text = """
        import sys, torch
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for call in range(500):
            model(torch.ones(2))
            if not torch.nn.modules.module._global_forward_pre_hooks:
                sys.exit(9)
    """
    outcome = run_here(tmp_path, text, steps=2, warmup=1)
    assert outcome.exit_code == 9
    assert outcome.report is not None
    assert outcome.report.totals.steps == 2


def test_checkpointed_modules_are_no_steps_of_their_own(tmp_path: Path) -> None:
    text = """
        import torch
        from torch.utils.checkpoint import checkpoint
        block = torch.nn.Linear(4, 4)
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.block = block
            def forward(self, x):
                return checkpoint(self.block, checkpoint(self.block, x, use_reentrant=False), use_reentrant=False)
        model = Model()
        for _ in range(6):
            torch.ones(9, 9).t().contiguous()
            model(torch.ones(4, requires_grad=True)).sum().backward()
    """
    outcome = run_here(tmp_path, text)
    assert outcome.report is not None
    assert outcome.report.totals.steps == 3
    assert copies_per_step(outcome) == 1


def test_without_modules_the_run_is_one_step(tmp_path: Path) -> None:
    outcome = run_here(tmp_path, "import torch\ntorch.ones(9, 9).t().contiguous()")
    assert outcome.report is not None
    assert (outcome.report.totals.steps, outcome.report.totals.steps_found) == (1, False)
    assert "all of it counts as one step" in outcome.report.notes[0]


def test_the_program_says_where_its_steps_end(tmp_path: Path) -> None:
    text = dedent(TRAINING).replace("        loss(", "        __import__('stridewise').step()\n        loss(")
    outcome = run_here(tmp_path, text, "4", "3")
    assert outcome.report is not None
    assert outcome.report.totals.steps == 3
    assert copies_per_step(outcome) == 1


@pytest.mark.parametrize("name", ["Block", "blocks.0", "Net.blocks.0"])
def test_a_module_can_be_named_whose_calls_are_the_steps(tmp_path: Path, name: str) -> None:
    text = """
        import torch
        class Block(torch.nn.Module):
            def __init__(self, inner=None):
                super().__init__()
                self.inner = inner
            def forward(self, x):
                torch.ones(9, 9).t().contiguous()
                return x if self.inner is None else self.inner(x)
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = torch.nn.ModuleList([Block(Block())])
                self.head = torch.nn.Linear(4, 4)
            def forward(self, x):
                for _ in range(5):
                    x = self.blocks[0](x)
                return self.head(x)
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            net(torch.ones(4)).sum().backward()
            optimizer.step()
            torch.nn.Linear(1, 1)(torch.ones(1))
    """
    if name.startswith("Net."):  # paths begin with a class where there are several roots
        outcome = run_here(tmp_path, text, module_step=name, warmup=6)
    else:
        outcome = run_here(tmp_path, text.replace("torch.nn.Linear(1, 1)(torch.ones(1))", "pass"), module_step=name)
    assert outcome.report is not None
    assert outcome.report.totals.steps == 3
    assert copies_per_step(outcome) == 2
    assert outcome.report.notes == ()


def test_a_module_that_is_not_there_is_said(tmp_path: Path) -> None:
    outcome = run_here(tmp_path, TRAINING, "8", "1", module_step="Elsewhere")
    assert outcome.report is not None
    assert outcome.report.notes[0].startswith("No module called Elsewhere ran")
    assert outcome.report.totals.steps == 3


def test_a_script_that_ends_during_warm_up(tmp_path: Path) -> None:
    outcome = run_here(tmp_path, TRAINING, "3", "1")
    assert outcome.report is not None
    assert outcome.report.totals.steps == 1
    assert "during warm-up (2 of 2 steps)" in outcome.report.notes[0]


def test_a_script_of_one_step(tmp_path: Path) -> None:
    outcome = run_here(tmp_path, TRAINING, "1", "3")
    assert outcome.report is not None
    assert (outcome.report.totals.steps, outcome.report.totals.steps_found) == (1, True)
    assert copies_per_step(outcome) == 2  # it starts at the first call of a module: the set-up before is not in it


def test_data_preparation_that_fills_the_recording(tmp_path: Path) -> None:
    preparation = "import torch\nfor _ in range(500):\n    torch.ones(2).neg()\n"
    outcome = run_here(tmp_path, preparation + dedent(TRAINING), "9", "1", max_ops=600)
    assert outcome.report is not None
    assert "600 operators passed before" in outcome.report.notes[0]
    assert len(outcome.report.notes) == 1
    assert outcome.report.totals.steps == 3
    assert copies_per_step(outcome) == 1


@pytest.mark.parametrize("micro_batches", [1, 12])
def test_max_ops_within_warm_up_begins_again_at_a_step(tmp_path: Path, micro_batches: int) -> None:
    # more than one step, and fewer than four
    outcome = run_here(tmp_path, TRAINING, "20", str(micro_batches), max_ops=120 * micro_batches)
    assert outcome.report is not None
    assert "before a step after warm-up was over" in outcome.report.notes[0]
    assert outcome.report.totals.steps >= 1
    assert copies_per_step(outcome) == micro_batches


def test_max_ops_within_the_recorded_steps_keeps_whole_steps(tmp_path: Path) -> None:
    text = """
        import torch
        model = torch.nn.Linear(8, 8).eval()
        for call in range(9):
            for part in range(10):
                x = torch.ones(16, 8).t().contiguous().t()
                model(x) if part == 0 else x
    """
    outcome = run_here(tmp_path, text, max_ops=10 * 4 * 3 * 4, warmup=1, steps=5)
    assert outcome.report is not None
    assert outcome.report.notes[0].startswith("Recording ended after about 480 operators")
    assert 1 <= outcome.report.totals.steps < 5
    assert copies_per_step(outcome) == 10


def test_max_ops_without_steps_keeps_what_there_is(tmp_path: Path) -> None:
    text = """
        import torch
        for _ in range(200):
            torch.ones(9, 9).t().contiguous()
    """
    outcome = run_here(tmp_path, text, max_ops=300)
    assert outcome.exit_code == 0
    assert outcome.report is not None
    assert outcome.report.totals.steps_found is False
    assert outcome.report.totals.whole is False
    assert not torch.overrides._get_current_function_mode_stack()


def test_no_second_recording_inside_an_open_annotation(tmp_path: Path) -> None:
    text = "import torch\nwith torch.profiler.record_function('all'):\n" + "".join(
        f"    {line}\n" for line in dedent(TRAINING).splitlines()
    )
    outcome = run_here(tmp_path, text, "9", "1", max_ops=120)
    assert outcome.report is not None
    assert not any("passed before" in note for note in outcome.report.notes)


def test_the_scripts_own_profiler_works(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
        import torch
        from torch.profiler import profile
        model = torch.nn.Linear(4, 4)
        for _ in range(4):
            model(torch.ones(4))
        with profile() as own:
            model(torch.ones(4))
        print([event.key for event in own.key_averages() if event.key == "aten::linear"])
    """
    outcome = run_here(tmp_path, text)
    assert capfd.readouterr().out == "['aten::linear']\n"
    assert outcome.report is not None
    assert "profiler of its own" in outcome.report.notes[0]
    assert outcome.report.totals.steps == 1  # the last of 4 calls may not be whole, and 2 warm up


def test_an_interrupt_leaves_a_report(tmp_path: Path) -> None:
    text = dedent(TRAINING) + "    if step == 4:\n        __import__('os').kill(__import__('os').getpid(), 2)\n"
    write(tmp_path / "script.py", text)
    ended, outcomes = recorded("script.py", "9", "1", cwd=tmp_path, save=str(tmp_path / "saved.json.gz"))
    assert ended.err == plainly("script.py", "9", "1", cwd=tmp_path).err
    assert ended.err.endswith("KeyboardInterrupt\n")
    assert ended.code == 130
    assert [outcome["steps"] for outcome in outcomes] == [2]
    assert api.analyze(tmp_path / "saved.json.gz").totals.steps == 2


def test_an_exception_leaves_a_report(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = run_here(tmp_path, dedent(TRAINING) + "    assert step < 4\n", "9", "1")
    assert outcome.exit_code == 1
    assert outcome.report is not None
    assert outcome.report.totals.steps == 2
    assert capfd.readouterr().err.endswith("AssertionError\n")


def test_a_step_that_an_exception_breaks_off_does_not_count(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
        import torch
        model = torch.nn.Linear(4, 4)
        for call in range(5):
            model(torch.ones(4))
            assert call < 4
            torch.ones(9, 9).t().contiguous()
    """
    outcome = run_here(tmp_path, text, warmup=1)
    assert outcome.report is not None
    assert outcome.report.totals.steps == 3
    assert copies_per_step(outcome) == 1


def test_a_recording_that_cannot_be_saved_is_still_reported(tmp_path: Path) -> None:
    outcome = run_here(tmp_path, TRAINING, "8", "1", save=tmp_path / "no" / "such" / "folder")
    assert outcome.exit_code == 0
    assert outcome.report is not None
    assert outcome.message is not None
    assert "cannot be written" in outcome.message


def test_streams_that_set_up_bears_are_known(tmp_path: Path) -> None:
    text = """
        import torch
        weight = torch.ones(64, 64).t()
        model = torch.nn.Linear(64, 64)
        for _ in range(7):
            model(torch.ones(4, 64))
            (weight + 0).contiguous()
    """
    outcome = run_here(tmp_path, text)
    assert outcome.report is not None
    origins = [finding.origin.expression for finding in outcome.report.findings if finding.origin is not None]
    assert origins == ["torch.ones(64, 64).t()"]


def test_everything_is_as_before(tmp_path: Path) -> None:
    tables = [
        nn_module._global_forward_pre_hooks,
        nn_module._global_forward_hooks,
        optim._global_optimizer_pre_hooks,
        optim._global_optimizer_post_hooks,
    ]
    before = list(sys.argv), list(sys.path), sys.modules["__main__"], list(sys.meta_path), torch.autograd.profiler
    run_here(tmp_path, "import sys\nsys.path.insert(0, 'x')\nsys.argv = 3\n" + "raise SystemExit(2)")
    run_here(tmp_path, TRAINING, "8", "1", module_step="Linear")
    run_here(tmp_path, TRAINING, "8", "1", max_ops=60)
    assert not any(tables)
    assert not torch.overrides._get_current_function_mode_stack()
    assert (list(sys.argv), sys.path, sys.modules["__main__"], sys.meta_path, torch.autograd.profiler) == before


def test_a_named_module_and_its_root_are_marked_once_recording_begins_again(tmp_path: Path) -> None:
    """What begins after a root module's call sees the next one whole."""
    text = """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(4, 4)).eval()
        for _ in range(100):
            torch.ones(2).neg()
        for _ in range(8):
            model(torch.ones(4))
    """
    saved = tmp_path / "saved.json"
    outcome = run_here(tmp_path, text, max_ops=200, save=saved)
    assert outcome.report is not None
    assert outcome.report.totals.steps == 3
    log = api.load(saved).trace.log
    assert log is not None
    assert log.modules == [("", "Sequential"), ("0", "Linear")]
    assert MODULE_MARK.encode() in saved.read_bytes()
