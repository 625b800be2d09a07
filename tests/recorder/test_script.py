"""`api.run_script`: the script runs as under `python`."""

import os
import py_compile
import sys
import zipfile
from pathlib import Path

import pytest
import torch.nn.modules.module as nn_module

from stridewise import api
from stridewise.errors import InputError, UsageError

from .running import plainly, recorded, write

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
    [
        "script.py",
        "./script.py",
        "folder/script.py",
        "folder/../script.py",
        "link.py",
        "app",
        "app.zip",
        "compiled.pyc",
    ],
)
def test_a_script_finds_what_python_gives_it(places: Path, script: str) -> None:
    arguments = (script, "--epochs", "-1", "a b")
    ended, outcomes = recorded(*arguments, cwd=places)
    assert ended == plainly(*arguments, cwd=places)
    assert ended.code == 0
    assert [outcome["message"] for outcome in outcomes] == [
        "The script did not import torch: there is nothing to report."
    ]
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
            print(type(pickle.loads(pickle.dumps(Local()))), sys.argv)

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
        if os.fork() == 0:
            import torch
            raise ValueError(torch.ones(2) + 1)
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]) + 10)
        """,
    )
    ended, outcomes = recorded("script.py", cwd=tmp_path)
    assert ended == plainly("script.py", cwd=tmp_path)
    assert ended.code == 11
    assert [outcome["torch"] for outcome in outcomes] == [False]


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
        hooks = {name: table for name, table in vars(torch.nn.modules.module).items() if name.startswith("_global_")}
        print(hooks, torch.nn.modules.module._has_any_global_hook.__name__)
        print(torch.overrides._get_current_function_mode_stack())
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
