"""The pages on `run` and `trace` and on settings say what the code does: options, keys, limits, and who reads which."""

import importlib.util
import re
from pathlib import Path

import msgspec
import pytest
import typer

from stridewise.cli.app import app
from stridewise.config import Budget, Config, LintConfig, load_config, parse_budget
from stridewise.config.project import CONFIG_KEYS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
SETTINGS = (REFERENCE / "settings.md").read_text(encoding="utf-8")
RUN = (REFERENCE / "run.md").read_text(encoding="utf-8")


def test_tables_are_those_of_the_code():
    spec = importlib.util.spec_from_file_location("settings_of_docs", ROOT / "docs" / "settings.py")
    settings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(settings)
    for path, text in settings.files().items():
        assert path.read_text(encoding="utf-8") == text, "python docs/settings.py"


@pytest.mark.parametrize("command", ["run", "trace"])
def test_every_option_is_told(command):
    options = {name for each in typer.main.get_command(app).commands[command].params for name in each.opts}
    told = set(re.findall(r"^\| `(?:-q, )?(--?[a-z-]+)", RUN, re.MULTILINE))
    assert {name for name in options if name.startswith("-")} - {"-q", "--help", "-h"} <= told


def test_the_example_sets_every_key(tmp_path):
    example = re.search(r'^```toml title="pyproject.toml"\n(.*?)^```', SETTINGS, re.MULTILINE | re.DOTALL)[1]
    (tmp_path / "pyproject.toml").write_text(example, encoding="utf-8")
    config = load_config(tmp_path)
    for found, default in ((config, Config()), (config.budget, Budget()), (config.lint, LintConfig())):
        unset = [name for name in found.__struct_fields__ if getattr(found, name) == getattr(default, name)]
        assert unset in ([], ["folder"])


def test_the_default_of_each_key_is_one_that_it_takes():
    shown = re.findall(r"^\| `([\w-]+)` \|.*?\| `(\S+)` \| [^|]+ \|$", SETTINGS, re.MULTILINE)
    assert {name for name, _ in shown} == {"min-share", "steps", "warmup", "library-copies", "max-ops"}
    for name, default in shown:
        key = CONFIG_KEYS[name]
        assert key.read(msgspec.json.decode(default)) == getattr(Config(), key.field)


@pytest.mark.parametrize(
    ("reader", "files"),
    [
        ("stridewise run", ["cli/run.py"]),
        ("stridewise trace", ["cli/trace.py", "cli/fleet.py"]),
        ("stridewise diff", ["cli/diff.py"]),
        ("stridewise fix", ["cli/fix.py"]),
        ("stridewise check", ["cli/check.py"]),
        ("%%stridewise", ["integrations/notebook/cell.py"]),
        ("tests under pytest", ["integrations/pytest_support/blocks.py"]),
    ],
)
def test_who_reads_what(reader, files):
    source = "".join((ROOT / "src" / "stridewise" / file).read_text(encoding="utf-8") for file in files)
    read = set(re.findall(r"config\.(\w+)", source))
    row = re.search(rf"^\| `?{re.escape(reader)}.*?\|(.*)\|$", SETTINGS, re.MULTILINE)[1]
    assert set(re.findall(r"`([a-z-]+)`", row)) == {name for name, key in CONFIG_KEYS.items() if key.field in read}


def test_the_budget_of_the_page_reads():
    text = re.search(r"^```text\n(.*?)\n```", SETTINGS, re.MULTILINE | re.DOTALL)[1]
    assert parse_budget(text) == Budget(0, 1_000_000, 0.02, 3_000_000, ("SW103", "SW101"))
    assert parse_budget("bytes=1.5 mb,forbid=SW1,forbid=SW2") == Budget(bytes_moved=1_500_000, forbid=("SW1", "SW2"))


def test_defaults_that_help_and_the_page_tell_are_those_of_the_code():
    config = Config()
    for text in (f"record ({config.steps} unless", f"before that ({config.warmup} unless", f"({config.max_ops} unless"):
        assert text in RUN
    assert f"`--warmup` steps pass ({config.warmup} unless set), and `--steps` are reported on ({config.steps})" in RUN
    assert f"{100 * config.min_share:g}% unless set" in RUN
