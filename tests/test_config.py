"""Budgets and `[tool.stridewise]`: what reads, what is refused with which words, and what is exceeded."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stridewise.config import (
    Budget,
    Config,
    LintConfig,
    load_config,
    parse_budget,
    parse_codes,
    parse_ignores,
    parse_patterns,
    parse_share,
    read_lint_config,
)
from stridewise.errors import InputError, UsageError

from .report.samples import NO_COPY, RICH, UNMEASURED

amounts = st.none() | st.floats(min_value=0, allow_nan=False, allow_infinity=False, max_value=1e18)
shares = st.none() | st.floats(min_value=0, max_value=1)
codes = st.integers(0, 999).map(lambda number: f"SW{number:03}") | st.sampled_from(["SW", "SW1", "SW20"])
budgets = st.builds(
    Budget,
    copies=amounts,
    bytes_moved=amounts,
    share=shares,
    duration_ns=amounts,
    forbid=st.lists(codes, unique=True).map(tuple),
)


@given(budgets)
def test_a_budget_reads_as_itself_again(budget):
    assert parse_budget(str(budget)) == budget


@given(
    st.integers(0, 10**6),
    st.sampled_from([("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("KiB", 2**10), ("MiB", 2**20)]),
    st.sampled_from(["", " "]),
)
def test_bytes_with_units(number, unit, space):
    name, factor = unit
    assert parse_budget(f"bytes={number}{space}{name}") == Budget(bytes_moved=number * factor)
    assert parse_budget(f"bytes={number}{space}{name.lower()}") == Budget(bytes_moved=number * factor)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("", Budget()),
        ("copies=0", Budget(copies=0)),
        (
            "copies=0,bytes=1MB,share=2%,time=3ms,forbid=SW103+SW101",
            Budget(0, 1_000_000, 0.02, 3_000_000, ("SW103", "SW101")),
        ),
        (" copies = 2 , forbid = sw1 ,forbid=SW2, ", Budget(copies=2, forbid=("SW1", "SW2"))),
        ("COPIES=2,Bytes=1mb,FORBID=sw1", Budget(copies=2, bytes_moved=1_000_000, forbid=("SW1",))),
        ("bytes=1.1MB", Budget(bytes_moved=1_100_000)),
        ("bytes=512", Budget(bytes_moved=512)),
        ("share=0.02", Budget(share=0.02)),
        ("share=0.5 %", Budget(share=0.005)),
        ("share=1", Budget(share=1)),
        ("time=250us", Budget(duration_ns=250_000)),
        ("time=250µs", Budget(duration_ns=250_000)),
        ("time=250\N{GREEK SMALL LETTER MU}s", Budget(duration_ns=250_000)),
        ("time=.5s", Budget(duration_ns=500_000_000)),
    ],
)
def test_budgets_that_read(text, budget):
    assert parse_budget(text) == budget


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("copies", "`copies` has no value"),
        ("copies=", "`copies=` has no value"),
        ("copies=1,copies=2", "copies is given twice"),
        ("copies=1,Copies=2", "copies is given twice"),
        (",", "it has no limit"),
        (" , ,", "it has no limit"),
        ("forbid=+", "forbid: `` is no code"),
        ("forbid=SW103+", "forbid: `` is no code"),
        ("copies=-1", "copies: `-1` is not a number of copies"),
        ("copies=1MB", "copies: `1MB` is not a number of copies"),
        ("copies=1e999", "copies: `1e999` is not a number of copies"),
        ("copies=1e-999", "copies: `1e-999` is not a number of copies"),
        ("copies=nan", "copies: `nan` is not a number of copies"),
        ("copies=\N{ARABIC-INDIC DIGIT THREE}", "is not a number of copies"),
        ("bytes=1Mb/s", "bytes: `1Mb/s` is not a number of bytes such as 1MB or 512KiB"),
        ("share=2", "share: `2` is more than a whole step"),
        ("share=101%", "share: `101%` is more than a whole step"),
        ("time=3", "time: `3` is not a time with its unit, such as 3ms or 500us"),
        ("forbid=103", "forbid: `103` is no code"),
        ("bites=1MB", "a budget has no key `bites`: did you mean bytes?"),
        ("speed=1", "a budget has no key `speed`: it has copies, bytes, share, time, forbid"),
    ],
)
def test_budgets_that_do_not_read(text, part):
    with pytest.raises(UsageError) as caught:
        parse_budget(text)
    assert str(caught.value).startswith(f"budget `{text}`: ")
    assert part in str(caught.value)
    assert "a budget reads copies=0,bytes=1MB" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2


def test_what_is_exceeded():
    budget = parse_budget("copies=0,bytes=1MB,share=2%,time=1ms,forbid=SW103+SW2+SW1")
    assert budget.exceeded(RICH) == (
        "copies: 27 a step, the budget allows 0",
        "bytes: 37.1 MB a step, the budget allows 1 MB",
        "share: 4.14 % of step time, the budget allows 2 %",
        "time: 1.55 ms a step, the budget allows 1 ms",
        "forbid: SW103 found at model.py:77",
        "forbid: SW1 found at model.py:42, input `mel`, model.py:77",
    )
    assert Budget().exceeded(RICH) == ()
    assert parse_budget("copies=27,bytes=38MB,share=5%,time=2ms,forbid=SW2").exceeded(RICH) == ()
    assert parse_budget("copies=0,bytes=0,share=0,time=0s,forbid=SW").exceeded(NO_COPY) == ()


def test_a_limit_on_what_was_not_measured_is_not_kept():
    assert parse_budget("share=100%,time=9s").exceeded(UNMEASURED) == (
        "share: not measured in this recording; the budget allows 100 % of step time",
        "time: not measured in this recording; the budget allows 9 s a step",
    )


def test_a_limit_on_a_part_of_a_step_is_not_kept():
    part = msgspec.structs.replace(RICH, totals=msgspec.structs.replace(RICH.totals, whole=False))
    assert parse_budget("copies=0,bytes=38MB,forbid=SW2,forbid=SW103").exceeded(part) == (
        "copies: 27 a step, the budget allows 0",
        "bytes: not known, as the recording ended before its step was over",
        "forbid: not known of SW2, as the recording ended before its step was over",
        "forbid: SW103 found at model.py:77",
    )
    assert Budget().exceeded(part) == ()


def test_a_close_miss_shows_the_digits_that_differ():
    totals = msgspec.structs.replace(RICH.totals, bytes_moved=1_000_001.0)
    (line,) = parse_budget("bytes=1MB").exceeded(msgspec.structs.replace(RICH, totals=totals))
    assert line == "bytes: 1.000001 MB a step, the budget allows 1 MB"


def test_codes_and_shares():
    assert parse_codes(["SW101, sw1", "SW101"]) == ("SW101", "SW1")
    assert parse_share("2%") == parse_share(0.02) == 0.02
    with pytest.raises(UsageError, match="`all` is no code"):
        parse_codes(["all"])
    assert parse_codes(["SW101,", " SW1 , "]) == ("SW101", "SW1")
    for nothing in ("", " ", ",", ", ,"):
        with pytest.raises(UsageError, match=f"`{nothing}` is no code"):
            parse_codes(["SW101", nothing])
    for wrong in (True, None, [], "", "2 percent"):
        with pytest.raises(UsageError, match="is not a percentage"):
            parse_share(wrong)


# ---------------------------------------------------------------------------------------------------- pyproject.toml


def write(folder, text):
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def test_no_pyproject_or_no_table_gives_the_defaults(tmp_path):
    assert load_config(write(tmp_path, "[project]\nname = 'x'\n")) == Config()
    assert load_config(write(tmp_path, "tool = 3")) == Config()


def test_everything_reads_from_the_nearest_file_above(tmp_path):
    write(
        tmp_path,
        """
        [tool.stridewise]
        select = ["SW1", "SW2"]
        ignore = "SW114"
        min-share = "0.5%"
        steps = 5
        warmup = 0
        module-step = "Net"
        library-copies = true
        max-ops = 1000
        [tool.stridewise.budget]
        copies = 0
        bytes = "1MB"
        share = 0.02
        time = "3ms"
        forbid = ["SW103", "SW101"]
        """,
    )
    (tmp_path / "a" / "b").mkdir(parents=True)
    expected = Config(
        select=("SW1", "SW2"),
        ignore=("SW114",),
        min_share=0.005,
        steps=5,
        warmup=0,
        module_step="Net",
        library_copies=True,
        max_ops=1000,
        budget=parse_budget("copies=0,bytes=1MB,share=2%,time=3ms,forbid=SW103+SW101"),
    )
    assert load_config(tmp_path / "a" / "b") == expected
    write(tmp_path / "a", "")
    assert load_config(tmp_path / "a" / "b") == Config()


def test_a_budget_may_be_text(tmp_path):
    text = '[tool.stridewise]\nbudget = "copies=3,forbid=SW1"'
    assert load_config(write(tmp_path, text)).budget == Budget(copies=3, forbid=("SW1",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.stridewise]\nmin_share = 1", "[tool.stridewise] has no key `min_share`: did you mean min-share?"),
        ("[tool.stridewise]\nzzz = 1", "[tool.stridewise] has no key `zzz`: it has select, ignore, min-share"),
        ("[tool.stridewise]\nsteps = 0", "steps: 0 is not a whole number from 1 to 1_000_000_000"),
        ("[tool.stridewise]\nsteps = true", "steps: True is not a whole number from 1 to 1_000_000_000"),
        *(
            (f"[tool.stridewise]\n{key} = 99999999999999999999", f"{key}: 99999999999999999999 is not a whole number")
            for key in ("steps", "warmup", "max-ops")
        ),
        (f"[tool.stridewise]\nmax-ops = 0x{'f' * 5_000}", "max-ops: the number has too many digits"),
        (f"[tool.stridewise]\nselect = 0x{'f' * 5_000}", "select: the number has too many digits"),
        (f"[tool.stridewise]\nmax-ops = {'9' * 5_000}", "is not TOML: Exceeds the limit"),
        ("[tool.stridewise]\nselect = ['']", "select: `` is no code"),
        ("[tool.stridewise]\nignore = ''", "ignore: `` is no code"),
        ("[tool.stridewise.budget]\nforbid = ['']", "budget: forbid: `` is no code"),
        ("[tool.stridewise.budget]\nforbid = '+'", "budget: forbid: `` is no code"),
        ("[tool.stridewise]\nbudget = ','", "budget: budget `,`: it has no limit: a budget reads copies=0,"),
        ("[tool.stridewise]\nbudget = ''", "budget: budget ``: it has no limit: a budget reads copies=0,"),
        ("[tool.stridewise]\nselect = [1]", "select: [1] is not a list of codes"),
        ("[tool.stridewise]\nlibrary-copies = 1", "library-copies: 1 is not true or false"),
        ("[tool.stridewise]\nmodule-step = ''", "module-step: '' is not a name"),
        ("[tool.stridewise.budget]\nbites = 1", "budget: budget has no key `bites`: did you mean bytes?"),
        ("[tool.stridewise.budget]\ncopies = true", "budget: copies: `True` is not a number of copies"),
        ("[tool.stridewise]\nbudget = 'copies'", "budget: budget `copies`: `copies` has no value"),
        ("[tool.stridewise]\nextend-exclude = ['a']", "no key `extend-exclude`: [tool.stridewise.lint] has it"),
        (
            "[tool.stridewise.lint]\nexcludes = ['a']",
            "lint: [tool.stridewise.lint] has no key `excludes`: did you",
        ),
        ("[tool.stridewise.lint]\nexclude = 'a'", "lint: exclude: 'a' is not a list of patterns such as"),
        ("[tool.stridewise.lint]\nexclude = ['']", "lint: exclude: [''] is not a list of patterns such as"),
        ("[tool.stridewise.lint]\nselect = ['E501']", "lint: select: `E501` is no code"),
        ("[tool.stridewise.lint]\nper-file-ignores = ['a']", "lint: per-file-ignores: ['a'] is not a table such as"),
        ("[tool.stridewise.lint.per-file-ignores]\n'!' = ['SW3']", "lint: per-file-ignores: {'!': ['SW3']} is not"),
        ("[tool.stridewise.lint.per-file-ignores]\na = 3", "lint: per-file-ignores: 3 is not a list of codes"),
        ("[tool]\nstridewise = 1", "[tool.stridewise] is a table, not 1"),
        ("[tool", "is not TOML: "),
        ("x = " + "[" * 5_000, "nested too deeply"),
    ],
)
def test_mistakes_name_the_file_and_the_key_on_one_line(tmp_path, text, message):
    with pytest.raises(InputError) as caught:
        load_config(write(tmp_path, text))
    assert str(caught.value).startswith(str(tmp_path / "pyproject.toml"))
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not TOML"):
        load_config(tmp_path)


LINT = """
[tool.stridewise.lint]
select = ["SW3"]
extend-select = ["SW319"]
ignore = "SW301"
extend-ignore = ["SW302"]
exclude = ["old"]
extend-exclude = ["generated_*.py"]
[tool.stridewise.lint.per-file-ignores]
"tests/*" = ["SW301", "sw304"]
"!src/*" = "SW3"
[tool.stridewise.lint.extend-per-file-ignores]
"a.py" = ["SW306"]
"""


def test_what_lint_is_asked(tmp_path):
    expected = LintConfig(
        folder=tmp_path,
        select=("SW3",),
        extend_select=("SW319",),
        ignore=("SW301",),
        extend_ignore=("SW302",),
        exclude=("old",),
        extend_exclude=("generated_*.py",),
        per_file_ignores=(("tests/*", ("SW301", "SW304")), ("!src/*", ("SW3",))),
        extend_per_file_ignores=(("a.py", ("SW306",)),),
    )
    assert read_lint_config(write(tmp_path, LINT)) == expected
    assert load_config(tmp_path).select == ()  # what reports of recordings show is another matter


@pytest.mark.parametrize("text", ["[project]\nname = 'stridewise'", "[tool.ruff]", "[tool", ""])
def test_a_file_without_the_table_asks_nothing_of_lint(tmp_path, text):
    assert read_lint_config(write(tmp_path, text)) is None


def test_a_file_with_a_table_of_stridewise_counts_for_lint(tmp_path):
    assert read_lint_config(tmp_path) is None
    assert read_lint_config(write(tmp_path, "[tool.stridewise]\nsteps = 2")) == LintConfig(folder=tmp_path)


def test_patterns_of_the_command_line():
    assert parse_patterns(["a,b/*.py", " {c,d}.py , a"]) == ("a", "b/*.py", "{c,d}.py")
    assert parse_ignores(["tests/*:SW301,tests/*:sw302", "{a,b}.py:SW3"]) == (
        ("tests/*", ("SW301", "SW302")),
        ("{a,b}.py", ("SW3",)),
    )
    for wrong in ("tests/*", "tests/*:", ":SW301"):
        with pytest.raises(UsageError, match="is not a pattern and a code such as"):
            parse_ignores([wrong])
