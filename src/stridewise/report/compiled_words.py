"""What torch.compile did, in a sentence, and how long it takes."""

from stridewise.results import numbers
from stridewise.results.compiled import Arm, Compiled, of_one_call

_NOISE = 2
"""How many times its lower bound the upper one of an interval may be, for its ratio to be shown."""


def sentence(result: Compiled) -> str:
    """What was compiled, and what of it only moves data."""
    if not result.graphs:
        failed = any(finding.severity == "error" for finding in result.findings)
        return "torch.compile fails where eager mode does not." if failed else "torch.compile compiled nothing."
    made = f"torch.compile made {numbers.count(len(result.graphs), 'graph')}"
    if backward := sum(graph.phase == "backward" for graph in result.graphs):
        made += f", {backward} of them for a backward"
    run = of_one_call(result.graphs)
    kernels = numbers.count(sum(graph.kernels for graph in run), "generated kernel")
    externs = numbers.count(sum(graph.externs for graph in run), "library call")
    each = "" if len(run) == len(result.graphs) else "; a call runs one compilation of each function: at most"
    made = f"{made}{each or ':'} {kernels} and {externs}"
    copies = sum(graph.copies for graph in run)
    if not copies:
        return f"{made}, and no tensor is only copied."
    known = [graph.bytes_moved for graph in run if graph.bytes_moved is not None]
    least = "at least " if len(known) < len(run) else ""
    size = f", {least}{numbers.byte_count(sum(known))} in all" if sum(known) else ""
    tensors = "1 tensor is" if copies == 1 else f"{copies} tensors are"
    return f"{made}. {tensors} only copied{size}."


def arm_ratio(arm: Arm) -> str:
    """How long an arm takes against the first; `not clear` where the interval is too wide to say."""
    if arm.ratio is None or arm.low is None or arm.high is None:
        return ""
    return "not clear" if arm.high > _NOISE * arm.low else f"{arm.ratio:.2f}"
