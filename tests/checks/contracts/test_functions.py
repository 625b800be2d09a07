"""Contracts on functions and methods: each way to pass a tensor, and what stays as it was."""

import asyncio
import functools
import inspect
import pickle
import threading
import typing

import pytest
import torch
from torch import nn

from stridewise.checks.contracts import expect_layout, same_as
from stridewise.errors import ContractError, UsageError

GOOD = torch.arange(12.0).reshape(3, 4)
BAD = torch.arange(12.0).reshape(4, 3).t()


@expect_layout(x="contiguous")
def double(x, factor=2):
    """Twice that."""
    return x * factor


def broken(call, *args, **kwargs):
    with pytest.raises(ContractError) as caught:
        call(*args, **kwargs)
    assert caught.value.finding.code == "SW408"
    return str(caught.value).splitlines()[0]


def test_what_fulfils_it_passes_and_nothing_is_copied():
    seen = []
    held = expect_layout(x="contiguous", mode="convert")(lambda x: seen.append(x))
    held(GOOD)
    held(x=GOOD)
    assert seen[0] is GOOD
    assert seen[1] is GOOD


def test_by_position_and_by_name():
    assert torch.equal(double(GOOD), GOOD * 2)
    assert "`double` needs `x` to be contiguous" in broken(double, BAD)
    broken(double, x=BAD, factor=3)
    broken(double, BAD, factor=3)


def test_nothing_runs_before_the_error():
    ran = []
    broken(expect_layout(x="contiguous")(lambda x: ran.append(x)), BAD)
    assert ran == []


def test_defaults_keyword_only_and_positional_only():
    @expect_layout(x="contiguous", y="contiguous", z="contiguous")
    def function(x, /, y=BAD, *, z=None):
        return x

    assert "`y`" in broken(function, GOOD)
    assert function(GOOD, GOOD) is GOOD
    assert function(GOOD, y=GOOD, z=None) is GOOD
    assert "`z`" in broken(function, GOOD, GOOD, z=BAD)
    with pytest.raises(TypeError, match="positional-only"):
        function(x=GOOD, y=GOOD)


def test_args_and_kwargs():
    @expect_layout(rest="contiguous", named="dense")
    def function(first, *rest, keyword=None, **named):
        return first

    assert function(BAD, GOOD, keyword=BAD[:, ::2], other=BAD) is BAD
    assert "`rest[1]`" in broken(function, BAD, GOOD, BAD)
    assert "`named['other']`" in broken(function, BAD, other=GOOD[:, ::2])


def test_containers_are_looked_into():
    @expect_layout(x="contiguous")
    def function(x):
        return x

    good = [GOOD, (GOOD, None), {"a": GOOD}]
    assert function(good) is good
    assert "`x[1][0]`" in broken(function, [GOOD, (BAD, None)])
    assert "`x['a']`" in broken(function, {"a": BAD})

    class Pair(typing.NamedTuple):
        left: torch.Tensor
        right: torch.Tensor

    assert "`x.right`" in broken(function, Pair(GOOD, BAD))
    converting = expect_layout(x="contiguous", mode="convert")(lambda x: x)
    made = converting([GOOD, Pair(GOOD, BAD)])
    assert made[0] is GOOD
    assert type(made[1]) is Pair
    assert made[1].right.is_contiguous()
    assert torch.equal(made[1].right, BAD)


def test_what_is_no_tensor_passes():
    assert double(3) == 6
    assert double("a") == "aa"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        double()
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments but 3 were given"):
        double(GOOD, 2, 3)


def test_methods_of_all_kinds():
    class Kernel:
        @expect_layout(x="contiguous")
        def method(self, x):
            return x

        @expect_layout(x="contiguous")
        @classmethod
        def of_class(cls, x):
            return cls, x

        @expect_layout(x="contiguous")
        @staticmethod
        def of_none(x):
            return x

        @classmethod
        @expect_layout(x="contiguous")
        def inside(cls, x):
            return x

    kernel = Kernel()
    assert kernel.method(GOOD) is GOOD
    assert Kernel.of_class(GOOD) == (Kernel, GOOD)
    assert Kernel.of_none(GOOD) is GOOD
    for call in (kernel.method, kernel.of_class, Kernel.of_class, kernel.of_none, kernel.inside):
        broken(call, BAD)
    assert "`Kernel.method` needs" in broken(kernel.method, BAD)


def test_a_module_class_is_held_in_forward():
    @expect_layout(image="channels_last")
    class Scale(nn.Module):
        def forward(self, image):
            return image * 2

    image = torch.randn(2, 3, 4, 4)
    assert Scale()(image.to(memory_format=torch.channels_last)).shape == image.shape
    assert "`Scale.forward` needs `image` to be channels_last" in broken(Scale(), image)
    assert issubclass(Scale, nn.Module)


def test_async_functions_and_generators():
    @expect_layout(x="contiguous")
    async def function(x):
        return x

    @expect_layout(x="contiguous")
    def generator(x):
        got = yield x
        yield got

    @expect_layout(x="contiguous")
    async def agenerator(x):
        yield x

    assert inspect.iscoroutinefunction(function)
    assert asyncio.run(function(GOOD)) is GOOD
    with pytest.raises(ContractError):
        asyncio.run(function(BAD))
    items = generator(GOOD)
    assert next(items) is GOOD
    assert items.send(5) == 5
    broken(generator, BAD)  # at the call, not at the first item

    async def first(items):
        return await items.__anext__()

    assert asyncio.run(first(agenerator(GOOD))) is GOOD
    broken(agenerator, BAD)


def test_decorated_functions_partials_and_recursion():
    def twice(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            function(*args, **kwargs)
            return function(*args, **kwargs)

        return wrapper

    @expect_layout(x="contiguous")
    @twice
    def inner(y, x):
        return x

    broken(inner, BAD, BAD)
    assert inner(BAD, GOOD) is GOOD
    broken(expect_layout(x="contiguous")(functools.partial(lambda y, x: x, 1)), BAD)

    @expect_layout(x="contiguous")
    def halve(x):
        return halve(x[: len(x) // 2]) if len(x) > 1 else x

    assert len(halve(GOOD)) == 1
    both = expect_layout(x="dense")(expect_layout(x="contiguous")(lambda x: x))
    assert "to be dense" in broken(both, GOOD[:, ::2])
    assert "to be contiguous" in broken(both, BAD)


def test_it_looks_like_what_it_stands_for():
    assert double.__name__ == "double"
    assert double.__doc__ == "Twice that."
    assert list(inspect.signature(double).parameters) == ["x", "factor"]
    assert double.__wrapped__(BAD) is not None
    assert pickle.loads(pickle.dumps(double)) is double


def test_kinds():
    image = torch.randn(2, 3, 4, 5)
    cases = [
        ("contiguous", image, image.mT),
        ("channels_last", image.to(memory_format=torch.channels_last), image),
        ("channels_last", image.to(memory_format=torch.channels_last), image[0]),
        ("channels_last_3d", torch.randn(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d), image),
        ("dense", image.mT, image[..., ::2]),
        ("dense", image.mT, image[:1].expand(2, -1, -1, -1)),
        ("last_stride_1", image[..., :2], image[..., ::2]),
        ("non_overlapping", image[..., ::2], torch.randn(9).unfold(0, 3, 1)),
        ("contiguous", torch.empty(0, 3).t(), torch.empty(2, 3).t()),
        ("contiguous", torch.tensor(1.0), torch.empty(2, 3).t()),
        ("last_stride_1", torch.tensor(1.0), torch.empty(2, 3).t()),
    ]
    for kind, good, bad in cases:
        held = expect_layout(x=kind)(lambda x: x)
        assert held(good) is good
        broken(held, bad)


def test_dimensions_of_size_1_do_not_count():
    held = expect_layout(x="contiguous")(lambda x: x)
    held(torch.randn(1, 6).t())  # row 48: contiguous for a batch of one only
    held(torch.randn(2, 8).split(4, dim=1)[1][:1])
    broken(held, torch.randn(2, 8).split(4, dim=1)[1])


def test_same_as_another_argument():
    @expect_layout(w=same_as("x"))
    def function(x, w=None):
        return w

    assert function(BAD, BAD.clone()) is not None
    assert function(BAD) is None
    assert "`w` to be laid out as `x`" in broken(function, GOOD, BAD)
    broken(function, w=BAD[:2], x=BAD)
    held = expect_layout(w="same_as=x", mode="convert")(lambda x, w: w)
    assert held(BAD, GOOD).stride() == BAD.stride()
    gapped = GOOD[:, ::2]
    broken(held, gapped, torch.randn(3, 2))


def test_a_function_as_kind():
    def is_aligned(tensor):
        return tensor.data_ptr() % 16 == 0

    held = expect_layout(x=is_aligned)(lambda x: x)
    assert held(GOOD) is GOOD
    text = broken(held, GOOD[:, 1:])
    assert "needs `x` to be such that `is_aligned` holds" in text
    failing = expect_layout(x=lambda tensor: 1 / 0)(lambda x: x)
    with pytest.raises(ZeroDivisionError):
        failing(GOOD)


def test_mistakes_are_told_at_decoration():
    for options, text in [
        ({}, "asks nothing"),
        ({"y": "contiguous"}, "`double` has no argument 'y'"),
        ({"x": "same_as=y"}, "`double` has no argument 'y'"),
        ({"x": "contiguous", "mode": "fix"}, "mode='fix' is none of"),
        ({"x": "contiguous", "export": True}, "export=True is neither"),
        ({"x": torch.is_tensor, "mode": "convert"}, "can't make what"),
        ({"grads": "same_as=x"}, "grads can't be same_as"),
    ]:
        with pytest.raises(UsageError, match=text) as caught:
            expect_layout(**options)(double.__wrapped__)
        assert "\n" not in str(caught.value)
    for target in (3, nn.Linear(1, 1), int, torch.nn.Linear(1, 1).weight):
        with pytest.raises(UsageError, match="expect_layout: "):
            expect_layout(x="contiguous")(target)
    with pytest.raises(UsageError, match="is a generator"):

        @expect_layout(grads="contiguous")
        def generator(x):
            yield x


def test_tensors_without_strides_break_a_contract_and_never_crash():
    held = expect_layout(x="contiguous")(lambda x: x)
    assert "sparse_coo, without strides" in broken(held, GOOD.to_sparse())
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    broken(held, nested)
    converting = expect_layout(x="dense", mode="convert")(lambda x: x)
    broken(converting, GOOD.to_sparse())


def test_fake_meta_and_subclassed_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    held = expect_layout(x="contiguous")(lambda x: x)
    with FakeTensorMode() as mode:
        assert held(torch.empty(2, 3)) is not None
        broken(held, torch.empty(2, 3).t())
        broken(held, mode.from_tensor(BAD))
    broken(held, BAD.to("meta"))
    converting = expect_layout(x="contiguous", mode="convert")(lambda x: x * 2)
    assert converting(BAD.to("meta")).is_contiguous()

    class Named(torch.Tensor):
        pass

    broken(held, BAD.as_subclass(Named))
    assert held(GOOD.as_subclass(Named)) is not None

    class Own(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise AssertionError("its code must not run")

    assert held(torch.Tensor._make_subclass(Own, BAD)) is not None


def test_threads():
    found = []

    def work(tensor):
        for _ in range(200):
            try:
                double(tensor)
                found.append("good")
            except ContractError:
                found.append("bad")

    threads = [threading.Thread(target=work, args=(tensor,)) for tensor in (GOOD, BAD) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count("good") == found.count("bad") == 400
