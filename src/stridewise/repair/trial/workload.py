"""A step of a program that can be run again and again from the same state."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stridewise.errors import UsageError
from stridewise.recorder.live import record
from stridewise.recorder.once import loss_of
from stridewise.recorder.reach import Reached
from stridewise.recorder.state import State, has_values, instances, version_of
from stridewise.recorder.tensors import tensors_in
from stridewise.recording.handle import Recording
from stridewise.repair.trial import interrupts
from stridewise.repair.trial.convert import Converted


class Ended(BaseException):
    """There will be no more steps to time. Its text says why. No error: nothing that catches those may catch it."""

    def __init__(self, why: str, *, interrupted: bool = False) -> None:
        super().__init__(why)
        self.interrupted = interrupted


class Workload:
    """Runs a step, and before each brings back the state that the first one found.

    `call` takes the model's arguments, unless `calls_model_itself`: then it takes none, and `args` and `kwargs` are
    what the model was called with when that was seen.
    """

    moves_on = False
    """Timed steps go on from one another: what the program has then is not brought back."""

    def __init__(
        self,
        call: Callable[..., Any],
        *,
        model: nn.Module | None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        state: State,
        calls_model_itself: bool = False,
        clears_gradients: bool = False,
    ) -> None:
        self.model = model
        self.args, self.kwargs = args, kwargs or {}
        self.recover: Callable[[], None] = lambda: None
        """Brings back all values there are, also those that no step is seen to change."""
        self._is_double = False
        self._converted: Converted | None = None
        self._converts_beside = False
        self.state = state
        self._call = call
        self._clears_gradients = clears_gradients
        self.calls_model_itself = calls_model_itself
        self.devices = {tensor.device for _, tensor in state.reached.tensors.values() if tensor.is_cuda}

    @property
    def optimizers(self) -> tuple[Optimizer, ...]:
        """The optimizers that a step uses."""
        return tuple(self.state.reached.optimizers)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """While the body runs, steps that are not timed may be run from the same state."""
        yield

    def prepare(self) -> None:
        """Bring the state back. Not a part of the step."""
        self.state.restore(places=self._converted is None)
        self.clear_gradients()
        if self._is_double:
            for _, tensor in self.state.reached.tensors.values():
                if tensor.is_leaf and has_values(tensor) and tensor.dtype == torch.float32:
                    tensor.data = tensor.data.double()

    def run(self) -> Any:
        """The step itself. Before it is the moment at which a Ctrl-C that waits is raised."""
        interrupts.check()
        converted = self._converted
        if self.calls_model_itself:
            with self._inputs_converted_at_the_model():
                return self._call()
        if converted is None:
            return self._call(*self.args, **self.kwargs)
        if self._converts_beside:
            return self._call(*converted.args, **converted.kwargs)
        args, kwargs = converted.inputs(self.args, self.kwargs)
        return self._call(*args, **kwargs)

    @contextlib.contextmanager
    def in_double(self) -> Iterator[None]:
        """While the body runs, steps of the original compute in float64 what they compute in float32 else."""
        self._is_double = True
        try:
            yield
        finally:
            self._is_double = False
            self.prepare()

    def take(self, converted: Converted | None, *, beside_step: bool = False) -> None:
        """Run with converted objects from now on; their inputs are converted in each step, or else `beside_step`."""
        self._converted = converted
        self._converts_beside = beside_step

    def clear_gradients(self) -> None:
        """As a training loop does between steps, where the step does not do it itself."""
        if self._clears_gradients:
            for tensor in self.state.leaves:
                tensor.grad = None

    def recorded(self, steps: int, *, library_copies: bool = False) -> Recording:
        """Record some steps of the version that is in place, from the state on that the first one found."""
        self.prepare()
        with record(library_copies=library_copies) as recording:
            for _ in range(steps):
                self.clear_gradients()
                self.run()
                recording.step()
        self.prepare()
        return recording

    def timed(self, clock: Callable[[], int] = time.perf_counter_ns) -> int:
        """Run one step from its state; gives the nanoseconds it took until every device was done with it."""
        self.prepare()
        self.wait()
        begin = clock()
        output = self.run()
        self.wait()
        end = clock()
        del output  # what it holds is freed outside the measured time, in both arms
        return end - begin

    def wait(self) -> None:
        """Until the devices have done what was launched."""
        for device in self.devices:
            torch.cuda.synchronize(device)

    @contextlib.contextmanager
    def _inputs_converted_at_the_model(self) -> Iterator[None]:
        converted = self._converted
        if converted is None or self.model is None or not converted.converts_inputs:
            yield
            return

        def convert(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return (converted.args, converted.kwargs) if self._converts_beside else converted.inputs(args, kwargs)

        hook = self.model.register_forward_pre_hook(convert, with_kwargs=True, prepend=True)
        try:
            yield
        finally:
            hook.remove()


@contextlib.contextmanager
def of_model(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    train: bool,
    loss: Callable[[Any], Tensor] | None,
) -> Iterator[Workload]:
    """`model(*args, **kwargs)` as a step: in evaluation, or, with a backward, in the mode that the model is in.

    Afterwards everything is as it was before, but for what Python code of the model keeps of a first call, which warms
    up. Raises UsageError if a call changes the model's own parameters.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(train):
            output = model(*args, **kwargs)
            if train:
                (loss(output) if loss is not None else loss_of(output)).backward()
        return output

    roots: list[tuple[str, Any]] = [("", model), ("", args), ("", kwargs)]
    # A hook on a gradient may step an optimizer.
    everything = [*roots, *(("", optimizer) for optimizer in instances(Optimizer) if train)]
    state = State(Reached(everything), parameters=True, containers=False)
    module = model if isinstance(model, nn.Module) else None

    def recover() -> None:
        state.restore()
        if module is not None and not train:
            module.eval()

    try:
        if module is not None and not train:
            module.eval()
        call(*args, **kwargs)
        recover()  # what is written to the same values again could else not be told from what isn't
        inside = State(Reached(roots), parameters=False)
        parameters = list(module.parameters()) if module is not None else []
        versions = [version_of(parameter) for parameter in parameters]
        workload = Workload(call, model=module, args=args, kwargs=kwargs, state=inside, clears_gradients=train)
        workload.recover = recover
        settled = _settled(workload)
        if versions != [version_of(parameter) for parameter in parameters]:
            raise UsageError("A call of the model changes its parameters.", advice="Give a function that is the step.")
        yield settled
    finally:
        state.restore()


@contextlib.contextmanager
def of_step(step: Callable[[], Any]) -> Iterator[Workload]:
    """A step that calls its models itself, and may step optimizers. Afterwards what it can reach is as it was before.

    A first call of it warms up: what is made then, such as an optimizer's moments, is a part of the state of the
    others, and what Python code keeps of it stays.
    """
    before = State(Reached([("", step)]), parameters=True, containers=False)
    try:
        root, args, kwargs = _root_called(step)
        before.restore(moments=False)
        state = State(Reached([("", step), ("", root)]), parameters=True)
        try:
            workload = Workload(step, model=root, args=args, kwargs=kwargs, state=state, calls_model_itself=True)
            workload.recover = functools.partial(before.restore, moments=False)
            yield _settled(workload)
        finally:
            state.restore()
    finally:
        before.restore()


def _settled(workload: Workload) -> Workload:
    workload.prepare()
    workload.run()
    workload.state.settle()
    return workload


def _root_called(step: Callable[[], Any]) -> tuple[nn.Module | None, tuple[Any, ...], dict[str, Any]]:
    """Run the step once; give the module with the most parameters that it calls from outside any, and its inputs."""
    calls: list[tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = []
    depth = 0

    def enter(module: nn.Module, args: Any, kwargs: Any = None) -> None:
        nonlocal depth
        if depth == 0:
            calls.append((module, args, kwargs or {}))
        depth += 1

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal depth
        depth -= 1

    handles = [
        nn.modules.module.register_module_forward_pre_hook(enter),
        nn.modules.module.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        step()
    finally:
        for handle in handles:
            handle.remove()
    return max(calls, key=lambda call: sum(map(Tensor.numel, call[0].parameters())), default=(None, (), {}))


def step_or_model(made: Any, name: str) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None:
    """What a target's function gave: a model, its arguments and its keyword arguments; None for a step of its own.

    Raises UsageError where it is neither.
    """
    if isinstance(made, tuple) and len(made) in (2, 3) and callable(made[0]) and not isinstance(made[0], Tensor):
        args: Any = made[1]
        if len(made) == 3 and not isinstance(made[2], Mapping):
            raise UsageError(f"{name} returns {type(made[2]).__name__} in third place.", expected="Expected: a dict.")
        kwargs: dict[str, Any] = dict(made[2]) if len(made) == 3 else {}
        if isinstance(args, Mapping):
            kwargs = {**args, **kwargs}
            args = ()
        return made[0], tuple(args) if isinstance(args, (tuple, list)) else (args,), kwargs
    if isinstance(made, nn.Module):
        raise UsageError(f"{name} returns a model without arguments.", expected="Expected: (model, args), or a step.")
    if callable(made) or made is None or isinstance(made, (Tensor, float, int)) or any(tensors_in(made)):
        return None
    raise UsageError(
        f"{name} returns {type(made).__name__}.",
        expected="Expected: (model, args), (model, args, kwargs), or a step to call.",
    )
