"""The surfaces of torch that are built on: each is there in this version, or is said to be missing."""

import logging
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from stridewise.compiled import capture, trace_log
from stridewise.compiled.capture import fresh, logged, without_caches
from stridewise.compiled.logs import from_entries

from . import programs

PROGRAM = f"""
import sys
import torch
sys.path.insert(0, {str(Path(programs.__file__).parent)!r})
import programs
with torch.no_grad():
    torch.compile(programs.product)(torch.randn(64, 128)[:, ::2], torch.randn(64, 64))
"""


def test_the_logger_is_torchs() -> None:
    """Tried on 2.6, 2.13 and 2.14."""
    from torch._logging import _internal

    assert _internal.trace_log is logging.getLogger(capture.TRACE_LOGGER)


def test_what_is_logged_has_code_and_graph() -> None:
    with torch.no_grad(), without_caches() as missing, logged() as entries:
        torch.compile(fresh(programs.chain))(torch.randn(4, 4), torch.randn(4, 4))
    kinds = {entry.kind for entry in entries}
    assert {"inductor_output_code", "inductor_post_grad_graph", "dynamo_output_graph", "compilation_metrics"} <= kinds
    if capture.PROVENANCE not in missing:
        assert "inductor_provenance_tracking_kernel_stack_traces" in kinds


def test_the_logger_is_left_as_it_was() -> None:
    logger = logging.getLogger(capture.TRACE_LOGGER)
    before = logger.level, logger.propagate, list(logger.handlers), list(warnings.filters)
    with pytest.raises(ZeroDivisionError), logged():
        _ = 1 / 0
    assert (logger.level, logger.propagate, list(logger.handlers), list(warnings.filters)) == before


def test_settings_are_left_as_they_were() -> None:
    import torch._dynamo.config
    import torch._inductor.config

    before = torch._inductor.config.fx_graph_cache
    limit = getattr(torch._dynamo.config, "recompile_limit", None)
    with without_caches({"layout_optimization": False}):
        assert torch._inductor.config.layout_optimization is False
        assert torch._inductor.config.fx_graph_cache is False
    assert torch._inductor.config.fx_graph_cache == before
    assert getattr(torch._dynamo.config, "recompile_limit", None) == limit


def test_a_setting_that_is_not_there_is_told() -> None:
    with without_caches({"layout_optimisation_of_tomorrow": 1}) as missing:
        assert "layout_optimisation_of_tomorrow" in missing


def test_a_file_of_torch_trace_reads_as_what_was_logged(tmp_path: Path) -> None:
    environment = {"TORCH_TRACE": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True)
    (file,) = trace_log.files_of(tmp_path)
    read = from_entries(trace_log.read_file(file))
    with torch.no_grad(), without_caches(), logged() as entries:
        torch.compile(fresh(programs.product))(torch.randn(64, 128)[:, ::2], torch.randn(64, 64))
    live = from_entries(trace_log.renumbered(entries))
    assert [(g.kernels, g.externs, g.copies) for g in read.graphs] == [(1, 1, 1)]
    assert [(g.kernels, g.externs, g.copies) for g in live.graphs] == [(1, 1, 1)]
    assert [finding.code for finding in read.findings] == ["SW501"]
    assert read.graphs[0].copied[0].source == "input `a`"
    assert read.graphs[0].copied[0].read == live.graphs[0].copied[0].read
