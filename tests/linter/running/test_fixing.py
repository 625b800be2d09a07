"""Fixes in the text of a file: which are made, in what order, and what stays as it was."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.findings import Finding
from stridewise.linter.engine import check_source
from stridewise.linter.rule import Rule
from stridewise.linter.running.fixing import Fixed, Tier, Unsettled, mend
from stridewise.source.file import SourceFile

from ..toys import HEAD, names, renames, wraps

OLD = renames("SW391", "old", "new")
UNSAFE = renames("SW392", "risky", "better", safety="unsafe")
SHOWN = renames("SW393", "look", "looked", safety="display")
COMMENTS = renames("SW300", "comment", "nothing")


def looking(*rules: Rule) -> Callable[[SourceFile], tuple[Finding, ...]]:
    return lambda source: check_source(source, rules)


def fixed(content: bytes | str, *rules: Rule, tier: Tier = "safe") -> Fixed | None:
    content = content.encode() if isinstance(content, str) else content
    source = SourceFile(Path("toy.py"), "toy.py", content)
    look = looking(*rules)
    return mend(source, look(source), look, tier)


def test_safe_fixes_are_made_and_others_are_not() -> None:
    text = HEAD + "old(risky(look()))\n"
    result = fixed(text, OLD, UNSAFE, SHOWN)
    assert result == Fixed(text.encode(), (HEAD + "new(risky(look()))\n").encode(), {"SW391": 1})


def test_unsafe_fixes_are_made_when_asked_for_and_those_for_display_never() -> None:
    result = fixed(HEAD + "old(risky(look()))\n", OLD, UNSAFE, SHOWN, tier="unsafe")
    assert result is not None
    assert names(result.after) == ["new", "better", "look"]
    assert result.fixes == {"SW391": 1, "SW392": 1}


def test_nothing_to_fix() -> None:
    assert fixed(HEAD + "new(look())\n", OLD, SHOWN) is None
    assert fixed(HEAD, OLD) is None


def test_fixes_that_overlap_are_made_one_after_the_other() -> None:
    result = fixed(HEAD + "old(old(old(1)))\n", wraps("SW391", "old", "new"))
    assert result is not None
    assert result.after.decode() == HEAD + "new(new(new(1)))\n"
    assert result.fixes == {"SW391": 3}


def test_what_a_fix_brings_about_is_fixed_too() -> None:
    result = fixed(HEAD + "a()\n", renames("SW391", "a", "b"), renames("SW392", "b", "c"))
    assert result is not None
    assert names(result.after) == ["c"]
    assert result.fixes == {"SW391": 1, "SW392": 1}


def test_comments_that_suppress_nothing_go_last() -> None:
    """Which these are is known when nothing else is left to fix."""
    seen: list[list[str]] = []
    look = looking(COMMENTS, renames("SW391", "a", "b"), renames("SW392", "b", "c"))

    def again(source: SourceFile) -> Sequence[Finding]:
        seen.append(names(source.content))
        return look(source)

    source = SourceFile(Path("toy.py"), "toy.py", (HEAD + "comment(a())\n").encode())
    assert mend(source, look(source), again, "safe") is not None
    assert seen == [["comment", "b"], ["comment", "c"], ["nothing", "c"]]


def test_fixes_that_undo_each_other_are_told_and_not_made() -> None:
    with pytest.raises(Unsettled, match="come to no end"):
        fixed(HEAD + "a()\n", renames("SW391", "a", "b"), renames("SW392", "b", "a"))


def test_fixes_that_can_not_be_made_together_are_made_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fix that changes more than it names, for whatever reason, is left out, and the others are made."""
    from stridewise.source import edits as editing

    check = editing.check

    def refuse(source: SourceFile, edits: Sequence[object]) -> None:
        if any(source.content[slice(*edit.span)] == b"bad" for edit in edits):  # type: ignore[attr-defined]
            raise ValueError
        check(source, edits)  # type: ignore[arg-type]

    text = HEAD + "bad(old())\n"
    source = SourceFile(Path("toy.py"), "toy.py", text.encode())
    look = looking(OLD, renames("SW392", "bad", "good"))
    findings = look(source)
    monkeypatch.setattr(editing, "check", refuse)
    result = mend(source, findings, lambda changed: [f for f in findings if f.code == "SW392"], "safe")
    assert result is not None
    assert names(result.after) == ["bad", "new"]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xef\xbb\xbfimport torch\nold()\n", id="byte order mark"),
        pytest.param(b"import torch\r\nold()\r\nx = '''a\r\nb'''\r\n", id="carriage returns"),
        pytest.param(b"import torch\rold()\r", id="lone carriage returns"),
        pytest.param("# -*- coding: latin-1 -*-\nimport torch\nx = 'é'; old('ü')\n".encode("latin-1"), id="latin-1"),
        pytest.param(b"import torch\n\x0c\ndef f():\n    pass\n\x0cold()\n", id="form feeds"),
        pytest.param(b"import torch\nold()", id="no line feed at the end"),
        pytest.param(b"import torch\nif 1:\n\told()  # a\tcomment  \n\n\n", id="tabs and blanks"),
        pytest.param("import torch\nx = 'é→😀'; old('é'), old()\n".encode(), id="wide characters"),
    ],
)
def test_all_other_bytes_stay(content: bytes) -> None:
    result = fixed(content, OLD)
    assert result is not None
    assert result.after == content.replace(b"old", b"new")


CALLS = st.recursive(
    st.sampled_from(["a()", "b()", "c()", "x"]),
    lambda inner: (
        st.builds("{0}({1})".format, st.sampled_from("abcd"), inner) | st.builds("[{0}, {1}]".format, inner, inner)
    ),
    max_leaves=8,
)


@given(st.lists(CALLS, max_size=5))
def test_afterwards_nothing_is_left_to_fix(expressions: list[str]) -> None:
    rules = (wraps("SW391", "a", "b"), renames("SW392", "b", "c"))
    text = HEAD + "".join(f"y = {expression}\n" for expression in expressions)
    text = text.replace("a()", "a(x)")
    result = fixed(text, *rules)
    after = text.encode() if result is None else result.after
    assert names(after) == [name.replace("a", "c").replace("b", "c") for name in names(text)]
    assert fixed(after, *rules) is None
