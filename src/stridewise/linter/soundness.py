"""Which fixes of a file change no more than they name, and which of them can be made together."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from stridewise.findings import Edit
from stridewise.source import edits as editing
from stridewise.source.file import SourceFile

Fix = Sequence[Edit]
"""Edits that are made together or not at all."""


def together(fixes: Sequence[Fix]) -> list[int]:
    """Give the positions of fixes that can be made at once: of those that overlap the first."""
    chosen: list[int] = []
    taken: list[tuple[int, int, int, Edit]] = []
    for position, fix in enumerate(fixes):
        if not any(editing.overlap([other], [edit]) for edit in fix for other in _near(taken, edit)):
            chosen.append(position)
            for edit in fix:
                insort(taken, (*edit.span, len(taken), edit))
    return chosen


def sound(source: SourceFile, fixes: Sequence[Fix]) -> list[bool]:
    """Tell of each fix whether the file compiles with it, and to the tree that it names.

    A try reads the whole file, so fixes that do not overlap are tried together, and parted only where that fails.
    """
    result = [not fix for fix in fixes]
    waiting = [position for position, fix in enumerate(fixes) if fix]
    while waiting:
        first = {waiting[at] for at in together([fixes[position] for position in waiting])}
        groups = [[position for position in waiting if position in first]]
        waiting = [position for position in waiting if position not in first]
        while groups:
            group = groups.pop()
            if is_sound(source, [edit for position in group for edit in fixes[position]]):
                for position in group:
                    result[position] = True
            elif len(group) > 1:
                middle = len(group) // 2
                groups += [group[:middle], group[middle:]]
    return result


def is_sound(source: SourceFile, edits: Fix) -> bool:
    """Whether the file compiles with some edits, and to the tree that they name."""
    try:
        if edits:
            editing.check(source, edits)
    except ValueError:
        return False
    return True


def loses_comment(source: SourceFile, edits: Fix) -> bool:
    """Whether a comment may stand in what some edits replace, and in nothing that they put there."""
    before = sum(source.content[slice(*edit.span)].count(b"#") for edit in edits)
    return before > sum(edit.replacement.count("#") for edit in edits)


def _near(taken: Sequence[tuple[int, int, int, Edit]], edit: Edit) -> Iterator[Edit]:
    """Those of some edits, by where they stand and none over another, that an edit may overlap."""
    start, end = edit.span
    at = bisect_left(taken, (end,))
    while at and taken[at - 1][1] > start:
        at -= 1
        yield taken[at][3]
