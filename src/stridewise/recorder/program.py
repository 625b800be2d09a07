"""Run a script or a module as `python SCRIPT` and `python -m MODULE` would, inside this process. No torch."""

import atexit
import builtins
import io
import os
import pkgutil
import sys
import threading
from importlib.machinery import PathFinder, SourceFileLoader, SourcelessFileLoader
from importlib.util import MAGIC_NUMBER, find_spec
from types import CodeType, ModuleType
from typing import Any

from stridewise.errors import InputError, UsageError


class Program:
    """A script (a file, or a folder or zip file with a `__main__.py`) or a module, and its arguments.

    A context manager: inside it `sys.argv`, `sys.path` and `sys.modules["__main__"]` are the program's. Afterwards they
    are as before, unless the program has threads that go on, and once more the program's when the interpreter ends, for
    its own exit handlers. Raises UsageError or InputError, before anything runs, where there is nothing to run.
    """

    def __init__(self, argv: list[str], *, module: bool) -> None:
        if not argv:
            raise UsageError(
                "No script is given.", expected="Expected: a script and its arguments, or -m and a module."
            )
        self.argv = list(argv)
        self.is_module = module
        self.main = ModuleType("__main__")
        self._folder = os.getcwd() if module else ""
        self._is_importable = False
        """The script is a folder or a zip file, as an entry of `sys.path` is."""
        if not module:
            self._find_script(argv[0])

    def _find_script(self, script: str) -> None:
        if script == "-":
            raise UsageError("A script can't be read from standard input.", advice="Write it to a file.")
        if not os.path.exists(script):
            raise UsageError(f"There is no script {script}.", advice="For a module say -m.")
        if pkgutil.get_importer(script) is not None:  # a folder or a zip file
            self._folder = os.path.abspath(script)
            self._is_importable = True
            return
        try:
            with io.open_code(script) as file:
                file.read(1)
        except OSError as error:
            raise InputError(f"{script} can't be read: {error.strerror or error}.") from None
        self._folder = os.path.dirname(os.path.realpath(script))

    # -- the place it runs in --------------------------------------------------------------------------------------

    def __enter__(self) -> "Program":
        self._other = sys.argv, list(sys.path), sys.modules["__main__"]
        self._threads = set(threading.enumerate())
        sys.argv = ["-m", *self.argv[1:]] if self.is_module else list(self.argv)
        in_folder = not sys.flags.safe_path
        if in_folder or self._is_importable:
            sys.path[:] = [self._folder, *sys.path[in_folder:]]
        return self

    def __exit__(self, *error: object) -> None:
        if any(not thread.daemon for thread in set(threading.enumerate()) - self._threads):
            return
        self._change_places()
        atexit.register(self._change_places)

    def _change_places(self) -> None:
        other, self._other = self._other, (sys.argv, list(sys.path), sys.modules.get("__main__", self.main))
        sys.argv, sys.path[:], sys.modules["__main__"] = other

    # -- running ---------------------------------------------------------------------------------------------------

    def load(self) -> CodeType:
        """Its code; from now on `__main__` is the program's. Runs the packages that hold a module.

        Raises UsageError where a module, or a folder's or package's `__main__`, is not there.
        """
        attributes: dict[str, Any] = {"__builtins__": builtins, "__annotations__": {}, "__cached__": None}
        script = self.argv[0]
        if self.is_module:
            code, spec = _module_code(script)
            sys.argv[0] = spec.origin or script
        elif self._is_importable:
            spec = PathFinder.find_spec("__main__", [self._folder])
            if spec is None:
                raise UsageError(f"{script} has no __main__.py.")
            code = _code_of(spec, script)
        else:
            path = os.path.join(os.getcwd(), script)
            code, loader = _script_code(path)
            sys.modules["__main__"] = self.main
            vars(self.main).update(attributes, __file__=path, __loader__=loader)
            return code
        attributes |= {"__file__": spec.origin, "__cached__": spec.cached, "__loader__": spec.loader}
        vars(self.main).update(attributes, __package__=spec.parent, __spec__=spec)
        sys.modules["__main__"] = self.main
        return code

    def run(self, code: CodeType) -> None:
        """Run it; raises what it raises."""
        exec(code, vars(self.main))


def _script_code(path: str) -> tuple[CodeType, SourceFileLoader | SourcelessFileLoader]:
    with io.open_code(path) as file:
        content = file.read()
    if content.startswith(MAGIC_NUMBER):
        compiled = SourcelessFileLoader("__main__", path)
        code = compiled.get_code("__main__")
        assert code is not None
        return code, compiled
    try:
        return compile(content, path, "exec", dont_inherit=True), SourceFileLoader("__main__", path)
    except SyntaxError as error:
        raise _of_a_file(error, content, path) from None


def _of_a_file(error: SyntaxError, content: bytes, path: str) -> SyntaxError:
    """The error in the words that Python has for a file: of bytes that are no text its compiler says something else."""
    said, is_null = error.msg, error.msg == "source code string cannot contain null bytes"
    if is_null or said.startswith("(unicode error) 'utf-8'"):
        for number, line in enumerate(content.split(b"\n"), 1):
            try:
                line.decode()
            except UnicodeDecodeError as wrong:
                return SyntaxError(
                    f"Non-UTF-8 code starting with '\\x{line[wrong.start]:02x}' in file {path} on line {number}, "
                    "but no encoding declared; see https://peps.python.org/pep-0263/ for details"
                )
            if b"\0" in line and is_null:
                return SyntaxError("source code cannot contain null bytes", (path, number, 0, ""))
    if said.startswith("unknown encoding: "):
        return SyntaxError(f"encoding problem: {said.removeprefix('unknown encoding: ')}")
    return error


def _module_code(name: str) -> tuple[CodeType, Any]:
    """A module's code and spec; of a package, those of its `__main__`."""
    missing = f"There is no module {name}."
    try:
        spec = find_spec(name) if not name.startswith(".") else None
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise UsageError(missing) from None
        raise
    except ValueError:  # a module that says nothing of where it came from
        spec = None
    if spec is None:
        raise UsageError(missing, advice="Give the name as `import` takes it.")
    if spec.submodule_search_locations is not None:
        if name.rpartition(".")[2] == "__main__":
            raise UsageError(f"{name} is a package, which can't be run.")
        try:
            return _module_code(f"{name}.__main__")
        except UsageError:
            raise UsageError(f"{name} is a package without a __main__.py, which can't be run.") from None
    return _code_of(spec, name), spec


def _code_of(spec: Any, name: str) -> CodeType:
    get_code = getattr(spec.loader, "get_code", None)
    code: CodeType | None = get_code(spec.name) if get_code is not None else None
    if code is None:
        raise UsageError(f"{name} is no Python code that can be run.")
    return code
