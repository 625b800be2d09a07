"""The lines and expressions that calls came from, whatever the program's source is."""

import dataclasses
import linecache
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stridewise
from stridewise.findings import Site

from .both import calls_of, recorded


def sites(function: Callable[[], Any]) -> list[Site | None]:
    """The site of each `contiguous` in a program."""
    _, recording = recorded(function)
    names = calls_of(recording)
    return [recording.trace.site(call) for call, name in enumerate(names) if name == "torch.Tensor.contiguous"]


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=100, **options)


PRINT_SITES = """
log = recording.trace.log
for call in range(len(log.calls)):
    site = recording.trace.site(call)
    if log.functions[log.calls[call].function] == "torch.Tensor.contiguous":
        print(site and [site.file, site.function, site.line, site.expression])
"""

T = torch.arange(6.0).view(2, 3).t()


def operators() -> None:
    (T + 1)[:, ::2].t().contiguous()
    T @ T.t().contiguous()


def several_lines() -> None:
    torch.cat(
        [
            T.contiguous(),
            T.mul(
                2,
            ).contiguous(),
        ]
    )


def comprehension() -> list[torch.Tensor]:
    return [row.t().contiguous() for row in (T, T)]


def in_lambda() -> None:
    (lambda x: x.contiguous())(T)


def twice(function: Callable[[], Any]) -> Callable[[], Any]:
    def inner() -> Any:
        return function(), function()

    return inner


@twice
def decorated() -> None:
    T.contiguous()


def generator() -> None:
    tuple(row.contiguous() for row in (T,))


def unicode_before() -> None:
    länge = T
    _ = "äöü→ 🚂", länge.contiguous()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (operators, ["(T + 1)[:, ::2].t().contiguous()", "T.t().contiguous()"]),
        (several_lines, ["T.contiguous()", "T.mul(\n                2,\n            ).contiguous()"]),
        (comprehension, ["row.t().contiguous()"] * 2),
        (in_lambda, ["x.contiguous()"]),
        (decorated, ["T.contiguous()"] * 2),
        (generator, ["row.contiguous()"]),
        (unicode_before, ["länge.contiguous()"]),
    ],
)
def test_an_expression_is_found_exactly(function, expected):
    found = sites(function)
    assert [site.expression for site in found] == expected
    lines = Path(__file__).read_bytes().split(b"\n")
    for site in found:
        assert Path(site.file) == Path(__file__).relative_to(os.getcwd()) or site.file.endswith("test_sources.py")
        assert site.column is not None
        assert site.end_column is not None
        if site.line == site.end_line:
            assert lines[site.line - 1][site.column : site.end_column].decode() == site.expression


def test_a_module_in_torch_and_an_optimizer_have_the_programs_line_and_a_via():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def program():
        model(T.t()).sum().backward()
        optimizer.step()

    _, recording = recorded(program)
    names = calls_of(recording)
    linear = recording.trace.site(names.index("torch.nn.functional.linear"))
    assert linear.expression == "model(T.t())"
    assert "linear.py" in linear.via
    stepped = [recording.trace.site(call) for call, name in enumerate(names) if "add_" in name]
    assert {site.expression for site in stepped} == {"optimizer.step()"}
    assert all("sgd.py" in site.via for site in stepped)


@pytest.mark.parametrize(
    "filename", ["<ipython-input-3-abcdef>", "<stdin>", "/tmp/ipykernel_1/2.py", "<generated>", "no such file.py"]
)
def test_code_that_is_not_in_a_file(filename):
    namespace = {"T": T}
    exec(compile("def f():\n    return T.contiguous()\n", filename, "exec"), namespace)
    (site,) = sites(namespace["f"])
    assert (site.line, site.function, site.expression) == (2, "f", None)
    source = "def f():\n    return T.contiguous()\n"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    try:
        (site,) = sites(namespace["f"])
        assert site.expression == "T.contiguous()"
    finally:
        del linecache.cache[filename]


def test_code_that_dataclasses_and_exec_generate_is_not_the_site():
    @dataclasses.dataclass
    class Pair:
        value: torch.Tensor

        def __post_init__(self) -> None:
            self.value = self.value.contiguous()

    def program():
        Pair(T)
        exec("T.contiguous()", {"T": T})

    first, second = sites(program)
    assert first.expression == "self.value.contiguous()"
    assert second.expression == 'exec("T.contiguous()", {"T": T})'


def test_a_source_that_is_not_utf_8(tmp_path):
    source = "# -*- coding: latin-1 -*-\ndef f(T):\n    ä = 'öü'; return T.contiguous(), ä\n"
    (tmp_path / "latin.py").write_bytes(source.encode("latin-1"))
    namespace: dict[str, Any] = {}
    exec(compile((tmp_path / "latin.py").read_bytes(), str(tmp_path / "latin.py"), "exec"), namespace)
    (site,) = sites(lambda: namespace["f"](T))
    assert site.expression == "T.contiguous()"
    assert site.text == "    ä = 'öü'; return T.contiguous(), ä"


def test_a_source_that_can_not_be_decoded_or_is_gone(tmp_path):
    for name, content in (("broken.py", b"def f(T):\n    return T.contiguous()\n\xff\xfe"), ("gone.py", None)):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        namespace: dict[str, Any] = {}
        exec(compile("def f(T):\n    return T.contiguous()\n", str(path), "exec"), namespace)
        (site,) = sites(lambda f=namespace["f"]: f(T))
        assert (site.line, site.expression) == (2, None)


def test_a_source_that_was_cut_meanwhile(tmp_path):
    path = tmp_path / "cut.py"
    code = compile("\n\n\ndef f(T):\n    return T.contiguous()\n", str(path), "exec")
    path.write_text("x = 1\n")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    (site,) = sites(lambda: namespace["f"](T))
    assert site.line == 5


@pytest.mark.skipif(sys.platform == "win32", reason="file names are not bytes there")
def test_file_and_module_names_that_are_no_text(tmp_path):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")
    namespace: dict[str, Any] = {}
    exec(compile("def f(T):\n    return T.contiguous()\n", name, "exec"), namespace)

    class Odd(torch.nn.Module):
        def forward(self, x):
            return {"\udcff": x}

    root = torch.nn.Module()
    root.add_module("\udcfe", Odd())
    with stridewise.record() as recording:
        namespace["f"](T)
        root._modules["\udcfe"](T)
    recording.save(tmp_path / "x.json")
    assert recording.trace.site(0).file.endswith("?.py")


def test_a_folder_that_is_gone(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    with stridewise.record() as recording:
        T.contiguous()
        folder.mkdir()
        monkeypatch.chdir(folder)
        folder.rmdir()
    monkeypatch.undo()
    assert recording.trace.site(0).expression == "T.contiguous()"


PROGRAM = """\
import stridewise, torch
def f(x):
    return x.t().contiguous()
with stridewise.record() as recording:
    f(torch.ones(2, 3))
"""


def test_a_command_line_program():
    result = run("-c", PROGRAM + PRINT_SITES)
    assert result.stderr == ""
    shown = "'x.t().contiguous()'" if sys.version_info >= (3, 13) else "None"
    assert result.stdout == f"['<string>', 'f', 3, {shown}]\n"


def test_a_program_from_stdin():
    result = run("-", input=PROGRAM + PRINT_SITES)
    assert result.stderr == ""
    shown = "'x.t().contiguous()'" if sys.version_info >= (3, 13) else "None"
    assert result.stdout == f"['<stdin>', 'f', 3, {shown}]\n"


def test_python_without_columns(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM + PRINT_SITES + "print(recording.trace.notes[-2:])")
    result = run("-X", "no_debug_ranges", "program.py", cwd=tmp_path)
    assert result.stderr == ""
    site, notes = result.stdout.splitlines()
    assert site == "['program.py', 'f', 3, None]"
    assert "Python runs without column positions (-X no_debug_ranges): sites are whole lines." in notes


def test_a_script_in_a_zip_and_one_that_is_compiled(tmp_path):
    import py_compile
    import zipfile

    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", PROGRAM + PRINT_SITES)
    result = run(str(tmp_path / "app.zip"))
    assert result.stderr == ""
    assert "'x.t().contiguous()'" in result.stdout
    (tmp_path / "program.py").write_text(PROGRAM + PRINT_SITES)
    py_compile.compile(str(tmp_path / "program.py"), cfile=str(tmp_path / "program.pyc"))
    os.unlink(tmp_path / "program.py")
    result = run(str(tmp_path / "program.pyc"))
    assert (result.returncode, result.stderr) == (0, "")
    assert "3, None]" in result.stdout
