"""`select` and `ignore` of every function that takes them: a text is a code, and one that no rule has is refused."""

import inspect

import pytest
import torch

import stridewise
from stridewise.api.compiled import read_compiled
from stridewise.errors import UsageError


def steps() -> None:
    x = torch.randn(64, 64).t()
    x.reshape(-1).sum()


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    path = tmp_path_factory.mktemp("wanted") / "a.json.gz"
    with stridewise.record() as recorded:
        steps()
    recorded.save(path)
    return path


def test_a_text_is_one_code_or_several_with_commas(recording):
    codes = {finding.code for finding in stridewise.analyze(recording, min_share=0).findings}
    assert "SW114" in codes
    for select in ("SW114", "sw114", "SW1,SW2", ["SW114"], ("SW101, SW114",)):
        found = stridewise.analyze(recording, min_share=0, select=select).findings
        assert [finding.code for finding in found] == ["SW114"], select
    assert stridewise.analyze(recording, min_share=0, select="SW101").findings == ()
    assert stridewise.analyze(recording, min_share=0, ignore="SW101,SW114").findings == ()
    with stridewise.monitor(warmup=1, max_overhead=None, min_share=0, select="SW101") as watched:
        for _ in range(3):
            steps()
            watched.step()
    assert watched.recorded_step == 2
    assert watched.report.findings == ()


CALLS = {
    "analyze": lambda path, given: stridewise.analyze(path, **given),
    "diff": lambda path, given: stridewise.diff(path, path, **given),
    "analyze_fleet": lambda path, given: stridewise.analyze_fleet([path], workers=1, **given),
    "monitor": lambda path, given: stridewise.monitor(**given),
    "lint": lambda path, given: stridewise.lint([path.parent], **given),
    "preflight": lambda path, given: stridewise.preflight(torch.nn.Linear(2, 2), **given),
    "check_op": lambda path, given: stridewise.check_op(torch.relu, torch.randn(2), **given),
    "check_export": lambda path, given: stridewise.check_export("missing.pt2", **given),
    "explain_compile": lambda path, given: stridewise.explain_compile(torch.relu, torch.randn(2), **given),
    "read_compiled": lambda path, given: read_compiled(path.parent, **given),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("given", [{"select": "SW999"}, {"ignore": ["SW999"]}, {"select": "copies"}], ids=str)
def test_what_no_rule_has_is_refused_everywhere(name, given, recording):
    with pytest.raises(UsageError, match=r"SW999|copies"):
        CALLS[name](recording, given)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "lint"])
@pytest.mark.parametrize("code", ["SW313", "SW104"])
def test_what_no_report_has_is_refused_with_who_finds_it(name, code, recording):
    finder = "lint" if code == "SW313" else "fix"
    with pytest.raises(UsageError, match=f"select names {code}, which only `stridewise {finder}` finds"):
        CALLS[name](recording, {"select": [code]})


def test_a_budget_on_many_files_forbids_what_they_can_have(recording):
    with pytest.raises(UsageError, match="forbid names SW3, which only `stridewise lint` finds"):
        stridewise.analyze_fleet([recording], workers=1, budget="forbid=SW3")


def test_no_function_is_left_out():
    taking = set()
    for name in stridewise.__all__:
        thing = getattr(stridewise, name)
        if inspect.isfunction(thing) and {"select", "ignore"} & inspect.signature(thing).parameters.keys():
            taking.add(name)
    assert taking <= CALLS.keys()
