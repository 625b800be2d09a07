"""Tensors that show their layout: `show_layout` and `hide_layout`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stridewise.errors import UsageError
from stridewise.integrations.notebook.badge import describe, preformatted

if TYPE_CHECKING:
    from IPython.core.formatters import BaseFormatter, DisplayFormatter

_PLAIN, _HTML, _BUNDLE = "text/plain", "text/html", "bundle"
_TENSOR = ("torch", "Tensor")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")

_shown: dict[DisplayFormatter, Badges] = {}
"""Of the shells whose tensors show their layout."""


class ShowingLayout:
    """What `show_layout` gives: in a `with` statement it ends with the block, unless it was on before."""

    def __init__(self, formatter: DisplayFormatter) -> None:
        self._formatter = formatter
        self._was_on = not _turn_on(formatter)

    def __enter__(self) -> ShowingLayout:
        _turn_on(self._formatter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._was_on:
            _turn_off(self._formatter)

    def __repr__(self) -> str:
        return "Tensors show their layout. stridewise.hide_layout() ends it."


def show_layout() -> ShowingLayout:
    """Show the layout of each tensor that a cell or a prompt shows, above its values.

    It is turned off by `hide_layout()`, or at the end of `with stridewise.show_layout():`. Nothing of torch is
    changed. Raises UsageError outside IPython.
    """
    return ShowingLayout(_display_formatter("show_layout"))


def hide_layout() -> None:
    """Show tensors as before `show_layout()`, formatters that were registered for them included.

    Does nothing if that is so already. Raises UsageError outside IPython.
    """
    _turn_off(_display_formatter("hide_layout"))


def _display_formatter(asked: str) -> DisplayFormatter:
    ipython = sys.modules.get("IPython")  # where it runs it is loaded
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        raise UsageError(
            f"{asked}() changes what a notebook or IPython shows, and neither runs: print(stridewise.explain(tensor))."
        )
    formatter: DisplayFormatter = shell.display_formatter
    return formatter


def _turn_on(formatter: DisplayFormatter) -> bool:
    """Whether it was off."""
    if formatter in _shown:
        return False
    _shown[formatter] = badges = Badges(formatter)
    badges.put_in()
    return True


def _turn_off(formatter: DisplayFormatter) -> None:
    badges = _shown.pop(formatter, None)
    if badges is not None:
        badges.take_out()


class Badges:
    """Stands for `torch.Tensor` among the formatters of one shell.

    IPython asks the formatter of whole bundles first, and finds it for every subclass; the one of plain text it does
    not find for a class with a `__repr__` of its own, such as Parameter. One that is registered for plain text or
    HTML alone comes before the bundle's: such ones for `torch.Tensor` wait meanwhile, those for a subclass are wrapped
    when one of it is shown.
    """

    def __init__(self, formatter: DisplayFormatter) -> None:
        self._display = formatter
        self._formatters = {
            kind: formatter.formatters[kind] for kind in (_PLAIN, _HTML) if kind in formatter.formatters
        }
        self._formatters[_BUNDLE] = formatter.mimebundle_formatter
        self._before: dict[str, Entry] = {}
        self._wrapped: dict[tuple[str, type], tuple[Callable[..., Any], Callable[..., Any] | None]] = {}
        """Ours for a subclass, and the one that was registered for that class itself."""

    def put_in(self) -> None:
        """Take the place of what is registered."""
        import torch

        self._before = {kind: Entry.taken_from(formatter) for kind, formatter in self._formatters.items()}
        self._formatters[_BUNDLE].for_type(torch.Tensor, self._bundle)

    def take_out(self) -> None:
        """Put what was registered back; what has been registered meanwhile stays."""
        import torch

        for (kind, of), (own, theirs) in self._wrapped.items():
            if self._formatters[kind].type_printers.get(of) is own:
                self._formatters[kind].pop(of)
                if theirs is not None:
                    self._formatters[kind].for_type(of, theirs)
        self._wrapped = {}
        bundles = self._formatters[_BUNDLE]
        if bundles.type_printers.get(torch.Tensor) == self._bundle:
            bundles.pop(torch.Tensor)
        for kind, entry in self._before.items():
            entry.put_back(self._formatters[kind])
        self._before = {}

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        self.take_out()
        try:
            yield
        finally:
            if _shown.get(self._display) is self:  # else showing a value has turned it off
                self.put_in()

    def _bundle(self, tensor: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """What IPython would have shown, with the badge above."""
        with self._as_before():
            data, metadata = self._display.format(tensor)
        if _shown.get(self._display) is self:
            self._wrap(type(tensor))
        badge = describe(tensor)
        plain, html = data.get(_PLAIN), data.get(_HTML)
        data[_PLAIN] = badge.to_text() + (f"\n{plain}" if plain else "")
        formatter = self._formatters.get(_HTML)
        # Where a class shows itself as an image, HTML would take its place.
        if formatter is not None and formatter.enabled and (html is not None or data.keys() == {_PLAIN}):
            below = html or (preformatted(_ESCAPES.sub("", plain)) if plain else "")
            data[_HTML] = f"<div>{badge.to_html()}{below}</div>"
        return data, metadata

    def _wrap(self, of: type) -> None:
        """Put the badge above what is registered for a subclass, by itself or by a base."""
        for kind, above in ((_PLAIN, _above_text), (_HTML, _above_html)):
            formatter = self._formatters.get(kind)
            if formatter is None:
                continue
            try:
                theirs = formatter.lookup_by_type(of)
            except KeyError:
                continue
            wrapped = above(theirs)
            self._wrapped[kind, of] = wrapped, formatter.type_printers.get(of)
            formatter.for_type(of, wrapped)


def _above_html(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def with_badge(tensor: Any) -> Any:
        shown = theirs(tensor)
        html, *metadata = shown if isinstance(shown, tuple) else (shown,)
        if not isinstance(html, str):
            return shown
        html = f"<div>{describe(tensor).to_html()}{html}</div>"
        return (html, *metadata) if metadata else html

    return with_badge


def _above_text(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def with_badge(tensor: Any, printer: Any, cycle: bool) -> None:
        if len(printer.stack) == 1:  # else it stands in a list, say
            printer.text(f"{describe(tensor).to_text()}\n")
        theirs(tensor, printer, cycle)

    return with_badge


class Entry:
    """What one formatter had registered for `torch.Tensor`: by the class, by its name, or not at all."""

    def __init__(self, printer: Callable[..., Any] | None, *, by_name: bool) -> None:
        self._printer = printer
        self._by_name = by_name

    @classmethod
    def taken_from(cls, formatter: BaseFormatter) -> Entry:
        """Take it out of a formatter."""
        import torch

        by_name = torch.Tensor not in formatter.type_printers
        return cls(formatter.pop(torch.Tensor, None), by_name=by_name)

    def put_back(self, formatter: BaseFormatter) -> None:
        """Put it where it was, unless another was registered since."""
        import torch

        taken = torch.Tensor in formatter.type_printers or _TENSOR in formatter.deferred_printers
        if self._printer is None or taken:
            return
        if self._by_name:
            formatter.for_type_by_name(*_TENSOR, self._printer)
        else:
            formatter.for_type(torch.Tensor, self._printer)
