"""Compiled code, and what it does with layouts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from stridewise.api.codes import wanted_codes
from stridewise.api.shown import Shown, written
from stridewise.config.reading import is_wanted
from stridewise.errors import InputError
from stridewise.results import compiled as results

if TYPE_CHECKING:
    from torch import Tensor


class Compiled(Shown, results.Compiled, frozen=True):
    """What torch.compile did to the layouts of a program; it shows itself."""

    def _render(self, out: TextIO) -> None:
        from stridewise.report import compiled

        compiled.render(self, out)

    def to_json(self) -> str:
        """The result as JSON."""
        from stridewise.report import compiled

        return written(lambda out: compiled.render(self, out, format="json"))


def explain_compile(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    calls: Sequence[Any] = (),
    train: bool = False,
    loss: Callable[[Any], Tensor] | None = None,
    dynamic: bool | None = None,
    time_limit: float = 60.0,
    compare: bool = True,
    try_without: bool = True,
    select: Collection[str] | None = None,
    ignore: Collection[str] | None = None,
) -> Compiled:
    """What torch.compile makes of `fn(*args, **kwargs)`: its kernels, the copies between them, and what they are for.

    `fn` is a function or an `nn.Module`; one that is compiled already is compiled anew, with no cache. Without `train`
    it is called without gradients; with it, a backward follows, from `loss(output)` or the model's own loss. `calls`
    are further arguments, each a tuple, a dict of keyword arguments or both as a pair, called after the first: what is
    compiled again for them is told. `compare` times eager mode, compiled code, and that without and with forced layout
    optimization against each other; `try_without` compiles without each layout call of the source. Both together take
    `time_limit` seconds, beside the compilations. Random states, buffers, gradients and training flags are as before
    afterwards. Raises what eager mode raises.
    """
    select, ignore = wanted_codes(select, ignore)
    from stridewise.compiled import explain

    found = explain.explain_compile(
        fn,
        *args,
        kwargs=kwargs,
        calls=calls,
        train=train,
        loss=loss,
        dynamic=dynamic,
        time_limit=time_limit,
        compare=compare,
        try_without=try_without,
    )
    return _shown(found, select, ignore)


def read_compiled(
    path: str | os.PathLike[str], select: Collection[str] | None = None, ignore: Collection[str] | None = None
) -> dict[str, Compiled]:
    """What a folder that `TORCH_TRACE` wrote says, or one file of it: a result for each process, by its file's name.

    torch is not needed. Of several files one that can't be read is named in the notes of its result. Raises InputError
    if there is no such file, or nothing in any.
    """
    select, ignore = wanted_codes(select, ignore)
    from stridewise.compiled import logs, trace_log

    files = trace_log.files_of(Path(path))
    if len(files) == 1:
        return {files[0].name: _shown(logs.from_entries(trace_log.read_file(files[0])), select, ignore)}
    found: dict[str, Compiled] = {}
    errors: list[InputError] = []
    for file in files:
        try:
            entries = trace_log.read_file(file)
        except InputError as error:
            errors.append(error)
            entries = ()
        result = logs.from_entries(entries)
        if not entries:
            result = msgspec.structs.replace(result, notes=(errors[-1].given,))
        found[file.name] = _shown(result, select, ignore)
    if len(errors) == len(files):
        raise errors[0]
    return found


@contextlib.contextmanager
def watched(
    select: Collection[str] | None = None, ignore: Collection[str] | None = None
) -> Iterator[Callable[[], Compiled]]:
    """Watch what torch.compile does meanwhile; what this gives tells it, then or later. Imports torch's compiler."""
    select, ignore = wanted_codes(select, ignore)
    from stridewise.checks.words import environment
    from stridewise.compiled import capture, logs

    with capture.without_caches(limits=False) as missing, capture.logged() as entries:
        yield lambda: _shown(logs.from_entries(entries, missing, environment()), select, ignore)


def _shown(found: results.Compiled, select: Collection[str] | None, ignore: Collection[str] | None) -> Compiled:
    """The same with the findings that are wanted."""
    findings = found.findings
    if select or ignore:
        findings = tuple(finding for finding in findings if is_wanted(finding.code, select, ignore))
    return Compiled(*msgspec.structs.astuple(msgspec.structs.replace(found, findings=findings)))
