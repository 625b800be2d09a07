"""The functions that people call. They return values and print nothing."""

from stridewise.api.artefacts import Artefact, check_export, check_export_file, guard_artefact
from stridewise.api.checks import (
    Conformance,
    LoaderReport,
    Preflight,
    assert_honours_layout,
    check_op,
    check_op_target,
    inspect_loader,
    preflight,
    preflight_target,
)
from stridewise.api.comparisons import Diff, Fleet, analyze_fleet, diff
from stridewise.api.compiled import Compiled, explain_compile, read_compiled, watched
from stridewise.api.lab import Lab, LabComparison, compare_labs, experiments, read_lab, run_lab
from stridewise.api.layouts import explain, explain_layout
from stridewise.api.machine import Doctor, doctor
from stridewise.api.monitoring import Monitor, monitor
from stridewise.api.recordings import (
    MIN_SHARE,
    Report,
    analyze,
    annotate,
    demo,
    diagnose,
    load,
    record,
    run_script,
    step,
)
from stridewise.api.repairs import Repair, fix, fix_script, fix_target, kinds
from stridewise.api.sources import LintRun, lint, seen_in
from stridewise.checks.contracts import expect_layout, register_ops, same_as
from stridewise.checks.contracts.asserted import assert_layout
from stridewise.checks.data import check_array, collate
from stridewise.checks.ranks import compare_ranks, guard_collectives, guard_ddp
from stridewise.checks.writes import check_write, guard_writes

__all__ = [
    "MIN_SHARE",
    "Artefact",
    "Compiled",
    "Conformance",
    "Diff",
    "Doctor",
    "Fleet",
    "Lab",
    "LabComparison",
    "LintRun",
    "LoaderReport",
    "Monitor",
    "Preflight",
    "Repair",
    "Report",
    "analyze",
    "analyze_fleet",
    "annotate",
    "assert_honours_layout",
    "assert_layout",
    "check_array",
    "check_export",
    "check_export_file",
    "check_op",
    "check_op_target",
    "check_write",
    "collate",
    "compare_labs",
    "compare_ranks",
    "demo",
    "diagnose",
    "diff",
    "doctor",
    "expect_layout",
    "experiments",
    "explain",
    "explain_compile",
    "explain_layout",
    "fix",
    "fix_script",
    "fix_target",
    "guard_artefact",
    "guard_collectives",
    "guard_ddp",
    "guard_writes",
    "inspect_loader",
    "kinds",
    "lint",
    "load",
    "monitor",
    "preflight",
    "preflight_target",
    "read_compiled",
    "read_lab",
    "record",
    "register_ops",
    "run_lab",
    "run_script",
    "same_as",
    "seen_in",
    "step",
    "watched",
]
