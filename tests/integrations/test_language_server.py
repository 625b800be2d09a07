"""`stridewise lsp`: the real server in a process of its own, and an editor that speaks to it over pipes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stridewise.linter.rules import all_rules

from .editor import Editor, Json, covered, edited

HEAD = "import torch\n\n\ndef f(x):\n"
TWICE = HEAD + "    return torch.ones(2, 3).t().clone().contiguous()\n"
ONCE = TWICE.replace(".clone().contiguous()", ".clone(memory_format=torch.contiguous_format)")
DISCARDED = HEAD + "    x.contiguous()\n    return x\n"
NOWHERE = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
SAMPLES = {
    "plain": TWICE,
    "multibyte": TWICE.replace("return", 's = "é漢😀"; return'),
    "crlf": TWICE.replace("\n", "\r\n"),
    "cr": TWICE.replace("\n", "\r"),
    "crlf_multibyte": TWICE.replace("return", 's = "é漢😀"; return').replace("\n", "\r\n"),
    "form_feed": TWICE.replace("\n\n\n", "\n\f\n# \u2028\x85\n"),
    "mark": "\ufeff" + "import torch; y = torch.ones(2, 3).t().clone().contiguous()\n",
    "latin": "# -*- coding: latin-1 -*-\n" + TWICE.replace("return", 's = "éü"; return'),
    "no_last_end": TWICE.rstrip(),
}
PUT = ".clone(memory_format=torch.contiguous_format)"


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    editor = Editor(tmp_path_factory.mktemp("project"))
    yield editor
    assert editor.leave() == 0


def codes(diagnostics: list[Json]) -> list[str]:
    return [each["code"] for each in diagnostics]


def test_a_finding_is_a_diagnostic(editor: Editor):
    [found] = editor.open("discarded.py", DISCARDED)
    assert found["code"] == "SW301"
    assert found["source"] == "stridewise"
    assert found["severity"] == 1
    assert covered(DISCARDED, found["range"]) == "x.contiguous()"
    message, advice = found["message"].split("\n")
    assert "`x.contiguous()`" in message
    assert advice


@pytest.mark.parametrize("name", SAMPLES)
def test_places_and_fixes_fit_the_text(editor: Editor, name: str):
    text, file = SAMPLES[name], f"{name}.py"
    [found] = editor.open(file, text)
    assert found["code"] == "SW311"
    assert covered(text, found["range"]).endswith(".t().clone().contiguous()")
    fix = editor.actions(file, found["range"], "quickfix")[0]
    [everything] = editor.actions(file, NOWHERE, "source.fixAll")
    for action in (fix, everything):
        assert edited(text, action) == text.replace(".clone().contiguous()", PUT)
    assert editor.save(file, edited(text, fix)) == []


@pytest.mark.parametrize(("encoding", "codec"), [("utf-8", "utf-8"), ("utf-32", "utf-32-le")])
def test_the_editor_says_how_it_counts_columns(tmp_path: Path, encoding: str, codec: str):
    editor = Editor(tmp_path, encoding, "utf-16", versioned=False)
    assert editor.capabilities["positionEncoding"] == encoding
    for name in ("crlf_multibyte", "mark"):
        text, file = SAMPLES[name], f"{name}.py"
        [found] = editor.open(file, text)
        assert covered(text, found["range"], codec).endswith(".t().clone().contiguous()")
        for action in (editor.actions(file, found["range"])[0], editor.actions(file, NOWHERE)[-1]):
            assert edited(text, action, codec) == text.replace(".clone().contiguous()", PUT)
    assert editor.leave() == 0


def test_the_title_says_how_far_a_fix_can_be_trusted(editor: Editor):
    [found] = editor.open("unsafe.py", DISCARDED)
    fix, ignore = editor.actions("unsafe.py", found["range"])
    assert fix["title"] == "SW301: x = x.contiguous() (unsafe fix)"
    assert fix["kind"] == ignore["kind"] == "quickfix"
    assert not fix.get("isPreferred")
    assert fix["diagnostics"] == [found]
    assert fix["edit"]["documentChanges"][0]["textDocument"]["version"] == 1
    [safe] = editor.open("safe.py", TWICE)
    assert editor.actions("safe.py", safe["range"])[0]["isPreferred"]


def test_the_fix_of_every_rule_is_made_as_it_stands_there(editor: Editor):
    (editor.root / "all").mkdir()
    (editor.root / "all/pyproject.toml").write_text('[tool.stridewise.lint]\nselect = ["SW3"]\n')
    examples = [
        (rule.code, each.source, each.fixed)
        for rule in all_rules()
        for each in rule.fires
        if each.fixed is not None and each.count == 1
    ]
    assert len(examples) > 20
    for number, (code, text, fixed) in enumerate(examples):
        name = f"all/example_{number}.py"
        [found] = [each for each in editor.open(name, text) if each["code"] == code]
        fix = next(each for each in editor.actions(name, found["range"]) if each["title"].startswith(code))
        assert edited(text, fix) == fixed


def test_the_action_for_all_makes_safe_fixes_only(editor: Editor):
    text = f"{TWICE}\n\ndef g(x):\n    x.contiguous()\n    return torch.ones(2, 3).t().clone().contiguous()\n"
    assert codes(editor.open("both.py", text)) == ["SW311", "SW301", "SW311"]
    [action] = editor.actions("both.py", NOWHERE, "source.fixAll.stridewise")
    assert edited(text, action) == text.replace(".clone().contiguous()", PUT)
    assert codes(editor.save("both.py", edited(text, action))) == ["SW301"]
    assert editor.actions("both.py", NOWHERE, "source.fixAll") == []


def test_editors_that_only_look_are_not_offered_the_action_for_all(editor: Editor):
    editor.open("look.py", TWICE)
    assert editor.actions("look.py", NOWHERE, automatic=True) == []
    assert [each["kind"] for each in editor.actions("look.py", NOWHERE)] == ["source.fixAll.stridewise"]
    assert editor.actions("look.py", NOWHERE, "source.organizeImports", "quick") == []


@pytest.mark.parametrize("text", [DISCARDED, DISCARDED.replace("x.contiguous()", 'x.contiguous(); s = "é😀"  # why')])
def test_a_finding_can_be_ignored(editor: Editor, text: str):
    [found] = editor.open("ignored.py", text)
    ignore = editor.actions("ignored.py", found["range"])[-1]
    assert ignore["title"] == "SW301: ignore it on this line"
    after = edited(text, ignore)
    assert "# stridewise: ignore[SW301]\n" in after
    editor.change("ignored.py", after)
    assert editor.diagnostics("ignored.py") == []


def test_no_comment_is_offered_where_it_would_be_no_comment(editor: Editor):
    text = HEAD + '    return torch.ones(2, 3).t().clone().contiguous(), """a\n    b"""\n'
    [found] = editor.open("string.py", text)
    assert all("ignore" not in each["title"] for each in editor.actions("string.py", found["range"]))


def test_comments_that_ignore_nothing_are_faded(editor: Editor):
    text = "import torch  # stridewise: ignore[SW301]\n"
    [found] = editor.open("idle.py", text)
    assert (found["code"], found["severity"], found["tags"]) == ("SW300", 3, [1])
    assert covered(text, found["range"]) == "# stridewise: ignore[SW301]"
    [fix, _] = editor.actions("idle.py", found["range"])
    assert edited(text, fix) == "import torch\n"


@pytest.mark.parametrize(
    "broken",
    [
        DISCARDED + "def (:\n",
        "import torch\nx = '\ud800'.contiguous()\n",
        "# coding: rot13\n" + DISCARDED,
        "# coding: none-such\n" + DISCARDED,
        "# coding: ascii\ns = 'é'\n" + DISCARDED,
        "# coding: utf-16\n" + DISCARDED,
        "import torch\0\n",
        "import torch\n" + "(" * 5000,
        "",
    ],
    ids=["syntax", "surrogate", "rot13", "no codec", "not ascii", "utf-16", "zero", "deep", "empty"],
)
def test_what_is_no_python_has_no_findings(editor: Editor, broken: str):
    assert editor.open("broken.py", broken) == []
    assert editor.actions("broken.py", NOWHERE) == []
    assert codes(editor.save("broken.py", DISCARDED)) == ["SW301"]
    assert editor.save("broken.py", broken, 3) == []


def test_other_languages_and_texts_that_are_no_files_are_left_alone(editor: Editor):
    assert editor.open("notes.md", DISCARDED, "markdown") == []
    assert codes(editor.open("script", DISCARDED)) == ["SW301"]
    for uri, found in (("git:/a/b.py?x", []), ("untitled:Untitled-1", ["SW301"])):
        document = {"uri": uri, "languageId": "python", "version": 1, "text": DISCARDED}
        editor.notify("textDocument/didOpen", {"textDocument": document})
        published = editor.told("textDocument/publishDiagnostics")
        assert (published["uri"], codes(published["diagnostics"])) == (uri, found)


def test_fixes_are_those_of_the_newest_text(editor: Editor):
    editor.open("typed.py", DISCARDED)
    for version in range(2, 9):
        editor.change("typed.py", "#\n" * version + TWICE, version)
    text = "#\n" * 8 + TWICE
    [action] = editor.actions("typed.py", NOWHERE, "source.fixAll")
    assert edited(text, action) == "#\n" * 8 + ONCE
    assert codes(editor.diagnostics("typed.py")) == ["SW311"]


def test_what_is_closed_has_no_findings(editor: Editor):
    assert editor.open("closed.py", DISCARDED)
    editor.change("closed.py", TWICE)
    editor.notify("textDocument/didClose", {"textDocument": {"uri": editor.uri("closed.py")}})
    assert editor.diagnostics("closed.py") == []
    assert editor.actions("closed.py", NOWHERE) == []


def test_the_settings_of_the_project_count(editor: Editor):
    project = editor.root / "project"
    (project / "made").mkdir(parents=True)
    (project / "pyproject.toml").write_text(
        '[tool.stridewise.lint]\nextend-exclude = ["made"]\nper-file-ignores = {"test_*" = ["SW301"]}\n'
    )
    (project / ".git").mkdir()
    (project / ".gitignore").write_text("scratch.py\n")
    found = {
        name: codes(editor.open(f"project/{name}", DISCARDED))
        for name in ("a.py", "test_a.py", "made/a.py", "scratch.py")
    }
    assert found == {"a.py": ["SW301"], "test_a.py": [], "made/a.py": [], "scratch.py": []}
    assert editor.open(".venv/a.py", DISCARDED) == []


def test_settings_that_cannot_be_read_are_told_once(tmp_path: Path):
    settings = tmp_path / "pyproject.toml"
    settings.write_text('[tool.stridewise.lint]\nselect = ["SW999"]\n')
    editor = Editor(tmp_path)
    assert editor.open("a.py", DISCARDED) == editor.open("b.py", DISCARDED) == []
    [message] = editor.messages
    assert str(settings) in message
    assert "SW999" in message

    [watch] = [each for each in editor.asked if each["method"] == "client/registerCapability"]
    assert watch["params"]["registrations"][0]["method"] == "workspace/didChangeWatchedFiles"
    settings.write_text('[tool.stridewise.lint]\nselect = ["SW301"]\n')
    changed = {"changes": [{"uri": settings.as_uri(), "type": 2}]}
    editor.notify("workspace/didChangeWatchedFiles", changed)
    assert [codes(editor.diagnostics(name)) for name in ("a.py", "b.py")] == [["SW301"], ["SW301"]]

    settings.write_text("[tool.stridewise\n")
    assert editor.save("a.py", DISCARDED) == editor.save("b.py", DISCARDED) == []
    assert ["is not TOML" in message for message in editor.messages] == [False, True]
    assert editor.leave() == 0


def test_the_server_imports_no_torch():
    code = "import stridewise.integrations.language_server, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_without_pygls_it_says_what_to_install():
    code = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pygls", "lsprotocol"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Block())
from stridewise.cli import main
main(["lsp"])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "stridewise: lsp needs pip install 'stridewise[lsp]'\n"


def test_it_ends_when_the_editor_is_gone():
    result = subprocess.run([sys.executable, "-m", "stridewise", "lsp"], input=b"", capture_output=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, b"")
