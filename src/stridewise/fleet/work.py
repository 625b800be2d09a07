"""What is done with one file, in this process or in a worker: plain values go in, and bytes come out."""

from pathlib import Path

import msgspec
from msgspec import Struct

from stridewise import __version__
from stridewise.analysis import analyze_trace
from stridewise.analysis.summary import Summary, failure, summarize
from stridewise.config import parse_budget
from stridewise.errors import StridewiseError, UsageError
from stridewise.recording.handle import Recording


class Options(Struct, frozen=True, forbid_unknown_fields=True):
    """How every file is analysed; the fields are those of `analyze_trace`, and a budget as text."""

    min_share: float
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    kernel_patterns: dict[str, str] = {}
    source_root: str | None = None
    budget: str = ""


class Answer(Struct, frozen=True):
    """What comes back from a worker, as JSON: its sums can be larger than MessagePack's numbers."""

    version: str
    summary: Summary


def summarize_file(path: str, name: str, options: bytes) -> bytes:
    """Read and analyse a file, and give its summary, encoded. Whatever is wrong with the file is in there."""
    return msgspec.json.encode(Answer(__version__, _summary(path, name, options)))


def decode(answer: bytes) -> Summary:
    """The summary in an answer. Raises UsageError where another version of stridewise gave it."""
    version = msgspec.json.decode(answer, type=_Version).version
    if version != __version__:
        raise UsageError(
            f"the cluster's workers run stridewise {version}, and this is {__version__}",
            advice="Install the same version on both sides.",
        )
    return msgspec.json.decode(answer, type=Answer).summary


class _Version(Struct):
    version: str


def _summary(path: str, name: str, encoded: bytes) -> Summary:
    options = msgspec.json.decode(encoded, type=Options)
    try:
        report = analyze_trace(
            Recording.load(path).trace,
            min_share=options.min_share,
            select=options.select,
            ignore=options.ignore,
            kernel_patterns=options.kernel_patterns,
            source_root=Path(options.source_root) if options.source_root is not None else None,
        )
        return summarize(report, name, parse_budget(options.budget).exceeded(report))
    except StridewiseError as error:
        return failure(name, str(error).splitlines()[0].replace(path, name))
    except MemoryError:
        return failure(name, "there was not memory enough to read it")
    except Exception as error:  # a defect of ours: it costs one file, and is named
        line = " ".join(str(error).split())[:200]
        return failure(
            name, f"stridewise failed on it, `stridewise trace` alone shows where: {type(error).__name__}: {line}"
        )
