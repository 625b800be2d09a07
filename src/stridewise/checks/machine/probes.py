"""What is tried on a machine, in a process of its own: `python -m stridewise.checks.machine.probes FD NAME …`.

A probe says what it saw. One that raises, crashes or hangs has failed; who started the process sees to that.
"""

import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from stridewise.results.doctor import Ability, Health

if TYPE_CHECKING:
    from stridewise.recording.handle import Recording

_PROGRAM = """\
import torch

def work():
    x = torch.ones(8, 4)
    return x.t().contiguous()
"""
_COPY, _LINE = "x.t().contiguous()", 5
_COMPILERS = ("g++", "clang++", "c++")
_MOST_TEXT = 300


class Saw(Struct, frozen=True):
    """What a probe saw of one ability."""

    name: str
    health: Health
    what: str
    advice: str | None = None


class Probe(Struct, frozen=True):
    """Something to try, what it tells of, and how long it may take."""

    run: Callable[[], list[Saw]]
    abilities: dict[str, str]
    """What each is needed for, in words."""
    seconds: float = 20.0
    core: bool = False
    """Recording needs the first of its abilities."""

    def ability(self, saw: Saw) -> Ability:
        """What a probe saw, with what it is needed for."""
        core = self.core and saw.name == next(iter(self.abilities))
        return Ability(saw.name, saw.health, saw.what, self.abilities[saw.name], core, saw.advice)

    def failed(self, why: str) -> list[Ability]:
        """What there is to say where the probe could not."""
        return [self.ability(Saw(name, "fails", why)) for name in self.abilities]


# ------------------------------------------------------------------------------------------------------------ recording


def _torch() -> list[Saw]:
    import torch

    built = [f"CUDA {torch.version.cuda}"] if torch.version.cuda else []
    built += [f"ROCm {hip}"] if (hip := getattr(torch.version, "hip", None)) else []
    built = built or ["CPU"]
    built += ["MPS"] if torch.backends.mps.is_built() else []
    return [Saw("torch", "works", " and ".join(built))]


def _recording() -> list[Saw]:
    with tempfile.TemporaryDirectory() as folder:
        work, file = _program(folder)
        recording = _recorded(work)
        copies = [row for row in _copies(recording) if row.change == "reorder"]
    expressions = "Findings name the line and the expression, and offer edits."
    if not copies:
        strides = any(recording.trace.ops.args[index].strides for index in range(len(recording.trace.ops)))
        why = "a copy that was made was not found" if strides else "torch's profiler records no strides"
        return [Saw("recording", "fails", why), Saw("expressions", "fails", "without recordings there are none")]
    site = copies[0].site
    if site is None or site.file != file or site.line != _LINE:
        where = "nowhere" if site is None else site.where
        why = f"a copy was found, but not at its line: {where}"
        return [Saw("recording", "fails", why), Saw("expressions", "fails", "without call sites there are none")]
    saw = Saw("recording", "works", "The profiler records strides, and a copy is found at its line.")
    if site.expression == _COPY:
        return [saw, Saw("expressions", "works", expressions)]
    advice = "start Python without -X no_debug_ranges, and without PYTHONNODEBUGRANGES in the environment"
    return [saw, Saw("expressions", "fails", "Python keeps no columns of expressions: findings name lines.", advice)]


def _threads() -> list[Saw]:
    with tempfile.TemporaryDirectory() as folder:
        work, _ = _program(folder)

        def in_a_thread() -> None:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

        copies = _copies(_recorded(in_a_thread))
    if copies:
        return [Saw("all threads", "works", "What other Python threads do is recorded.")]
    advice = "a later torch records them: 2.13 does"
    return [Saw("all threads", "absent", "This torch records the main thread only; reports say so.", advice)]


def _onednn() -> list[Saw]:
    import torch

    name = "oneDNN"
    if not torch.backends.mkldnn.is_available():
        return [Saw(name, "absent", "This torch is built without oneDNN.")]
    layer, image = torch.nn.Conv2d(8, 16, 3), torch.ones(2, 8, 16, 16)

    def convolve() -> None:
        with torch.no_grad():
            layer(image)

    if _recorded(convolve, library_copies=True).trace.library:
        return [Saw(name, "works", "Its verbose lines are read: --library-copies shows the reorders inside it.")]
    return [Saw(name, "fails", "A convolution ran, and oneDNN printed nothing of it.")]


# -------------------------------------------------------------------------------------------------------------- devices


def _cuda() -> list[Saw]:
    import torch

    name = "GPU"
    if torch.backends.mps.is_available():
        return [Saw(name, "absent", "MPS: programs run there, but its kernels are not recorded.")]
    if not (torch.version.cuda or getattr(torch.version, "hip", None)):
        return [Saw(name, "absent", "no CUDA device: this torch is built for the CPU")]
    if not torch.cuda.is_available():
        return [Saw(name, "absent", "no CUDA device")]
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    found = ", ".join(f"{names.count(each)} × {each}" for each in dict.fromkeys(names))

    def work() -> None:
        torch.ones(64, 32, device="cuda").t().contiguous()
        torch.cuda.synchronize()

    work()
    if _recorded(work).trace.device_events:
        return [Saw(name, "works", f"{found}: kernels run, and are recorded.")]
    advice = "another profiler may hold the device, or the profiler may lack the permission to trace it"
    return [Saw(name, "fails", f"{found}: kernels run, but the profiler records none.", advice)]


def _gloo() -> list[Saw]:
    import torch
    import torch.distributed as dist

    name = "gloo"
    if not dist.is_available() or not dist.is_gloo_available():
        return [Saw(name, "absent", "This torch is built without gloo.")]
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback is not None:  # else it listens where this machine's name leads to, which others may reach
        os.environ["GLOO_SOCKET_IFNAME"] = loopback
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        value = torch.ones(2)
        dist.all_reduce(value)
    finally:
        dist.destroy_process_group()
    return [Saw(name, "works", "A process group starts, and reduces.")]


# ------------------------------------------------------------------------------------------------------------- compiler


def _compile() -> list[Saw]:
    import torch

    from stridewise.compiled import capture, logs

    def work(x: Any) -> Any:
        return x.t().contiguous() + 1

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        with capture.without_caches(limits=False) as missing, capture.logged() as entries:
            x = torch.ones(64, 32)
            try:
                equal = torch.equal(torch.compile(work)(x), work(x))
            except Exception as error:
                if any(map(shutil.which, (os.environ.get("CXX", ""), *_COMPILERS))):
                    raise
                advice = "install one of them, or name another in CXX"
                why = f"no C++ compiler: {', '.join(_COMPILERS)}"
                read = Saw("compiled code", "fails", f"nothing was compiled: {type(error).__name__}")
                return [Saw("compile", "fails", why, advice), read]
            told = logs.from_entries(entries, missing, {})
    compiled = Saw("compile", "works", "torch.compile builds kernels for the CPU, and their results are right.")
    if not equal:
        compiled = Saw("compile", "fails", "torch.compile built a kernel whose results are wrong.")
    read = Saw("compiled code", "works", "What torch.compile logs is read: its graphs, kernels and copies.")
    if not told.graphs or not told.graphs[0].kernels:
        read = Saw("compiled code", "fails", "torch.compile's logs tell of no kernel.")
    elif told.missing:
        read = Saw("compiled code", "works", f"{read.what} Not told by this torch: {'; '.join(told.missing)}")
    return [compiled, read]


# --------------------------------------------------------------------------------------------------------------- shared


def _program(folder: str) -> tuple[Callable[[], Any], str]:
    """A function in a file that is not stridewise's own, as call sites have to be."""
    file = Path(os.path.realpath(folder)) / "program.py"
    file.write_text(_PROGRAM, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(_PROGRAM, str(file), "exec"), names)
    return names["work"], str(file)


def _recorded(work: Callable[[], Any], *, library_copies: bool = False) -> "Recording":
    from stridewise.recorder.live import record

    with record(library_copies=library_copies) as recording:
        work()
    return recording


def _copies(recording: "Recording") -> Sequence[Any]:
    from stridewise.analysis import analyze_trace

    return analyze_trace(recording.trace, min_share=0.0).copies


PROBES = {
    "torch": Probe(_torch, {"torch": "everything but lint, explain and rule, and reading traces"}, 60.0, core=True),
    "recording": Probe(
        _recording, {"recording": "run, fix, demo, record()", "expressions": "edits, and the marks under source lines"},
        core=True,
    ),
    "threads": Probe(_threads, {"all threads": "recording programs that work in several threads"}),
    "onednn": Probe(_onednn, {"oneDNN": "--library-copies"}),
    "gloo": Probe(_gloo, {"gloo": "guard_ddp(), compare_ranks() and guard_collectives() on the CPU"}),
    "cuda": Probe(_cuda, {"GPU": "recording kernels of a GPU"}, 40.0),
    "compile": Probe(
        _compile,
        {"compile": "torch.compile on the CPU", "compiled code": "run --compiled, trace --compiled, explain_compile()"},
        90.0,
    ),
}  # fmt: skip
"""In the order in which they are tried."""


def main(arguments: Sequence[str]) -> None:
    """Try what is named, and write one line of JSON after each to a file descriptor."""
    descriptor, *names = arguments
    with open(int(descriptor), "wb") as out:
        for name in names:
            probe = PROBES[name]
            try:
                rows = [probe.ability(saw) for saw in probe.run()]
            except Exception as error:
                said = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
                rows = probe.failed(said if len(said) <= _MOST_TEXT else f"{said[:_MOST_TEXT]} …")
            out.write(msgspec.json.encode(rows) + b"\n")
            out.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
