"""The callback in real fits of Lightning, under both of its names."""

import importlib
import logging
import os
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import stridewise
from stridewise.errors import BudgetExceeded, LayoutWarning
from stridewise.recorder import live

pytestmark = [
    # Lightning's own, about this machine, this torch and this short a fit.
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning"),
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:You are using `torch.load`"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

BOTH = ("lightning.pytorch", "pytorch_lightning")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for package in BOTH:
        logging.getLogger(package).setLevel(logging.ERROR)
    yield
    assert not live.is_recording()


@pytest.fixture(params=BOTH)
def pl(request):
    """Lightning under one of its names."""
    return importlib.import_module(pytest.importorskip(request.param, reason="needs Lightning").__name__)


@pytest.fixture
def lightning():
    return pytest.importorskip("lightning.pytorch", reason="needs Lightning: pip install 'stridewise[lightning]'")


def module(pl, copies: bool = True):
    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(16, 16)

        def training_step(self, batch, batch_idx):
            x = batch[0].t() if copies else batch[0]
            return self.linear(x.reshape(-1, 16)).sum()

        def validation_step(self, batch, batch_idx):
            for _ in range(5):
                batch[0].t().contiguous()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-4)

    return Model()


def batches(number: int) -> DataLoader:
    return DataLoader(TensorDataset(torch.randn(4 * number, 16)), batch_size=4)


def fit(pl, folder: Path, callback, *, number=12, model=None, checkpoint=None, **options):
    trainer = pl.Trainer(
        accelerator="cpu",
        callbacks=[callback],
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"max_epochs": 1, "logger": False, "enable_checkpointing": False, "num_sanity_val_steps": 0, **options},
    )
    trainer.fit(model or module(pl), batches(number), batches(2), ckpt_path=checkpoint)
    return trainer


def monitor(**options):
    from stridewise.integrations.lightning import LayoutMonitor

    return LayoutMonitor(**{"max_overhead": None, "formats": ["json"], **options})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("stridewise-*"))


def test_a_fit_is_watched_under_both_names(pl, tmp_path):
    callback = monitor(at_step=3, every=4)
    trainer = fit(pl, tmp_path, callback)
    assert callback.recorded_step == 11
    totals = callback.report.totals
    assert (totals.steps, totals.steps_found, totals.copies) == (1, True, 1)
    assert trainer.callback_metrics["stridewise/copies"] == 1
    assert names(tmp_path) == [f"stridewise-step-{step:06d}.json" for step in (3, 7, 11)]


def test_the_figures_go_to_the_trainers_loggers(lightning, tmp_path):
    from lightning.pytorch.loggers import CSVLogger

    fit(lightning, tmp_path, monitor(at_step=3, every=4), logger=CSVLogger(tmp_path), log_every_n_steps=100)
    header, *rows = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().splitlines()
    at = header.split(",").index
    assert [(row.split(",")[at("step")], row.split(",")[at("stridewise/copies")]) for row in rows] == [
        ("3", "1.0"),
        ("7", "1.0"),
        ("11", "1.0"),
    ]


def test_a_step_holds_all_batches_of_it_and_no_validation(lightning, tmp_path):
    callback = monitor(at_step=2, every=None)
    fit(lightning, tmp_path, callback, accumulate_grad_batches=3, val_check_interval=3)
    assert callback.recorded_step == 2
    assert callback.report.totals.copies == 3
    callback = monitor(at_step=2, every=None)
    fit(lightning, tmp_path, callback, accumulate_grad_batches=3, val_check_interval=4)
    assert callback.recorded_step == 4  # validation came in the midst of 2
    assert callback.report.totals.copies == 3


def test_mixed_precision(lightning, tmp_path):
    callback = monitor(at_step=2)
    fit(lightning, tmp_path, callback, precision="bf16-mixed")
    assert callback.recorded_step == 2
    assert callback.report.totals.copies


def test_files_lie_beside_the_checkpoints(lightning, tmp_path):
    from lightning.pytorch.callbacks import ModelCheckpoint

    kept = ModelCheckpoint(dirpath=tmp_path / "kept", every_n_train_steps=4)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_steps=8,
        callbacks=[monitor(at_step=3, recordings=True), kept],
        default_root_dir=tmp_path,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module(lightning), batches(12))
    assert names(tmp_path / "kept") == ["stridewise-step-000003.json", "stridewise-step-000003.json.gz"]
    recording = tmp_path / "kept" / "stridewise-step-000003.json.gz"
    assert stridewise.analyze(recording).totals.copies == 1

    resumed = monitor(at_step=3, every=4, beside_checkpoints=False)
    fit(lightning, tmp_path / "resumed", resumed, max_epochs=2, checkpoint=kept.best_model_path)
    assert resumed.recorded_step == 23
    assert names(tmp_path / "resumed") == []


def test_fast_dev_run_tells_of_its_one_step_and_writes_nothing(lightning, tmp_path):
    callback = monitor(at_step=100)
    fit(lightning, tmp_path, callback, fast_dev_run=True)
    assert callback.recorded_step == 1
    assert callback.report.totals.copies == 1
    assert names(tmp_path) == []


def test_limits_and_several_fits(lightning, tmp_path):
    callback = monitor(warmup=1, every=None, beside_checkpoints=False)
    fit(lightning, tmp_path, callback, limit_train_batches=3)
    first = callback.report
    fit(lightning, tmp_path, callback, limit_train_batches=3, model=module(lightning, copies=False))
    assert (first.totals.copies, callback.report.totals.copies) == (1, 0)
    callback = monitor(warmup=5)
    fit(lightning, tmp_path, callback, limit_train_batches=3)
    assert callback.report is None


def test_over_budget_the_fit_ends(lightning, tmp_path):
    callback = monitor(at_step=2, budget="copies=0", on_excess="raise")
    with pytest.raises(BudgetExceeded, match="Over budget at step 2: copies: 1 a step"):
        fit(lightning, tmp_path, callback)
    assert callback.report.totals.copies == 1
    assert names(tmp_path) == ["stridewise-step-000002.json"]
    fit(lightning, tmp_path, monitor(at_step=2, budget="copies=0", on_excess="raise"), model=module(lightning, False))


def test_a_fit_that_fails_in_a_recorded_step_leaves_nothing_running(lightning, tmp_path):
    model = module(lightning)

    def fails(batch, batch_idx):
        if batch_idx == 1:
            assert live.is_recording()
            raise RuntimeError("out of luck")
        return model.linear(batch[0]).sum()

    model.training_step = fails
    with pytest.raises(RuntimeError, match="out of luck"):
        fit(lightning, tmp_path, monitor(at_step=2), model=model)
    assert not live.is_recording()
    assert torch._C._len_torch_function_stack() == 0


def test_a_fit_in_which_nothing_is_recorded_says_why(lightning, tmp_path, caplog):
    callback = monitor(at_step=2, every=2)
    fit(lightning, tmp_path, callback, val_check_interval=1, accumulate_grad_batches=2)
    assert callback.report is None
    assert callback.notes[0] == "a step was not recorded: validation came in its midst"
    said = [record.getMessage() for record in caplog.records if record.name == "stridewise"]
    assert said == [f"stridewise: nothing was recorded in this run: {callback.notes[0]}"]
    caplog.clear()
    resumed = monitor(at_step=1, every=None)
    resumed._watched.start(done=5, checkpoints=None, logs=[], rank=0, ranks=1)
    assert "at_step=1 lies behind" in caplog.text
    assert resumed.notes == ["at_step=1 lies behind, and every is None"]


def test_one_that_records_or_fails_says_nothing(lightning, tmp_path, caplog):
    fit(lightning, tmp_path, monitor(at_step=2))
    model = module(lightning)
    model.linear.forward = None
    with pytest.raises(TypeError):
        fit(lightning, tmp_path, monitor(at_step=2), model=model)
    assert [record for record in caplog.records if record.name == "stridewise"] == []


def test_recordings_that_are_put_off_are_in_the_notes(lightning, tmp_path):
    callback = monitor(at_step=3, every=4, max_overhead=1e-9)
    fit(lightning, tmp_path, callback)
    assert callback.recorded_step == 3
    assert ["put off" in note for note in callback.notes] == [True]


def test_over_budget_there_is_a_warning_where_the_fit_was_called(pl, tmp_path):
    with pytest.warns(LayoutWarning, match="Over budget at step 2") as caught:
        fit(pl, tmp_path, monitor(at_step=2, every=None, budget="copies=0"))
    assert [warning.filename for warning in caught if warning.category is LayoutWarning] == [__file__]


def test_every_rank_records_the_same_step(lightning, tmp_path):
    """Two real ranks, of which Lightning starts the second."""
    import subprocess
    import sys

    script = tmp_path / "fit.py"
    script.write_text(
        "import warnings, torch; warnings.simplefilter('ignore')\n"
        "import lightning.pytorch as pl\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "from stridewise.integrations.lightning import LayoutMonitor\n"
        "class Model(pl.LightningModule):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.linear = torch.nn.Linear(16, 16)\n"
        "    def training_step(self, batch, i):\n"
        "        return self.linear(batch[0].t().reshape(-1, 16)).sum()\n"
        "    def configure_optimizers(self):\n"
        "        return torch.optim.SGD(self.parameters(), 1e-4)\n"
        "callback = LayoutMonitor(at_step=3, every=None, formats=['json'])\n"
        "trainer = pl.Trainer(accelerator='cpu', devices=2, strategy='ddp', max_epochs=1, callbacks=[callback],\n"
        "    default_root_dir='.', logger=False, enable_checkpointing=False, enable_progress_bar=False,\n"
        "    enable_model_summary=False)\n"
        "trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 16)), batch_size=4))\n"
    )
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=110, env=environ
    )
    assert ran.returncode == 0, ran.stderr
    step = tmp_path / "stridewise-step-000003"
    assert sorted(path.name for path in step.iterdir()) == ["rank0.json.gz", "rank1.json.gz"]
    assert (tmp_path / "stridewise-step-000003.json").is_file()
    fleet = stridewise.analyze_fleet([step])
    assert [(row.at.rank, row.steps, row.copies) for row in fleet.rows] == [(0, 1, 1), (1, 1, 1)]
