"""The page on `fix` says what the code does: kinds, fields, tolerances and thresholds."""

import importlib.util
import re
from pathlib import Path

from stridewise.cli.options import Format
from stridewise.measure import statistics
from stridewise.repair.kinds import all_kinds
from stridewise.repair.trial import observe
from stridewise.results.repair import EditedFile, Measurement, Repair, Trial, Untried

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "reference" / "fix.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())


def test_kinds_are_those_of_the_code():
    spec = importlib.util.spec_from_file_location("kinds_of_docs", DOCS / "kinds.py")
    kinds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kinds)
    assert kinds.page(all_kinds()) == TEXT, "python docs/kinds.py"
    assert TEXT.count("**`") == len(all_kinds())


def test_every_field_of_the_json_is_told():
    told = set(re.findall(r"`(\w+)`", TEXT.partition("## As JSON")[2]))
    for struct in (Repair, Trial, Measurement, EditedFile, Untried):
        assert set(struct.__struct_fields__) <= told, struct


def test_every_format_is_told():
    *others, last = (f"`{name}`" for name in Format)
    assert f"{', '.join(others)} or {last}" in TEXT


def test_figures_are_those_of_the_code():
    assert observe.in_words(None) in WORDS
    looks = [str(pairs) for pairs in statistics.LOOKS]
    assert f"After {', '.join(looks[:-1])} and {looks[-1]} pairs" in WORDS
    fewest = next(pairs for pairs in range(1, 99) if statistics.look([0.0] * pairs, last=True) is not None)
    assert f"looks once more at what it has, from {fewest} pairs on" in WORDS
    assert f"wholly below {statistics.WIN:g} of the time" in WORDS
    assert f"{100 * statistics.CONFIDENCE:g} % confidence" in WORDS
