"""Running experiments: what is kept, and what is not filled in."""

import contextlib
import os
import re
import threading
import warnings
from functools import partial

import pytest
import torch
from msgspec.structs import replace
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import stridewise
from stridewise.errors import UsageError
from stridewise.lab import catalogue, session
from stridewise.lab.devices import Processor
from stridewise.lab.experiment import Claim, Experiment
from stridewise.lab.generated import graphs
from stridewise.lab.settings import settings
from stridewise.results.lab import Prediction, verdict


def experiment(run, name="made-up", **sizes) -> Experiment:
    claims = {"C1": Claim("1", "It is so.", "It is not."), "C2": Claim("2.1", "That too.", "Nor that.")}
    return Experiment(name, "Made up", "Nothing is done.", claims, run, **sizes)


def predictions(*came_true):
    return [Prediction("it is seen", each, "seen") for each in came_true]


def test_the_rule():
    assert verdict(predictions(True, True)) == "holds"
    assert verdict(predictions(True, False)) == "holds in part"
    assert verdict(predictions(False, False)) == "does not hold"
    assert verdict(predictions(None)) == "cannot be tested here"
    assert verdict([]) == "cannot be tested here"
    assert verdict(predictions(True, None)) == "holds"
    assert verdict(predictions(False, None)) == "does not hold"


def test_claims_get_their_predictions():
    def run(bench):
        bench.expect("C1", "one", True, 1)
        bench.expect("C1", "two", False, 2)

    found = session.run([experiment(run)], Processor(), quick=True)
    one, two = found.experiments[0].claims
    assert (one.number, one.verdict, len(one.predictions)) == ("C1", "holds in part", 2)
    assert (two.number, two.verdict, two.predictions) == ("C2", "cannot be tested here", ())
    assert found.whole


def test_an_error_ends_one_experiment_and_proves_nothing():
    def run(bench):
        bench.expect("C1", "one", True, 1)
        raise RuntimeError("CUDA out of memory\nTried to allocate")

    found = session.run([experiment(run), experiment(lambda bench: None, "other")], Processor())
    broken, other = found.experiments
    assert broken.failed == "RuntimeError: CUDA out of memory Tried to allocate"
    assert {claim.verdict for claim in broken.claims} == {"cannot be tested here"}
    assert other.failed is None
    assert "made-up" in found.notes[0]


def test_an_interruption_keeps_what_there_is():
    def interrupted(bench):
        raise KeyboardInterrupt

    ran = experiment(lambda bench: bench.expect("C1", "one", True, 1), "ran")
    found = session.run([ran, experiment(interrupted), ran], Processor())
    assert [each.name for each in found.experiments] == ["ran"]
    assert not found.whole
    assert "2 of 3 experiments were not run" in found.notes[0]


def test_a_prediction_of_a_claim_that_nobody_made_is_a_defect():
    with pytest.raises(AssertionError, match="C99"):
        session.run([experiment(lambda bench: bench.expect("C99", "x", True, 1))], Processor())


def test_the_program_is_left_as_it_was():
    torch.manual_seed(7)
    state, threads, filters = torch.get_rng_state(), torch.get_num_threads(), warnings.filters[:]
    session.run([experiment(lambda bench: bench.randn(8).sum())], Processor(), quick=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert warnings.filters == filters
    assert torch.is_grad_enabled()


def test_random_numbers_are_the_same_each_time_and_no_other_device_is_seeded(monkeypatch):
    seeded, drawn = [], []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    for _ in range(2):
        session.run([experiment(lambda bench: drawn.append(bench.randn(8)))], Processor(), quick=True)
    assert torch.equal(*drawn)
    assert seeded == []


def test_what_times_leave_open_is_counted_in_a_note():
    def run(bench):
        bench.expect("C2", "one", False, 1)
        bench.predict("C1", Prediction("it is faster", None, "0.9x to 1.2x", unclear=True))

    found = session.run([experiment(run)], Processor(), quick=True)
    assert [claim.verdict for claim in found.claims()] == ["cannot be tested here", "does not hold"]
    assert "left 1 prediction open" in found.notes[0]


def test_only_claims_that_are_asked_for_are_told():
    def run(bench):
        bench.expect("C1", "one", True, 1)
        bench.expect("C2", "two", True, 2)

    asked = replace(experiment(run), told=frozenset({"C2"}))
    assert [claim.number for claim in session.run([asked], Processor(), quick=True).claims()] == ["C2"]


def test_threads():
    seen = []
    before = torch.get_num_threads()
    for options in ({"quick": True}, {"quick": True, "threads": 2}, {}, {"threads": 3}):
        found = session.run([experiment(lambda bench: seen.append(torch.get_num_threads()))], Processor(), **options)
        assert found.machine.threads == seen[-1]
        assert torch.get_num_threads() == before
    assert seen == [1, 2, before, 3]


@pytest.mark.parametrize(
    "around",
    [
        torch.inference_mode,
        torch.no_grad,
        lambda: torch.autocast("cpu"),
        lambda: default_dtype(torch.float64),
    ],
    ids=["inference mode", "no grad", "autocast", "dtype"],
)
def test_settings_of_the_caller_change_nothing(around):
    seen = []

    def run(bench):
        x = bench.randn(2, 2, requires_grad=True)
        seen.append((x.dtype, (x @ x).dtype, (x @ x).requires_grad))

    with around():
        before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        session.run([experiment(run)], Processor(), quick=True)
        assert (torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")) == before
    assert seen == [(torch.float32, torch.float32, True)]


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def switched(get, put, value):
    before = get()
    assert before != value, "it is no other setting"
    put(value)
    try:
        yield
    finally:
        put(before)


def attribute(owner, name):
    return partial(getattr, owner, name), partial(setattr, owner, name)


BACKENDS = torch.backends


@pytest.mark.parametrize(
    ("get", "put", "value"),
    [
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
        (torch.is_anomaly_enabled, torch.set_anomaly_enabled, True),
        (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
        (partial(torch.is_autocast_enabled, "cuda"), partial(torch.set_autocast_enabled, "cuda"), True),
        (partial(torch.get_autocast_dtype, "cpu"), partial(torch.set_autocast_dtype, "cpu"), torch.float16),
        (BACKENDS.mha.get_fastpath_enabled, BACKENDS.mha.set_fastpath_enabled, False),
        (BACKENDS.cuda.flash_sdp_enabled, BACKENDS.cuda.enable_flash_sdp, False),
        (BACKENDS.cuda.mem_efficient_sdp_enabled, BACKENDS.cuda.enable_mem_efficient_sdp, False),
        (BACKENDS.cuda.math_sdp_enabled, BACKENDS.cuda.enable_math_sdp, False),
        (BACKENDS.cuda.cudnn_sdp_enabled, BACKENDS.cuda.enable_cudnn_sdp, False),
        (*attribute(BACKENDS.mkldnn, "enabled"), False),
        (*attribute(BACKENDS.cudnn, "enabled"), False),
        (*attribute(BACKENDS.cudnn, "benchmark"), True),
        (*attribute(BACKENDS.cudnn, "deterministic"), True),
        (*attribute(BACKENDS.cudnn, "allow_tf32"), False),
    ],
    ids=lambda each: str(each.args[-1]) if isinstance(each, partial) else getattr(each, "__name__", str(each)),
)
def test_switches_of_the_caller_are_at_their_defaults_meanwhile(get, put, value):
    default = get()
    with switched(get, put, value):
        with settings(None) as notes:
            assert get() == default
        assert get() == value
    assert notes == []


def test_flags_that_the_process_has_frozen_are_at_their_defaults_too(monkeypatch):
    monkeypatch.setattr(BACKENDS.mkldnn, "enabled", False)
    monkeypatch.setitem(BACKENDS.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", False)
    assert BACKENDS.flags_frozen()
    with settings(None):
        assert BACKENDS.mkldnn.enabled
    assert not BACKENDS.mkldnn.enabled
    monkeypatch.setitem(BACKENDS.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)


def test_the_compiler_is_told_again_what_has_to_be_deterministic():
    from torch._inductor import config

    def run(bench):
        bench.expect("C1", "the compiler is told otherwise meanwhile", not config.deterministic, "")

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        found = session.run([experiment(run)], Processor(), quick=True)
        assert config.deterministic
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert found.claims()[0].verdict == "holds"


@pytest.mark.skipif(not hasattr(BACKENDS, "fp32_precision"), reason="this torch has no fp32_precision")
def test_a_precision_that_older_names_cannot_read_is_noted():
    with (
        switched(*attribute(BACKENDS.mkldnn.matmul, "fp32_precision"), "bf16"),
        settings(None) as notes,
    ):
        assert len(notes) == 1
    assert "fp32_precision" in notes[0]


def test_compilers_that_the_caller_put_aside_are_used():
    def run(bench):
        bench.expect("C1", "it is compiled", graphs(lambda x: x + 1, [(bench.randn(2),)]) == [1], "")

    with torch.compiler.set_stance("force_eager"):
        found = session.run([experiment(run)], Processor(), quick=True)
    assert found.claims()[0].verdict == "holds"


@pytest.mark.parametrize("around", [contextlib.nullcontext, lambda: torch.autocast("cpu", dtype=torch.bfloat16)])
def test_autocast_forgets_what_it_cast_where_a_region_ends(around):
    """A weight that is trained is cast anew in each region; so it is whatever the caller has around the lab."""
    x, weight = torch.ones(1, 2), torch.nn.Parameter(torch.zeros(2, 2))

    def region():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return torch.nn.functional.linear(x, weight).sum().item()

    with around():
        with settings(None):
            assert region() == 0
            weight.data += 1
            assert region() == 4
        assert torch.autocast_increment_nesting() - 1 == (around is not contextlib.nullcontext)
        torch.autocast_decrement_nesting()


def test_weights_under_autocast_are_trained():
    (found,) = session.run(catalogue.selected(["autocast-gradients"]), Processor(), quick=True).experiments
    losses = re.search(r"the loss went from (\S+) to (\S+)", found.claims[0].predictions[-1].measured)
    assert float(losses[2]) < float(losses[1]) / 10


def test_where_nothing_can_be_measured_it_is_said_at_once():
    ran = []
    made = experiment(lambda bench: ran.append(1))
    with torch.device("meta"), pytest.raises(UsageError, match="default device is meta"):
        session.run([made], Processor())
    with stridewise.record(), pytest.raises(UsageError, match="records what it measures"):
        session.run([made], Processor())
    assert ran == []


class Passed(TorchFunctionMode):
    """Raises for whatever runs under it."""


class Dispatching(TorchDispatchMode):
    """The same."""


@pytest.mark.parametrize(
    ("mode", "name"),
    [(FakeTensorMode, "FakeTensorMode"), (Dispatching, "Dispatching"), (Passed, "Passed")],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_under_a_mode_of_torch_nothing_is_run(mode, name):
    ran = []
    with mode(), pytest.raises(UsageError, match=f"called under {name}: leave this mode") as caught:
        session.run([experiment(lambda bench: ran.append(1))], Processor(), quick=True)
    assert len(str(caught.value).splitlines()) == 1
    assert ran == []


def test_a_default_device_that_is_the_cpu_is_no_obstacle():
    with torch.device("cpu"):
        assert session.run([experiment(lambda bench: None)], Processor(), quick=True).whole


@pytest.mark.parametrize("threads", [1.5, True, "2", [1]], ids=repr)
def test_what_is_no_number_of_threads(threads):
    with pytest.raises(UsageError, match="takes a whole number of 1 to 1024"):
        session.run([experiment(lambda bench: None)], Processor(), threads=threads)


def test_what_libraries_leave_in_the_process_is_taken_back(monkeypatch):
    monkeypatch.setenv("OF_THE_CALLER", "1")
    tqdm = pytest.importorskip("tqdm")
    before = tqdm.tqdm.monitor

    def run(bench):
        os.environ.update(OF_A_LIBRARY="1", OF_THE_CALLER="2")
        for _ in tqdm.tqdm(range(2), disable=True):
            pass
        assert tqdm.tqdm.monitor is not None

    found = session.run([experiment(run)], Processor(), quick=True)
    assert found.experiments[0].failed is None
    assert tqdm.tqdm.monitor is before
    assert before is not None or not any("tqdm" in thread.name for thread in threading.enumerate())
    assert "OF_A_LIBRARY" not in os.environ
    assert os.environ["OF_THE_CALLER"] == "1"


def test_a_bar_of_the_caller_is_watched_still():
    tqdm = pytest.importorskip("tqdm")
    for _ in tqdm.tqdm(range(1), disable=True):
        pass
    watcher = tqdm.tqdm.monitor
    try:
        session.run([experiment(lambda bench: None)], Processor(), quick=True)
        assert tqdm.tqdm.monitor is watcher
        assert watcher.is_alive()
    finally:
        watcher.exit()
        tqdm.tqdm.monitor = None


def test_sizes_by_device_and_effort():
    given = []
    made = experiment(
        lambda bench, **sizes: given.append(sizes),
        cpu={"rows": 8, "width": 4},
        cuda={"rows": 64},
        quick={"rows": 2, "width": 2},
    )
    session.run([made], Processor(), quick=True)
    assert given == [{"rows": 2, "width": 2}]
    assert made.sizes("cuda", quick=False) == {"rows": 64, "width": 4}
    assert made.sizes("cuda", quick=True) == {"rows": 64, "width": 2}


def test_a_claim_of_several_experiments_is_judged_by_all_predictions():
    yes = experiment(lambda bench: bench.expect("C1", "one", True, 1), "yes")
    no = experiment(lambda bench: bench.expect("C1", "two", False, 2), "no")
    found = session.run([yes, no], Processor(), quick=True)
    assert [claim.verdict for claim in found.claims()] == ["holds in part", "cannot be tested here"]
