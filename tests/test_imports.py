"""Reading, analysing, linting and reporting work without torch: it is never imported before it is needed."""

import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import stridewise

ROOT = Path(__file__).parents[1]

# These may import torch when they are imported; every other module may do so inside functions at most
# (which of them, the contract in pyproject.toml says).
MAY_IMPORT_TORCH = (
    "stridewise.recorder.autocast",
    "stridewise.recorder.live",
    "stridewise.recorder.calls",
    "stridewise.recorder.private",
    "stridewise.recorder.functions",
    "stridewise.recorder.modules",
    "stridewise.recorder.opaque",
    "stridewise.recorder.profiling",
    "stridewise.recorder.tensors",
    "stridewise.recorder.once",
    "stridewise.recorder.reach",
    "stridewise.recorder.scripted",
    "stridewise.recorder.state",
    "stridewise.demo.model",
    "stridewise.lab",  # below it, experiments are programs that use torch
    "stridewise.repair.trial",
    "stridewise.integrations",  # each stands beside a library that imports torch itself, or is optional
)

IMPORT_WITHOUT_TORCH = """
import importlib, sys, traceback

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "functorch", "torchgen"}:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked by the test)", name=name)

sys.meta_path.insert(0, Block())
failed = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        failed.append(f"{name}: {traceback.format_exc()}")
sys.exit("\\n".join(failed) or None)
"""


def test_import_stridewise_imports_no_torch():
    code = "import stridewise, sys; sys.exit('torch' in sys.modules)"
    assert run(code).returncode == 0


def test_the_block_works():
    result = run(IMPORT_WITHOUT_TORCH, "torch.nn")
    assert result.returncode == 1
    assert "blocked by the test" in result.stderr


def test_modules_import_without_torch():
    names = [name for name in modules(Path(stridewise.__file__).parent, "stridewise") if not may_import_torch(name)]
    assert "stridewise.errors" in names
    result = run(IMPORT_WITHOUT_TORCH, *names)
    assert result.returncode == 0, result.stderr


def modules(folder: Path, package: str) -> Iterator[str]:
    """Every module of a package, found without importing any."""
    yield package
    for found in pkgutil.iter_modules([str(folder)], prefix=f"{package}."):
        if found.ispkg:
            yield from modules(folder / found.name.rpartition(".")[2], found.name)
        elif not found.name.endswith(".__main__"):
            yield found.name


def may_import_torch(name: str) -> bool:
    return any(name == allowed or name.startswith(f"{allowed}.") for allowed in MAY_IMPORT_TORCH)


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)


def test_what_the_guide_installs_in_the_place_of_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {re.match(r"[\w-]+", text)[0] for text in project["dependencies"]}
    guide = (ROOT / "docs" / "how-to" / "cluster-trace.md").read_text(encoding="utf-8")
    installed = re.search(r"^\$ pip install ([\w -]+)\n\$ pip install --no-deps", guide, re.MULTILINE)[1]
    assert set(installed.split()) == needed - {"torch", "hypothesis"}


def test_what_needs_hypothesis_needs_torch():
    source = ROOT / "src" / "stridewise"
    users = [path for path in source.rglob("*.py") if "hypothesis import" in path.read_text(encoding="utf-8")]
    assert {path.relative_to(source).parts[0] for path in users} == {"checks"}
