"""What the shell offers for the words of a call, each word with what it means. Nothing imports torch."""

from collections.abc import Iterator

Words = Iterator[tuple[str, str]]


def code(incomplete: str) -> Words:
    """Codes, each with its title."""
    from stridewise.report.codes import all_docs

    for doc in all_docs():
        if doc.code.startswith(incomplete):
            yield doc.code, doc.title


def codes(incomplete: str) -> Words:
    """Codes in a list such as `SW101,SW1`: what stands before the last comma is kept."""
    given, comma, last = incomplete.rpartition(",")
    taken = set(given.split(","))
    for name, title in code(last):
        if name not in taken:
            yield f"{given}{comma}{name}", title


def source_codes(incomplete: str) -> Words:
    """The codes of source rules alone, in such a list."""
    return ((word, title) for word, title in codes(incomplete) if word.rpartition(",")[2].startswith("SW3"))


def code_or_title(incomplete: str) -> Words:
    """What `stridewise rule` takes: a code, or a title if that is what was begun."""
    from stridewise.report.codes import all_docs

    yield from code(incomplete)
    for doc in all_docs():
        if incomplete and doc.title.startswith(incomplete):
            yield doc.title, doc.code


def kinds(incomplete: str) -> Words:
    """Kinds of edits."""
    from stridewise.repair.kinds import all_kinds

    return ((kind.name, kind.summary) for kind in all_kinds() if kind.name.startswith(incomplete))


def results(incomplete: str) -> Words:
    """Results that have a schema."""
    from stridewise.report.schema import RESULTS

    return ((name, written.by) for name, written in RESULTS.items() if name.startswith(incomplete))


def experiments(incomplete: str) -> Words:
    """Experiments of the lab."""
    from stridewise.lab.catalogue import names

    return ((name, "") for name in names() if name.startswith(incomplete))
