"""A site's name leads to the file that ran, or to none; what is installed is told from the project's own."""

import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stridewise.errors import InputError
from stridewise.source.files import Files


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def cell() -> Iterator[str]:
    name = "<ipython-input-3-0123abcd>"
    linecache.cache[name] = (14, None, ["x = 'é'\n", "y = x\n"], name)
    yield name
    linecache.cache.pop(name, None)


def put(path: Path, text: str = "x = 1\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def load(monkeypatch: pytest.MonkeyPatch, name: str, path: object) -> None:
    module = ModuleType(name)
    module.__file__ = path  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, name, module)


def test_a_file_of_the_project(project: Path) -> None:
    path = put(project / "pkg" / "model.py")
    file = Files(project).open("pkg/model.py")
    assert file is not None
    assert (file.path, file.name, file.on_disk) == (path, "pkg/model.py", True)


def test_a_module_under_an_odd_name(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "elsewhere" / "odd.py")
    load(monkeypatch, "a name.that is <odd>", str(path))
    file = Files(project).open(str(path))
    assert file is not None
    assert file.path == path


def test_an_installed_package(project: Path) -> None:
    files = Files(project)
    file = files.open("msgspec/__init__.py")
    assert file is not None
    assert file.path.parts[-3:] == ("site-packages", "msgspec", "__init__.py")
    assert files.is_installed(file.path)


def test_modules_that_say_odd_things_of_themselves(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(project / "model.py")
    for number, value in enumerate((None, 3, b"model.py", "<string>", "model.pyc", "")):
        load(monkeypatch, f"odd{number}", value)
    assert Files(project).open("model.py") is not None


@pytest.mark.parametrize("name", ["gone.py", "<string>", "<stdin>", "data.txt", ".", "", "\0.py", "folder.py"])
def test_no_such_file(project: Path, name: str) -> None:
    put(project / "data.txt")
    (project / "folder.py").mkdir()
    assert Files(project).open(name) is None


def test_two_files_of_one_name(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(project / "pkg" / "model.py")
    load(monkeypatch, "installed", str(put(tmp_path / "lib" / "site-packages" / "pkg" / "model.py")))
    with pytest.raises(InputError, match="are both called that"):
        Files(project).open("pkg/model.py")


def test_one_file_by_two_ways(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(project / "model.py")
    (project / "link").symlink_to(project, target_is_directory=True)
    load(monkeypatch, "again", str(project / "link" / "model.py"))
    load(monkeypatch, "relative", "./model.py")
    file = Files(project).open("model.py")
    assert file is not None
    assert file.path.samefile(path)


def test_what_ran_goes_before_what_merely_lies_on_the_path(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, other = put(tmp_path / "one" / "m.py"), put(tmp_path / "two" / "m.py")
    for folder in (other.parent, loaded.parent):
        monkeypatch.syspath_prepend(folder)
    files = Files(project)
    with pytest.raises(InputError, match="both called that"):
        files.open("m.py")
    load(monkeypatch, "loaded", str(loaded))
    file = files.open("m.py")
    assert file is not None
    assert file.path == loaded


def test_a_script_that_was_executed(project: Path, tmp_path: Path) -> None:
    path = put(tmp_path / "scripts" / "train.py")
    files = Files(project)
    files.add(str(path))
    assert files.open(str(path)) is not None


def test_a_file_that_is_no_python(project: Path) -> None:
    put(project / "model.py", "x = (\n")
    with pytest.raises(InputError, match="was never closed"):
        Files(project).open("model.py")


def test_a_cell_of_a_notebook(project: Path, cell: str) -> None:
    file = Files(project).open(cell)
    assert file is not None
    assert file.text == "x = 'é'\ny = x\n"
    assert not file.on_disk


def test_a_cell_named_as_a_file(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = str(tmp_path / "ipykernel_7" / "123.py")
    monkeypatch.setitem(linecache.cache, name, (6, None, ["x = 1\n"], name))
    file = Files(project).open(name)
    assert file is not None
    assert (file.content, file.on_disk) == (b"x = 1\n", False)


@pytest.mark.parametrize(
    ("name", "installed"),
    [
        ("model.py", False),
        ("src/pkg/model.py", False),
        (".venv/lib/python3.11/site-packages/pkg/model.py", True),
        (".venv/src/pkg/model.py", True),  # a package that pip keeps as a checkout in the environment
        ("conda/lib/python3.11/this.py", True),
        ("vendor/dist-packages/pkg.py", True),
        ("../elsewhere/model.py", True),
        ("out/model.py", True),  # through a link that leads out
        ("in/model.py", False),
    ],
)
def test_what_is_installed(project: Path, tmp_path: Path, name: str, installed: bool) -> None:
    put(project / ".venv" / "pyvenv.cfg", "")
    (project / "conda" / "conda-meta").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (project / "src" / "pkg").mkdir(parents=True)
    (project / "out").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (project / "in").symlink_to(project / "src" / "pkg", target_is_directory=True)
    assert Files(project).is_installed(put(project / name)) is installed


def test_the_project_may_be_the_environments_own_folder(project: Path) -> None:
    put(project / "pyvenv.cfg", "")
    assert not Files(project).is_installed(put(project / "src" / "model.py"))


def test_the_standard_library_is_installed_wherever_the_root_is(project: Path) -> None:
    assert Files(Path(os.sep)).is_installed(Path(sysconfig.get_paths()["stdlib"]) / "os.py")
    assert not Files(Path(os.sep)).is_installed(put(project / "model.py"))


def test_a_link_to_the_root(project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project, target_is_directory=True)
    put(project / "model.py")
    assert not Files(tmp_path / "link").is_installed(project / "model.py")
    assert not Files(project).is_installed(tmp_path / "link" / "model.py")
