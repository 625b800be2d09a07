"""What torch.compile does to the layouts of a callable: compiled anew, read, and held against eager mode."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stridewise.checks.operators.load import arguments
from stridewise.checks.words import environment
from stridewise.compiled.affine import differ
from stridewise.compiled.arms import LAYOUT_SETTINGS, Way, measured
from stridewise.compiled.capture import OWN_FILE, forgotten, fresh, inductor, logged, original, without_caches
from stridewise.compiled.facts import Facts, Promise
from stridewise.compiled.judge import judged
from stridewise.compiled.promises import broken_promises, strides_of
from stridewise.compiled.read import Read, read
from stridewise.compiled.trace_log import renumbered
from stridewise.compiled.trials import trials
from stridewise.errors import UsageError
from stridewise.findings import Site
from stridewise.recording.filenames import public_place
from stridewise.results.compiled import Arm, Compiled, Output, Trial

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_LONGEST = 240
_COMMENTS = re.compile(r" (?:Explanation:|Hint:|Error in op:|This error most|from user code:|Set TORCHDYNAMO_)")
"""What torch adds to the text of an error."""
_SHARE_OF_TIMING = 0.5
"""Of the time; the rest is for compilations without some call."""


def explain_compile(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    calls: Sequence[Any] = (),
    train: bool = False,
    loss: Callable[[Any], Any] | None = None,
    dynamic: bool | None = None,
    time_limit: float = 60.0,
    compare: bool = True,
    try_without: bool = True,
) -> Compiled:
    """See `stridewise.api.explain_compile`."""
    from stridewise.recorder.once import left_as_it_was

    if not callable(fn):
        raise UsageError(f"{type(fn).__name__} can't be called.", expected="Expected: a function or an nn.Module.")
    if not time_limit > 0:
        raise UsageError(f"A time limit of {time_limit!r} was given.", expected="Expected: seconds, more than 0.")
    subject = _Subject(original(fn), (args, dict(kwargs or {})), [_arguments(call) for call in calls], train, loss)
    kept = left_as_it_was(subject.fn, args, subject.first[1], train, others=subject.others, containers=True)
    with forgotten(), kept as subject.begin_again:
        return _explained(subject, dynamic, time_limit, compare=compare, try_without=try_without)


def _explained(
    subject: _Subject, dynamic: bool | None, time_limit: float, *, compare: bool, try_without: bool
) -> Compiled:
    deadline = time.monotonic() + time_limit
    eager = subject.results(subject.fn)
    compiled, found, missing, failed, results = subject.compiled(dynamic=dynamic)
    outputs = tuple(_outputs(eager, results)) if results is not None else ()
    promises: tuple[Promise, ...] = ()
    if failed is not None or any(not output.same for output in outputs):
        promises = broken_promises(lambda: subject.results(subject.fn))
    again = None
    if dynamic is not True and any(recompile.about_strides for recompile in found.recompiles):
        again = sum(each.about_strides for each in subject.compiled(dynamic=True)[1].recompiles)
    arms: tuple[Arm, ...] = ()
    if compare:
        ways = [Way("eager", subject.eager_step, None)]
        ways.append(Way("compiled", None if failed else compiled, found.graphs, failed))
        ways += _other_layouts(subject, found, dynamic) if failed is None else []
        seconds = (_SHARE_OF_TIMING if try_without else 1.0) * (deadline - time.monotonic())
        arms = measured(ways, seconds=seconds, device=subject.device, begin_again=subject.begin_again)
    tried: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()
    if try_without and failed is None:
        tried, notes = trials(subject.fn, subject.run_again, found, deadline)
    result = Compiled(
        findings=(),
        graphs=found.graphs,
        recompiles=found.recompiles,
        breaks=found.breaks,
        outputs=outputs,
        arms=arms,
        trials=tried,
        missing=(*found.missing, *(f"This torch has no setting {name}." for name in missing)),
        notes=(*_notes(found, failed, is_named=bool(promises)), *notes),
        environment=environment() | {"threads": str(_threads())},
        code=found.code,
    )
    return replace(result, findings=judged(Facts(result, promises, failed, again)))


class _Subject:
    """A callable, what it is called with, and how."""

    def __init__(
        self,
        fn: Callable[..., Any],
        first: Arguments,
        others: Sequence[Arguments],
        train: bool,
        loss: Callable[[Any], Any] | None,
    ) -> None:
        self.fn = fn
        self.first = first
        self.others = others
        self.train = train
        self.loss = loss
        self.device = _device(first)
        self.begin_again: Callable[[], None] = lambda: None
        """Brings back what a run changed."""
        self.eager_step = lambda: self.step(fn)

    def step(self, fn: Callable[..., Any]) -> Any:
        """One call with the first arguments, and its backward."""
        import torch

        args, kwargs = self.first
        with torch.set_grad_enabled(self.train):
            output = fn(*args, **kwargs)
            if self.train:
                self._loss(output).backward()
        return output

    def run_again(self, fn: Callable[..., Any]) -> Any:
        """One call as if it were the first."""
        self.begin_again()
        return self.step(fn)

    def _loss(self, output: Any) -> Any:
        from stridewise.recorder.once import loss_of

        return self.loss(output) if self.loss is not None else loss_of(output)

    def results(self, fn: Callable[..., Any]) -> list[tuple[str, Any]]:
        """The tensors that one call gives, and the gradients that it leaves, with names."""
        import torch

        from stridewise.recorder.tensors import tensors_in

        self.begin_again()
        leaves = dict(self._leaves())
        output = self.step(fn)
        found = [(_named("output", path), tensor) for path, tensor in tensors_in(output)]
        found += [(f"gradient of `{name}`", leaf.grad) for name, leaf in leaves.items() if leaf.grad is not None]
        for leaf in leaves.values():
            leaf.grad = None
        return [(name, strides_of(each)) for name, each in found if each.layout is torch.strided]

    def _leaves(self) -> Iterator[tuple[str, Any]]:
        import torch

        from stridewise.recorder.tensors import tensors_in

        if isinstance(self.fn, torch.nn.Module):
            yield from ((name, each) for name, each in self.fn.named_parameters() if each.requires_grad)
        given = [(name, value) for name, value in self.names().values()]
        for name, value in given:
            for path, tensor in tensors_in(value):
                if tensor.requires_grad and tensor.is_leaf:
                    yield _named(name, path), tensor

    def compiled(
        self, *, dynamic: bool | None = None, settings: Mapping[str, Any] | None = None
    ) -> tuple[Callable[[], Any], Read, tuple[str, ...], str | None, list[tuple[str, Any]] | None]:
        """A step of it compiled, what was logged, what this torch does not tell, what it raised, and its results."""
        import torch

        failed = results = None
        called = fresh(self.fn)
        compiled = torch.compile(called, dynamic=dynamic, backend=inductor())
        with without_caches(settings) as missing, logged() as entries:
            try:
                results = self.results(compiled)
                for args, kwargs in self.others:
                    with torch.set_grad_enabled(self.train):
                        compiled(*args, **kwargs)
            except Exception as error:
                failed = _said(error)
        renamed = {source: name for source, (name, _) in self.names().items()}
        found = read(renumbered(entries), {OWN_FILE: self.site()}, renamed)
        return lambda: self.step(compiled), found, missing, failed, results

    def names(self) -> dict[str, tuple[str, Any]]:
        """What the arguments are called, by what Dynamo calls them."""
        args, kwargs = self.first
        target = getattr(self.fn, "forward", self.fn)
        try:
            parameters = list(inspect.signature(target).bind_partial(*args).signature.parameters.values())
        except (TypeError, ValueError):
            parameters = []
        positional = [
            each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        ]
        rest = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "args")
        found = {}
        for at, value in enumerate(args):
            name = positional[at] if at < len(positional) else f"{rest}[{at - len(positional)}]"
            found[f"L['args'][{at}]"] = (name, value)
        for name, value in kwargs.items():
            found[f"L['kwargs']['{name}']"] = (name, value)
        return found

    def site(self) -> Site:
        """Where it is defined."""
        source = getattr(type(self.fn), "forward", None) if hasattr(self.fn, "forward") else self.fn
        source = inspect.unwrap(source) if callable(source) else source
        code = getattr(getattr(source, "__func__", source), "__code__", None)
        if code is None:
            return Site(expression=f"`{type(self.fn).__name__}`")
        file, line = public_place(code.co_filename, code.co_firstlineno)
        return Site(file=file, line=line, function=code.co_qualname)


def _other_layouts(subject: _Subject, base: Read, dynamic: bool | None) -> Iterator[Way]:
    """The other two ways, where there is a convolution: on others the layout optimization has no effect."""
    if not any("convolution" in launch.name for graph in base.graphs for launch in graph.launches):
        return
    for name, settings in LAYOUT_SETTINGS.items():
        run, found, missing, failed, _ = subject.compiled(dynamic=dynamic, settings=settings)
        lacks = [each for each in settings if each in missing]
        if lacks:
            yield Way(name, None, None, f"this torch has no setting {lacks[0]}")
        else:
            yield Way(name, None if failed else run, found.graphs, failed)


def _named(root: str, path: str) -> str:
    """`output[0].logits`, of a path as `tensors_in` writes it."""
    first, dot, rest = path.partition(".")
    head, bracket, tail = first.partition("[")
    if not head:
        return root
    return f"{root}[{head}]{bracket}{tail}{dot}{rest}" if head.isdecimal() else f"{root}.{path}"


def _outputs(eager: Sequence[tuple[str, Any]], compiled: Sequence[tuple[str, Any]]) -> Iterator[Output]:
    others = dict(compiled)
    for name, strides in eager:
        other = others.get(name)
        if other is not None:
            yield Output(name, strides, other, other.sizes == strides.sizes and not differ(strides, other))


def _notes(found: Read, failed: str | None, *, is_named: bool) -> Iterator[str]:
    if failed is not None and not is_named:
        yield f"torch.compile fails where eager mode does not: {failed}"
    for reason in dict.fromkeys(found.failures) if failed is None else ():
        yield f"A frame was not compiled: {reason}"
    if not (found.graphs or found.failures or found.missing) and failed is None:
        yield (
            "Nothing was compiled: there is no operator to compile, it is code that torch.compile leaves alone (as of"
            " torch.jit), or compiling is switched off."
        )
    dynamic = {str(size) for graph in found.graphs for copy in graph.copied for size in _symbols(copy.written)}
    if dynamic:
        yield "Sizes that are dynamic have no figures of bytes."


def _symbols(strides: Any) -> Iterator[str]:
    for number in (*strides.sizes, *strides.strides) if strides is not None else ():
        if not isinstance(number, int):
            yield number


def _said(error: BaseException) -> str:
    """An exception in a line: what was raised inside, not what wraps and explains it."""
    inner = getattr(error, "inner_exception", None) or error
    text = " ".join(line.strip() for line in str(inner).splitlines() if line.strip())
    raised = re.search(r"got (\w+(?:Error|Exception))\(['\"](.*?)['\"]\)", text)
    kind, said = (raised[1], raised[2]) if raised else (type(inner).__name__, _COMMENTS.split(text)[0])
    return f"{kind}: {said[:_LONGEST]}{'…' if len(said) > _LONGEST else ''}"


def _arguments(call: Any) -> Arguments:
    """What one of `calls` is called with: a sample as operators take it, or a single argument of another kind."""
    import torch

    return arguments(call) if isinstance(call, (torch.Tensor, tuple, list, dict)) else ((call,), {})


def _device(first: Arguments) -> str:
    from stridewise.recorder.tensors import tensors_in

    kinds = [tensor.device.type for _, tensor in tensors_in(first)]
    return next((kind for kind in kinds if kind != "cpu"), "cpu")


def _threads() -> int:
    import torch

    return torch.get_num_threads()
