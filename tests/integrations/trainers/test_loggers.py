"""Figures where they are charted: TensorBoard's event files, log records, and functions such as `wandb.log`."""

import csv
import logging

import pytest
import torch

import stridewise
from stridewise.errors import UsageError


def watch(loggers, **options):
    model = torch.nn.Linear(64, 8)
    with stridewise.monitor(warmup=1, every=2, max_overhead=None, min_share=0, loggers=loggers, **options) as watched:
        for _ in range(4):
            model(torch.randn(32, 16).t().reshape(-1, 64)).sum().backward()
            watched.step()
    return watched


def test_tensorboard_has_the_curves(tmp_path):
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install 'stridewise[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        watched = watch(writer)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    copies = events.Scalars("stridewise/copies")
    assert [(event.step, event.value) for event in copies] == [(2, 1.0), (4, 1.0)]
    share = events.Scalars("stridewise/share")[-1]
    assert share.value == pytest.approx(watched.report.totals.share)


def test_a_logger_gets_a_line_for_people_and_figures_for_programs(caplog):
    caplog.set_level(logging.INFO)
    watched = watch(logging.getLogger("training"))
    first, second = (record for record in caplog.records if record.name == "training")
    assert first.levelno == logging.WARNING  # there is a finding
    assert second.getMessage().startswith("step 4: Layout costs ")
    assert "1 copy moves 4.1 kB" in second.getMessage()
    assert "\n" not in second.getMessage()
    assert second.stridewise["step"] == 4
    assert second.stridewise["copies"] == 1
    assert second.stridewise["share"] == watched.report.totals.share


def test_a_healthy_step_is_no_warning(caplog):
    caplog.set_level(logging.INFO)
    with stridewise.monitor(warmup=1, loggers=logging.getLogger("training")) as watched:
        for _ in range(3):
            torch.nn.functional.relu(torch.ones(4))
            watched.step()
    (record,) = (record for record in caplog.records if record.name == "training")
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith("step 2: Layout is fine")


def test_a_handler_takes_records_of_its_level_and_above():
    class Kept(logging.Handler):
        def __init__(self, level: int) -> None:
            super().__init__(level)
            self.records: list[logging.LogRecord] = []

        def emit(self, record: logging.LogRecord) -> None:
            self.records.append(record)

    taking, refusing = Kept(logging.INFO), Kept(logging.ERROR)
    watch([taking, refusing])
    assert [record.stridewise["step"] for record in taking.records] == [2, 4]
    assert refusing.records == []


def test_functions_and_objects_that_log_metrics_are_called_with_figures_and_step(tmp_path):
    class Run:
        """What MLflow's and Lightning's loggers look like."""

        def __init__(self) -> None:
            self.logged: list[tuple[int, dict[str, float]]] = []

        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            self.logged.append((step, metrics))

    run, path = Run(), tmp_path / "layout.csv"

    def to_csv(figures: dict[str, float], step: int) -> None:
        with path.open("a", newline="") as file:
            csv.writer(file).writerow([step, figures["stridewise/copies"]])

    watch([run, to_csv])
    assert [step for step, _ in run.logged] == [2, 4]
    assert all(type(value) is float for _, figures in run.logged for value in figures.values())
    assert path.read_text().split() == ["2,1.0", "4,1.0"]


def test_each_logger_has_figures_of_its_own():
    seen = []
    watch([lambda figures, step: figures.clear(), lambda figures, step: seen.append(len(figures))])
    assert min(seen) > 4


def test_what_takes_no_figures_is_refused():
    with pytest.raises(UsageError, match="SummaryWriter"):
        stridewise.monitor(loggers="tensorboard")
