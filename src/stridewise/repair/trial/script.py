"""Trials inside a running script: its own steps are timed, with and without an edit, while it goes on."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from stridewise.errors import UsageError
from stridewise.recorder import live as recorder_live
from stridewise.recorder.once import loss_of
from stridewise.recorder.reach import Reached
from stridewise.recorder.script import Recorded
from stridewise.recorder.state import State, instances, version_of
from stridewise.repair.options import Options
from stridewise.repair.outcome import Outcome
from stridewise.repair.trial.bench import Timer
from stridewise.repair.trial.convert import Converted
from stridewise.repair.trial.session import OnProgress, Session, live_of
from stridewise.repair.trial.workload import Ended, Workload
from stridewise.source.files import Files

SAMPLE_NS = 2_000_000
"""How long a sample lasts at least: a script has only so many steps."""


class Turns:
    """The script and the trials take turns: while one runs, the other waits."""

    def __init__(self) -> None:
        self._script_may_go = threading.Semaphore(0)
        self._trials_may_go = threading.Semaphore(0)
        self._began: int | None = None
        self._took: int | None = None
        self._why_over: str | None = None
        self._interrupted = False
        self.are_done = False

    def begin(self) -> None:
        """The script waits, in the middle of a step, until trials want one."""
        self._script_may_go.acquire()
        self._began = None  # this step is not whole

    def end_of_step(self) -> None:
        """The script is at the end of a step, and waits until trials want another."""
        now = time.perf_counter_ns()
        self._took = now - self._began if self._began is not None else None
        self._trials_may_go.release()
        self._script_may_go.acquire()
        self._began = time.perf_counter_ns()

    def step(self) -> int:
        """Let the script take a whole step; gives the nanoseconds. Raises Ended when there are no more."""
        while True:
            if self._why_over is None:
                self._script_may_go.release()
                self._trials_may_go.acquire()
            self.check()
            if self._took is not None:
                return self._took

    def over(self, why: str, *, interrupted: bool = False) -> None:
        """There are no more steps: trials that wait for one, or will, end."""
        if self._why_over is None:
            self._why_over, self._interrupted = why, interrupted
        self._trials_may_go.release()

    def check(self) -> None:
        """Raise Ended if the script is over."""
        if self._why_over is not None:
            raise Ended(self._why_over, interrupted=self._interrupted)

    def let_go(self) -> None:
        """The trials are done: the script goes on for good."""
        self.are_done = True
        self._script_may_go.release()


class Shadow(Workload):
    """A script's model, called aside with arguments that the script called it with; timed are the script's own steps.

    Aside, the script's gradients, buffers and random states are put by.
    """

    moves_on = True

    def __init__(
        self,
        root: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        turns: Turns,
        *,
        with_gradients: bool,
        autocast: Sequence[dict[str, Any]],
    ) -> None:
        self._train = root.training and with_gradients
        self._autocast = autocast
        self._turns = turns
        self._is_aside = False
        self._input_hook = contextlib.ExitStack()
        super().__init__(
            self._shadow_call,
            model=root,
            args=args,
            kwargs=kwargs,
            state=self._kept(root, args, kwargs, parameters=False),
            clears_gradients=self._train,
        )
        self._require_that_it_can_be_called()

    @property
    def optimizers(self) -> tuple[Optimizer, ...]:
        """Every optimizer of the script."""
        return tuple(instances(Optimizer))

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Put the script's state by, and bring it back."""
        if self._is_aside:
            yield
            return
        self.state = self._kept(self.model, self.args, self.kwargs, parameters=False)
        self._is_aside = True
        try:
            self.prepare()
            self.run()
            self.state.settle()
            yield
        finally:
            self.state.restore(places=False)
            self._is_aside = False

    def _kept(self, root: Any, args: Any, kwargs: Any, *, parameters: bool) -> State:
        # A hook on a gradient may step an optimizer.
        optimizers = [("", optimizer) for optimizer in instances(Optimizer)]
        return State(Reached([("", root), ("", args), ("", kwargs), *optimizers]), parameters=parameters)

    def _require_that_it_can_be_called(self) -> None:
        """Call it once aside. Raises UsageError where that fails, or changes what the script trains."""
        assert self.model is not None
        self.state = self._kept(self.model, self.args, self.kwargs, parameters=True)
        versions = [version_of(parameter) for parameter in self.model.parameters()]
        self._is_aside = True
        try:
            self.prepare()
            self.run()
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            raise UsageError(f"Nothing was tried: {type(self.model).__name__} called aside raises {said}.") from None
        finally:
            self.state.restore()
            self._is_aside = False
        if versions != [version_of(parameter) for parameter in self.model.parameters()]:
            raise UsageError(
                "Nothing was tried: a backward of the model changes its parameters, so it can't be called aside."
            )

    def run(self) -> Any:
        """The model, aside. Raises Ended once the script is over."""
        self._turns.check()
        return super().run()

    def prepare(self) -> None:
        """Bring back the state that was put by; the script's own is not touched."""
        if self._is_aside:
            super().prepare()

    def take(self, converted: Converted | None, *, beside_step: bool = False) -> None:
        """Run with converted objects from now on; in the script's own steps the model's inputs are converted, too."""
        super().take(converted, beside_step=beside_step)
        self._input_hook.close()
        if converted is not None and converted.converts_inputs and self.model is not None:
            hook = self.model.register_forward_pre_hook(
                lambda module, args, kwargs: converted.inputs(args, kwargs), with_kwargs=True, prepend=True
            )
            self._input_hook.callback(hook.remove)

    def timed(self, clock: Callable[[], int] = time.perf_counter_ns) -> int:
        """One step of the script."""
        return self._turns.step()

    def _shadow_call(self, *args: Any, **kwargs: Any) -> Any:
        assert self.model is not None
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self._train))
            for context in self._autocast:
                stack.enter_context(torch.autocast(**context))
            output = self.model(*args, **kwargs)
        if self._train:
            loss_of(output).backward()
        return output


class ScriptTrials:
    """Takes over where a recording of a script has ended: watches its steps, and runs the trials between them.

    The trials have a thread of their own, which runs only while the script waits in one of the hooks.
    """

    def __init__(
        self, files: Files, options: Options, *, stop: bool = False, on_progress: OnProgress | None = None
    ) -> None:
        self.outcome: Outcome | None = None
        self.failure: Exception | None = None
        """What the trials raised, which the script does not see."""
        self._files, self._options, self._stop = files, options, stop
        self._stopped = False
        self._on_progress = on_progress
        self._turns = Turns()
        self._hooks = contextlib.ExitStack()
        self._thread: threading.Thread | None = None
        self._script = os.getpid(), threading.get_ident()
        self._depth = 0
        self._sizes: dict[int, int] = {}
        """Parameters of the root modules that were called since recording ended."""
        self._root: nn.Module | None = None
        self._recorded: Recorded | None = None

    @property
    def message(self) -> str | None:
        """What there is to say besides the outcome, or why there is none."""
        if self._stopped:
            return "ended the script after its trials (--stop)"
        if self.outcome is not None:
            return None
        if self.failure is not None:
            return str(self.failure)
        if self._recorded is None:
            return "Nothing was tried: the script ended before enough of its steps were recorded."
        return "Nothing was tried: the script ended, or called no model again, before its trials could begin."

    def begin(self, recorded: Recorded) -> None:
        """The recording has ended: find out which module to call aside, and begin at its next call."""
        self._recorded = recorded
        hooks = self._hooks
        hooks.callback(register_module_forward_pre_hook(self._before_module).remove)
        hooks.callback(register_module_forward_hook(self._after_module, always_call=True).remove)
        if recorded.told_by == "optimizer":
            hooks.callback(register_optimizer_step_post_hook(self._after_optimizer).remove)
        elif recorded.told_by == "step":
            recorder_live.step_listener = self._step_ends
            hooks.callback(setattr, recorder_live, "step_listener", None)

    def end(self, why: str, *, interrupted: bool = False) -> None:
        """The script is over, and so are the trials."""
        self._hooks.close()
        if self._thread is not None:
            self._turns.over(why, interrupted=interrupted)
            self._join()

    def _join(self) -> None:
        """Wait for the trials to put everything back, whatever comes meanwhile: they run no more than one call."""
        while self._thread is not None and self._thread.is_alive():
            with contextlib.suppress(KeyboardInterrupt):
                self._thread.join()

    # -- in the script's thread --------------------------------------------------------------------------------------

    def _is_script(self) -> bool:
        """Whether this is the script's main thread, in its own process and not in one that it forked."""
        return (os.getpid(), threading.get_ident()) == self._script

    def _before_module(self, module: nn.Module, args: Any) -> None:
        if not self._is_script():
            return
        self._depth += 1
        if self._depth > 1:
            return
        if module is self._root and self._recorded is not None:
            if self._recorded.told_by in ("root", "module-step"):
                self._step_ends()
        elif self._root is None and id(module) not in self._sizes:
            self._sizes[id(module)] = sum(parameter.numel() for parameter in module.parameters())
            self._hooks.callback(module.register_forward_pre_hook(self._called_again, with_kwargs=True).remove)

    def _after_module(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._is_script():
            self._depth = max(0, self._depth - 1)

    def _after_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._recorded is not None and optimizer is (self._recorded.optimizer or optimizer):
            self._step_ends()

    def _called_again(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """A root module is called a second time: if it is the largest, trials begin."""
        outermost = self._is_script() and self._depth == 1
        if outermost and self._thread is None and self._sizes[id(module)] == max(self._sizes.values()):
            self._root = module
            grad, autocast = torch.is_grad_enabled(), _autocast_state()
            self._thread = threading.Thread(
                target=self._run_trials, args=(module, args, kwargs, grad, autocast), name="stridewise trials"
            )
            self._thread.start()
            self._wait(self._turns.begin)

    def _step_ends(self) -> None:
        if self._thread is not None and self._is_script():
            self._wait(self._turns.end_of_step)

    def _wait(self, wait: Callable[[], None]) -> None:
        """Let the trials run until they want a step, or are done."""
        assert self._thread is not None
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        try:
            wait()
        except BaseException:  # an interruption: whatever is in place has to go before the script sees it
            self.end("Interrupted", interrupted=True)
            raise
        if self._turns.are_done:
            self._join()
            self._hooks.close()
            if self._stop:
                self._stopped = True
                raise SystemExit(0)

    # -- in the trials' thread ---------------------------------------------------------------------------------------

    def _run_trials(
        self,
        root: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        with_gradients: bool,
        autocast: list[dict[str, Any]],
    ) -> None:
        assert self._recorded is not None
        try:
            shadow = Shadow(root, args, kwargs, self._turns, with_gradients=with_gradients, autocast=autocast)
            session = Session(
                shadow,
                self._files,
                self._options,
                recording=self._recorded.recording,
                on_progress=self._on_progress,
                timer=Timer(sample_ns=SAMPLE_NS),
            )
            self.outcome = session.run(live_of(shadow))
        except Ended:
            pass
        except Exception as error:
            self.failure = error
        finally:
            self._turns.let_go()


def _autocast_state() -> list[dict[str, Any]]:
    """The autocast regions that this thread is in."""
    kinds = ["cpu", *(["cuda"] if torch.cuda.is_initialized() else [])]
    return [
        {"device_type": kind, "dtype": torch.get_autocast_dtype(kind), "enabled": True}
        for kind in kinds
        if torch.is_autocast_enabled(kind)
    ]
