"""What codes mean, whichever part of stridewise finds them."""

import re
import subprocess
import sys

import pytest

from stridewise.errors import UsageError
from stridewise.linter.rules import UNUSED
from stridewise.linter.rules import all_rules as source_rules
from stridewise.report.codes import RECORDED, all_docs, doc, require_kept, require_known


def test_all_parts_are_there_once_and_in_order():
    codes = [known.code for known in all_docs()]
    assert codes == sorted(set(codes))
    assert {UNUSED.code, *(rule.code for rule in source_rules()), "SW101", "SW104"} <= set(codes)


def test_each_has_a_title_of_its_own():
    titles = [known.title for known in all_docs()]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("known", all_docs(), ids=lambda known: known.code)
def test_each_is_found_by_its_code(known):
    assert doc(known.code) == known
    assert known.summary
    assert known.doc


@pytest.mark.parametrize("code", ["SW3", "SW399", "SW199", "", "sw301"])
def test_what_is_no_code_means_nothing(code):
    assert doc(code) is None


def test_source_rules_are_explained_without_the_rest():
    program = "import sys; from stridewise.report.codes import doc; doc('SW301')\n"
    program += "print([name for name in ('torch', 'numpy', 'stridewise.analysis') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


@pytest.mark.parametrize("code", ["SW", "SW1", "SW103", "SW5", "SW501"])
def test_what_a_recording_can_have(code):
    require_known("forbid", [code], RECORDED)


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("SW3", "which only `stridewise lint` finds, by its own settings in [tool.stridewise.lint]"),
        ("SW313", "which only `stridewise lint` finds"),
        ("SW2", "which only `stridewise check` finds"),
        ("SW401", "which only `stridewise check` finds"),
        ("SW104", "which only `stridewise fix` finds"),
        ("SW109", "which only `stridewise fix` finds"),
        ("SW999", "which no rule has"),
    ],
)
def test_what_a_recording_cannot_have_is_refused_with_where_it_is_found(code, where):
    with pytest.raises(UsageError, match=rf"^forbid names {code}, {re.escape(where)}") as caught:
        require_known("forbid", ["SW103", code], RECORDED)
    assert len(str(caught.value).splitlines()) == 1


def test_what_only_the_compiler_shows_is_told_apart():
    with pytest.raises(UsageError, match="forbid names SW501, which only `run` and `trace` have, with --compiled"):
        require_known("forbid", ["SW501"], ("recordings",))


@pytest.mark.parametrize(
    ("select", "ignore", "said"),
    [
        ((), ("SW103",), "SW103, which ignore leaves out"),
        ((), ("SW1",), "SW103, which ignore leaves out"),
        (("SW101",), (), "SW103, which select leaves out"),
        (("SW101",), ("SW103",), "SW103, which ignore leaves out"),
    ],
)
def test_what_is_forbidden_and_hidden_is_a_contradiction(select, ignore, said):
    with pytest.raises(UsageError, match=f"budget: forbid names {said} of the report"):
        require_kept(["SW103"], select, ignore)


def test_of_many_codes_some_may_be_hidden():
    require_kept(["SW1"], (), ["SW103"])
    require_kept(["SW1"], ["SW103"], ())
    with pytest.raises(UsageError, match="SW10, which select and ignore leave out"):
        require_kept(["SW10"], ["SW103"], ["SW103"])
