"""Which fixes can be made together, and which change no more than they name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.findings import Edit
from stridewise.linter import soundness
from stridewise.linter.soundness import is_sound, sound, together
from stridewise.source import edits as editing
from stridewise.source.file import SourceFile

SPANS = st.tuples(st.integers(0, 12), st.integers(0, 4)).map(lambda each: (each[0], each[0] + each[1]))
FIXES = st.lists(st.lists(st.builds(Edit, st.just("a.py"), SPANS, st.sampled_from("xy"), st.just("safe")), max_size=3))


@given(FIXES)
def test_fixes_together_are_those_that_overlap_none_before(fixes: list[list[Edit]]) -> None:
    expected: list[int] = []
    for position, fix in enumerate(fixes):
        # A fix that overlaps itself is none that could be made.
        if not any(editing.overlap(fixes[other], fix) for other in expected):
            expected.append(position)
    if not any(editing.overlap([one], [other]) for fix in fixes for one in fix for other in fix):
        assert together(fixes) == expected


def source_of(text: str) -> SourceFile:
    return SourceFile(Path("a.py"), "a.py", text.encode())


def replaces(source: SourceFile, old: str, new: str, nth: int = 0) -> list[Edit]:
    start = -1
    for _ in range(nth + 1):
        start = source.content.index(old.encode(), start + 1)
    return [Edit("a.py", (start, start + len(old)), new, "safe")]


def test_each_is_judged_alone() -> None:
    source = source_of("y = a + b * c\nz = d\n")
    fixes = [
        replaces(source, "a", "e"),
        replaces(source, "b", "e + f"),  # binds to less than it should
        replaces(source, "d", "(e"),
        [],
        replaces(source, "d", "e"),
        replaces(source, "z = d", "z = e"),
    ]
    assert sound(source, fixes) == [is_sound(source, fix) for fix in fixes] == [True, False, False, True, True, True]


def test_many_good_ones_are_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = source_of("y = a\n" * 64)
    tries: list[int] = []

    def counting(file: SourceFile, edits: soundness.Fix) -> bool:
        tries.append(len(edits))
        return is_sound(file, edits)

    monkeypatch.setattr(soundness, "is_sound", counting)
    good = [replaces(source, "a", "b", nth) for nth in range(64)]
    assert sound(source, good) == [True] * 64
    assert tries == [64]
    tries.clear()
    bad = [*good[:40], replaces(source, "a", "(b", 40), *good[41:]]
    assert sound(source, bad) == [True] * 40 + [False] + [True] * 23
    assert len(tries) == 13
