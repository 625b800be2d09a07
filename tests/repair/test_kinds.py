"""Every kind of candidate proposes what its own examples say, and nothing for the others."""

from pathlib import Path

import pytest

from stridewise.errors import UsageError
from stridewise.repair.kinds import Kind, all_kinds, chosen

from .running import context_of, edited, load, proposals


def examples() -> list[object]:
    return [
        pytest.param(kind, before, after, id=f"{kind.name}-{number}")
        for kind in all_kinds()
        for number, (before, after) in enumerate(kind.examples)
    ]


def quiet() -> list[object]:
    return [
        pytest.param(kind, source, id=f"{kind.name}-{number}")
        for kind in all_kinds()
        for number, source in enumerate(kind.quiet)
    ]


@pytest.mark.parametrize(("kind", "before", "after"), examples())
def test_it_proposes(kind: Kind, before: str, after: str, tmp_path: Path) -> None:
    context = context_of(load(tmp_path, before))
    texts = [edited(context, candidate) for candidate in proposals(kind, context) if candidate.edits]
    assert after in texts


@pytest.mark.parametrize(("kind", "source"), quiet())
def test_it_proposes_nothing(kind: Kind, source: str, tmp_path: Path) -> None:
    assert proposals(kind, context_of(load(tmp_path, source))) == []


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_it_is_documented(kind: Kind) -> None:
    assert kind.summary.endswith(".")
    assert kind.answers
    assert kind.examples
    assert kind.quiet


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (["hoist"], ("hoist",)),
        (["copy_at_origin"], ("copy-at-origin",)),
        (["channels-last"], ("channels-last-at-origin", "channels-last-model")),
        (["channels_last", "hoist", "hoist"], ("channels-last-at-origin", "channels-last-model", "hoist")),
        (["channels_last_model"], ("channels-last-model",)),
        ([], ()),
    ],
    ids=str,
)
def test_kinds_by_name(names, kinds):
    assert chosen(names) == kinds


@pytest.mark.parametrize(("name", "hint"), [("hoists", "did you mean hoist?"), ("x", "there are drop-copy, ")])
def test_a_kind_that_is_none(name, hint):
    with pytest.raises(UsageError, match=f"`{name}` names no kind of edit: {hint}".replace("?", r"\?")):
        chosen([name])
