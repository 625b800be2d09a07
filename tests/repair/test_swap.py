"""Live functions run edited code and then their own again, or the edit is refused with a reason."""

import functools
import gc
import inspect
import linecache
import re
import subprocess
import sys
import threading
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch

import stridewise
from stridewise.analysis.case import Case
from stridewise.repair.code.swap import Arms, Swap, plan, plan_all
from stridewise.repair.refused import Refused
from stridewise.source.file import SourceFile

from .running import load


class Program:
    """A module that was imported from a file, and edits of that file."""

    def __init__(self, folder: Path, source: str, name: str = "swapped") -> None:
        self.module: Any = load(folder, source, name)
        self.source = source
        self.path = folder / f"{name}.py"

    def plan(self, *edits: tuple[str, str]) -> Swap:
        after = self.source
        for old, new in edits:
            assert after.count(old) == 1, old
            after = after.replace(old, new)
        return plan(SourceFile(self.path, self.path.name), after.encode())

    def refusal(self, *edits: tuple[str, str]) -> str:
        with pytest.raises(Refused) as caught:
            self.plan(*edits)
        return str(caught.value)


Loader = Callable[..., Program]


def executed(monkeypatch: pytest.MonkeyPatch, source: str | bytes, filename: str | Path, file: Path) -> dict[str, Any]:
    """What a module holds whose code has one name and whose `__file__` is another."""
    module = ModuleType(f"executed_{len(sys.modules)}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.__file__ = str(file)
    exec(compile(source, filename, "exec"), vars(module))
    return vars(module)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Loader]:
    names: list[str] = []

    def loaded(source: str, name: str = "swapped") -> Program:
        names.append(name)
        return Program(tmp_path, source, name)

    yield loaded
    for name in names:
        sys.modules.pop(name, None)


WAYS_TO_HOLD_A_FUNCTION = {
    "function": ("def f(x):\n    return x + 1\n", "f(1)"),
    "lambda": ("f = lambda x: x + 1\n", "f(1)"),
    "method": ("class A:\n    def f(self, x):\n        return x + 1\na = A()\n", "a.f(1)"),
    "bound method": ("class A:\n    def f(self, x):\n        return x + 1\ng = A().f\n", "g(1)"),
    "staticmethod": ("class A:\n    @staticmethod\n    def f(x):\n        return x + 1\n", "A.f(1)"),
    "classmethod": ("class A:\n    @classmethod\n    def f(cls, x):\n        return x + 1\n", "A.f(1)"),
    "property": ("class A:\n    @property\n    def f(self):\n        x = 1\n        return x + 1\n", "A().f"),
    "partial": ("import functools\ndef f(x, y):\n    return x + 1 + y * 0\nf = functools.partial(f, y=3)\n", "f(1)"),
    "decorated": (
        "import functools\ndef d(f):\n    @functools.wraps(f)\n    def g(x):\n        return f(x)\n    return g\n"
        "@d\ndef f(x):\n    return x + 1\n",
        "f(1)",
    ),
    "closure": ("def m(y):\n    def f(x):\n        return x + 1 + y\n    return f\nf = m(0)\n", "f(1)"),
    "closure whose maker is gone": ("def m(y):\n    return lambda x: x + 1 + y\nf = m(0)\ndel m\n", "f(1)"),
    "made by each call": ("def f(x):\n    def g(x):\n        return x + 1\n    return g(x)\n", "f(1)"),
    "comprehension": ("def f(x):\n    return [x + 1 for x in (x,)][0]\n", "f(1)"),
    "generator expression": ("def f(x):\n    return next(x + 1 for x in (x,))\n", "f(1)"),
    "generator": ("def f(x):\n    yield x + 1\n", "next(f(1))"),
    "default of another": ("def g(x):\n    return x + 1\ndef f(x, g=g):\n    return g(x)\ndel g\n", "f(1)"),
    "in a container": ("fs = [{'f': lambda x: x + 1}]\n", "fs[0]['f'](1)"),
    "class in a function": (
        "def m():\n    class A:\n        def f(self, x):\n            return x + 1\n    return A\na = m()()\n",
        "a.f(1)",
    ),
    "singledispatch": (
        "import functools\n@functools.singledispatch\ndef f(x): pass\n@f.register\ndef _(x: int):\n    return x + 1\n",
        "f(1)",
    ),
    "context manager": (
        "import contextlib\n@contextlib.contextmanager\ndef m(x):\n    yield x + 1\n"
        "def f(x):\n    with m(x) as y:\n        return y\n",
        "f(1)",
    ),
    "instance attribute": (
        "class A: pass\na = A()\ndef f(self, x):\n    return x + 1\na.f = f.__get__(a)\ndel f\n",
        "a.f(1)",
    ),
    "coroutine": (
        "import asyncio\nasync def f(x):\n    return x + 1\n",
        "asyncio.run(f(1))",
    ),
    "finally, compiled twice": (
        "def f(x):\n    try:\n        pass\n    finally:\n        y = (lambda: x + 1)()\n    return y\n",
        "f(1)",
    ),
    "super": (
        "class B:\n    def f(self, x):\n        return x\nclass A(B):\n    def f(self, x):\n"
        "        return super().f(x + 1)\n",
        "A().f(1)",
    ),
    "dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    y: int\n    def f(self, x):\n"
        "        return x + 1 + self.y\n",
        "A(0).f(1)",
    ),
}


@pytest.mark.parametrize(("source", "call"), WAYS_TO_HOLD_A_FUNCTION.values(), ids=WAYS_TO_HOLD_A_FUNCTION)
def test_whatever_holds_a_function(source: str, call: str, program: Loader) -> None:
    held = program(source)
    swap = held.plan(("x + 1", "x + 10"))
    before = {function: function.__code__ for function in swap.functions}
    state = [(function.__defaults__, function.__kwdefaults__, function.__closure__) for function in swap.functions]
    namespace = vars(held.module)
    assert eval(call, namespace) == 2
    for _ in range(3):
        with swap:
            assert eval(call, namespace) == 11
        assert eval(call, namespace) == 2
        swap.enter(edited=False)
        assert eval(call, namespace) == 2
        swap.leave()
    assert all(function.__code__ is code for function, code in before.items())
    for function, (defaults, keywords, closure) in zip(swap.functions, state, strict=True):
        assert function.__defaults__ is defaults
        assert function.__kwdefaults__ is keywords
        assert function.__closure__ is closure


def functions_of(module: ModuleType, swap: Swap) -> set[FunctionType]:
    """Without those of other tests, which torch.compile has compiled."""
    return {function for function in swap.functions if function.__module__ == module.__name__}


def test_only_what_differs_is_swapped(program: Loader) -> None:
    held = program("def f(x):\n    return x\ndef g(x):\n    return x + 1\n")
    swap = held.plan(("    return x\n", "    y = x\n    return y\n"))
    assert functions_of(held.module, swap) == {held.module.f}  # g moved a line


def test_lines_that_move_a_class_do_not_change_it(program: Loader) -> None:
    """A class notes its first line, and the attributes that its methods assign, from 3.13 on."""
    held = program("def f(x):\n    return x\nclass A:\n    def g(self):\n        self.x = 1\n")
    swap = held.plan(("    return x\n", "    y = x\n    return y\n"), ("self.x = 1", "self.x = self.y = 1"))
    assert functions_of(held.module, swap) == {held.module.f, held.module.A.g}


def test_arguments_and_locals_may_change(program: Loader) -> None:
    held = program("def f(x):\n    return g(x)\ndef g(x, y=1):\n    return x\n")
    with held.plan(
        ("return g(x)", "return g(x, 2, 3)"), ("(x, y=1):\n    return x", "(x, z, y=1):\n    return x + y + z")
    ):
        assert held.module.f(1) == 6
    assert held.module.f(1) == 1


def test_equal_functions_on_one_line_are_told_apart(program: Loader) -> None:
    held = program("a = lambda x: x; b = lambda x:  x\n")
    if held.module.a.__code__ is held.module.b.__code__:  # some Python 3.12
        assert "can't be told" in held.refusal(("x:  x", "x:  x + 1"))
        return
    with held.plan(("x:  x", "x:  x + 1")):
        assert (held.module.a(1), held.module.b(1)) == (1, 2)


def test_equal_functions_without_columns(program: Loader, tmp_path: Path) -> None:
    """Under `-X no_debug_ranges` nothing tells them apart."""
    source = "a = lambda x: x; b = lambda x:  x\n"
    path = tmp_path / "ranges.py"
    path.write_text(source)
    script = tmp_path / "script.py"
    script.write_text(
        "import pathlib, ranges\nfrom stridewise.repair.refused import Refused\n"
        "from stridewise.source.file import SourceFile\nfrom stridewise.repair.code.swap import plan\n"
        "file = SourceFile(pathlib.Path(ranges.__file__), 'ranges.py')\n"
        "try:\n    plan(file, file.content.replace(b'x:  x', b'x:  x + 1'))\n"
        "except Refused as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-X", "no_debug_ranges", str(script)], capture_output=True, text=True)
    assert "told" in done.stdout, done.stderr


def test_two_modules_of_one_file(program: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f(x):\n    return x + 1\n"
    held = program(source)
    other = executed(monkeypatch, source, held.path, held.path)
    with held.plan(("x + 1", "x + 10")):
        assert (held.module.f(1), other["f"](1)) == (11, 11)
    assert (held.module.f(1), other["f"](1)) == (2, 2)


def test_one_file_by_two_names(program: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code keeps the name that its own module was loaded by, also one relative to where Python was started."""
    source = "def f(x):\n    return x + 1\n"
    held = program(source)
    link = tmp_path / "linked"
    link.symlink_to(tmp_path)
    linked = executed(monkeypatch, source, link / held.path.name, link / held.path.name)
    relative = executed(monkeypatch, source, f"nowhere/{held.path.name}", held.path)
    unrelated = executed(monkeypatch, source, f"nowhere/{held.path.name}", tmp_path / "elsewhere" / held.path.name)
    with held.plan(("x + 1", "x + 10")):
        assert [space["f"](1) for space in (vars(held.module), linked, relative, unrelated)] == [11, 11, 11, 2]
        assert linked["f"].__code__.co_filename == str(link / held.path.name)


def test_future_imports_of_the_file_and_none_of_ours(program: Loader) -> None:
    held = program(
        "from __future__ import annotations\ndef f(x):\n    def g(y: nothing): return x + 1\n    return g(0)\n"
    )
    with held.plan(("x + 1", "x + 10")):
        assert held.module.f(1) == 11


def test_encodings_and_line_endings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "# -*- coding: latin-1 -*-\r\ndef f():\r\n    return 'é'\r\n".encode("latin-1")
    path = tmp_path / "latin.py"
    path.write_bytes(content)
    namespace = executed(monkeypatch, content, path, path)
    with plan(SourceFile(path, "latin.py"), content.replace(b"\xe9'", b"\xe9\xe8'")):
        assert namespace["f"]() == "éè"
    assert namespace["f"]() == "é"


def test_compiling_warns_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"def f(x):\n    return x is 1\n"
    path = tmp_path / "warns.py"
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        executed(monkeypatch, content, path, path)
        file = SourceFile(path, "warns.py")
    plan(file, content.replace(b"is 1", b"is 2"))


# -- refusals ------------------------------------------------------------------------------------------------------

REFUSED = {
    "module level": (
        "y = 1\ndef f(x):\n    return y\n",
        ("y = 1", "y = 2"),
        "`y = 2` stands at module level, which has run",
    ),
    "a new statement": (
        "y = 1\ndef f(x):\n    return y\n",
        ("y = 1\n", "y = 1\nimport math\n"),
        "`import math` stands at module level, which has run",
    ),
    "decorator": (
        "import functools\n@functools.cache\ndef f(x):\n    return x\n",
        ("@functools.cache\n", ""),
        "`def f(x):` stands at module level, which has run",
    ),
    "default": (
        "def f(x=1):\n    return x\n",
        ("x=1", "x=2"),
        "`def f(x=2):` stands at module level, which has run",
    ),
    "comprehension at module level": (
        "y = [x + 1 for x in (1,)]\ndef f(): pass\n",
        ("x + 1", "x + 2"),
        "`y = [x + 2 for x in (1,)]` stands at module level, which has run",
    ),
    "class body": (
        "class A:\n    y = 1\n    def f(self):\n        return self.y\n",
        ("y = 1", "y = 2"),
        "`y = 2` stands in a class's body, which has run",
    ),
    "class body in a function": (
        "def m():\n    class A:\n        y = 1\n        def f(self):\n            return self.y\n    return A\n",
        ("y = 1", "y = 2"),
        "`m.<locals>.A` stands in a class's body, which has run",
    ),
    "deleted": (
        "def f(x):\n    return x + 1\ndef g(x):\n    return x\ndel f\n",
        ("x + 1", "x + 2"),
        "nothing that is alive runs `f`",
    ),
    "nothing left": (
        "def f(x):\n    return x + 1\ndel f\n",
        ("x + 1", "x + 2"),
        "nothing that is alive runs swapped.py",
    ),
    "free variables": (
        "def m(a, b):\n    def f(x):\n        return x + a\n    return f\nf = m(1, 2)\n",
        ("x + a", "x + a + b"),
        "the edit changes what `m.<locals>.f` takes from around it",
    ),
    "class cell": (
        "class A:\n    def f(self):\n        return 1\n",
        ("return 1", "return super()"),
        "the edit changes what `A.f` takes from around it",
    ),
    "generator": (
        "def f(x):\n    return x\n",
        ("return", "yield"),
        "the edit changes whether `f` is a generator or a coroutine",
    ),
    "one lambda more": (
        "def m():\n    y = 1\n    return lambda x: x + y\nf = m()\n",
        ("y = 1", "y = (lambda: 1)()"),
        "it can't be told what becomes of `m.<locals>.<lambda>`, which is alive",
    ),
    "comment": ("def f(x):\n    return x  # 1\n", ("# 1", "# 2"), "the edit changes nothing that runs"),
    "no Python": (
        "def f(x):\n    return x\n",
        ("return x", "return ("),
        "the edited text is no Python: '(' was never closed",
    ),
    "cached": (
        "import functools\n@functools.cache\ndef f(x):\n    return x + 1\nf(1)\n",
        ("x + 1", "x + 2"),
        "results of `f` are kept in a cache",
    ),
    "cached behind a decorator": (
        "import functools\ndef d(f):\n    return functools.wraps(f)(lambda x: f(x))\n"
        "@functools.cache\n@d\ndef f(x):\n    return x + 1\nf(1)\n",
        ("x + 1", "x + 2"),
        "results of `f` are kept in a cache",
    ),
    "generator expression under way": (
        "def f(x):\n    return (x + y for y in (1, 2))\ng = f(1)\nnext(g)\n",
        ("x + y", "x + y + 1"),
        "`f.<locals>.<genexpr>` is under way and waits to go on",
    ),
    "generator under way": (
        "def f(x):\n    yield x + 1\n    yield x\ng = f(1)\nnext(g)\n",
        ("x + 1", "x + 2"),
        "`f` is under way and waits to go on",
    ),
    "coroutine under way": (
        "async def f(x):\n    return x + 1\ng = f(1)\n",
        ("x + 1", "x + 2"),
        "`f` is under way and waits to go on",
    ),
    "asynchronous generator under way": (
        "async def f(x):\n    yield x + 1\ng = f(1)\n",
        ("x + 1", "x + 2"),
        "`f` is under way and waits to go on",
    ),
}


@pytest.mark.parametrize(("source", "edit", "reason"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused(source: str, edit: tuple[str, str], reason: str, program: Loader) -> None:
    held = program(source)
    before = {name: value.__code__ for name, value in vars(held.module).items() if inspect.isfunction(value)}
    assert held.refusal(edit).startswith(reason)
    assert all(vars(held.module)[name].__code__ is code for name, code in before.items())
    if inspect.iscoroutine(waits := getattr(held.module, "g", None)):
        waits.close()


def test_generators_that_ended_do_not_matter(program: Loader) -> None:
    held = program("def f(x):\n    yield x + 1\ng = f(1)\nlist(g)\n")
    with held.plan(("x + 1", "x + 2")):
        assert list(held.module.f(1)) == [3]


def test_a_cache_without_results_does_not_matter(program: Loader) -> None:
    held = program("import functools\n@functools.cache\ndef f(x):\n    return x + 1\n")
    held.plan(("x + 1", "x + 2"))


def test_a_function_that_is_running(program: Loader) -> None:
    held = program("def f(then):\n    def g():\n        return then()\n    return g()\n")
    assert held.module.f(lambda: held.refusal(("return then()", "return [then()]"))) == "`f.<locals>.g` is running now"
    assert held.module.f(lambda: held.refusal(("return g()", "return [g()]"))) == "`f` is running now"


def test_a_function_that_is_running_in_another_thread(program: Loader) -> None:
    held = program("def f(begun, end):\n    begun.set()\n    end.wait()\n")
    begun, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=held.module.f, args=(begun, end))
    thread.start()
    begun.wait()
    try:
        assert held.refusal(("end.wait()", "end.wait(1)")) == "`f` is running now"
    finally:
        end.set()
        thread.join()
    held.plan(("end.wait()", "end.wait(1)"))


@pytest.mark.parametrize("edit", [("return 2", "return 3"), ("# first\n", ""), ("def g", "def h")])
def test_a_file_that_was_edited_after_it_was_imported(edit: tuple[str, str], program: Loader) -> None:
    held = program("# first\ndef f(x):\n    return x + 1\ndef g():\n    return 2\n")
    held.source = held.source.replace(*edit)
    held.path.write_text(held.source)
    reason = "swapped.py is not what runs: it was edited after it was imported, or a tool rewrote it"
    assert held.refusal(("x + 1", "x + 2")) == reason


def test_code_that_something_replaced(program: Loader) -> None:
    held = program("def f(x):\n    return x + 1\ndef g(): pass\n")
    held.module.f.__code__ = (lambda x: x + 5).__code__
    assert held.refusal(("x + 1", "x + 2")) == "something replaced the code of `f`"


def test_code_that_is_hidden_from_the_search(program: Loader) -> None:
    held = program("def f(x):\n    return x + 1\n")
    gc.freeze()
    try:
        assert "gc.freeze" in held.refusal(("x + 1", "x + 2"))
    finally:
        gc.unfreeze()


def test_a_refusal_keeps_nothing_alive(program: Loader) -> None:
    held = program("def f(x):\n    yield x + 1\ng = f(1)\nnext(g)\n")
    gone = weakref.ref(held.module.g)
    with pytest.raises(Refused) as caught:
        held.plan(("x + 1", "x + 2"))
    del held.module.g
    assert gone() is None
    assert caught.value.__context__ is None


def test_tuples_that_others_are_building(program: Loader) -> None:
    """Somebody who held one meanwhile would make `tuple` fail there."""
    held = program("def f(x):\n    return x + 1\n")
    errors: list[BaseException] = []
    end = threading.Event()

    def build() -> None:
        try:
            while not end.is_set():
                tuple(number for number in range(100_000))
        except SystemError as error:
            errors.append(error)

    thread = threading.Thread(target=build)
    thread.start()
    for _ in range(10):
        held.plan(("x + 1", "x + 2"))
    end.set()
    thread.join()
    assert not errors


def test_planning_while_other_code_runs(program: Loader) -> None:
    held = program("def f(x):\n    return x + 1\n")
    with held.plan(("x + 1", "x + 2")):
        assert "is not what runs" in held.refusal(("x + 1", "x + 3"))


# -- entering and leaving ------------------------------------------------------------------------------------------


def test_leaving_twice_or_without_entering(program: Loader) -> None:
    held = program("def f(x):\n    return x + 1\n")
    code = held.module.f.__code__
    swap = held.plan(("x + 1", "x + 2"))
    swap.leave()
    assert held.module.f.__code__ is code
    swap.enter()
    swap.enter()
    swap.leave()
    swap.leave()
    assert held.module.f.__code__ is code


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_whatever_is_raised_inside(error: type[BaseException], program: Loader) -> None:
    held = program("def f(x):\n    return x + 1\n")
    code = held.module.f.__code__
    with pytest.raises(error), held.plan(("x + 1", "x + 2")):
        raise error
    assert held.module.f.__code__ is code


class Stubborn:
    """Takes new code only so many times, and then raises."""

    def __init__(self, code: types.CodeType, errors: list[BaseException | None]) -> None:
        self.code = code
        self.errors = errors

    @property
    def __code__(self) -> types.CodeType:
        return self.code

    @__code__.setter
    def __code__(self, code: types.CodeType) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.code = code


def stubborn_swap(*errors: list[BaseException | None]) -> tuple[list[Any], Swap, types.CodeType, types.CodeType]:
    own, new = (lambda: 1).__code__, (lambda: 2).__code__
    functions: list[Any] = [Stubborn(own, list(of_one)) for of_one in errors]
    return functions, Swap(Arms(function, own, own, new) for function in functions), own, new


def test_an_assignment_that_fails_leaves_nothing_half_swapped() -> None:
    functions, swap, own, _ = stubborn_swap([], [ValueError("no")], [])
    with pytest.raises(ValueError, match="no"):
        swap.enter()
    assert all(function.code is own for function in functions)


def test_an_interrupt_while_leaving_is_raised_after_all_is_restored() -> None:
    functions, swap, own, new = stubborn_swap([], [None, KeyboardInterrupt()], [])
    swap.enter()
    assert all(function.code is new for function in functions)
    with pytest.raises(KeyboardInterrupt):
        swap.leave()
    assert all(function.code is own for function in functions)


def test_other_threads_see_all_of_a_swap_or_nothing(program: Loader) -> None:
    """Assigning happens in one call of C: a thread that waits for the GIL gets it before or after."""
    held = program("def f():\n    return 1\ndef g():\n    return 1\n")
    f, g = held.module.f, held.module.g
    swap = held.plan(
        ("def f():\n    return 1", "def f():\n    return 2"), ("def g():\n    return 1", "def g():\n    return 2")
    )
    wrong: list[object] = []
    end = threading.Event()

    def call() -> None:
        while not end.is_set():
            if not {f(), g()} <= {1, 2}:
                wrong.append((f(), g()))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(2000):
        with swap:
            assert (f(), g()) == (2, 2)
        assert (f(), g()) == (1, 1)
    end.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_source_is_as_before(program: Loader) -> None:
    held = program("def f(x):\n    return x + 1\n")
    text = inspect.getsource(held.module.f)
    with held.plan(("    return", "    x = x\n    return")):
        pass
    linecache.checkcache()
    assert inspect.getsource(held.module.f) == text


def test_tracebacks_tell_lines_of_the_edited_text(program: Loader) -> None:
    held = program("def f(x):\n    return x / 0\n")
    with held.plan(("    return", "    x = x\n    return")), pytest.raises(ZeroDivisionError) as caught:
        held.module.f(1)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno, last.name) == (str(held.path), 3, "f")


# -- torch ---------------------------------------------------------------------------------------------------------

STEP = """\
import torch

def program():
    x = torch.ones(4, 6).t()
    for _ in range(2):
        y = x.contiguous() + 1
    return y
"""


def test_recording_a_swapped_function(program: Loader) -> None:
    held = program(STEP)
    with held.plan(("    for _", "    x = x.contiguous()\n    for _"), ("y = x.contiguous()", "y = x")):
        with stridewise.record() as recording:
            held.module.program()
        edited = lines_of_calls(recording)
    with stridewise.record() as recording:
        held.module.program()
    assert edited == {"ones": {4}, "t": {4}, "contiguous": {5}, "add": {7}}
    assert lines_of_calls(recording) == {"ones": {4}, "t": {4}, "contiguous": {6}, "add": {6}}


def lines_of_calls(recording: Any) -> dict[str, set[int | None]]:
    case = Case(recording.trace)
    found: dict[str, set[int | None]] = {}
    for number, call in enumerate(case.log.calls):
        site = case.site(number)
        assert site.file is not None
        assert site.file.endswith("swapped.py")
        found.setdefault(case.log.functions[call.function].rpartition(".")[2], set()).add(site.line)
    return found


MODEL = """\
import functools
import torch
from torch import nn

def helper(x):
    return x + 1

class Child(nn.Module):
    def forward(self, x):
        return self.method(helper(x))
    def method(self, x):
        return x * 2
    @classmethod
    def of_class(cls, x):
        return x + 1000
    def __len__(self):
        return 3

def decorated(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)
    return inner

@decorated
def wrapped(x):
    return x + 7

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = Child()
    def forward(self, x):
        x = self.child.of_class(self.child(x)) + len(self.child)
        return wrapped(x) - 1
"""
INLINED = {
    "the compiled one itself": ("- 1", "- 2"),
    "a function": ("x + 1\n", "x + 2\n"),
    "a method": ("x * 2", "x * 3"),
    "a class method": ("x + 1000", "x + 2000"),
    "a special method": ("return 3", "return 4"),
    "a decorated function": ("x + 7", "x + 8"),
    "a submodule's forward": ("self.method(helper(x))", "self.method(helper(x)) + 5"),
}
COMPILED = {
    "wrapped": lambda module: torch.compile(module.Model(), backend="eager"),
    "in place": lambda module: compiled_in_place(module.Model()),
    "inside another function": lambda module: torch.compile(functools.partial(call, module.Model()), backend="eager"),
    "under no_grad": lambda module: torch.compile(torch.no_grad()(module.Model()), backend="eager"),
    "a local function": lambda module: functools.partial(compiled_by_each_call, module.Model()),
    "through autograd": lambda module: torch.compile(module.Model(), backend="aot_eager"),
}


def compiled_in_place(model: torch.nn.Module) -> torch.nn.Module:
    model.compile(backend="eager")
    return model


def call(model: Any, x: torch.Tensor) -> Any:
    return model(x)


def compiled_by_each_call(model: Any, x: torch.Tensor) -> Any:
    @torch.compile(backend="eager")
    def inner(x: torch.Tensor) -> Any:
        return model(x)

    return inner(x)


@pytest.fixture
def dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.needs_torch("2.7", "Dynamo can't compile such a module", "[under no_grad]")
@pytest.mark.usefixtures("dynamo")
@pytest.mark.parametrize("how", COMPILED)
def test_compiled_programs_run_the_edited_code(how: str, program: Loader) -> None:
    held = program(MODEL)
    x = torch.arange(3.0)
    eager, run = held.module.Model(), COMPILED[how](held.module)
    was = eager(x)
    assert torch.equal(run(x), was)
    edits = INLINED if how == "wrapped" else {what: INLINED[what] for what in ("a method", "a decorated function")}
    for what, edit in edits.items():
        swap = held.plan(edit)
        codes = [function.__code__ for function in swap.functions]
        for _ in range(2):
            with swap:
                changed = eager(x)
                assert torch.equal(run(x), changed), what
            assert not torch.equal(changed, was), what
            swap.enter(edited=False)
            assert torch.equal(run(x), was), what
            swap.leave()
            assert torch.equal(run(x), was), what
        assert all(function.__code__ is code for function, code in zip(swap.functions, codes, strict=True))


@pytest.mark.usefixtures("dynamo")
def test_two_files_of_a_compiled_program(program: Loader) -> None:
    """What is edited in one of them is not put back by the other's."""
    one = program("def f(x):\n    return x + 1\n", "one")
    two = program("import one\nclass A:\n    def g(self, x):\n        return one.f(x) * 2\na = A()\n", "two")
    run, x = torch.compile(two.module.a.g, backend="eager"), torch.zeros(2)
    run(x)
    edited = [
        (SourceFile(one.path, "one.py"), one.source.replace("x + 1", "x + 2").encode()),
        (SourceFile(two.path, "two.py"), two.source.replace("* 2", "* 10").encode()),
    ]
    both, single = plan_all(edited), plan(*edited[1])
    for _ in range(2):
        for swap, expected in ((both, 20), (single, 10)):
            with swap:
                assert run(x).tolist() == [expected] * 2
            assert run(x).tolist() == [2, 2]


@pytest.mark.usefixtures("dynamo")
def test_each_arm_is_compiled_once(program: Loader) -> None:
    held = program(MODEL)
    x = torch.arange(3.0)
    run = torch.compile(held.module.Model(), backend="eager")
    run(x)
    swap = held.plan(INLINED["a method"])
    counted = torch._dynamo.utils.counters["frames"]
    for number in range(10):
        with swap:
            run(x)
        swap.enter(edited=False)
        run(x)
        swap.leave()
        run(x)
        if number == 0:
            total = counted["total"]
    assert counted["total"] == total


@pytest.mark.usefixtures("dynamo")
def test_a_graph_break_in_the_edited_function(program: Loader) -> None:
    held = program(
        "import torch\ndef f(x):\n    x = x + 1\n    torch._dynamo.graph_break()\n    return g(x)\n"
        "def g(x):\n    return x * 2\n"
    )
    run, x = torch.compile(held.module.f, backend="eager"), torch.zeros(2)
    for edit, expected in ((("x + 1", "x + 2"), 4), (("x * 2", "x * 3"), 3)):
        run(x)
        with held.plan(edit):
            assert run(x).tolist() == [expected] * 2
        assert run(x).tolist() == [2, 2]


@pytest.mark.usefixtures("dynamo")
def test_a_torch_that_does_not_tell_what_is_compiled(program: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    held = program("def f(x):\n    return x + 1\n")
    import torch._dynamo.convert_frame as convert_frame

    monkeypatch.delattr(convert_frame, "input_codes")
    assert held.refusal(("x + 1", "x + 2")) == "this version of torch does not tell what torch.compile has compiled"


def test_scripted_functions(program: Loader) -> None:
    held = program("import torch\ndef f(x):\n    return x + 1\ng = torch.jit.script(f)\n")
    assert held.refusal(("x + 1", "x + 2")) == "torch.jit has compiled `f`"


def test_the_search_needs_no_torch() -> None:
    from stridewise.repair.code import code_objects, swap

    for module in (swap, code_objects):
        assert not re.search(r"^\s*(import|from) torch", inspect.getsource(module), re.MULTILINE)
        assert isinstance(module, ModuleType)
