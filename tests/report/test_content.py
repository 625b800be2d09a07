"""Where offsets lie in the text of a file, and which lines edits change: whatever ends lines, in any encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.findings import Edit
from stridewise.report.content import Change, Content, Contents, on_disk
from stridewise.source import edits as editing

from . import lints

ENCODINGS = {"utf-8": b"", "utf-8-sig": b"", "latin-1": b"# -*- coding: latin-1 -*-\n"}
lines = st.lists(st.text(st.sampled_from("ab ü\t"), max_size=6), min_size=1, max_size=6)
newlines = st.sampled_from(["\n", "\r\n", "\r"])


def replaced(span, text):
    return Edit("m.py", span, text, "safe")


@given(lines, newlines, st.sampled_from(list(ENCODINGS)), st.data())
def test_changed_lines_put_in_place_are_the_edited_file(texts, newline, encoding, data):
    head = ENCODINGS[encoding].decode().replace("\n", newline)
    text = head + newline.join(texts)
    content = text.encode(encoding)
    mark = 3 if encoding == "utf-8-sig" else 0
    codec = encoding.removesuffix("-sig")
    at = sorted(data.draw(st.lists(st.integers(len(head), len(text)), max_size=6, unique=True)))
    offsets = [mark + len(text[:place].encode(codec)) for place in at]
    edits = [
        replaced(span, data.draw(st.sampled_from(["", "x", f"x{newline}y", "ü"])))
        for span in zip(offsets[::2], offsets[1::2], strict=False)
        # Between the two halves of a line's end no node begins.
        if not any(content[place - 1 : place + 1] == b"\r\n" for place in span)
    ]
    after = text.split(newline)
    for change in reversed(Content(content).changes(edits)):
        start = change.line - 1
        assert tuple(after[start : start + len(change.old)]) == change.old
        after[start : start + len(change.old)] = change.new
    edited = editing.apply(content, encoding, edits).decode(encoding)
    assert newline.join(after).replace("\r\n", "\n").replace("\r", "\n") == edited.replace("\r\n", "\n").replace(
        "\r", "\n"
    )


@given(lines, newlines, st.sampled_from(list(ENCODINGS)), st.data())
def test_positions_count_characters(texts, newline, encoding, data):
    text = ENCODINGS[encoding].decode().replace("\n", newline) + newline.join(texts)
    place = data.draw(st.integers(0, len(text)))
    before = text[:place]
    codec = encoding.removesuffix("-sig")
    content = Content(text.encode(encoding))
    offset = (3 if encoding == "utf-8-sig" else 0) + len(before.encode(codec))
    if text[place - 1 : place + 1] == "\r\n":
        return
    line, column = content.position(offset)
    starts = before.replace("\r\n", "\n").replace("\r", "\n")
    assert (line, column) == (starts.count("\n") + 1, len(starts) - starts.rfind("\n"))
    assert content.line(line) == text.split(newline)[line - 1]


def test_edits_far_apart_are_changes_of_their_own():
    content = Content(b"a\nb\nc\nd\n")
    edits = [replaced((0, 1), "A"), replaced((6, 7), "D")]
    assert content.changes(edits) == (Change(1, ("a",), ("A",)), Change(4, ("d",), ("D",)))
    inserted = [replaced((4, 4), "new\n"), replaced((5, 5), "\nnext")]
    assert content.changes(inserted) == (Change(3, ("c",), ("new", "c", "next")),)
    assert content.changes([replaced((2, 4), "")]) == (Change(2, ("b",), ()),)


def test_lines_that_are_not_there():
    content = Content(b"a\n")
    assert [content.line(number) for number in range(4)] == [None, "a", "", None]


def test_what_cannot_be_had(tmp_path):
    (tmp_path / "m.py").write_bytes(b"x")
    assert on_disk(str(tmp_path / "m.py")) == b"x"
    assert [on_disk(name) for name in (str(tmp_path), str(tmp_path / "n.py"), "a\0b")] == [None, None, None]
    with pytest.raises(ValueError, match="nothing"):
        Content(b"# -*- coding: nothing -*-\n")
    assert Contents(lambda _: b"# -*- coding: nothing -*-\n").get("m.py") is None


def test_a_file_is_read_once():
    asked = []
    contents = Contents(lambda file: asked.append(file) or lints.read(file))
    assert contents.changes(lints.DISCARDED) == contents.changes(lints.DISCARDED)
    assert contents.changes(lints.DISCARDED)[0].new == ("        x = x.contiguous()",)
    assert asked == ["model.py"]
