"""A callback for the Trainer of transformers: what layout costs in a training step, among its own logs.

from stridewise.integrations.transformers import LayoutCallback

Trainer(..., callbacks=[LayoutCallback(every=1000, budget="copies=0")])
"""

from __future__ import annotations

import sys
from types import FrameType, MethodType
from typing import TYPE_CHECKING, Any, Unpack

from stridewise.api.monitoring import Options
from stridewise.integrations.trainers import Watched, Watching, peer

if TYPE_CHECKING:
    _Callback = object
else:
    _Callback = peer("transformers", "transformers").TrainerCallback

_NEAR = 12
"""Frames above a callback's in which its trainer is looked for; it was the third in 4.50 to 5.24."""


class LayoutCallback(Watching, _Callback):
    """Records one optimizer step of many, and logs what layout costs in it.

    `at_step` is the first step that is recorded, counted as `state.global_step` is (without it, the one after `warmup`
    steps), and `every` how many lie between one and the next; None records one only. The figures are logged as the
    trainer logs its loss: they stand in `state.log_history` and go to what `report_to` names. Reports are written to
    `args.output_dir`, unless `beside_checkpoints` is False or a `folder` is given. The other options are those of
    `stridewise.monitor`; with `on_excess="raise"` BudgetExceeded ends the training.

    A step holds all the batches whose gradients it adds up. Loading them and evaluation are not in it.
    """

    def __init__(
        self, *, at_step: int | None = None, beside_checkpoints: bool = True, **options: Unpack[Options]
    ) -> None:
        super().__init__()
        self._watched = Watched(at_step, beside_checkpoints, options, within=("transformers", "accelerate", "torch"))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training begins."""
        trainer = _trainer_above()
        self._watched.start(
            done=state.global_step,
            checkpoints=args.output_dir,
            logs=[lambda figures, step: _log(trainer, state, figures)],
            rank=args.process_index,
            ranks=args.world_size,
            until=_run_above(trainer),
        )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step begins."""
        self._watched.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The optimizer has stepped."""
        self._watched.end(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training ends."""
        self._watched.stop()


def _log(trainer: Any, state: Any, figures: dict[str, float]) -> None:
    if trainer is None:
        state.log_history.append({**figures, "epoch": state.epoch, "step": state.global_step})
        return
    wanted = trainer.control.should_log
    trainer.log(figures)
    trainer.control.should_log = wanted  # logging takes it back, and the trainer has yet to log its loss


def _run_above(trainer: Any) -> Any:
    """What lives as long as the call of `train` above a callback: nobody tells callbacks of an exception in it.

    The loop that `train` calls, which it makes anew each time (in 5.24). None where there is none.
    """
    frame: FrameType | None = sys._getframe(1)
    while trainer is not None and frame is not None:
        if frame.f_code.co_name == "train" and frame.f_locals.get("self") is trainer:
            loop = frame.f_locals.get("inner_training_loop")
            return loop if callable(loop) and not isinstance(loop, MethodType) else None
        frame = frame.f_back
    return None


def _trainer_above() -> Any:
    """The trainer that called a callback, which is not told of it; None where it is not to be found."""
    from transformers import Trainer

    frame = sys._getframe(1)
    for _ in range(_NEAR):
        found = frame.f_locals.get("self")
        if isinstance(found, Trainer):
            return found
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
