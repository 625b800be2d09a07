"""The callback in a real Trainer of transformers, on a tiny model with random weights."""

import gc
import logging
from pathlib import Path

import pytest
import torch

from stridewise.errors import BudgetExceeded, LayoutWarning
from stridewise.recorder import live, private

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'stridewise[transformers]'")
pytest.importorskip("accelerate", reason="needs accelerate: pip install 'stridewise[transformers]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:torch.utils.data"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set"),
]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    yield
    assert not live.is_recording()


def trainer(folder: Path, callback, **options):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=16, bos_token_id=1, eos_token_id=2
    )
    rows = torch.randint(0, 50, (64, 8))
    data = [{"input_ids": row, "labels": row} for row in rows]
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=2,
        use_cpu=True,
        **{"max_steps": 8, "report_to": "none", "save_strategy": "no", "disable_tqdm": True, **options},
    )
    return transformers.Trainer(
        transformers.GPT2LMHeadModel(config), arguments, train_dataset=data, eval_dataset=data[:4], callbacks=[callback]
    )


def callback(**options):
    from stridewise.integrations.transformers import LayoutCallback

    return LayoutCallback(**{"max_overhead": None, "formats": ["json"], **options})


def logged(history: list[dict], name: str) -> list[int]:
    return [entry["step"] for entry in history if name in entry]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("stridewise-*"))


def test_figures_stand_in_the_trainers_own_log(tmp_path):
    watched = callback(at_step=2, every=3, recordings=True)
    training = trainer(tmp_path, watched, logging_steps=2)
    training.train()
    history = training.state.log_history
    assert logged(history, "stridewise/share") == [2, 5, 8]
    assert logged(history, "loss") == [2, 4, 6, 8]  # none of them is lost
    assert watched.recorded_step == 8
    totals = watched.report.totals
    assert (totals.steps, totals.steps_found) == (1, True)
    last = [entry for entry in history if "stridewise/copies" in entry][-1]
    assert last["stridewise/copies"] == totals.copies > 0
    assert names(tmp_path) == sorted(
        f"stridewise-step-{step:06d}.{ending}" for step in (2, 5, 8) for ending in ("json", "json.gz")
    )


def test_tensorboard_gets_them_from_the_trainer(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install 'stridewise[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "runs"))
    training = trainer(tmp_path, callback(at_step=2, every=3), report_to=["tensorboard"])
    training.train()
    events = EventAccumulator(str(tmp_path / "runs"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/stridewise/copies")] == [2, 5, 8]


def test_a_step_holds_all_batches_of_it_and_no_evaluation(tmp_path):
    one, three = callback(at_step=2, every=None), callback(at_step=2, every=None)
    trainer(tmp_path, one).train()
    trainer(tmp_path, three, gradient_accumulation_steps=3, eval_strategy="steps", eval_steps=1).train()
    assert one.recorded_step == three.recorded_step == 2
    # The optimizer's step makes none.
    assert three.report.totals.copies == 3 * one.report.totals.copies


def test_a_resumed_training_goes_on_counting(tmp_path):
    trainer(tmp_path, callback(at_step=100), save_strategy="steps", save_steps=4, max_steps=4).train()
    watched = callback(at_step=2, every=4)
    trainer(tmp_path, watched, max_steps=8).train(resume_from_checkpoint=True)
    assert watched.recorded_step == 6


def test_over_budget_the_training_ends(tmp_path):
    watched = callback(at_step=3, budget="copies=0", on_excess="raise")
    training = trainer(tmp_path, watched)
    with pytest.raises(BudgetExceeded, match="Over budget at step 3"):
        training.train()
    assert training.state.global_step == 3
    assert names(tmp_path) == ["stridewise-step-000003.json"]


def test_without_its_trainer_it_writes_to_the_history(tmp_path, monkeypatch):
    from stridewise.integrations import transformers as ours

    monkeypatch.setattr(ours, "_NEAR", 0)
    training = trainer(tmp_path, callback(at_step=2, every=None, beside_checkpoints=False))
    training.train()
    assert logged(training.state.log_history, "stridewise/share") == [2]
    assert names(tmp_path) == []


def test_training_is_the_same_with_it_and_without(tmp_path):
    losses = []
    for watched in (callback(at_step=2, every=2), transformers.TrainerCallback()):
        training = trainer(tmp_path, watched, logging_steps=1, max_steps=5)
        training.train()
        losses.append([entry["loss"] for entry in training.state.log_history if "loss" in entry])
    assert losses[0] == losses[1]
    assert len(losses[0]) == 5


def fails_at(training, step: int) -> None:
    seen = []

    def fails(module, args):
        seen.append(1)
        if len(seen) == step:
            assert live.is_recording()
            raise RuntimeError("out of luck")

    training.model.register_forward_pre_hook(fails)


def test_a_training_that_fails_in_a_recorded_step_leaves_nothing_running(tmp_path):
    watched = callback(at_step=2)
    training = trainer(tmp_path, watched)
    fails_at(training, step=2)
    thresholds = gc.get_threshold()
    with pytest.raises(RuntimeError, match="out of luck") as caught:
        training.train()
    del caught
    gc.collect()
    assert not live.is_recording()  # though the trainer is still there
    assert not private.profiler_is_on()
    assert training.state.global_step == 1
    assert thresholds == gc.get_threshold()


def test_a_callback_that_is_removed_in_a_recorded_step_leaves_nothing_running(tmp_path):
    watched = callback(at_step=3)

    class Removes(transformers.TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 2:
                assert live.is_recording()
                training.remove_callback(watched)

    training = trainer(tmp_path, watched)
    training.add_callback(Removes())
    training.train()
    assert training.state.global_step == 8
    assert not live.is_recording()
    assert watched.report is None


def test_a_trainer_that_is_dropped_takes_the_recording_with_it(tmp_path, monkeypatch):
    from stridewise.integrations import transformers as ours

    monkeypatch.setattr(ours, "_run_above", lambda trainer: None)
    training = trainer(tmp_path, callback(at_step=2))
    fails_at(training, step=2)
    with pytest.raises(RuntimeError) as caught:
        training.train()
    assert live.is_recording()
    del caught, training
    gc.collect()
    assert not live.is_recording()


def test_a_training_in_which_nothing_is_recorded_says_why(tmp_path, caplog):
    watched = callback(at_step=100)
    trainer(tmp_path, watched, max_steps=2).train()
    assert watched.notes == ["the loop ended after 2 steps, before one was recorded"]
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == [f"stridewise: nothing was recorded in this run: {watched.notes[0]}"]


def test_over_budget_there_is_a_warning_where_training_was_called(tmp_path):
    training = trainer(tmp_path, callback(at_step=2, every=None, budget="copies=0"), max_steps=3)
    with pytest.warns(LayoutWarning, match="Over budget at step 2") as caught:
        training.train()
    assert [warning.filename for warning in caught if warning.category is LayoutWarning] == [__file__]
