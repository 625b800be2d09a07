"""Edits that are tried."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import msgspec

from stridewise import results
from stridewise.api.recordings import MIN_SHARE
from stridewise.api.shown import Shown, written
from stridewise.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from stridewise.repair.options import Options as TrialOptions
    from stridewise.repair.outcome import Outcome
    from stridewise.source.patch import Written


class Repair(Shown, results.Repair, frozen=True, dict=True):
    """What was tried, and the diff of what won. It shows itself; `apply` and `write` put the winners into effect."""

    @classmethod
    def _of(cls, outcome: Outcome) -> Repair:
        repair = cls(*msgspec.structs.astuple(outcome.repair))
        vars(repair)["_outcome"] = outcome  # no field: it holds live objects
        return repair

    def _render(self, out: TextIO) -> None:
        from stridewise.report import repair

        repair.render(self, out, format="text")

    def to_json(self) -> str:
        """The repair as `stridewise fix --format json` prints it."""
        from stridewise.report import repair

        return written(lambda out: repair.render(self, out, format="json"))

    def write(self, patch_dir: str | os.PathLike[str] = ".") -> tuple[Written, ...]:
        """Write the winners into the project's files; gives what became of each file.

        Only a file that still reads as it did when the trials ran is written, whole or not at all. A file of an
        installed package never is: it gets a patch in `patch_dir`.
        """
        from stridewise.source import patch

        outcome = self._outcome
        return patch.write(outcome.changes, outcome.files, patch_dir=Path(patch_dir))

    def apply(self) -> None:
        """Put the winners in place in this process, until it ends: no file is touched. Twice is once.

        Raises UsageError where that can't be done, as when the model's inputs have to be converted.
        """
        self._outcome.apply()

    @property
    def _outcome(self) -> Outcome:
        return cast("Outcome", vars(self)["_outcome"])


def fix(
    model: Callable[..., Any],
    *args: Any,
    train: bool = False,
    loss: Callable[[Any], Tensor] | None = None,
    only: Collection[str] = (),
    time_limit: float = 60.0,
    tolerance: float | None = None,
    library_copies: bool = False,
    min_share: float = MIN_SHARE,
    progress: Callable[[results.Progress], object] | None = None,
    **kwargs: Any,
) -> Repair:
    """Try edits of what `model(*args, **kwargs)` runs, and keep those that make it faster and give the same results.

    With `train` a step has a backward from `loss(output)`, or from the model's own loss or the mean softplus of its
    output. A function without arguments is a step by itself, with whatever backward and optimizer it has. `only` names
    kinds of edits (`kinds()`); `time_limit` is in seconds; `tolerance` is a share of a result's largest magnitude, and
    without it goes by dtype. Afterwards the program is as it was before. Ctrl-C ends the trials, and what was tried
    until then is given. Raises UsageError for what can't be tried, and whatever the program raises.
    """
    from stridewise.repair.trial import start

    options = _trial_options(only, time_limit, tolerance, library_copies, min_share)
    given = None if train or args or kwargs or start.is_module(model) else model
    outcome = (
        start.try_step(given, options, progress)
        if given is not None
        else start.try_model(model, args, kwargs, options, progress, train=train, loss=loss)
    )
    return Repair._of(outcome)


def fix_target(
    target: str,
    *,
    train: bool = False,
    only: Collection[str] = (),
    time_limit: float = 60.0,
    tolerance: float | None = None,
    library_copies: bool = False,
    min_share: float = MIN_SHARE,
    progress: Callable[[results.Progress], object] | None = None,
) -> Repair:
    """The same for `path.py:name` or `package.module:name`, a function.

    It returns `(model, args)`, `(model, args, kwargs)`, or a step to call; one that returns none of these is a step
    itself. Raises UsageError where there is no such function.
    """
    from stridewise.repair.trial import start

    options = _trial_options(only, time_limit, tolerance, library_copies, min_share)
    return Repair._of(start.try_target(target, options, progress, train=train))


def fix_script(
    argv: list[str],
    *,
    module: bool = False,
    stop: bool = False,
    only: Collection[str] = (),
    time_limit: float = 60.0,
    tolerance: float | None = None,
    library_copies: bool = False,
    min_share: float = MIN_SHARE,
    progress: Callable[[results.Progress], object] | None = None,
) -> tuple[Repair | None, int, str | None]:
    """The same for a script with its arguments, while it runs: its own steps are timed, with and without an edit.

    Only edits that keep results are tried. With `stop` the script ends with the trials; else it goes on to its end.
    Gives the repair, None if nothing was tried, the script's exit code, and what there is to say besides.
    """
    from stridewise.repair.trial import start

    options = _trial_options(only, time_limit, tolerance, library_copies, min_share)
    outcome, code, message = start.try_script(argv, options, progress, module=module, stop=stop)
    return (None if outcome is None else Repair._of(outcome)), code, message


def kinds() -> tuple[str, ...]:
    """The kinds of edits that `fix` tries, by name."""
    from stridewise.repair.kinds import all_kinds

    return tuple(kind.name for kind in all_kinds())


def _trial_options(
    only: Collection[str], time_limit: float, tolerance: float | None, library_copies: bool, min_share: float
) -> TrialOptions:
    from stridewise.repair.kinds import chosen
    from stridewise.repair.options import Options

    if not 0 < time_limit < math.inf:
        raise UsageError(f"fix() was given a time limit of {time_limit!r}.", expected="Expected: seconds, more than 0.")
    wanted = (only,) if isinstance(only, str) else tuple(only)
    return Options(chosen(wanted), wanted, time_limit, tolerance, library_copies, min_share)
