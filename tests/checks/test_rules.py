"""What holds of every rule on live objects: its examples and its words."""

import ast
import re
import types
import warnings
from collections.abc import Callable, Iterator, Sequence

import pytest

from stridewise.checks.rule import Rule, Way
from stridewise.checks.rules import all_rules, sw222
from stridewise.errors import ContractError
from stridewise.findings import Finding

RULES = [pytest.param(rule, id=rule.code) for rule in all_rules()]
FIRES = [pytest.param(rule, text, id=f"{rule.code}-{at}") for rule in all_rules() for at, text in enumerate(rule.fires)]
QUIET = [pytest.param(rule, text, id=f"{rule.code}-{at}") for rule in all_rules() for at, text in enumerate(rule.quiet)]


def of_operator(example: types.ModuleType) -> Sequence[Finding]:
    from stridewise.checks.operators.check import check_op

    return check_op(example.op, *example.op_sample(), timeout=5).findings


def of_subject(example: types.ModuleType) -> Sequence[Finding]:
    from stridewise.checks.preflight import preflight

    if hasattr(example, "facts"):  # of a device that is not here
        return sw222.check(example.facts())
    return preflight(**example.subject()).findings


def of_loader(example: types.ModuleType) -> Sequence[Finding]:
    from stridewise.checks.data import inspect_loader

    return inspect_loader(example.subject()).findings


def of_program(example: types.ModuleType) -> Sequence[Finding]:
    found: list[Finding | None] = []
    try:
        example.program()
    except ContractError as error:
        found.append(error.finding)
    assert None not in found
    return [finding for finding in found if finding is not None]


def of_artefact(example: types.ModuleType) -> Sequence[Finding]:
    from stridewise.checks.artefacts.check import check_export

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.export, in torch itself
        subject = example.subject()
    return check_export(subject.pop("program"), *subject.pop("args", ()), **subject).findings


WAYS: dict[Way, Callable[[types.ModuleType], Sequence[Finding]]] = {
    "preflight": of_subject,
    "loader": of_loader,
    "op": of_operator,
    "guard": of_program,
    "contract": of_program,
    "artefact": of_artefact,
}


def findings(rule: Rule, text: str) -> list[Finding]:
    example = types.ModuleType("example")
    exec(compile(text, "example.py", "exec"), example.__dict__)
    return list(WAYS[rule.way](example))


@pytest.fixture(autouse=True)
def _no_process_group_stays() -> Iterator[None]:
    """What a `subject()` is wrapped in DistributedDataParallel with has to live until it was looked at."""
    yield
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize(("rule", "text"), FIRES)
def test_it_fires(rule: Rule, text: str) -> None:
    assert rule.code in {finding.code for finding in findings(rule, text)}


@pytest.mark.parametrize(("rule", "text"), QUIET)
def test_it_is_quiet(rule: Rule, text: str) -> None:
    """And so are all the others: the examples are programs with nothing wrong, whatever notes there are of a format."""
    found = findings(rule, text)
    assert rule.code not in {finding.code for finding in found}
    assert [finding.message for finding in found if finding.code not in ("SW211", "SW212")] == []


@pytest.mark.parametrize("rule", RULES)
def test_it_says_what_why_and_when(rule: Rule) -> None:
    assert re.fullmatch(r"SW[24]\d\d", rule.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", rule.title)
    headings = [line for line in rule.doc.splitlines() if line and not line.startswith(" ")]
    assert headings == ["What it means", "Why it happens", "How to fix it", "When to ignore it"]
    assert rule.severity in ("error", "warning", "note")
    assert rule.fires
    assert rule.quiet


@pytest.mark.parametrize("rule", RULES)
def test_examples_define_what_is_run(rule: Rule) -> None:
    wanted = {"loader": {"subject"}, "artefact": {"subject"}, "op": {"op", "op_sample"}}
    for text in (*rule.fires, *rule.quiet):
        defined = set(_defined(ast.parse(text)))
        if rule.way == "preflight":
            assert defined & {"subject", "facts"}
        else:
            assert wanted.get(rule.way, {"program"}) <= defined


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def test_codes_and_titles_are_used_once() -> None:
    assert len({rule.code for rule in all_rules()}) == len(all_rules())
    assert len({rule.title for rule in all_rules()}) == len(all_rules())
