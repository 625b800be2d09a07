"""Hazards: operators and live objects, looked at before layout makes their results wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import msgspec

from stridewise.api.codes import wanted_codes
from stridewise.api.shown import Shown, written
from stridewise.config.reading import is_wanted
from stridewise.results import checks as results

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup
    from torch.optim import Optimizer


class Checked(Shown):
    """A result of a check."""

    __slots__ = ()

    def _render(self, out: TextIO) -> None:
        from stridewise.report import checks

        checks.render(self, out)  # type: ignore[arg-type]

    def to_json(self) -> str:
        """The result as `stridewise check --format json` prints it."""
        from stridewise.report import checks

        return written(lambda out: checks.render(self, out, format="json"))  # type: ignore[arg-type]


class Conformance(Checked, results.Conformance, frozen=True):
    """How an operator treats the layouts of its operands; it shows itself."""


class Preflight(Checked, results.Preflight, frozen=True):
    """What layout will do to a model, its optimizer, its data and its ranks; it shows itself."""


class LoaderReport(Checked, results.LoaderReport, frozen=True):
    """What a loader yields; it shows itself."""


_Result = TypeVar("_Result", Conformance, Preflight, LoaderReport)


def check_op(
    fn: Callable[..., Any],
    *sample: Any,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    target: str | None = None,
    gradients: bool = True,
    second_order: bool = False,
    fake: bool = True,
    tolerance: float | None = None,
    timeout: float = 10.0,
    time_limit: float = 60.0,
    contain: bool = True,
    contract: bool = False,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Conformance:
    """Whether a callable honours the layouts of its operands: run over many of the same values, and compared.

    `fn` is a function, a method, an `nn.Module`, an `autograd.Function` class, or an operator of `torch.library`;
    `sample` and `kwargs` are its arguments, whose tensors are the operands. Results, `out=`, what it writes in place,
    and gradients are held against those of contiguous operands. All of it runs in a child process, unless `contain`
    is False, so that a crash is only a verdict. `timeout` is of one run and `time_limit` of all, in seconds;
    `tolerance` is a share of a result's largest magnitude, and without it goes by dtype. With `contract` the result
    has a decorator that keeps the layouts out which it can't take. `target` is `path.py:name` or
    `package.module:name`, where `fn` can be imported from: snippets import it from there, and so does a child that
    can't be forked, because CUDA runs. `progress` is called with the number of runs that are done, and of all.

    Raises UsageError if it fails for contiguous operands, or no operand is a tensor.
    """
    select, ignore = wanted_codes(select, ignore)
    from stridewise.checks.operators import check

    found = check.check_op(
        fn,
        *sample,
        kwargs=kwargs,
        name=name,
        target=target,
        gradients=gradients,
        second_order=second_order,
        fake=fake,
        tolerance=tolerance,
        timeout=timeout,
        time_limit=time_limit,
        contain=contain,
        contract=contract,
        progress=progress,
    )
    return _selected(Conformance(*msgspec.structs.astuple(found)), select, ignore)


def check_op_target(target: str, *, sample: str | None = None, **options: Any) -> Conformance:
    """The same for `path.py:name` or `package.module:name`.

    `sample` is a function `path.py:name` that returns the arguments: a tuple, a dict of keyword arguments, or both as a
    pair. Without it, that is the function `NAME_sample` beside the operator. Raises UsageError where there is none.
    """
    from stridewise.checks.operators import load

    fn, args, kwargs, name = load.load_op(target, sample)
    return check_op(fn, *args, kwargs=kwargs, name=name, target=target, **options)


def assert_honours_layout(fn: Callable[..., Any], *sample: Any, **options: Any) -> None:
    """Raise AssertionError, with the smallest layout that shows it, unless `check_op` finds nothing; for tests.

    An error that says that layout is the matter passes, unless `refusals` is False. What gives nothing that can be
    compared fails. The other options are `check_op`'s.
    """
    from stridewise.checks.operators import pytest_help

    pytest_help.assert_honours_layout(fn, *sample, **options)


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
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
) -> Preflight:
    """What layout will make wrong, or refuse, once training begins; nothing that is given is changed.

    With `sample`, the model's arguments, a forward and a backward are tried, whose gradients tell what the optimizer
    and DistributedDataParallel will meet: `loss` gives a scalar from the output. With `process_group` the ranks'
    layouts are compared over a group of their own, which all ranks must reach. `state_dict` is what will be loaded with
    `assign=True`. Of the loader `batches` are drawn. `select` and `ignore` are codes or their beginnings.
    """
    select, ignore = wanted_codes(select, ignore)
    from stridewise.checks import preflight as checks

    found = checks.preflight(
        model,
        optimizer,
        loader,
        process_group,
        sample,
        loss=loss,
        state_dict=state_dict,
        batches=batches,
    )
    return _selected(Preflight(*msgspec.structs.astuple(found)), select, ignore)


def preflight_target(target: str, **options: Any) -> Preflight:
    """The same for `path.py:name` or `package.module:name`, a function that returns a dict of its arguments.

    Raises UsageError where there is no such function, or it returns something else.
    """
    from stridewise.checks.preflight import load

    return preflight(**load.load_subject(target), **options)


def inspect_loader(loader: Iterable[Any], batches: int = 2) -> LoaderReport:
    """How the samples and batches of a loader lie in memory, field by field, and what that costs and loses.

    Draws `batches` batches, and one sample of a dataset that has an index; random states are as before afterwards.
    """
    from stridewise.checks import data

    return LoaderReport(*msgspec.structs.astuple(data.inspect_loader(loader, batches)))


def _selected(result: _Result, select: Collection[str] | None, ignore: Collection[str] | None) -> _Result:
    """The same with the findings that are wanted."""
    if not select and not ignore:
        return result
    wanted = tuple(finding for finding in result.findings if is_wanted(finding.code, select, ignore))
    return msgspec.structs.replace(result, findings=wanted)
