"""From what the compiler logged to graphs, recompilations and breaks. No torch."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from stridewise.compiled import graph_text, names, output_code
from stridewise.compiled.graph_text import Node
from stridewise.compiled.graphs import graph_of
from stridewise.compiled.lines import Draft, phase_of
from stridewise.compiled.stacks import sites_of
from stridewise.compiled.trace_log import Entry
from stridewise.findings import Site
from stridewise.recording.filenames import public_place
from stridewise.results.compiled import Break, Graph, Recompile

_OTHER_REASON = re.compile(r"data[- ]dependent|generic_jump|dynamic control flow", re.IGNORECASE)
"""Of breaks for what a tensor holds: the words of torch 2.7 and later, and those of 2.6."""
_LAYOUT_CALL = re.compile(
    r"\.(is_contiguous|stride|storage_offset|data_ptr|untyped_storage|storage|is_set_to|dim_order|is_non_overlapping_and_dense)\s*\("
)
_STRIDE_GUARD = re.compile(r"stride mismatch|\.stride\(|\.is_contiguous\(")
_TRACED = {f"aot_{phase}_graph": phase for phase in ("inference", "forward", "backward")}
_NODE_MAPPINGS = "inductor_provenance_tracking_node_mappings"
_STACK_TRACES = "inductor_provenance_tracking_kernel_stack_traces"


class Read(Struct, frozen=True):
    """What the logs of one process say."""

    graphs: tuple[Graph, ...]
    recompiles: tuple[Recompile, ...]
    breaks: tuple[Break, ...]
    code: dict[str, str]
    """The generated code of each graph, by `id phase`."""
    missing: tuple[str, ...]
    failures: tuple[str, ...]
    """Why some frames were not compiled."""


class _Frame(Struct):
    """What was logged of one compilation."""

    post_grad: str = ""
    """Of the code that comes next."""
    traced: dict[str, str] = field(default_factory=dict)
    """The graphs before inductor's passes, which are there also where code comes from a cache."""
    dynamo: str = ""
    sources: list[str] = field(default_factory=list)
    drafts: list[dict[str, Any]] = field(default_factory=list)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    unread: bool = False


def read(
    entries: Iterable[Entry], own: Mapping[str, Site] | None = None, renamed: Mapping[str, str] | None = None
) -> Read:
    """Everything that the entries tell.

    `own` are functions of this package that stand for one of the program: by file, what to call them. `renamed` says
    what roots of sources are called in the program.
    """
    frames: dict[str, _Frame] = {}
    for entry in entries:
        _note(frames.setdefault(entry.compile_id, _Frame()), entry)
    graphs, recompiles, failures = [], [], []
    breaks: dict[tuple[Site, str], Break] = {}
    code: dict[str, str] = {}
    missing: set[str] = set()
    for compile_id, frame in frames.items():
        function = _function(frame.metrics, own or {})
        found = [_break(compile_id, text) for text in frame.breaks]
        breaks.update({(each.site, each.reason): each for each in found})  # those of callers are of the same place
        if frame.reasons:
            recompiles.append(_recompile(compile_id, function, frame.reasons, renamed or {}))
        if frame.metrics.get("fail_reason"):
            failures.append(_first_line(str(frame.metrics["fail_reason"])))
        for draft in _drafts(compile_id, frame, renamed or {}):
            graphs.append(graph_of(draft, function, len(found)))
            code[f"{draft.id} {draft.phase}"] = draft.code
            if draft.generated.lines and not draft.traces:
                missing.add(
                    "It was not logged which nodes a kernel computes: sites are whole lines, and some are not known."
                    " Beside TORCH_TRACE, INDUCTOR_PROVENANCE=1 makes torch 2.9 and later log it."
                )
        if frame.unread:
            missing.add("The generated wrapper is C++ (cpp_wrapper), which is not read: its graph is left out.")
    return Read(tuple(graphs), tuple(recompiles), tuple(breaks.values()), code, tuple(sorted(missing)), tuple(failures))


def _note(frame: _Frame, entry: Entry) -> None:
    kind = entry.kind
    if kind == "inductor_post_grad_graph":
        frame.post_grad = entry.payload
    elif kind in _TRACED:
        frame.traced[_TRACED[kind]] = entry.payload
    elif kind == "dynamo_output_graph":
        frame.dynamo = entry.payload
    elif kind == "describe_source" and isinstance(entry.data, Mapping):
        frame.sources.append(str(entry.data.get("source", "")))
    elif kind == "inductor_output_code":
        generated = output_code.parse(entry.payload)
        if generated is None or not (generated.lines or generated.outputs or generated.inputs):
            frame.unread = True
        else:
            graph = frame.post_grad or frame.traced.get(phase_of(entry.payload), "")
            frame.drafts.append({"code": entry.payload, "generated": generated, "graph": graph})
            frame.post_grad = ""
    elif kind in (_NODE_MAPPINGS, _STACK_TRACES) and frame.drafts:
        frame.drafts[-1][kind] = _decoded(entry.payload)
    elif kind == "compilation_metrics" and isinstance(entry.data, Mapping):
        frame.metrics = frame.metrics or entry.data
    elif kind in ("recompile_reasons", "recompile_reason"):
        frame.reasons += [line for line in entry.payload.splitlines() if line.strip()]
    elif kind == "dynamo_graph_break_reason":
        frame.breaks.append(entry.payload)


def _decoded(text: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _drafts(compile_id: str, frame: _Frame, renamed: Mapping[str, str]) -> Iterable[Draft]:
    for draft in frame.drafts:
        nodes = graph_text.nodes(draft["graph"])
        mappings, traces = draft.get(_NODE_MAPPINGS, {}), draft.get(_STACK_TRACES, {})
        origins = mappings.get("cppCodeToPost", {})
        phase = phase_of(draft["code"])
        yield Draft(
            id=compile_id,
            phase=phase,
            code=draft["code"],
            generated=draft["generated"],
            nodes=nodes,
            results=graph_text.results(draft["graph"]),
            origins={str(key): tuple(map(str, value)) for key, value in origins.items() if isinstance(value, list)},
            traces={str(key): tuple(map(str, value)) for key, value in traces.items() if isinstance(value, list)},
            inputs=_inputs(nodes, frame, renamed) if phase != "backward" else {},
        )


def _inputs(nodes: Mapping[str, Node], frame: _Frame, renamed: Mapping[str, str]) -> dict[str, str]:
    """What a graph's inputs are: they stand in the order of those of the graph that Dynamo made."""
    dynamo = [name for name, node in graph_text.nodes(frame.dynamo).items() if node.target == "placeholder"]
    own = [name for name, node in nodes.items() if node.target == "placeholder"]
    if len(dynamo) != len(own):
        return {}
    known = names.of_inputs(dynamo, frame.sources, renamed)
    return {mine: known[theirs] for mine, theirs in zip(own, dynamo, strict=True) if theirs in known}


def _function(metrics: Mapping[str, Any], own: Mapping[str, Site]) -> Site:
    file = metrics.get("co_filename")
    if not isinstance(file, str):
        return Site()
    if file in own:
        return own[file]
    line = metrics.get("co_firstlineno")
    name = metrics.get("co_name")
    file, line = public_place(file, line if isinstance(line, int) else None)
    return Site(
        file=file,
        line=line,
        function=_resumed(name) if isinstance(name, str) else None,
    )


def _resumed(name: str) -> str:
    """`forward, after line 12`, for what Dynamo makes of the rest of a function behind a graph break."""
    found = re.match(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$", name)
    return f"{found[1]}, after line {found[2]}" if found else name


def _recompile(compile_id: str, function: Site, reasons: list[str], renamed: Mapping[str, str]) -> Recompile:
    reasons = [reason.partition("  # ")[0] for reason in reasons]  # behind it stands the line of the program
    about = [reason for reason in reasons if _STRIDE_GUARD.search(reason)]
    reason = (about or reasons)[0].strip()
    reason = re.sub(r"^(?:- )?\d+/\d+: ", "", reason)
    tensor = re.search(r"tensor '(.+?)' ", reason) or re.search(r"(L\['[^ ]+?)\.(?:stride|is_contiguous)\(", reason)
    name = None
    if tensor is not None:
        root = re.match(r"^(\w+)(.*)$", tensor[1])
        source = f"L['{root[1]}']{root[2]}" if root is not None and not tensor[1].startswith("L[") else tensor[1]
        name = names.described(source, renamed)
        reason = reason.replace(f"'{tensor[1]}'", name.partition(" ")[2].replace("`", "'"))
    return Recompile(compile_id, function, reason, bool(about), name)


def _break(compile_id: str, text: str) -> Break:
    head, _, rest = text.partition("User code traceback:")
    user = sites_of(rest.partition("\n\nTraceback (most recent call last)")[0])
    place = re.search(r"Graph break in user code at (.*):(\d+)", head)
    site = user[-1] if user else Site()
    if not user and place is not None:
        file, line = public_place(place[1], int(place[2]))
        site = Site(file=file, line=line)
    lines = [line.strip() for line in head.splitlines() if line.strip() and not line.startswith("Graph break in user")]
    reason = next((line for line in lines if not line.startswith("Graph Break Reason: Encountered")), "")
    asked = None if _OTHER_REASON.search(head) else _LAYOUT_CALL.search(site.expression or site.text or "")
    reason = reason.removeprefix("Graph Break ").removeprefix("Reason: ")
    return Break(compile_id, reason, site, asked[1] if asked else None)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
