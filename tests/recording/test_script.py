"""`api.run_script`: the script runs as under `python`, and its steps are recorded."""

import json
import os
import py_compile
import subprocess
import sys
import zipfile
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.modules.module as nn_module
from torch.optim import optimizer as optim

from stridewise import api
from stridewise.errors import InputError, UsageError
from stridewise.recording.kineto import read_bytes
from stridewise.recording.model import MODULE_MARK
from stridewise.results import ScriptOutcome

DRIVER = """
import json, sys
from stridewise import api
options = json.loads(sys.argv[1])
out = api.run_script(sys.argv[3:], **options)
report = out.report
with open(sys.argv[2], "a") as file:
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


# -- as python would -------------------------------------------------------------------------------------------------

WHERE = """
    '''A docstring.'''
    import sys
    from dataclasses import dataclass

    @dataclass
    class Local:
        x: int

    if __name__ == "__main__":
        print(sys.argv, sys.path)
        print(__file__, __spec__ and __spec__.name, __package__, type(__loader__), type(__builtins__), __cached__)
        print(sys.modules["__main__"].__dict__ is globals(), Local.__module__, Local(1), sorted(globals()))
"""


@pytest.fixture
def places(tmp_path: Path) -> Path:
    for name in ("script.py", "folder/script.py", "app/__main__.py", "package/__main__.py", "package/inner.py"):
        write(tmp_path / name, WHERE)
    write(tmp_path / "package/__init__.py", "print('package', __name__)")
    (tmp_path / "link.py").symlink_to(tmp_path / "folder" / "script.py")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.write(tmp_path / "script.py", "__main__.py")
    py_compile.compile(str(tmp_path / "script.py"), cfile=str(tmp_path / "compiled.pyc"))
    return tmp_path


@pytest.mark.parametrize(
    "script",
    ["script.py", "./script.py", "folder/script.py", "folder/../script.py", "link.py", "app", "app.zip", "compiled.pyc"],
)
def test_a_script_finds_what_python_gives_it(places: Path, script: str) -> None:
    arguments = (script, "--epochs", "-1", "a b")
    ended, outcomes = recorded(*arguments, cwd=places)
    assert ended == plainly(*arguments, cwd=places)
    assert ended.code == 0
    assert [outcome["message"] for outcome in outcomes] == ["The script did not import torch: there is nothing to report."]
    assert not outcomes[0]["torch"]


@pytest.mark.parametrize("module", ["script", "package", "package.inner", "folder.script", "app"])
def test_a_module_finds_what_python_gives_it(places: Path, module: str) -> None:
    ended, _ = recorded(module, "-x", cwd=places, module=True)
    assert ended == plainly("-m", module, "-x", cwd=places)
    assert ended.code == 0


@pytest.mark.parametrize(
    "leave",
    [
        "sys.exit()",
        "sys.exit(0)",
        "sys.exit(3)",
        "sys.exit(-1)",
        "sys.exit(True)",
        "sys.exit('in words')",
        "sys.exit((1, None))",
        "raise SystemExit",
        "raise SystemExit(2.5)",
        "threading.Thread(target=sys.exit, args=(4,)).start()",
        "os._exit(5)",
    ],
)
def test_exits(tmp_path: Path, leave: str) -> None:
    write(tmp_path / "script.py", f"import os, sys, threading\nprint('out')\n{leave}\n")
    ended, _ = recorded("script.py", cwd=tmp_path)
    assert ended == plainly("script.py", cwd=tmp_path)


FAILURES = {
    "plain": """
        def f(): return 1 / 0
        f()
    """,
    "chained": """
        try:
            try:
                {}["a"]
            except KeyError as error:
                raise ValueError("second") from error
        except ValueError:
            raise RuntimeError("third")
    """,
    "context suppressed": """
        try:
            {}["a"]
        except KeyError:
            raise ValueError("alone") from None
    """,
    "notes": """
        error = ValueError("noted")
        error.add_note("a note")
        raise error
    """,
    "group": "raise ExceptionGroup('several', [ValueError('one'), TypeError('two')])",
    "syntax": "x = (1,\ny = 2\n",
    "indentation": "if True:\nprint()\n",
    "syntax of an import": "import broken",
    "no such import": "import nowhere_to_be_found",
    "interrupt": "raise KeyboardInterrupt",
    "own hook": """
        import sys
        sys.excepthook = lambda kind, value, trace: print(kind, value, trace.tb_frame.f_code.co_name, trace.tb_next)
        1 / 0
    """,
    "own hook that fails": """
        import sys
        def hook(kind, value, trace): raise OSError("hook")
        sys.excepthook = hook
        1 / 0
    """,
    "own hook that exits": """
        import sys
        sys.excepthook = lambda *error: sys.exit(9)
        1 / 0
    """,
    "in another thread": """
        import threading
        def f(): return 1 / 0
        thread = threading.Thread(target=f, name="worker")
        thread.start()
        thread.join()
    """,
}


@pytest.mark.parametrize("failure", FAILURES)
def test_exceptions_look_as_python_shows_them(tmp_path: Path, failure: str) -> None:
    write(tmp_path / "script.py", FAILURES[failure])
    write(tmp_path / "broken.py", "def f(:\n")
    ended, outcomes = recorded("script.py", cwd=tmp_path)
    expected = plainly("script.py", cwd=tmp_path)
    assert ended.err == expected.err
    assert ended.out == expected.out
    # Python ends itself with the signal, which shells show as 130.
    assert ended.code == (130 if failure == "interrupt" else expected.code)
    assert [outcome["code"] for outcome in outcomes] == [ended.code]


def test_exceptions_from_inside_torch_look_as_python_shows_them(tmp_path: Path) -> None:
    write(
        tmp_path / "script.py",
        """
        import torch
        from torch import nn

        class Inner(nn.Module):
            def forward(self, x):
                return torch.nn.functional.softmax(x @ x, dim=5)

        class Failing(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                raise ValueError("in backward")

        def hooked():
            model = nn.Sequential(nn.Linear(3, 3))
            model.register_forward_hook(lambda module, args, output: output + torch.ones(7))
            model(torch.ones(3))

        class Own(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))

        def with_mode():
            with Own():
                torch.nn.functional.linear(torch.ones(2), torch.ones(5, 5))

        attempts = [
            lambda: nn.Sequential(nn.Identity(), nn.Sequential(nn.Linear(3, 4)))(torch.ones(5)),
            lambda: nn.Sequential(Inner())(torch.ones(3, 3)),
            lambda: torch.nn.functional.linear(torch.ones(2), torch.ones(5, 5)),
            lambda: torch.ones(3) + torch.ones(4),
            lambda: 3 - torch.ones(3) @ torch.ones(4),
            lambda: torch.ones(3).split("x"),
            lambda: torch.einsum("ij,jk", torch.ones(2, 3), torch.ones(4, 5)),
            lambda: Failing.apply(torch.ones(3, requires_grad=True)).sum().backward(),
            lambda: torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1).step("closure"),
            lambda: nn.MultiheadAttention(4, 2).eval()(torch.ones(1, 2, 3)),
            hooked,
            with_mode,
        ]
        errors = []
        for attempt in attempts:
            try:
                attempt()
            except Exception as error:
                errors.append(error)
        raise ExceptionGroup("all", errors)
        """,
    )
    ended, outcomes = recorded("script.py", cwd=tmp_path)
    assert ended == plainly("script.py", cwd=tmp_path)
    assert "hooked" in ended.err
    assert outcomes[0]["steps"]


def test_what_outlives_the_script_finds_what_python_leaves(tmp_path: Path) -> None:
    write(
        tmp_path / "script.py",
        """
        import atexit, pickle, sys, threading, time

        class Local:
            pass

        class Said:
            def __del__(self):
                print("deleted")

        kept = Said()

        @atexit.register
        def at_exit():
            print(type(pickle.loads(pickle.dumps(Local()))), sys.argv, sys.path[0])
            import late

        def outlive():
            threading.main_thread().join()
            print(type(pickle.loads(pickle.dumps(Local()))), sys.modules["__main__"].__file__)

        threading.Thread(target=outlive).start()
        print(type(pickle.loads(pickle.dumps(Local()))))
        """,
    )
    write(tmp_path / "late.py", "print('imported late')")
    ended, _ = recorded("script.py", "argument", cwd=tmp_path)
    assert ended == plainly("script.py", "argument", cwd=tmp_path)
    assert ended.out.count("Local") == 3


def test_forked_and_spawned_processes_neither_record_nor_report(tmp_path: Path) -> None:
    write(
        tmp_path / "script.py",
        """
        import os, pickle, sys
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Numbers(Dataset):
            def __len__(self):
                return 12

            def __getitem__(self, index):
                return Item(torch.full((2,), float(index)).t().contiguous(), bool(torch.autograd._profiler_enabled()))

        class Item:
            def __init__(self, tensor, profiled):
                self.tensor, self.profiled = tensor, profiled

        def collate(items):
            return torch.stack([item.tensor for item in items]), [item.profiled for item in items]

        if __name__ == "__main__":
            model = torch.nn.Linear(2, 2)
            for method in ("fork", "spawn"):
                for batch, profiled in DataLoader(
                    Numbers(), batch_size=4, num_workers=2, multiprocessing_context=method, collate_fn=collate
                ):
                    print(method, model(batch).shape, batch.sum(), profiled)
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                print("child", torch.ones(2) + 1)
            else:
                print("parent", os.waitpid(child, 0)[1])
        """,
    )
    ended, outcomes = recorded("script.py", cwd=tmp_path, steps=3, warmup=1)
    assert ended == plainly("script.py", cwd=tmp_path)
    assert ended.code == 0
    assert [outcome["steps"] for outcome in outcomes] == [3]


def test_a_failing_child_fails_as_python_does(tmp_path: Path) -> None:
    write(
        tmp_path / "script.py",
        """
        import os, sys
        import torch
        if os.fork() == 0:
            raise ValueError(torch.ones(2) + 1)
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]) + 10)
        """,
    )
    ended, outcomes = recorded("script.py", cwd=tmp_path)
    assert ended == plainly("script.py", cwd=tmp_path)
    assert ended.code == 11
    assert len(outcomes) == 1


def test_output_is_the_scripts_own(tmp_path: Path) -> None:
    write(
        tmp_path / "script.py",
        """
        import sys, warnings
        import torch
        torch.manual_seed(0)
        print("out", torch.randn(3))
        print("err", file=sys.stderr)
        warnings.warn("a warning")
        model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        for _ in range(9):
            print(model(torch.randn(1, 3, 8)).sum().item().hex())
        print(torch.nn.modules.module._global_forward_pre_hooks, torch.overrides._get_current_function_mode_stack())
        print(torch.__loader__.__dict__, type(torch.autograd.profiler._enable_profiler))
        """,
    )
    ended, outcomes = recorded("script.py", cwd=tmp_path)
    assert ended == plainly("script.py", cwd=tmp_path)
    assert outcomes[0]["steps"] == 3


@pytest.mark.parametrize(
    ("argv", "module", "said"),
    [
        ([], False, "No script"),
        (["-"], False, "standard input"),
        (["nowhere.py"], False, "There is no script nowhere.py"),
        (["empty"], False, "empty has no __main__.py"),
        (["nowhere"], True, "There is no module nowhere"),
        (["nowhere.at.all"], True, "There is no module nowhere.at.all"),
        ([".relative"], True, "There is no module .relative"),
        (["empty"], True, "without a __main__.py"),
        (["sys"], True, "no Python code"),
    ],
)
def test_nothing_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], module: bool, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    before = list(sys.argv), list(sys.path), sys.modules["__main__"], list(sys.meta_path)
    with pytest.raises(UsageError, match=said):
        api.run_script(argv, module=module)
    assert (sys.argv, sys.path, sys.modules["__main__"], sys.meta_path) == before
    assert not nn_module._global_forward_pre_hooks


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_script(tmp_path: Path) -> None:
    script = write(tmp_path / "script.py", "")
    script.chmod(0)
    with pytest.raises(InputError, match="can't be read"):
        api.run_script([str(script)])


# -- what is recorded ------------------------------------------------------------------------------------------------

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
    text = dedent(TRAINING).replace(
        "        loss(", "        __import__('stridewise').step()\n        loss("
    )
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
    assert copies_per_step(outcome) == 3


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
    # a step has about 13 calls; a call stands for 3 operators
    outcome = run_here(tmp_path, TRAINING, "20", str(micro_batches), max_ops=80 * micro_batches)
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
        model = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
        assert not torch.nn.modules.module._global_forward_hooks
    """
    outcome = run_here(tmp_path, text, max_ops=300)
    assert outcome.exit_code == 0
    assert outcome.report is not None
    assert outcome.report.totals.steps_found is False
    assert not torch.overrides._get_current_function_mode_stack()


def test_no_second_recording_inside_an_open_annotation(tmp_path: Path) -> None:
    text = "import torch\nwith torch.profiler.record_function('all'):\n" + "".join(
        f"    {line}\n" for line in dedent(TRAINING).splitlines()
    )
    outcome = run_here(tmp_path, text, "9", "1", max_ops=60)
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
    assert "can't be written" in outcome.message


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
    assert [finding.site.expression for finding in outcome.report.findings] == ["torch.ones(64, 64).t()"]


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
        model = torch.nn.Sequential(torch.nn.Linear(4, 4))
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
    assert MODULE_MARK.encode() in read_bytes(saved)
