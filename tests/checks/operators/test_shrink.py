"""The smallest case that shows a fault."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from stridewise.checks.operators.case import Arrangement, Case, Described, Fault, Operand, Outcome
from stridewise.checks.operators.grid import grid, place
from stridewise.checks.operators.naming import named
from stridewise.checks.operators.shrink import smallest

WRONG = (Fault("wrong values", "output", "differs"),)


def described(**sizes: tuple[int, ...]) -> Described:
    return of_operands(*(Operand(name, "input", own, "float32", True, False) for name, own in sizes.items()))


def of_operands(*operands: Operand) -> Described:
    return Described(
        op="op",
        operands=operands,
        outputs=("output",),
        differentiable=False,
        random=False,
        noise=0.0,
        tolerance=0.0,
        tolerance_words="all elements are the same",
        magnitudes={},
        has_fake=False,
    )


def shrunk(
    case: Case, of: Described, fails: Callable[[Case], bool], limit_s: float = 60.0
) -> tuple[Case | None, list[Case]]:
    seen: list[Case] = []

    def run(each: Case) -> Outcome:
        seen.append(each)
        return Outcome(each, "ran", WRONG if fails(each) else ())

    found = smallest(Outcome(case, "ran", WRONG), of, run, lambda outcome: bool(outcome.faults), limit_s)
    assert found is None or fails(found.case)
    return found.case if found else None, seen


def sizes_in(case: Case, of: Described) -> dict[str, tuple[int, ...]]:
    return {operand.name: case.sizes.get(operand.name, operand.sizes) for operand in of.operands}


def is_strided(case: Case, of: Described, name: str = "x") -> bool:
    """Whether a kernel that walks it flat goes wrong."""
    layout = place(case.arrangements.get(name, Arrangement("x")), sizes_in(case, of)[name]).layout
    moving = [(s, t) for s, t in zip(layout.sizes, layout.strides, strict=True) if s > 1]
    expected = 1
    for size, stride in reversed(moving):
        if stride != expected:
            return True
        expected *= size
    return False


def test_sizes_that_are_equal_shrink_together() -> None:
    of = described(x=(6, 5), y=(5, 7))

    def fails(case: Case) -> bool:
        own = sizes_in(case, of)
        return own["x"][1] == own["y"][0] and is_strided(case, of)

    case, _ = shrunk(Case({"x": Arrangement("x.t()", order=(1, 0))}), of, fails)
    assert case is not None
    assert sizes_in(case, of) == {"x": (2, 2), "y": (2, 1)}
    assert case.arrangements == {"x": Arrangement("x.t()", order=(1, 0))}


def test_operands_that_do_not_matter_lie_contiguous() -> None:
    of = described(x=(4, 4), y=(4, 4))
    both = Case({name: Arrangement("x.t()", order=(1, 0)) for name in ("x", "y")})
    case, _ = shrunk(both, of, lambda case: is_strided(case, of, "y"))
    assert case is not None
    assert list(case.arrangements) == ["y"]


def test_what_fails_in_empty_tensors_only_stays_empty() -> None:
    of = described(x=(4, 4))
    case, _ = shrunk(Case(sizes={"x": (0, 4)}), of, lambda case: sizes_in(case, of)["x"][0] == 0)
    assert case is not None
    assert case.sizes == {"x": (0, 1)}


def test_a_layout_that_does_one_thing_less_if_that_is_enough() -> None:
    whole = Arrangement("x.permute(2, 1, 0)[:, :, 1:-1]", order=(2, 1, 0), before=(0, 0, 1), after=(0, 0, 1))
    of = described(x=(4, 5, 6))
    case, _ = shrunk(Case({"x": whole}), of, lambda case: is_strided(case, of))
    assert case is not None
    assert case.arrangements["x"].name in ("x.transpose(1, 2)", "x[:, :, :-1]", "x[:, :, 1:]")
    assert sizes_in(case, of)["x"] in ((1, 2, 2), (1, 2, 1), (2, 1, 1))


def test_gradients_lie_contiguous_if_that_does_not_matter() -> None:
    of = described(x=(4, 4))
    sum_behind = Arrangement("expanded, as behind sum()", expanded=(-2, -1))
    given_case = Case({"x": Arrangement("x.t()", order=(1, 0))}, gradient=sum_behind, aspect="gradient")
    case, _ = shrunk(given_case, of, lambda case: is_strided(case, of))
    assert case is not None
    assert case.gradient is not None
    assert (case.gradient.name, case.aspect) == ("contiguous", "gradient")
    kept, _ = shrunk(given_case, of, lambda case: case.gradient == sum_behind)
    assert kept is not None
    assert (kept.gradient, kept.arrangements) == (sum_behind, {})


def test_parameters_keep_their_sizes() -> None:
    of = of_operands(Operand("weight", "parameter", (4, 4), "float32", True, True))
    case, _ = shrunk(
        Case({"weight": Arrangement("x.t()", order=(1, 0))}), of, lambda case: is_strided(case, of, "weight")
    )
    assert case is not None
    assert case.sizes == {}


def test_without_anything_smaller_it_is_the_same() -> None:
    of = described(x=(3, 3))
    only = Case({"x": Arrangement("x.t()", order=(1, 0))})
    assert shrunk(only, of, lambda case: case == only)[0] == only


def test_each_case_is_run_once() -> None:
    of = described(x=(6, 6))
    _, seen = shrunk(Case({"x": Arrangement("x.t()", order=(1, 0))}), of, lambda case: is_strided(case, of))
    again = [repr(case) for case in seen[1:]]
    assert len(set(again)) == len(again)
    assert len(again) < 250


def test_a_fault_that_is_not_seen_again() -> None:
    case, seen = shrunk(Case({"x": Arrangement("x.t()", order=(1, 0))}), described(x=(3, 3)), lambda case: False)
    assert case is None
    assert len(seen) == 1


def test_a_fault_that_comes_and_goes() -> None:
    of = described(x=(6, 6))
    counted = [0]
    answers: dict[str, bool] = {}

    def fails(case: Case) -> bool:
        if repr(case) not in answers:
            counted[0] += 1
            answers[repr(case)] = is_strided(case, of) and counted[0] % 3 != 2
        return answers[repr(case)]

    case, _ = shrunk(Case({"x": Arrangement("x.t()", order=(1, 0))}), of, fails)
    assert case is not None


def test_time_that_is_over_ends_it() -> None:
    case = Case({"x": Arrangement("x.t()", order=(1, 0))})
    found, seen = shrunk(case, described(x=(6, 6)), lambda case: True, limit_s=0.0)
    assert found == case
    assert len(seen) == 1


def test_no_folder_of_hypothesis_appears(tmp_path: Path) -> None:
    from hypothesis import configuration

    configuration.set_hypothesis_home_dir(tmp_path / "own")
    try:
        of = described(x=(6, 6))
        shrunk(Case({"x": Arrangement("x.t()", order=(1, 0))}), of, lambda case: is_strided(case, of))
        assert os.listdir(tmp_path) == []
        assert configuration.storage_directory("kept", intent_to_write=False).path == tmp_path / "own" / "kept"
    finally:
        configuration.set_hypothesis_home_dir(None)


def test_inside_a_test_of_hypothesis_and_in_threads() -> None:
    of = described(x=(4, 4))
    case = Case({"x": Arrangement("x.t()", order=(1, 0))})
    found = []

    def look() -> None:
        found.append(shrunk(case, of, lambda case: is_strided(case, of))[0])

    @settings(max_examples=2, database=None, deadline=None)
    @given(st.integers())
    def inside(_: int) -> None:
        look()

    inside()
    assert set(map(repr, found)) == {repr(case)}  # another search is refused there
    found.clear()
    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert {str(case and case.sizes) for case in found} == {"{'x': (2, 2)}"}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_names_say_what_is_done(sizes: list[int], data: st.DataObject) -> None:
    """Of what the grid makes: the name that a part of it would have gives the same strides where it is Python."""
    import torch

    arrangement = data.draw(st.sampled_from(grid(sizes, read_only=False)))
    if arrangement.odd_ones or arrangement.offset:
        return
    layout = place(arrangement, sizes).layout
    order = arrangement.order or tuple(range(len(sizes)))
    before, after = arrangement.before or (0,) * len(sizes), arrangement.after or (0,) * len(sizes)
    steps = arrangement.steps or (1,) * len(sizes)
    extents = [b + (s - 1) * t + 1 + a for b, s, t, a in zip(before, sizes, steps, after, strict=True)]
    x = torch.empty([extents[dim] for dim in order])
    name = named(arrangement, len(sizes)).name
    if " in channels_last" in name:
        return
    view = eval(name, {"x": x})
    assert (tuple(view.shape), view.stride(), view.storage_offset()) == (layout.sizes, layout.strides, layout.offset)
