"""The functions that people call. They return values and print nothing."""

from stridewise.api.comparisons import Diff, Fleet, analyze_fleet, diff
from stridewise.api.layouts import explain, explain_layout
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

__all__ = [
    "MIN_SHARE",
    "Diff",
    "Fleet",
    "LintRun",
    "Repair",
    "Report",
    "analyze",
    "analyze_fleet",
    "annotate",
    "demo",
    "diagnose",
    "diff",
    "explain",
    "explain_layout",
    "fix",
    "fix_script",
    "fix_target",
    "kinds",
    "lint",
    "load",
    "record",
    "run_script",
    "seen_in",
    "step",
]
