"""What is released: the sdist and the wheel, and the wheel in an environment of its own."""

import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import stridewise

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = stridewise.__version__


def ran(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What a command prints. Nothing of this checkout is on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST_", "COV_"))}
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **environment, "COLUMNS": "100", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}"
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that is built from it.

    Without isolation: the build backend is the one that is installed, and nothing is downloaded.
    """
    folder = tmp_path_factory.mktemp("dist")
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment with the wheel in it.

    What it depends on comes from the tests' environment, by a .pth file: torch is not installed again. That environment
    holds stridewise too, as an editable install, which a file ahead of it on the path hides.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    site = Path(paths["purelib"])
    ran(
        *(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet", "--no-deps"),
        *("--no-index", "--disable-pip-version-check", wheel),
        cwd=folder,
    )
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "bin"


def test_both_are_built_and_named_after_the_version(built: Path) -> None:
    assert sorted(path.name for path in built.iterdir()) == [
        f"stridewise-{VERSION}-py3-none-any.whl",
        f"stridewise-{VERSION}.tar.gz",
    ]


def test_twine_takes_them(built: Path) -> None:
    said = ran(sys.executable, "-m", "twine", "check", "--strict", *sorted(built.iterdir()), cwd=built)
    assert said.count("PASSED") == 2, said


def test_the_wheel_is_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        inside = {name for name in file.namelist() if not name.startswith(f"stridewise-{VERSION}.dist-info/")}
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "stridewise").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == wanted
    assert "stridewise/py.typed" in inside
    assert "stridewise/report/html/templates/page.html.j2" in inside


def test_the_sdist_holds_the_tests_and_none_of_what_is_made(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        inside = {name.split("/", 1)[1] for name in file.getnames() if "/" in name}
    for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "mkdocs.yml", "docs/index.md"):
        assert name in inside or not (ROOT / name).exists(), name
    assert "tests/release/test_release.py" in inside
    assert not [name for name in inside if re.search(r"__pycache__|(^|/)\.(venv|corpus|git)/|^site/|^dist/", name)]


def test_metadata_says_what_the_project_does(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        said = email.message_from_bytes(file.read(f"stridewise-{VERSION}.dist-info/METADATA"))
        entries = file.read(f"stridewise-{VERSION}.dist-info/entry_points.txt").decode()
    assert said["Version"] == VERSION
    assert said["License-Expression"] == "MIT"
    assert said["Requires-Python"] == ">=3.11"
    assert said["Description-Content-Type"] == "text/markdown"
    assert set(said.get_all("Provides-Extra", [])) == PROJECT["optional-dependencies"].keys()
    assert "stridewise = stridewise.cli:main" in entries
    assert "stridewise = stridewise.integrations.pytest_plugin" in entries


def test_one_version_everywhere() -> None:
    assert "version" in PROJECT["dynamic"]  # it stands in src/stridewise/__init__.py alone
    released = re.findall(r"^## (?:\[)?([^\s\]]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert VERSION in released or released[:1] == ["Unreleased"], released


def test_classifiers_name_the_pythons_that_are_tested() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    matrix = re.search(r"python: \[(.*)\]", workflow)
    assert matrix is not None
    tested = re.findall(r"[\d.]+", matrix[1])
    classifiers = [name.rpartition(" :: ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
    assert classifiers == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"


def test_extras_bring_what_the_documentation_says() -> None:
    extras = PROJECT["optional-dependencies"]
    named = set(re.findall(r"stridewise\[([a-z,]+)\]", "".join(_pages())))
    assert {name for names in named for name in names.split(",")} <= extras.keys()
    everything = next(text for text in extras["dev"] if text.startswith("stridewise["))
    assert set(everything[11:-1].split(",")) == extras.keys() - {"dev", "bench"}


def _pages() -> list[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return [page.read_text(encoding="utf-8") for page in pages]


def test_the_wheel_runs_in_an_environment_of_its_own(installed: Path, tmp_path: Path) -> None:
    where = ran(installed / "python", "-c", "import stridewise; print(stridewise.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent), where
    assert ran(installed / "stridewise", "--version", cwd=tmp_path).startswith(f"stridewise {VERSION} (torch ")
    said = ran(installed / "stridewise", "demo", cwd=tmp_path)
    assert "Layout costs" in said
    assert "warning[SW101] strided-stream" in said
    assert ran(installed / "python", "-m", "stridewise", "rule", "SW101", cwd=tmp_path).startswith("SW101")


def test_the_page_of_the_wheel_is_whole(installed: Path, tmp_path: Path) -> None:
    """Templates, styles and scripts are package data: a wheel without them still imports."""
    (tmp_path / "a.py").write_text("import torch\n\n\ndef f(x):\n    x.contiguous()\n", encoding="utf-8")
    lint = (installed / "stridewise", "lint", "--format", "html", "--exit-zero", "a.py")
    assert "<style>" in ran(*lint, cwd=tmp_path)


RIGHT = """\
import torch

import stridewise
from stridewise.api import Report
from stridewise.errors import ContractError


@stridewise.expect_layout(x="contiguous", mode="convert")
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


def look(model: torch.nn.Module, x: torch.Tensor) -> float:
    with stridewise.record() as recording:
        model(x)
    recording.save("step.json.gz")
    report: Report = stridewise.analyze(recording)
    for finding in report.findings:
        print(finding.code, finding.site.line or 0, finding.cost.copies)
    repair = stridewise.fix(model, x, time_limit=1.0)
    print(repair.diff, repair.ok, repair.to_json(), report.to_html())
    try:
        print(scale(x, 2.0).shape)
    except ContractError as error:
        print(error.finding)
    run = stridewise.lint("src", select=["SW3"])
    print(stridewise.explain(x), stridewise.diff("a.json.gz", report).ok, run.ok)
    stridewise.assert_layout(x, "channels_last")
    with stridewise.guard_writes(), stridewise.guard_collectives("warn"):
        model(x)
    return report.totals.share or 0.0
"""
WRONG = """\
import torch

import stridewise


def look(model: torch.nn.Module, x: torch.Tensor) -> int:
    report = stridewise.analyze(3)
    stridewise.check_op(model, x, tolerance="small")
    stridewise.nothing(x)
    print(report.findings[0].sight)
    return report.totals.share
"""
EXPECTED = {7: "arg-type", 8: "arg-type", 9: "attr-defined", 10: "attr-defined", 11: "return-value"}
"""What mypy says to a line of the wrong program."""


def test_programs_elsewhere_are_type_checked(installed: Path, tmp_path: Path) -> None:
    """Of the wheel that is installed, under `--strict`. Both in one run: most of its time goes into torch."""
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")),
            *("--python-executable", str(installed / "python"), "right.py", "wrong.py"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    said = [re.match(r"(\w+\.py):(\d+): error: .* \[([a-z-]+)\]$", line) for line in ended.stdout.splitlines()]
    assert {(found[1], int(found[2]), found[3]) for found in said if found} == {
        ("wrong.py", line, code) for line, code in EXPECTED.items()
    }, ended.stdout + ended.stderr
