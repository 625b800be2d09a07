"""What the callbacks of trainers share."""

import pytest

from stridewise.errors import UsageError
from stridewise.integrations import trainers


@pytest.mark.parametrize(
    ("at_step", "done", "every", "first"),
    [(5, 0, 10, 5), (5, 4, 10, 5), (5, 5, 10, 15), (5, 14, 10, 15), (5, 15, 10, 25), (5, 5, None, None), (1, 0, 2, 1)],
)
def test_a_resumed_run_goes_on_with_the_steps_that_would_have_come(at_step, done, every, first):
    assert trainers._first_from(at_step, done, every) == first


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(ImportError, match=r'^no_such_trainer is not installed: pip install "stridewise\[lightning\]"$'):
        trainers.peer("lightning", "no_such_trainer.pytorch", "no_such_other")
    assert trainers.peer("lightning", "no_such_trainer", "json").loads


@pytest.mark.parametrize("options", [{"every": 1}, {"budget": "copies"}, {"loggers": 3}], ids=str)
def test_options_without_sense_are_refused_before_a_fit(options):
    with pytest.raises(UsageError):
        trainers.Watched(None, True, options)
    for at_step in (0, "3", 2.5, True):
        with pytest.raises(UsageError, match=f"at_step is {at_step!r}"):
            trainers.Watched(at_step, True, {})
    with pytest.raises(UsageError, match="beside_checkpoints is 'no'"):
        trainers.Watched(None, "no", {})
