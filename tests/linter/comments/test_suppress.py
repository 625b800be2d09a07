"""Comments that leave findings out: what they cover, which of them are idle, and how those are taken out."""

import ast
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stridewise.config import LintConfig
from stridewise.errors import InputError
from stridewise.findings import Edit
from stridewise.linter.comments import directives, unused
from stridewise.linter.comments.suppress import Suppressed, _Covers, apply, has_comments
from stridewise.linter.engine import check_source
from stridewise.linter.files.settings import Projects, Settings
from stridewise.linter.module import Module
from stridewise.linter.rule import Problem, Rule
from stridewise.source import edits as editing
from stridewise.source.file import SourceFile

EVERY = Projects(LintConfig(select=("SW3",))).settings("example.py")


def check(module: Module) -> Iterator[Problem]:
    for call in module.calls("contiguous"):
        yield Problem(call, "It is called.")


SW301 = Rule(
    *("SW301", "any-call", "", ""),
    words=frozenset({"contiguous"}),
    check=check,
    severity="warning",
    default=True,
    fires=(),
    quiet=(),
)


def heard(text: str | bytes, settings: Settings = EVERY) -> Suppressed:
    """The calls of `contiguous` in a text that are found, and what its comments say of them."""
    source = SourceFile(Path("example.py"), "example.py", text.encode() if isinstance(text, str) else text)
    findings = check_source(source, [SW301])
    result = apply(source, findings, settings)
    assert len(result.kept) + result.count == len(findings)
    return result


def kept(text: str) -> list[int | None]:
    return [finding.site.line for finding in heard(text).kept]


def program(*lines: str) -> str:
    return "\n".join(["import torch", "x = torch.zeros(2, 3)", *lines, ""])


def cleaned(text: str | bytes) -> str:
    """The text with the fixes of idle comments, which are safe and change nothing else."""
    source = SourceFile(Path("example.py"), "example.py", text.encode() if isinstance(text, str) else text)
    offered = [finding.edits for finding in heard(source.content).unused if finding.edits]
    if not offered:
        return source.content.decode(source.encoding)
    edits: list[Edit] = []
    for each in offered:
        if not editing.overlap(edits, each):  # the others come next time
            edits += each
    assert all(edit.safety == "safe" for edit in edits)
    editing.check(source, edits)
    return cleaned(editing.apply(source.content, source.encoding, edits))


# ------------------------------------------------------------------------------------------------------ what they cover


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "#noqa",
        "# NOQA",
        "# noqa F403",
        "# noqa: SW301",
        "# NOQA:SW301",
        "# noqa : sw301",
        "# noqa: SW301 because",
        "# noqa: E501,SW301",
        "# noqa: E501, SW301 # and more",
        "# noqa: E501 SW301",
        "# noqa: SW3",
        "# type: ignore # noqa: SW301",
        "# stridewise: ignore",
        "# stridewise:ignore[SW301]",
        "# Stridewise: Ignore[sw302, sw301] because",
        "# stridewise: ignore[SW3]",
        "# stridewise: skip-file",
    ],
)
def test_comments_that_leave_out(comment):
    assert kept(program("x.contiguous()")) == [3]
    assert kept(program(f"x.contiguous()  {comment}")) == []


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: SW302",
        "# noqa: E501",
        "# noqa:",
        "# noqa: because",
        "# noqa: 301",
        "# noqa: SW3019",
        "# noqas",
        "# noqa-file",
        "# no qa",
        "# flake8: noqa",
        "# ruff: noqa",
        "# write `# noqa: SW301`",
        "# stridewise: ignore[]",
        "# stridewise: ignore[SW302]",
        "# stridewise: ignore[SW301",
        "# stridewise: ignore SW302",
        "# stridewise: ignored",
        "# stridewise: noqa",
        "# stridewise: a tool",
    ],
)
def test_comments_that_leave_nothing_out(comment):
    assert kept(program(f"x.contiguous()  {comment}")) == [3]


def test_what_stands_in_a_string_is_no_comment():
    assert kept(program("x.contiguous(); s = '# noqa'", 's = """', "# stridewise: skip-file", '"""')) == [3]


def test_any_line_of_the_expression_counts_and_the_last_of_the_statement():
    lines = ["(", "    x", "    .contiguous()", ")"]
    assert kept(program(*lines)) == [4]
    for at, covered in enumerate([False, True, True, True]):
        text = program(*(line + "  # noqa: SW301" * (at == number) for number, line in enumerate(lines)))
        assert kept(text) == ([] if covered else [4])


def test_comments_in_brackets_count_beside_one_above_them_all():
    ignore = "# stridewise: ignore[SW301]"
    lines = ("y = [", "x.contiguous(),", f"{ignore}", "x.contiguous(),", "x.contiguous()]")
    assert kept(program(*lines)) == [4, 7]
    assert kept(program(ignore, *lines)) == []


@given(st.lists(st.sampled_from(["", "C", "x.contiguous()", "x.contiguous()  C", "[", "]", "@d", "def f():", "  z"])))
def test_what_is_looked_up_is_what_a_comparison_of_all_with_all_finds(parts):
    text = program(*(part.replace("C", "# stridewise: ignore[SW301]") for part in parts))
    try:
        source = SourceFile(Path("example.py"), "example.py", text.encode())
    except InputError:
        return
    found = directives.directives_of(source)
    for finding in check_source(source, [SW301]):
        line, end = finding.site.line, finding.site.end_line
        covering = [
            at
            for at, each in enumerate(found.found)
            if (
                each.below[0] <= line <= each.below[1]
                if each.below is not None
                else line <= each.line <= end or each.line == found.end(end)
            )
        ]
        assert sorted(_Covers(found).of(finding)) == covering


def test_many_comments_are_read_and_compared_once(monkeypatch):
    looks, walks = Counter(), Counter()
    names, borders = directives.Directive.names, unused._borders
    monkeypatch.setattr(directives.Directive, "names", lambda *of: looks.update("n") or names(*of))
    monkeypatch.setattr(unused, "_borders", lambda tree: walks.update("w") or borders(tree))
    result = heard(program(*["x.contiguous()  # noqa: SW301", "y = 1  # noqa: SW301"] * 200))
    assert (result.count, len(result.unused)) == (200, 200)
    assert (looks["n"], walks["w"]) == (200, 1)


def test_the_functions_that_lines_stand_in():
    text = "\n".join(
        [
            "a = 1",
            "class A:",
            "    @d",
            "    def f(self):",
            "        def g(): return 1",
            "        return g",
            "    b = 2",
            "try: pass",
            "except E:",
            "    def h():",
            "        return 1",
            "def k(): return 1",
            "c = 3",
        ]
    )
    names = [unused.Functions(ast.parse(text)).at(line) for line in range(1, 14)]
    assert names == [None, "A", "A", "A.f", "A.f.g", "A.f", "A", None, None, "h", "h", "k", None]


def test_comments_count_for_their_own_line_only():
    assert kept(program("# noqa: SW301", "x.contiguous()", "x.contiguous()  # noqa: SW301", "x.contiguous()")) == [4, 6]


def test_a_comment_in_the_body_of_a_function_is_not_about_its_head():
    text = program("def f(x):", "    return x  # noqa", "x.contiguous()")
    source = SourceFile(Path("example.py"), "example.py", text.encode())
    (finding,) = check_source(source, [SW301])
    site = replace(finding.site, line=3, end_line=4, expression="def f(x):\n    return x")
    assert apply(source, [replace(finding, site=site)], EVERY).count == 0
    head = SourceFile(Path("example.py"), "example.py", text.replace("(x):", "(x):  # noqa").encode())
    assert apply(head, [replace(finding, site=site)], EVERY).count == 1


def test_a_comment_on_its_own_line_is_about_the_statement_below():
    ignore = "# stridewise: ignore[SW301]"
    assert kept(program(ignore, "", "# why", "(x", ".contiguous())", "x.contiguous()")) == [8]
    assert kept(program("if x.ndim:", f"    {ignore}", "    x.contiguous()", "    x.contiguous()")) == [6]
    assert kept(program(ignore, "if x.ndim:", "    x.contiguous()")) == [5]
    assert kept(program("y = [", f"    {ignore}", "]", "x.contiguous()")) == [6]
    assert kept(program("x.contiguous()", ignore)) == [3]


def test_a_comment_above_decorators_is_about_what_they_decorate():
    text = program("# stridewise: ignore", "@torch.no_grad()", "def f(y=x):", "    x.contiguous()")
    (directive,) = directives.directives_of(SourceFile(Path("a.py"), "a.py", text.encode())).found
    assert directive.below == (4, 5)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_line_ends_and_encodings(newline, encoding):
    lines = [
        f"# coding: {encoding.removesuffix('-sig')}",
        program("\f", 's = "é"; x.contiguous()  # é # noqa: SW301', "x.contiguous()"),
    ]
    text = "\n".join(lines).replace("\n", newline)
    assert [finding.site.line for finding in heard(text.encode(encoding)).kept] == [6]
    idle = text.replace("SW301", "E501, SW302")
    assert cleaned(idle.encode(encoding)).removeprefix("\ufeff") == text.replace("SW301", "E501")


def test_per_file_ignores_count():
    ignored = LintConfig(per_file_ignores=(("example.py", ("SW301",)),))
    result = heard(program("x.contiguous()", "x.contiguous()  # noqa: SW301"), Projects(ignored).settings("example.py"))
    assert (result.kept, result.count, result.unused) == ((), 2, ())


def test_a_file_that_tokenize_cannot_read_is_guessed_at(monkeypatch):
    text = program(
        "x.contiguous()  # noqa: SW301", "y = 1  # noqa: SW301", "x.contiguous()  # noqa: SW301", "x.contiguous()"
    )
    read = tokenize.generate_tokens

    def stop(readline):
        for token in read(readline):
            if token.start[0] == 4:
                raise tokenize.TokenError("no reason", token.start)
            yield token

    monkeypatch.setattr(tokenize, "generate_tokens", stop)
    result = heard(text)
    assert [finding.site.line for finding in result.kept] == [6]
    assert result.unused == ()  # a guess is not enough to take something out


def test_only_files_with_such_comments_are_read(monkeypatch):
    monkeypatch.setattr(tokenize, "generate_tokens", lambda readline: pytest.fail("it was read"))
    assert kept(program("x.contiguous()")) == [3]
    assert kept(program("y = 1  # noqa", "y = 2  # noqa: E501")) == []
    assert not has_comments(b"y = 1  # noqa: E501")
    assert has_comments(b"y = 1  # NoQA: E501, sw301")
    assert has_comments(b"# Stridewise : skip-file")


# ------------------------------------------------------------------------------------------------------- idle comments


def messages(*lines: str, settings: Settings = EVERY) -> list[str]:
    return [finding.message for finding in heard(program(*lines), settings).unused]


def test_what_is_said_of_idle_comments(snapshot):
    assert (
        messages(
            "y = 1  # noqa: SW301",
            "y = 1  # noqa: SW301, E501, SW302, SW399",
            "x.contiguous()  # noqa: SW301, SW302",
            "y = 1  # stridewise: ignore",
            "y = 1  # stridewise: ignore[SW3]",
            "y = 1  # stridewise: ignroe[SW301]",
            "y = 1  # stridewise: ignore SW301",
            "y = 1  # stridewise: ignore[SW301",
            "y = 1  # noqa: SW999",
        )
        == snapshot
    )


@pytest.mark.parametrize("listed", ["", " ", ",", " , "])
def test_an_empty_list_is_a_mistake(listed):
    (message,) = messages(f"x.contiguous()  # stridewise: ignore[{listed}]")
    assert message.startswith(f"`# stridewise: ignore[{listed}]` can't be understood")


def test_what_is_not_said_to_be_idle():
    quiet = ("# noqa", "# noqa: E501", "# noqa: SW101", "# noqa: SW301, SW300", "# stridewise: a tool for tensors")
    for comment in (*quiet, "# stridewise: ignore[SW101]"):
        assert messages(f"y = 1  {comment}") == []
    assert messages("# stridewise: skip-file", "y = 1  # noqa: SW301") == []


def test_codes_of_rules_that_did_not_run_are_not_said_to_be_idle():
    some = Projects(LintConfig(select=("SW300", "SW302"))).settings("example.py")
    lines = ("y = 1  # noqa: SW301", "y = 1  # stridewise: ignore", "y = 1  # noqa: SW3")
    assert messages(*lines, settings=some) == []
    assert len(messages(*lines)) == 3
    assert (
        len(messages(*lines, settings=Projects().settings("example.py"))) == 3
    )  # those that are off are not waited for
    assert messages(*lines, settings=Projects(LintConfig(ignore=("SW300",))).settings("example.py")) == []
    left_out = LintConfig(per_file_ignores=(("example.py", ("SW300",)),))
    assert messages(*lines, settings=Projects(left_out).settings("example.py")) == []


def test_where_an_idle_comment_stands():
    first, second = heard(
        program("class A:", "    def f(self):", "        y = 1  # noqa: SW301", "        y = 1  # noqa: SW301")
    ).unused
    assert (first.code, first.title, first.severity) == ("SW300", "unused-suppression", "note")
    assert (first.site.line, first.site.column, first.site.end_column) == (5, 15, 28)
    assert first.site.function == "A.f"
    assert first.site.expression == "# noqa: SW301"
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("y = 1  # noqa: SW301", "y = 1"),
        ("y = 1\t#noqa:SW301,", "y = 1"),
        ("y = 1  # noqa: SW301, SW302", "y = 1"),
        ("y = 1  # noqa: SW301 because", "y = 1  # because"),
        ("y = 1  # noqa: SW301 - because", "y = 1  # because"),
        ("y = 1  # noqa: SW301  # type: ignore", "y = 1  # type: ignore"),
        ("y = 1  # type: ignore  # noqa: SW301", "y = 1  # type: ignore"),
        ("y = 1  # why # noqa: SW301 # more", "y = 1  # why # more"),
        ("y = 1  # noqa: E501, SW301", "y = 1  # noqa: E501"),
        ("y = 1  # noqa: SW301,E501,SW302 F401 why", "y = 1  # noqa: E501 F401 why"),
        ("y = 1  # noqa: SW399", "y = 1"),
        ("y = 1  # stridewise: ignore", "y = 1"),
        ("y = 1  # stridewise: ignore[SW301] why", "y = 1  # why"),
        ("x.contiguous()  # stridewise: ignore[SW302, SW301]", "x.contiguous()  # stridewise: ignore[SW301]"),
        ("y = 1  # noqa: SW301  # stridewise: ignore[SW301]", "y = 1"),
        ("y = 1  # stridewise: ignore[SW301", "y = 1  # stridewise: ignore[SW301"),
        ("y = 1  # stridewise: ignore[discarded-result]", "y = 1"),
        ("y = 1  # stridewise: disable=SW301", "y = 1  # stridewise: disable=SW301"),
    ],
)
def test_idle_comments_are_taken_out(line, clean):
    assert cleaned(program(line)) == program(clean)


def test_a_line_that_holds_nothing_else_goes_with_it():
    assert cleaned(program("if x.ndim:", "    # noqa: SW301", "    y = 1")) == program("if x.ndim:", "    y = 1")
    assert cleaned("y = 1\n# stridewise: ignore[SW301]") == "y = 1\n"
    assert cleaned("# noqa: SW301\r\ny = 1\r\n") == "y = 1\r\n"


CODES = st.lists(st.sampled_from(["SW301", "SW302", "SW3", "SW399", "E501", "W6"]), min_size=1, max_size=4)
SEPARATORS = st.sampled_from([",", ", ", " ", " , "])


@given(
    codes=CODES,
    separator=SEPARATORS,
    form=st.sampled_from(["# noqa: {}", "#noqa:{}", "# stridewise: ignore[{}]"]),
    before=st.sampled_from(["y = 1  ", "x.contiguous() ", "", "é = 'é' # é "]),
    after=st.sampled_from(["", " ", " why", "  # type: ignore", " - é"]),
)
def test_taking_out_changes_no_code_and_no_other_tool(codes, separator, form, before, after):
    text = program(before + form.format(separator.join(codes)) + after, "y = 2")
    clean = cleaned(text)
    others = [code for code in codes if not code.startswith("SW") and "noqa" in form]
    assert [code for code in others if code in clean] == others
    assert after.strip(" -#") in clean
    assert [finding.site.line for finding in heard(clean).kept] == kept(text)
