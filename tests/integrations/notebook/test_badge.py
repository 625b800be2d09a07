"""`show_layout` puts a line above the values of every kind of tensor, and takes back nothing but that."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import stridewise
from stridewise.errors import UsageError
from stridewise.integrations.notebook.badge import describe

pytest.importorskip("IPython", reason='IPython is in the extra "notebook"')

from IPython.core.interactiveshell import InteractiveShell

CALLED: list[Any] = []


class Plain(torch.Tensor):
    """Of the kind that `__torch_function__` makes."""


class Own(torch.Tensor):
    """Shows itself."""

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return "Own <values>"

    def _repr_html_(self) -> str:
        return "<b>own</b>"


class Picture(torch.Tensor):
    def _repr_png_(self) -> bytes:
        return b"png"


class Broken(torch.Tensor):
    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        raise ValueError("no values")


class Wrapper(torch.Tensor):
    """Of the kind that `__torch_dispatch__` makes."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Wrapper":
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )
        made.inner = inner
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        CALLED.append(func)
        return func(*(arg.inner if isinstance(arg, Wrapper) else arg for arg in args), **(kwargs or {}))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return "Wrapper(...)"


class Liar(torch.Tensor):
    """A subclass whose attributes can't be read."""

    @property
    def shape(self) -> torch.Size:  # type: ignore[override]
        raise RuntimeError("no shape")

    def stride(self, *_: Any) -> Any:
        raise RuntimeError("no strides")


def image() -> torch.Tensor:
    return torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)


ONES = "contiguous · sizes (2, 3) · strides (3, 1) · float32 on cpu"

KINDS: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "contiguous": (lambda: torch.ones(2, 3), f"{ONES} · all 24 B of its storage"),
    "channels_last": (image, "channels_last · sizes (2, 3, 4, 4) · strides (48, 1, 12, 3) · float32 on cpu · all"),
    "channels_last_3d": (
        lambda: torch.ones(1, 2, 2, 2, 2).to(memory_format=torch.channels_last_3d),
        "channels_last_3d · sizes (1, 2, 2, 2, 2)",
    ),
    "one channel": (lambda: torch.ones(2, 1, 4, 4), "contiguous (channels_last too) · sizes"),
    "permuted": (lambda: torch.ones(2, 3).t(), "permuted · sizes (3, 2) · strides (1, 3)"),
    "expanded": (lambda: torch.ones(3, 1).expand(3, 4), "expanded · sizes (3, 4) · strides (1, 0)"),
    "gapped": (
        lambda: torch.ones(4, 8)[:, 1::2],
        "gapped · sizes (4, 4) · strides (8, 2) · offset 1 · float32 on cpu · 64 B of 128 B of its storage (50 %)",
    ),
    "overlapping": (lambda: torch.ones(10).unfold(0, 3, 1), "overlapping · sizes (8, 3)"),
    "zero-dim": (lambda: torch.tensor(1.5), "contiguous · sizes () · strides () · float32 on cpu · all 4 B"),
    "empty": (lambda: torch.empty(0, 3), "contiguous · sizes (0, 3) · strides (3, 1) · float32 on cpu · no elements"),
    "meta": (lambda: torch.empty(2, 3, device="meta"), ONES.replace("cpu", "meta · no memory")),
    "part": (
        lambda: torch.ones(8)[:2],
        "contiguous · sizes (2,) · strides (1,) · float32 on cpu · 8 B of 32 B of its storage",
    ),
    "coo": (lambda: torch.eye(3).to_sparse(), "sparse_coo · sizes (3, 3) · float32 on cpu"),
    "csr": (lambda: torch.eye(3).to_sparse_csr(), "sparse_csr · sizes (3, 3) · float32 on cpu"),
    "csc": (lambda: torch.eye(3).to_sparse_csc(), "sparse_csc · sizes (3, 3) · float32 on cpu"),
    "bsr": (lambda: torch.eye(4).to_sparse_bsr((2, 2)), "sparse_bsr · sizes (4, 4) · float32 on cpu"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]), "nested · float32 on cpu"),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged),
        "NestedTensor · sizes (2, j",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.quint8),
        "contiguous · sizes (2, 3) · strides (3, 1) · quint8 on cpu · all 6 B",
    ),
    "mkldnn": (lambda: torch.ones(2, 3).to_mkldnn(), "mkldnn · sizes (2, 3) · float32 on cpu"),
    "parameter": (lambda: nn.Parameter(torch.ones(2, 3)), "contiguous · sizes (2, 3)"),
    "buffer": (lambda: nn.Buffer(torch.ones(2, 3)), "contiguous · sizes (2, 3)"),
    "lazy": (lambda: nn.LazyLinear(3).weight, "uninitialized · float32 on cpu"),
    "function subclass": (lambda: torch.ones(2, 3).as_subclass(Plain), "contiguous · sizes (2, 3)"),
    "shows itself": (lambda: torch.ones(2, 3).as_subclass(Own), "contiguous · sizes (2, 3)"),
    "dispatch subclass": (lambda: Wrapper(torch.ones(2, 3).t()), "Wrapper · sizes (3, 2) · strides (1, 3) · float32"),
    "can't be read": (lambda: torch.ones(2, 3).as_subclass(Liar), ""),
    "broken": (lambda: torch.ones(2, 3).as_subclass(Broken), "contiguous · sizes (2, 3)"),
    "fake": (lambda: FakeTensorMode().from_tensor(torch.ones(2, 3)), "FakeTensor · sizes (2, 3) · strides (3, 1)"),
    "conjugated": (lambda: torch.ones(2, 2, dtype=torch.complex64).conj(), "contiguous · sizes (2, 2)"),
    "float8": (lambda: torch.ones(2, 2).to(torch.float8_e4m3fn), "contiguous · sizes (2, 2) · strides (2, 1) · float8"),
    "with gradient": (lambda: torch.ones(2, requires_grad=True) * 2, "contiguous · sizes (2,)"),
}


@pytest.fixture(autouse=True)
def no_badges_left(shell: InteractiveShell) -> Iterator[None]:
    yield
    stridewise.hide_layout()


@pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors:UserWarning",
    "ignore:Sparse CSR tensor support is in beta:UserWarning",
    "ignore:Sparse (CSR|CSC|BSR|invariant).*:UserWarning",
    "ignore:.*quantize_per_tensor.*:DeprecationWarning",
    "ignore:.*quantiz.*:UserWarning",
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_shows_its_badge_and_its_values(
    shell: InteractiveShell, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make, expected = KINDS[kind]
    tensor = make()
    before, _ = shell.display_formatter.format(tensor)
    said = capsys.readouterr()
    with stridewise.show_layout():
        data, _ = shell.display_formatter.format(tensor)
    assert capsys.readouterr() == said
    badge, _, values = data["text/plain"].partition("\n")
    assert badge.startswith(expected)
    assert values.endswith(before.get("text/plain", ""))
    assert "stridewise-badge" in data["text/html"]
    assert shell.display_formatter.format(tensor)[0] == before
    capsys.readouterr()


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("expanded", "Dimension 1 has stride 0, so its 4 positions are the same memory;"),
        ("gapped", "15 elements (60 B) of the 31 that it spans, 48 %, are holes;"),
        ("overlapping", "Different indices share memory:"),
        ("coo", "It has no strides;"),
        ("lazy", "Its sizes are known after the first forward."),
        ("contiguous", None),
        ("channels_last", None),
        ("permuted", None),
    ],
)
def test_only_what_is_not_plain_has_a_hint(kind: str, hint: str | None) -> None:
    badge = describe(KINDS[kind][0]())
    assert (badge.hint or "").startswith(hint) if hint else badge.hint is None


def test_channels_last_is_as_good_as_contiguous() -> None:
    tones = {kind: describe(KINDS[kind][0]()).tone for kind in ("contiguous", "channels_last", "permuted", "gapped")}
    assert tones == {"contiguous": "format", "channels_last": "format", "permuted": "other", "gapped": "care"}


def test_storage_that_was_freed() -> None:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    assert describe(tensor).facts[-1] == "its storage of 12 B is freed"


def test_storage_that_is_too_short() -> None:
    tensor = torch.ones(300, 3)[1:]
    tensor.untyped_storage().resize_(16)
    assert describe(tensor).facts[-1] == "its storage has 16 B of the 3.6 kB that it needs"


def test_an_interrupt_goes_through() -> None:
    class Interrupted(torch.Tensor):
        @property
        def shape(self) -> torch.Size:  # type: ignore[override]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe(torch.ones(2).as_subclass(Interrupted))


@pytest.mark.parametrize("transform", ["vmap", "grad", "functionalize"])
def test_inside_torch_func(shell: InteractiveShell, transform: str) -> None:
    shown = []

    def body(x: torch.Tensor) -> torch.Tensor:
        shown.append(shell.display_formatter.format(x)[0]["text/plain"])
        return x.sum()

    with stridewise.show_layout():
        getattr(torch.func, transform)(body)(torch.ones(3, 2))
    assert shown[0].startswith("contiguous · sizes (2,)" if transform == "vmap" else "contiguous · sizes (3, 2)")


def test_a_distributed_tensor(shell: InteractiveShell) -> None:
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    from torch.distributed.tensor import DTensor, init_device_mesh

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        tensor = DTensor.from_local(torch.ones(2, 3), init_device_mesh("cpu", (1,)))
        with stridewise.show_layout():
            data, _ = shell.display_formatter.format(tensor)
        assert data["text/plain"].startswith("DTensor · sizes (2, 3)")
    finally:
        torch.distributed.destroy_process_group()


# -- what it does not do ----------------------------------------------------------------------------------------------


def test_nothing_runs_to_describe_a_tensor() -> None:
    from torch.profiler import profile
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            CALLED.append(func)
            return func(*args, **(kwargs or {}))

    tensors = [KINDS[kind][0]() for kind in ("contiguous", "expanded", "gapped", "coo", "csr", "mkldnn", "lazy")]
    tensors.append(Wrapper(torch.ones(2, 3)))
    CALLED.clear()
    with profile() as run, Seen():
        for tensor in tensors:
            describe(tensor)
    assert CALLED == []
    assert [event.name for event in run.events() if event.name.startswith("aten::")] == []


def test_a_recording_does_not_see_it(shell: InteractiveShell) -> None:
    names = []
    tensor = torch.ones(3, 4).t()
    for on in (False, True):
        if on:
            stridewise.show_layout()
        with stridewise.record() as recording:
            shell.display_formatter.format(tensor)
        names.append([op.name for op in recording.trace.ops])
    assert names[0] == names[1] != []


def test_torch_itself_is_not_touched(shell: InteractiveShell) -> None:
    before = dict(vars(torch.Tensor))
    with stridewise.show_layout():
        assert dict(vars(torch.Tensor)) == before
        assert repr(torch.ones(1)) == "tensor([1.])"


def test_containers_show_their_tensors_as_ever(shell: InteractiveShell) -> None:
    with stridewise.show_layout():
        assert shell.display_formatter.format([torch.ones(1)])[0]["text/plain"] == "[tensor([1.])]"


# -- on and off -------------------------------------------------------------------------------------------------------


def registered(shell: InteractiveShell) -> list[Any]:
    formatters = [*shell.display_formatter.formatters.values(), shell.display_formatter.mimebundle_formatter]
    return [(dict(each.type_printers), dict(each.deferred_printers)) for each in formatters]


def test_on_and_off_are_idempotent_and_leave_nothing(shell: InteractiveShell) -> None:
    before = registered(shell)
    stridewise.hide_layout()
    stridewise.show_layout()
    stridewise.show_layout()
    stridewise.hide_layout()
    assert registered(shell) == before
    stridewise.hide_layout()
    assert registered(shell) == before


def test_as_a_context_manager_it_ends_only_what_it_began(shell: InteractiveShell) -> None:
    def on() -> bool:
        return "contiguous" in shell.display_formatter.format(torch.ones(1))[0]["text/plain"]

    with stridewise.show_layout() as shown:
        assert on()
        assert repr(shown) == "Tensors show their layout. stridewise.hide_layout() ends it."
        with stridewise.show_layout():
            pass
        assert on()
    assert not on()
    with pytest.raises(ZeroDivisionError), stridewise.show_layout():
        raise ZeroDivisionError
    assert not on()
    with shown:
        assert on()
    assert not on()


@pytest.mark.parametrize("by_name", [False, True])
def test_formatters_of_others_are_used_and_put_back(shell: InteractiveShell, by_name: bool) -> None:
    formatters = shell.display_formatter.formatters
    key: Any = "torch.Tensor" if by_name else torch.Tensor
    formatters["text/plain"].for_type(key, lambda tensor, p, cycle: p.text("their text"))
    formatters["text/html"].for_type(key, lambda tensor: "<i>theirs</i>")
    before = registered(shell)
    with stridewise.show_layout():
        pass
    assert registered(shell) == before
    with stridewise.show_layout():
        data, _ = shell.display_formatter.format(torch.ones(2))
        assert data["text/plain"].splitlines()[0].startswith("contiguous · sizes (2,)")
        assert data["text/plain"].splitlines()[1:] == ["their text"]
        assert data["text/html"].endswith("<i>theirs</i></div>")
        assert "stridewise-badge" in data["text/html"]
    assert shell.display_formatter.format(torch.ones(2))[0] == {
        "text/plain": "their text",
        "text/html": "<i>theirs</i>",
    }


@pytest.mark.parametrize("of", [Plain, object])
def test_formatters_of_a_subclass_or_a_base_have_the_badge_above(shell: InteractiveShell, of: type) -> None:
    formatters = shell.display_formatter.formatters
    formatters["text/plain"].for_type(of, lambda tensor, p, cycle: p.text("their text"))
    formatters["text/html"].for_type(of, lambda tensor: ("<i>theirs</i>", {"isolated": True}))
    before = registered(shell)
    tensor = torch.ones(2).as_subclass(Plain)
    with stridewise.show_layout():
        for _ in range(2):
            data, metadata = shell.display_formatter.format(tensor)
            assert data["text/plain"].splitlines()[0].startswith("contiguous · sizes (2,)")
            assert data["text/plain"].splitlines()[1:] == ["their text"]
            assert data["text/html"].count("stridewise-badge") == 1
            assert data["text/html"].endswith("<i>theirs</i></div>")
            assert metadata["text/html"] == {"isolated": True}
            assert shell.display_formatter.format([tensor])[0]["text/plain"] == "[their text]"
        formatters["text/html"].for_type(Plain, lambda tensor: "<i>new</i>")
    assert formatters["text/html"].pop(Plain)(tensor) == "<i>new</i>"
    if of is Plain:
        formatters["text/html"].for_type(of, before[1][0][of])
    assert registered(shell) == before


def test_a_bundle_of_others_is_used_and_put_back(shell: InteractiveShell) -> None:
    bundles = shell.display_formatter.mimebundle_formatter
    bundles.for_type(torch.Tensor, lambda tensor: {"text/plain": "theirs", "text/latex": "$x$"})
    with stridewise.show_layout():
        data, _ = shell.display_formatter.format(torch.ones(2))
        assert data["text/plain"].endswith("\ntheirs")
        assert data["text/latex"] == "$x$"
    assert shell.display_formatter.format(torch.ones(2))[0]["text/plain"] == "theirs"


def test_what_is_registered_meanwhile_stays(shell: InteractiveShell) -> None:
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type(torch.Tensor, lambda tensor: "old")
    stridewise.show_layout()
    formatter.for_type(torch.Tensor, lambda tensor: "new")
    stridewise.hide_layout()
    assert shell.display_formatter.format(torch.ones(2))[0]["text/html"] == "new"


def test_a_class_that_shows_itself_still_does(shell: InteractiveShell) -> None:
    shell.display_formatter.active_types = [*shell.display_formatter.active_types, "image/png"]
    with stridewise.show_layout():
        own, _ = shell.display_formatter.format(torch.ones(2).as_subclass(Own))
        picture, _ = shell.display_formatter.format(torch.ones(2).as_subclass(Picture))
    assert own["text/html"].endswith("<b>own</b></div>")
    assert own["text/plain"].endswith("Own <values>")
    assert picture["image/png"]
    assert "text/html" not in picture


def test_text_is_escaped_and_without_terminal_colours(shell: InteractiveShell) -> None:
    name = "<script>alert(1)</script>"
    hostile = type(name, (Wrapper,), {"__repr__": lambda self, **_: f'\x1b[31m{name}\x1b[0m & "'})(torch.ones(2))
    with stridewise.show_layout():
        data, _ = shell.display_formatter.format(hostile)
    assert "<script" not in data["text/html"]
    assert "\x1b" not in data["text/html"]
    assert "&lt;script&gt;" in data["text/html"]
    assert data["text/html"].count("<") == data["text/html"].count(">")


def test_where_html_is_off_there_is_none(shell: InteractiveShell) -> None:
    shell.display_formatter.active_types = ["text/plain"]
    with stridewise.show_layout():
        assert list(shell.display_formatter.format(torch.ones(2))[0]) == ["text/plain"]


# -- outside IPython --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["show_layout", "hide_layout"])
def test_outside_ipython_it_says_so_in_a_line(function: str) -> None:
    InteractiveShell.clear_instance()
    try:
        with pytest.raises(UsageError, match=rf"^{function}\(\) changes what a notebook or IPython shows, and neither"):
            getattr(stridewise, function)()
    finally:
        InteractiveShell.instance()


def test_import_is_free_of_ipython_and_torch() -> None:
    code = (
        "import sys, stridewise\n"
        "print(hasattr(stridewise, 'load_ipython_extension'), [m for m in ('IPython', 'torch') if m in sys.modules])\n"
        "try: stridewise.show_layout()\n"
        "except stridewise.errors.UsageError as error: print(len(str(error).splitlines()), 'IPython' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["True []", "1 False"]
