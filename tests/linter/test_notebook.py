"""Notebooks: their cells as one module, IPython's own syntax, fixes in the JSON, and files that are none."""

import ast
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from stridewise.config import LintConfig
from stridewise.errors import InputError
from stridewise.linter.files.discover import found_by_name
from stridewise.linter.running.run import Options, lint_paths, lint_text
from stridewise.report import lint as lint_report
from stridewise.results.lint import LintRun
from stridewise.source.ipython import as_python
from stridewise.source.notebook import Notebook

from .texts import findings

STRIDED = "x = torch.zeros(2, 3).t()"
NEEDLESS = "z = torch.zeros(3).contiguous()"
MENDED = "z = torch.zeros(3)"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines_of(code: str) -> list[str]:
    """As Jupyter writes it: a string for each line."""
    return code.splitlines(keepends=True)


def cell(source: Any, kind: str = "code", **metadata: Any) -> dict[str, Any]:
    return {"cell_type": kind, "id": "a1", "metadata": metadata, "source": source, "outputs": [{"text": "é"}]}


def notebook(*cells: Any, language: str | None = "python", **fields: Any) -> dict[str, Any]:
    """A notebook; a text is a code cell with its lines."""
    return {
        "cells": [cell(lines_of(each)) if isinstance(each, str) else each for each in cells],
        "metadata": {} if language is None else {"kernelspec": {"language": language}},
        "nbformat": 4,
        "nbformat_minor": 5,
        **fields,
    }


def text_of(value: Any, indent: int | None = 1, **how: Any) -> bytes:
    return (json.dumps(value, indent=indent, **how) + "\n").encode()


def put(value: Any, name: str = "nb.ipynb", **how: Any) -> Path:
    path = Path(name).absolute()
    path.write_bytes(value if isinstance(value, bytes) else text_of(value, **how))
    return path


def lint(*select: str, name: str = "nb.ipynb", **options: Any) -> LintRun:
    overrides = LintConfig(select=select) if select else LintConfig()
    return lint_paths([name], overrides, Options(**options))


def places(run: LintRun) -> list[tuple[str, str]]:
    return [(finding.code, finding.site.where) for finding in run.findings]


def codes(path: Path) -> list[str]:
    return ["".join(each["source"]) for each in json.loads(path.read_bytes())["cells"]]


def test_what_one_cell_imports_is_known_in_the_next_and_cells_are_counted_as_they_stand():
    put(notebook("import torch\n\n", cell(["x"], "markdown"), f"# {'é'}\n{NEEDLESS}  # é"))
    run = lint()
    assert places(run) == [("SW315", "nb.ipynb:cell 3:2")]
    (finding,) = run.findings
    site = finding.site
    assert (site.cell, site.line, site.column, site.end_line, site.end_column) == (3, 2, 4, 2, 31)
    assert site.text == f"{NEEDLESS}  # é"
    (edit,) = finding.edits
    assert edit.cell == 3
    code = f"# é\n{NEEDLESS}".encode()
    assert code[: edit.span[0]] + edit.replacement.encode() + code[edit.span[1] :] == f"# é\n{MENDED}".encode()
    assert (run.files, run.lines) == (1, 4)


def test_notebooks_are_found_in_folders_and_pass_the_same_settings():
    put(notebook(f"import torch\n{NEEDLESS}"), "a.ipynb")
    Path(".ipynb_checkpoints").mkdir()
    put(notebook(f"import torch\n{NEEDLESS}"), ".ipynb_checkpoints/a-checkpoint.ipynb")
    assert places(lint(name=".")) == [("SW315", "a.ipynb:cell 1:2")]
    assert not lint_paths(["."], LintConfig(per_file_ignores=(("*.ipynb", ("SW315",)),))).findings


def test_the_last_expression_of_each_cell_is_shown_and_no_fault():
    shown = "import torch\nx = torch.zeros(2, 3).t()\nx.contiguous()"
    put(
        notebook(
            f"{shown}\n# a comment\n", "x.contiguous()\ny = 1", "if x.dim():\n    x.contiguous()", "x.contiguous()"
        )
    )
    assert places(lint("SW301")) == [("SW301", "nb.ipynb:cell 2:1"), ("SW301", "nb.ipynb:cell 3:2")]


def test_editors_show_the_same_of_cells_in_a_script():
    text = "import torch\nx = torch.zeros(2, 3).t()\nx.contiguous()\n\n# and\n# %% next\nx.contiguous()\n# %\ny = 1\n"
    assert [each.site.line for each in findings(text, "SW301")] == [7]


def test_comments_count_in_their_cell_or_for_the_file():
    put(notebook("import torch", f"{NEEDLESS}  # noqa: SW315", f"# stridewise: ignore[SW315]\n{NEEDLESS}"))
    run = lint()
    assert (run.findings, run.suppressed) == ((), 2)
    put(notebook("import torch", "y = 1  # noqa: SW315", NEEDLESS))
    assert places(lint()) == [("SW300", "nb.ipynb:cell 2:1"), ("SW315", "nb.ipynb:cell 3:1")]
    put(notebook("import torch", "# stridewise: skip-file", NEEDLESS))
    assert not lint().findings


def test_a_comment_that_is_a_cells_last_line_or_all_of_it_is_taken_out():
    path = put(notebook("import torch\n# stridewise: ignore[SW315]", "# stridewise: ignore[SW315]", "y = 1"))
    assert len(lint().findings) == 2
    run = lint(fix="safe")
    assert not run.findings
    assert codes(path) == ["import torch", "", "y = 1"]
    assert json.loads(path.read_bytes())["cells"][1]["source"] == []


# ----------------------------------------------------------------------------------------------------- IPython's own


@pytest.mark.parametrize(
    "line",
    [
        "%matplotlib inline",
        "!pip install é 'x",
        "!!ls",
        "?torch",
        "torch.zeros?",
        "torch.zeros??  ",
        "%time?",
        ",f a b",
        ";f a b",
        "/f 1",
        "pip install torch",
        "%timeit -n 10 f(x, y=1)",
        "%time f(x, y=1)",
        "from __future__ import annotations",
        "!echo \\\n   a \\\n\n",
    ],
)
@pytest.mark.parametrize("indent", ["", "    "])
def test_a_line_of_ipythons_own_becomes_a_statement_that_says_nothing(line: str, indent: str):
    first, *following = line.split("\n")
    code = "\n".join([*(["if a:"] if indent else []), indent + first, *following, f"{indent}b = 1"])
    hidden = as_python(code)
    assert hidden is not None
    assert [len(each.encode()) for each in hidden.split("\n")] == [len(each.encode()) for each in code.split("\n")]
    expected = ast.dump(ast.parse("if a:\n    _\n    b = 1" if indent else "_\nb = 1"))
    names = {node.id for node in ast.walk(ast.parse(hidden)) if isinstance(node, ast.Name)} - {"a", "b"}
    assert len(names) == 1
    assert ast.dump(ast.parse(hidden)).replace(names.pop(), "_") == expected


@pytest.mark.parametrize(
    ("line", "target"),
    [("x = !ls", "x"), ("x, y = %magic a=1", "x, y"), ("%time x = f(a=1)", "x"), ("x[0] = !ls 'a", "x[0]")],
)
def test_what_such_a_line_assigns_to_is_not_known_afterwards(line: str, target: str):
    hidden = as_python(f"b = 1\n{line}\n")
    assert hidden is not None
    _, statement = ast.parse(hidden).body
    assert isinstance(statement, ast.Assign)
    assert ast.unparse(statement.targets[0]).strip("()") == target
    assert set(ast.unparse(statement.value)) == {"_"}


@pytest.mark.parametrize(
    "code",
    [
        's = """\n%d\n!x\nwhat?\n"""',
        "a = (b\n% c\n/ d)",
        "a = b \\\n  % c",
        "a = 1  # why?",
        "a = 'x = !ls'",
        's = f"""\n?{a}\n"""',
        "a = [\n    # !\n    1,\n    /2]".replace("/2", "2"),
    ],
)
def test_what_only_looks_like_it_stays(code: str):
    assert as_python(code) == code
    hidden = as_python(f"!ls\n{code}\n!ls\n")
    assert hidden == f"___\n{code}\n___\n"


def test_cell_magics():
    put(
        notebook(
            "import torch",
            f"\n%%time\n{NEEDLESS}",
            f"%%capture out\n{NEEDLESS}",
            f"%%stridewise --budget copies=0\n{NEEDLESS}",
            "%%bash\nls | grep [",
            f"%%timeit -n 1\n{NEEDLESS}",
            "%%writefile a.py\n)",
            "%%html\n<p>",
        )
    )
    run = lint()
    assert places(run) == [("SW315", f"nb.ipynb:cell {where}") for where in ("2:3", "3:2", "4:2")]
    assert not run.unread


def test_a_cell_that_is_no_python_is_named_and_the_others_are_linted_and_fixed():
    path = put(notebook("import torch", "a b", NEEDLESS, "'\ud800'", "(" * 500))
    run = lint(fix="safe")
    assert [(each.cell, each.line) for each in run.unread] == [(2, 1), (4, None), (5, run.unread[2].line)]
    assert run.unread[0].reason == "nb.ipynb:cell 2:1 can't be read as Python: invalid syntax."
    assert codes(path)[:3] == ["import torch", "a b", MENDED]
    assert not run.ok


def test_cells_of_other_languages_and_notebooks_for_other_kernels_are_passed_over():
    put(notebook("import torch", cell(["SELECT 1"], vscode={"languageId": "sql"}), cell(["x"], "raw")))
    assert lint().ok
    for name in ("R", "julia"):
        put(notebook("a <- 1", language=name))
        run = lint()
        assert (run.ok, run.files) == (True, 0)
    put(notebook("a <- 1", language=None, metadata={"language_info": {"name": "R"}}))
    assert lint().files == 0


_PYTHON = st.sampled_from(
    [
        "a = 1",
        "if a:\n    b = (1,\n  % 2)".replace("% 2", "2"),
        'c = """\n%x\n"""',
        "for i in a:\n\n    # é\n    d = i \\\n      % 3",
        "@e\ndef f(x):\n    return x",
        "",
        "# !x",
        "g(\n)",
    ]
)
_OWN = st.sampled_from(["%x", "!ls 'é", "?a", "a.b?", "!a \\\n (", "pip install x", "%load_ext a.b"])


@given(st.lists(_PYTHON, min_size=1), st.data(), st.sampled_from(["\n", "\r\n"]))
def test_with_lines_of_ipythons_own_between_them_statements_read_as_without(
    statements: list[str], data: st.DataObject, newline: str
):
    parts: list[str] = []
    for statement in statements:
        parts += data.draw(st.lists(_OWN, max_size=2))
        parts.append(statement)
    code = "\n".join(parts).replace("\n", newline)
    hidden = as_python(code)
    assert hidden is not None
    kept = [node for node in ast.parse(hidden).body if set(ast.unparse(node)) != {"_"}]
    plain = ast.parse("\n".join(statements)).body
    assert list(map(ast.dump, kept)) == list(map(ast.dump, plain))
    sizes = [[len(line.encode()) for line in text.split("\n")] for text in (code, hidden)]
    assert sizes[0] == sizes[1]


# ------------------------------------------------------------------------------------------------------------- fixes


@pytest.mark.parametrize("how", [{"indent": 1}, {"indent": 4}, {"indent": "\t"}, {"indent": None}, {"sort_keys": True}])
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("source", [lines_of, str])
def test_a_fix_changes_nothing_else_in_the_file(how: dict[str, Any], ascii_only: bool, source: Callable[[str], Any]):
    before = f'!ls "é"\nimport torch\ns = "é\\n\\t😀"\n{NEEDLESS}  # é "q"\nend = !ls\n'
    book = notebook(cell(source(before)), cell(["# Title"], "markdown"), cell(source("print(1)\n")), extra=[1.50, None])
    path = put(book, ensure_ascii=ascii_only, **how)
    content = path.read_bytes()
    run = lint(fix="safe")
    assert run.written
    book["cells"][0]["source"] = source(before.replace(NEEDLESS, MENDED))
    assert path.read_bytes() == text_of(book, ensure_ascii=ascii_only, **({"indent": 1} | how))
    assert content != path.read_bytes()
    assert not lint(fix="safe").fixed


def test_escapes_that_json_does_not_need_stay_in_lines_that_are_not_changed():
    raw = text_of(notebook(f"import torch\nlink = 'a/b'\n{NEEDLESS}")).replace(b"a/b", b"a\\/\\u0062")
    path = put(b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n"))
    expected = path.read_bytes().replace(b".contiguous()", b"")
    lint(fix="safe")
    assert path.read_bytes() == expected


def test_fixes_of_several_lines_and_passes():
    path = put(
        notebook("import torch\n%pwd\nz = x.t()\nif not z.is_contiguous():\n    z = z.contiguous()\n!ls\n", NEEDLESS)
    )
    run = lint(fix="safe")
    assert sum(run.fixed[0].fixes.values()) == 2
    assert codes(path) == ["import torch\n%pwd\nz = x.t()\nz = z.contiguous()\n!ls\n", MENDED]


@pytest.mark.parametrize("indent", [1, None])
def test_a_diff_is_one_that_git_applies(here: Path, indent: int | None):
    path = put(notebook(f"import torch\n{NEEDLESS}"), indent=indent)
    before = path.read_bytes()
    run = lint(fix="safe", diff=True)
    assert path.read_bytes() == before
    Path("nb.patch").write_text(run.diff)
    subprocess.run(["git", "apply", "nb.patch"], check=True, cwd=here)
    applied = path.read_bytes()
    path.write_bytes(before)
    lint(fix="safe")
    assert path.read_bytes() == applied


def test_fixes_are_refused_that_touch_lines_of_ipythons_own(monkeypatch: pytest.MonkeyPatch):
    from stridewise.linter.running import fixing

    def swallow(source: Any, findings: Any, again: Any, tier: Any) -> fixing.Fixed:
        after = source.content.replace(b"___", b"None")
        return fixing.Fixed(source.content, after, {"SW315": 1})

    monkeypatch.setattr(fixing, "mend", swallow)
    path = put(notebook(f"import torch\n!ls\n{NEEDLESS}"))
    before = path.read_bytes()
    run = lint(fix="safe")
    assert [each.reason for each in run.refused] == ["its fixes touch lines of IPython's own"]
    assert path.read_bytes() == before
    assert places(run) == [("SW315", "nb.ipynb:cell 1:3")]


@given(st.data())
def test_any_code_can_be_put_in_a_cell(data: st.DataObject):
    texts = st.text(st.sampled_from(['"', "\\", "n", "\n", "é", "😀", "a", "\r", "\u2028", "/"]))
    old, new = data.draw(texts), data.draw(texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(old)))))
    strings = [old[start:end] for start, end in zip([0, *cuts], [*cuts, len(old)], strict=True)]
    source = data.draw(st.sampled_from([strings, lines_of(old), old]))
    book = notebook("a", cell(source), "b")
    content = text_of(book, data.draw(st.sampled_from([None, 1])), ensure_ascii=data.draw(st.booleans()))
    after = Notebook("nb", content).with_code({2: new})
    assert [each.code for each in Notebook("nb", after).cells] == ["a", new, "b"]
    one, other = json.loads(content), json.loads(after)
    one["cells"][1].pop("source")
    other["cells"][1].pop("source")
    assert one == other
    assert old != new or after == content


# ----------------------------------------------------------------------------------------------- files, cache, formats


BROKEN = {
    b"{": "nb.ipynb:1 is no notebook that can be read: its JSON ends or breaks off here",
    b'{"cells": [\n<<<<<<< HEAD\n': "nb.ipynb:2 is no notebook",
    b"version https://git-lfs.github.com/spec/v1\n": "nb.ipynb:1 is no notebook",
    b"\xff\xfe": "it is not UTF-8",
    b"[1]": "it is no JSON object",
    b"{}": "it says no `nbformat`",
    b'{"nbformat": 4}': "it has no `cells`",
    b'{"nbformat": 3, "worksheets": []}': "its `nbformat` is 3, and 4 is what is read: save it anew in Jupyter",
    b'{"nbformat": 4, "cells": {}}': "`cells` is no list",
    b'{"nbformat": 4, "cells": [1]}': "cell 1 is no object",
    b'{"nbformat": 4, "cells": [{"cell_type": "code"}]}': "cell 1 has no `source`",
    b'{"nbformat": 4, "cells": [{"source": ""}]}': "cell 1 has no `cell_type`",
    b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": [1]}]}': "the source of cell 1 is no text",
    b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": 1}]}': "the source of cell 1 is no text",
    b'{"nbformat": 4, "cells": []} x': "nb.ipynb:1 is no notebook",
    b"[" * 200_000: "it is no JSON object",
    b'{"a": ' + b"[" * 200_000: "it is nested too deeply",
    b'{"a": ' + b"9" * 5_000 + b"}": "is no notebook that can be read",
}


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_what_is_no_notebook_is_told_in_one_line(content: bytes):
    put(content)
    (unread,) = lint().unread
    assert BROKEN[content] in unread.reason
    assert unread.reason.startswith("nb.ipynb")
    assert unread.reason.endswith(".")
    assert "\n" not in unread.reason
    assert "defect" not in unread.reason
    assert (unread.line is not None) == (":1 " in unread.reason or ":2 " in unread.reason)


@given(st.data())
def test_no_cut_or_changed_notebook_raises_anything_else(data: st.DataObject):
    content = text_of(notebook("import torch\nx = 1", cell(["é"], "markdown")))
    at = data.draw(st.integers(0, len(content)))
    changed = content[:at] + data.draw(st.sampled_from([b"", b"}", b"]", b",", b'"', b"\\", b"1"])) + content[at + 1 :]
    for text in (content[:at], changed):
        try:
            Notebook("nb", text)
        except InputError as error:
            assert str(error).startswith("nb")  # noqa: PT017


def test_an_empty_file_is_a_notebook_without_cells_and_numbers_that_json_has_not_are_read():
    put(b"")
    assert lint().ok
    put(notebook("import torch", extra=float("nan")))
    assert lint().ok


def test_a_cell_says_nothing_of_the_encoding_and_may_hold_what_separates_cells():
    code = f"# -*- coding: latin-1 -*-\nimport torch\n# %% 2\n# %%% 3\n{NEEDLESS}  # é"
    path = put(notebook(code, NEEDLESS))
    assert places(lint(fix="safe", diff=True)) == []
    assert places(lint()) == [("SW315", "nb.ipynb:cell 1:5"), ("SW315", "nb.ipynb:cell 2:1")]
    lint(fix="safe")
    assert codes(path) == [code.replace(NEEDLESS, MENDED), MENDED]


def test_what_is_known_of_a_notebook_is_found_again(here: Path):
    path = put(notebook("import torch", NEEDLESS))
    first, second = lint(cache=here / "cache"), lint(cache=here / "cache")
    assert first == second
    path.write_bytes(path.read_bytes().replace(b".contiguous()", b""))
    assert not lint(cache=here / "cache").findings
    put(notebook("import torch", NEEDLESS))
    lint(cache=here / "cache", fix="safe")
    assert lint(cache=here / "cache").ok


def test_in_several_processes_as_in_one():
    padding = cell(["#" * (1 << 20)], "markdown")
    for name in "ab":
        put(notebook("import torch", padding, NEEDLESS, "a b"), f"{name}.ipynb")
    one = lint(name=".")
    assert len(one.findings) == len(one.unread) == 2
    assert lint(name=".", processes=2) == one


def test_what_an_editor_hands_in():
    content = text_of(notebook("import torch", NEEDLESS))
    file = found_by_name("nb.ipynb")
    assert file is not None
    run, after = lint_text(content, file, Options(fix="safe"))
    assert run.fixed
    assert after == content.replace(b".contiguous()", b"")


@pytest.fixture
def run() -> LintRun:
    book = notebook(
        "import torch", cell(["# Title"], "markdown"), f"%pwd\n{STRIDED}\nx.contiguous()\n{NEEDLESS}", "a b"
    )
    put(book)
    return lint()


def rendered(run: LintRun, format: Any) -> str:
    out = io.StringIO()
    lint_report.render(run, out, format=format, color=False, width=100)
    return out.getvalue()


@pytest.mark.parametrize("format", ["text", "github", "junit"])
def test_what_people_read(run: LintRun, format: str, snapshot: SnapshotAssertion):
    assert rendered(run, format) == snapshot


def test_programs_get_the_cell_or_the_line_of_the_file(run: LintRun):
    content = Path("nb.ipynb").read_text().splitlines()
    finding = json.loads(rendered(run, "json"))["findings"][0]
    assert (finding["site"]["file"], finding["site"]["cell"], finding["site"]["line"]) == ("nb.ipynb", 3, 3)
    assert finding["edits"][0]["cell"] == 3
    (sarif,) = json.loads(rendered(run, "sarif"))["runs"]
    for result in sarif["results"]:
        region = result["locations"][0]["physicalLocation"]["region"]
        assert list(region) == ["startLine"]
        assert "fixes" not in result
    assert content[sarif["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] - 1].strip() == (
        '"x.contiguous()\\n",'
    )


@pytest.mark.parametrize("how", [{"indent": None}, {"as_text": True}])
def test_a_file_without_a_line_for_each_of_the_code_has_no_region(how: dict[str, Any]):
    code = f"import torch\n{NEEDLESS}"
    put(notebook(cell(code) if how.pop("as_text", False) else code), **how)
    (sarif,) = json.loads(rendered(lint(), "sarif"))["runs"]
    assert "region" not in sarif["results"][0]["locations"][0]["physicalLocation"]
    assert sarif["results"][0]["message"]["text"].startswith("Cell 1, line 2: ")
