"""What codes mean, whichever part of stridewise finds them."""

import subprocess
import sys

import pytest

from stridewise.linter.rules import UNUSED
from stridewise.linter.rules import all_rules as source_rules
from stridewise.report.codes import all_docs, doc


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
