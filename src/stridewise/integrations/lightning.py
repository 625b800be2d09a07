"""A callback for Lightning: what layout costs in a training step, among the run's own metrics.

    from stridewise.integrations.lightning import LayoutMonitor

    Trainer(callbacks=[LayoutMonitor(every=1000, budget="copies=0")])

It serves `lightning.pytorch` and `pytorch_lightning` alike.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Unpack

from stridewise.api.monitoring import Options
from stridewise.integrations.trainers import Watched, Watching, peer

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def _bases() -> tuple[type, ...]:
    """`Callback` of the package that the program uses; of both if it has imported both."""
    used = [sys.modules[name] for name in _PACKAGES if name in sys.modules] or [peer("lightning", *_PACKAGES)]
    return tuple(dict.fromkeys(package.Callback for package in used))


class LayoutMonitor(Watching, *_bases()):  # type: ignore[misc]
    """Records one optimizer step of many, and logs what layout costs in it.

    `at_step` is the first step that is recorded, counted as `trainer.global_step` is (without it, the one after
    `warmup` steps), and `every` how many lie between one and the next; None records one only. The figures go to the
    trainer's loggers and to `trainer.callback_metrics`, `stridewise/share` to the progress bar too. Reports are written
    beside the checkpoints, unless `beside_checkpoints` is False or a `folder` is given. The other options are those of
    `stridewise.monitor`; with `on_excess="raise"` BudgetExceeded ends the fit. With `fast_dev_run` the first step is
    recorded, and nothing written.

    A step holds all the batches whose gradients it adds up. Loading them and validation are not in it.
    """

    def __init__(
        self, *, at_step: int | None = None, beside_checkpoints: bool = True, **options: Unpack[Options]
    ) -> None:
        super().__init__()
        self._watched = Watched(
            at_step, beside_checkpoints, options, within=("lightning", "pytorch_lightning", "lightning_fabric", "torch")
        )
        self._step = 0
        self._inside = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """A fit begins."""
        self._step, self._inside = trainer.global_step, False
        self._watched.start(
            done=trainer.global_step,
            checkpoints=_checkpoints(trainer),
            logs=[*trainer.loggers, lambda figures, step: _log(pl_module, figures)],
            rank=trainer.global_rank,
            ranks=trainer.world_size,
            short=bool(trainer.fast_dev_run),
        )

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A step begins, or goes on with another batch."""
        if not self._inside:
            self._inside = True
            self._watched.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A step ends if the optimizer has stepped."""
        if trainer.global_step != self._step:
            self._step, self._inside = trainer.global_step, False
            self._watched.end(self._step)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation in the midst of a step is no part of it."""
        self._watched.cancel("validation came in its midst")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """A fit ends."""
        self._watched.stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Or is broken off."""
        self._watched.drop()


def _checkpoints(trainer: Any) -> str | os.PathLike[str]:
    # Not `trainer.log_dir`, which asks the other ranks.
    folder: str | os.PathLike[str] | None = getattr(trainer.checkpoint_callback, "dirpath", None)
    return folder or str(trainer.default_root_dir)


def _log(pl_module: Any, figures: dict[str, float]) -> None:
    # Loggers are told directly: of what is logged so, they get only every `log_every_n_steps`th.
    for name, value in figures.items():
        pl_module.log(name, value, on_step=True, on_epoch=False, logger=False, prog_bar=name == "stridewise/share")
