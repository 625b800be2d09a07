"""Operators whose fake kernels promise other strides than the real ones give: what makes compiled code raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stridewise.checks.words import call_site
from stridewise.compiled.affine import differ
from stridewise.compiled.facts import Promise
from stridewise.results.compiled import Strides

_MOST = 20


def broken_promises(run: Callable[[], Any]) -> tuple[Promise, ...]:
    """Run something in eager mode, and each of its operators on tensors without data besides."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map_only

    found: dict[str, Promise] = {}
    fake = FakeTensorMode()

    class Compare(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            expected = None
            try:  # before the real one, which may write its operands
                with fake:
                    own = tree_map_only(torch.Tensor, fake.from_tensor, (args, kwargs))
                    expected = func(*own[0], **own[1])
            except Exception:  # an operator without a fake kernel is no matter here
                expected = None
            result = func(*args, **kwargs)
            if expected is not None and len(found) < _MOST:
                self.compare(func, result, expected)
            return result

        def compare(self, func: Any, result: Any, expected: Any) -> None:
            for real, promised in zip(tree_leaves(result), tree_leaves(expected), strict=False):
                if not (isinstance(real, torch.Tensor) and isinstance(promised, torch.Tensor)):
                    continue
                if real.layout is not torch.strided or promised.layout is not torch.strided:
                    continue
                one, other = strides_of(promised), strides_of(real)
                if differ(one, other):
                    found.setdefault(str(func), Promise(str(func), call_site(), one, other))

    with Compare():  # type: ignore[no-untyped-call]
        run()
    return tuple(found.values())


def strides_of(tensor: Any) -> Strides:
    """Sizes and strides of a tensor, with its dtype."""
    sizes = tuple(size if isinstance(size, int) else str(size) for size in tensor.shape)
    strides = tuple(stride if isinstance(stride, int) else str(stride) for stride in tensor.stride())
    return Strides(sizes, strides, str(tensor.dtype).removeprefix("torch."))
