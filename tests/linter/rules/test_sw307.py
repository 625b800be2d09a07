import ctypes
import gc

import pytest
import torch

from ..texts import findings, fixed, rule_of, run

CODE = "SW307"


def is_held(address: int, size: int = 0) -> bool:
    """Whether some tensor lies at an address."""
    return any(address_of(each) == address for each in gc.get_objects() if type(each) is torch.Tensor)


def address_of(tensor: torch.Tensor) -> int | None:
    """None of a tensor that has no memory, as other tests of this process may have left."""
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return None


def program(text: str) -> bool:
    """Whether memory is still a tensor's when the program's kernel gets its address."""
    names = run(text)
    names["kernel"] = is_held
    return bool(names["program"]())


@pytest.mark.parametrize("at", [0, 1])
def test_the_tensor_is_gone_when_the_kernel_begins_and_not_once_it_has_a_name(at: int) -> None:
    example = rule_of(CODE).fires[at]
    assert example.fixed is not None
    assert not program(example.source)
    assert program(example.fixed)


def test_a_returned_address_is_of_freed_memory() -> None:
    assert not is_held(run(rule_of(CODE).fires[2].source)["program"]())


def test_tensors_without_memory_lie_nowhere() -> None:
    seen = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append((type(x), address_of(x)))
        return x

    torch.func.vmap(look)(torch.ones(2, 3))
    assert seen == [(torch.Tensor, None)]


def test_two_temporaries_may_have_one_address() -> None:
    x = torch.ones(5000)
    held = is_held(x.clone().data_ptr())  # outside of an assert, which would hold the clone
    assert not held  # so that the next may lie there
    assert isinstance(run(rule_of(CODE).fires[3].source)["program"](), bool)


def test_what_is_quiet_runs() -> None:
    for text in rule_of(CODE).quiet:
        assert run(text)["program"]() is False


TEMPORARIES = ["(x + 1)", "x.clone()", "x[:, 0].contiguous()", "x[x > 0]", "(-x)", "torch.zeros(10000)", "x.double()"]
HELD = ["x", "x[0]", "x.t()", "x.view(-1)", "x.detach()", "x.data", "x[:, 0].unsqueeze(0)"]
START = "import torch\nx = torch.ones(5000, 2)\n\ndef kernel(*given):\n    return given\n\n"


@pytest.mark.parametrize("expression", TEMPORARIES)
def test_temporaries_are_found_and_freed(expression: str) -> None:
    text = f"{START}def program():\n    return kernel({expression}.data_ptr())\n"
    (found,) = findings(text, CODE)
    assert all(edit.safety == "unsafe" for edit in found.edits)
    x = torch.ones(5000, 2)
    assert is_held(x.data_ptr())
    assert not is_held(eval(f"{expression}.data_ptr()", {"torch": torch, "x": x}))
    assert ".data_ptr()" in fixed(text, CODE)
    run(fixed(text, CODE))["program"]()
    assert findings(fixed(text, CODE), CODE) == ()


@pytest.mark.parametrize("expression", HELD)
def test_views_live_as_long_as_what_they_view(expression: str) -> None:
    assert findings(f"{START}kernel({expression}.data_ptr())\n", CODE) == ()
    x = torch.ones(5000, 2)
    view = eval(expression, {"torch": torch, "x": x})
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "statement",
    [
        "addresses = [x.clone().data_ptr()]\nkernel(addresses)",
        "kernel(address=x.clone().data_ptr() + 16)",
        "kernel([each.contiguous().data_ptr() for each in (x.t(), x)])",
        "addresses = []\naddresses.append(x.t().contiguous().data_ptr())",
        "address = x.clone().view(-1).data_ptr()\nkernel(address)",
        "import ctypes\nkernel(ctypes.c_void_p(x.clone().data_ptr()))",
        "kernel(x.clone().untyped_storage().data_ptr())",
    ],
)
def test_ways_to_hand_an_address_on(statement: str) -> None:
    assert len(findings(f"{START}{statement}\n", CODE)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "assert x.contiguous().data_ptr() == x.data_ptr()",
        "print(x.clone().data_ptr())",
        "x.clone().data_ptr()",
        "aligned = x.clone().data_ptr() % 16 == 0",
        "seen = {x.clone().data_ptr()}",
        "assert kernel(1) and x.clone().data_ptr()",
        "held = x.clone()\nkernel(held.add_(1).data_ptr())",
        "kernel((held := x.clone()).data_ptr())",
    ],
)
def test_what_reads_nothing_at_the_address(statement: str) -> None:
    assert findings(f"{START}{statement}\n", CODE) == ()


def test_each_temporary_gets_a_name_of_its_own() -> None:
    text = f"{START}def program():\n    return kernel(torch.empty(9).data_ptr(), torch.empty(9).data_ptr())\n"
    first, second = run(fixed(text, CODE))["program"]()
    assert first != second


def test_no_name_is_made_where_the_statement_would_evaluate_it_later_or_not_at_all() -> None:
    for expression in ("x if x is None else kernel(x.clone().data_ptr())", "lambda: kernel(x.clone().data_ptr())"):
        (found,) = findings(f"{START}y = {expression}\n", CODE)
        assert found.edits == ()


CALL = "import torch\n\ndef program(x, y, lib):\n    {0}\n"


@pytest.mark.parametrize(
    "call",
    [
        "return lib(x.zero_(), x.contiguous().data_ptr())",
        "return lib(y.pop(), y.pop().contiguous().data_ptr())",
        "return lib(x := y[0], x.contiguous().data_ptr())",
        "return lib(x.mul_(2).sum().item(), (x + 1).data_ptr())",
        "return lib(y[-1], y.pop().contiguous().data_ptr())",
        "return lib(torch.zeros(2, out=x), x.clone().data_ptr())",
        "return lib(x, torch.cat([x, (x := y[0])]).data_ptr())",
        "return lib.read(y.pop())(y.pop().clone().data_ptr())",
        "return 0 < len(y) < lib(x.clone().data_ptr())",
    ],
)
def test_no_fix_where_the_order_of_evaluation_would_change(call: str) -> None:
    (found,) = findings(CALL.format(call), CODE)
    assert found.edits == ()


def test_the_fix_changes_no_value() -> None:
    """What is written before the second temporary is made goes before it; the target's `y.pop()` stays behind both."""
    text = CALL.format("y[y.pop()] = lib(x.mul_(2).clone().data_ptr(), (x + 1).data_ptr())\n    return y")

    def read(*addresses: int) -> list[float]:
        return [ctypes.c_float.from_address(address).value for address in addresses]

    x, y = torch.ones(1), [0, 0, 1]
    assert run(fixed(fixed(text, CODE), CODE))["program"](x, y, read) == [0, [2.0, 3.0]]


@pytest.mark.parametrize(
    ("call", "held"),
    [
        ("lib.k(x.contiguous().data_ptr(), y.t().contiguous().data_ptr())", ["x_contiguous", "held"]),
        ("lib.k(ctypes.c_void_p(x.clone().data_ptr()), x.numel(), c_void_p((x + y).data_ptr()))", ["held", "held_2"]),
        ("ok = lib.k(x.shape[0], torch.cat([x, y]).data_ptr()) == 0", ["held"]),
        ("lib.k(torch.rand(3).data_ptr())", ["held"]),
        ("lib.k((x\n        + y).data_ptr())", ["held"]),
        ("lib.k((x  # rows\n        + y).data_ptr())", ["held"]),
        ("lib.k(torch.empty(\n        9).data_ptr())", ["held"]),
    ],
)
def test_names_are_given_in_order(call: str, held: list[str]) -> None:
    text = f"import torch\n\ndef other(held):\n    return held\n\ndef program(x, y, lib):\n    {call}\n"
    mended = fixed(text, CODE)
    compile(mended, "example.py", "exec")
    assert [line.split()[0] for line in mended.splitlines() if " = " in line and "ok" not in line] == held
    assert mended.count("#") == text.count("#")


def test_a_comment_is_not_lost() -> None:
    (found,) = findings("import torch\n\ndef program(x, lib):\n    lib.k((x + 1  # why\n    ).data_ptr())\n", CODE)
    assert found.edits == ()


def test_a_name_is_free_if_its_fix_was_not_made() -> None:
    text = "import torch\n\ndef program(x, lib):\n    y = x if x.sum() else lib.k((x + 1).data_ptr())\n"
    text += "    lib.k((x + 2).data_ptr())\n"
    assert "held = x + 2" in fixed(text, CODE)


def test_sets_and_kernels_called_add() -> None:
    assert findings(f"{START}seen = set()\nseen.add(x.clone().data_ptr())\n", CODE) == ()
    assert len(findings(f"{START}kernel.add(x.clone().data_ptr(), 4)\n", CODE)) == 1
