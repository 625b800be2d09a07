"""From a recording to a report: copies, where their streams come from, and findings whose costs add up to the tax."""

from stridewise.analysis.assemble import analyze_trace, annotate_trace

__all__ = ["analyze_trace", "annotate_trace"]
