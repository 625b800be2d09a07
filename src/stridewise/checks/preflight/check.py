"""Looks at all parts of a training before its first step, and says what layout will make wrong or refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stridewise import layout
from stridewise.checks.preflight.collect import collect, optimizers_of
from stridewise.checks.preflight.facts import OptimizerFacts, StateTensor, Subject, Trial
from stridewise.checks.preflight.trial import observe
from stridewise.checks.rules import modules, sw204, sw224
from stridewise.checks.words import environment
from stridewise.errors import UsageError
from stridewise.findings import Finding, Severity
from stridewise.results.checks import Field, Looked, Preflight

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup
    from torch.optim import Optimizer

_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


def preflight(
    model: nn.Module | None = None,
    optimizer: Optimizer | Iterable[Optimizer] | None = None,
    loader: Iterable[Any] | None = None,
    process_group: ProcessGroup | None = None,
    sample: Any = None,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    state_dict: Mapping[str, Any] | None = None,
    batches: int = 2,
) -> Preflight:
    """See `stridewise.api.preflight`."""
    _require_something(model, optimizer, loader, sample)
    _require_kinds(loss, state_dict, batches, process_group)
    optimizers = optimizers_of(optimizer)
    notes: list[str] = []
    observed = _observed(model, sample, loss, notes)
    subject = collect(
        model,
        optimizers,
        sample,
        has_ranks=process_group is not None,
        state_dict=state_dict,
        observed=observed,
    )
    findings = [finding for rule in modules() if rule.WAY == "preflight" for finding in rule.check(subject)]
    looked = _looked(subject)
    fields: tuple[Field, ...] = ()
    if process_group is not None and model is not None and _are_comparable(subject, process_group, notes):
        between = _ranks(model, process_group)
        findings += between
        looked.append(Looked("the ranks' parameters and buffers", _verdict(between, "equal strides")))
    if loader is not None:
        from stridewise.checks.data import inspect_loader

        report = inspect_loader(loader, batches)
        findings += report.findings
        notes += report.notes
        fields = report.fields
        drawn = f"{report.batches} batch{'' if report.batches == 1 else 'es'}"
        looked.append(Looked(f"{type(loader).__name__}, {drawn}", _verdict(report.findings, "nothing to find")))
    notes += _restrided(subject)
    if subject.unseen:
        name, reason = next(iter(subject.unseen.items()))
        more = f" and {len(subject.unseen) - 1} more" if len(subject.unseen) > 1 else ""
        notes.append(f"`{name}`{more} not looked at: {reason}")
    findings.sort(key=lambda finding: (_ORDER[finding.severity], finding.code, -finding.count))
    return Preflight(tuple(findings), tuple(looked), fields, tuple(notes), environment())


def _require_something(model: Any, optimizer: Any, loader: Any, sample: Any) -> None:
    import torch

    if all(part is None for part in (model, optimizer, loader, sample)):
        raise UsageError(
            "preflight() was given nothing to look at.",
            expected="Expected: any of a model, an optimizer, a loader, and a sample of the model's arguments.",
        )
    if model is not None and not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"preflight() was given {type(model).__name__} as a model.", expected="Expected: a torch.nn.Module."
        )


def _require_kinds(loss: Any, state_dict: Any, batches: Any, process_group: Any) -> None:
    is_group = process_group is None or _is_outside(process_group) or hasattr(process_group, "rank")
    for name, given, fits, expected in (
        ("process_group", process_group, is_group, "a ProcessGroup, such as `torch.distributed.group.WORLD`"),
        ("loss", loss, loss is None or callable(loss), "a function from the output to a scalar"),
        ("state_dict", state_dict, state_dict is None or isinstance(state_dict, Mapping), "a dict of tensors"),
        ("batches", batches, isinstance(batches, int) and batches > 0, "a whole number from 1 on"),
    ):
        if not fits:
            raise UsageError(f"preflight() was given {given!r:.80} as {name}.", expected=f"Expected: {expected}.")


def _observed(model: Any, sample: Any, loss: Callable[[Any], Tensor] | None, notes: list[str]) -> Trial | None:
    """What a trial showed; None, with a note, where there was none."""
    if model is None or not any(parameter.requires_grad for parameter in model.parameters()):
        return None
    if sample is None:
        notes.append("No sample was given: gradients were not looked at.")
        return None
    try:
        trial = observe(model, sample, loss)
    except UsageError as error:
        notes.append(f"Gradients were not looked at: {error.given}")
        return None
    if trial.is_eager:
        notes.append("Gradients were looked at without `torch.compile`.")
    return trial


def _restrided(subject: Subject) -> list[str]:
    """What nothing tells afterwards: DistributedDataParallel's buckets don't say for which strides they were made."""
    strided = [tensor for tensor in subject.parameters() if not layout.is_contiguous(tensor.layout)]
    if subject.wrapper != "DDP" or subject.gradient_as_bucket_view or not strided:
        return []
    return [
        f"Whether parameters such as `{strided[0].name}` got their strides before DistributedDataParallel was made, as"
        " they must, can't be told afterwards: `stridewise.guard_ddp()` sees it (SW203)."
    ]


def _is_outside(process_group: Any) -> bool:
    """Whether it is what `new_group` gives to ranks that are not in the group."""
    import torch

    return torch.distributed.is_available() and process_group == torch.distributed.GroupMember.NON_GROUP_MEMBER


def _are_comparable(subject: Subject, process_group: Any, notes: list[str]) -> bool:
    """Whether ranks hold the same parameters; else a note says why they were not compared."""
    if subject.wrapper in ("FSDP1", "FSDP2"):
        notes.append(f"Ranks were not compared: under {subject.wrapper} each holds another part of the parameters.")
    elif _is_outside(process_group):
        notes.append("Ranks were not compared: this one is not in the process group.")
    else:
        return True
    return False


def _ranks(model: nn.Module, process_group: ProcessGroup) -> list[Finding]:
    from stridewise.checks.ranks import compare_ranks

    named: list[tuple[str, Tensor]] = [*model.named_parameters(), *model.named_buffers()]
    return list(compare_ranks(named, process_group))


def _looked(subject: Subject) -> list[Looked]:
    rows = []
    if subject.model is not None:
        own = [tensor for tensor in subject.tensors if tensor.module_type]
        parameters = sum(tensor.kind == "parameter" for tensor in own)
        buffers = len(own) - parameters
        counted = f"{parameters} parameter{'' if parameters == 1 else 's'}"
        counted += f" and {buffers} buffer{'' if buffers == 1 else 's'}" if buffers else ""
        rows.append(Looked(counted, _layouts(own)))
    for facts in subject.optimizers:
        alone = replace(subject, optimizers=(facts,))
        found = [*sw204.check(alone), *sw224.check(alone)]
        rows.append(Looked(_optimizer(facts), _verdict(found, "fits the parameters")))
    if subject.sample:
        shown = ", ".join(dict.fromkeys(layout.name(tensor.layout) for tensor in subject.sample))
        rows.append(Looked(f"the sample{' and its backward' if subject.tried else ''}", shown))
    return rows


def _layouts(tensors: Iterable[StateTensor]) -> str:
    """`contiguous`, or how many are what."""
    counts = Counter(layout.name(tensor.layout) for tensor in tensors)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def _optimizer(facts: OptimizerFacts) -> str:
    return f"{facts.name}, fused" if facts.fused else facts.name


def _verdict(findings: Iterable[Finding], fine: str) -> str:
    count = len(tuple(findings))
    return f"{count} finding{'' if count == 1 else 's'}" if count else fine
