"""What `explain_compile` says of programs whose code is read here a second time, by other means."""

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stridewise
from stridewise.errors import UsageError
from stridewise.findings import Finding
from stridewise.results.compiled import Compiled

from . import programs


@cache
def explained(name: str) -> Compiled:
    torch.manual_seed(0)
    fn, args, options = SUBJECTS[name]()
    return stridewise.explain_compile(fn, *args, compare=False, **options)


def strided_left() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(64, 128)[:, ::2], torch.randn(64, 64)


def square() -> torch.Tensor:
    return torch.randn(16, 16)


SUBJECTS: dict[str, Any] = {
    "conv": lambda: (programs.ConvRelu().eval(), (programs.images(),), {}),
    "conv channels_last": lambda: (
        programs.ConvRelu().eval().to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        (programs.images(channels_last=True),),
        {},
    ),
    "attention": lambda: (programs.attention, programs.heads(), {}),
    "plain attention": lambda: (programs.plain_attention, programs.heads(), {}),
    "mm": lambda: (programs.product, strided_left(), {}),
    "mm contiguous": lambda: (programs.product, (torch.randn(64, 64), torch.randn(64, 64)), {}),
    "recompile": lambda: (programs.chain, (square(), square()), {"calls": [(square().t(), square())]}),
    "break": lambda: (programs.asks, (square(),), {}),
    "other break": lambda: (programs.breaks, (square(),), {}),
    "permute": lambda: (programs.permuted, (torch.randn(4, 32, 16), torch.randn(32, 8)), {}),
    "needed": lambda: (programs.needed, (torch.randn(64, 64),), {}),
    "training": lambda: (programs.ConvRelu(), (programs.images(),), {"train": True}),
}


def call_of(result: Compiled, number: int = 0) -> str:
    """The body of `call` in a graph's code."""
    code = list(result.code.values())[number]
    return code[code.index("def call(") : code.index("def get_args") if "def get_args" in code else None].partition(
        "\nrunner = "
    )[0]


def kernels_called(result: Compiled, number: int = 0) -> int:
    return len(re.findall(r"^\s+(?:cpp|triton)_fused\w*\(", call_of(result, number), re.MULTILINE))


def externs_called(result: Compiled, number: int = 0) -> int:
    return len(re.findall(r"(?:extern_kernels\.\w+|torch\.ops\.aten\.\w+\.\w+)\(", call_of(result, number)))


def codes(result: Compiled) -> list[str]:
    return [finding.code for finding in result.findings]


def only(result: Compiled, code: str) -> Finding:
    found = [finding for finding in result.findings if finding.code == code]
    assert len(found) == 1, [finding.message for finding in result.findings]
    return found[0]


def line_of(text: str) -> int:
    lines = Path(programs.__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name not in ("break", "other break", "recompile")])
def test_launches_are_those_of_the_code(name: str) -> None:
    result = explained(name)
    for number, graph in enumerate(result.graphs):
        assert graph.kernels == kernels_called(result, number)
        assert graph.externs == externs_called(result, number)
        lines = list(result.code.values())[number].splitlines()
        for launch in graph.launches:
            assert launch.code.splitlines()[0] in lines[launch.line - 1]


# -------------------------------------------------------------------------------------------------------- convolutions


def test_a_contiguous_image_is_copied_for_its_convolution() -> None:
    result = explained("conv")
    (graph,) = result.graphs
    finding = only(result, "SW501")
    assert {copy.source for copy in graph.copied} == {"input `image`", "parameter `conv.weight`"}
    assert all(copy.feeds == "extern_kernels.convolution" and copy.change == "reorder" for copy in graph.copied)
    assert finding.site.line == line_of("torch.relu(self.conv(image))")
    assert finding.site.expression == ("self.conv(image)" if programs.EXACT else "return torch.relu(self.conv(image))")
    assert finding.site.module == "conv"
    # Read and written: the image and the weights, of four bytes each.
    assert finding.cost.bytes_moved == 2 * 4 * (2 * 32 * 16 * 16 + 32 * 32 * 3 * 3)
    assert graph.kernels == explained("conv channels_last").graphs[0].kernels + 1


def test_the_code_has_the_layout_that_metadata_do_not() -> None:
    chosen = explained("conv").graphs[0].chosen
    assert [(row.operand, row.eager.strides, row.compiled.strides) for row in chosen] == [
        ("operand 0", (8192, 256, 16, 1), (8192, 1, 512, 32)),
        ("operand 1", (288, 9, 3, 1), (288, 1, 96, 32)),
    ]
    assert all("copies it" in row.why for row in chosen)


def test_channels_last_needs_no_copy() -> None:
    result = explained("conv channels_last")
    (graph,) = result.graphs
    assert graph.copies == 0
    assert not graph.chosen
    assert not result.findings


def test_a_backward_is_a_graph_of_its_own() -> None:
    result = explained("training")
    assert [graph.phase for graph in result.graphs] == ["forward", "backward"]
    assert {output.name for output in result.outputs} >= {"output", "gradient of `conv.weight`"}
    backward = [finding for finding in result.findings if "convolution_backward" in finding.message]
    assert all(finding.severity == "note" for finding in backward)


# ----------------------------------------------------------------------------------------------------------- attention


def test_contiguous_around_attention_is_four_copies_and_none_without() -> None:
    result = explained("attention")
    assert sum(graph.copies for graph in result.graphs) == 4
    assert explained("plain attention").graphs[0].copies == 0
    assert explained("plain attention").graphs[0].kernels == 0
    assert any("0 kernels instead of 2, 0 copies instead of 4 and 1 MB less" in note for note in result.notes)
    found = [finding for finding in result.findings if finding.code == "SW505"]
    wanted = [f"{name}.transpose(1, 2).contiguous()" for name in "qkv"]
    assert [finding.site.expression for finding in found if finding.severity == "warning"] == wanted
    last = next(finding for finding in found if finding.severity == "note")
    assert "other strides" in last.message
    assert not programs.EXACT or "SW501" not in codes(result)  # what a call asks for is charged to that


def test_what_a_trial_promises_is_what_the_program_without_the_call_has() -> None:
    base, without = explained("attention"), explained("plain attention")
    result = stridewise.explain_compile(
        lambda q, k, v: programs.attention(q, k, v).mul(1), *programs.heads(), compare=False
    )
    assert sum(trial.without == "removed" for trial in result.trials) == 4
    assert all(trial.copies[0] - trial.copies[1] >= 1 for trial in base.trials if trial.without == "removed")
    assert not without.trials


# ------------------------------------------------------------------------------------------------------------ products


def test_a_product_without_a_unit_stride_has_one_kernel_more() -> None:
    result, fine = explained("mm"), explained("mm contiguous")
    assert result.graphs[0].kernels == fine.graphs[0].kernels + 1 == 1
    (copy,) = result.graphs[0].copied
    assert (copy.source, copy.change, copy.feeds) == ("input `a`", "pack", "extern_kernels.mm")
    assert only(result, "SW501").site.expression == ("a @ b" if programs.EXACT else "return a @ b")
    assert "unit stride" in str(only(result, "SW501").advice)
    assert not fine.findings


def test_the_copy_behind_a_permute_is_found_by_leaving_the_permute_out() -> None:
    result = explained("permute")
    (trial,) = result.trials
    assert trial.call == "permute"
    assert trial.copies == (1, 0)
    assert trial.site.expression == "x.permute(0, 2, 1)"
    assert {finding.code: finding.severity for finding in result.findings} == {"SW501": "warning", "SW505": "note"}


@torch.library.custom_op("explain_tests::wants_contiguous", mutates_args=())
def wants_contiguous(x: torch.Tensor) -> torch.Tensor:
    assert x.is_contiguous()
    return x * 2


@wants_contiguous.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape)


def changes_its_input(x: torch.Tensor) -> torch.Tensor:
    y = x.t().contiguous()
    x.add_(1)
    return y @ x


NEEDED: dict[str, Any] = {
    "a view": programs.needed,
    "a kernel": lambda x: wants_contiguous(x.t().contiguous()),
    "as_strided": lambda x: x.t().contiguous().as_strided((8, 4), (4, 1)) @ x[:4],
    "a copy of what is changed": changes_its_input,
}


@pytest.mark.parametrize("what", list(NEEDED))
def test_a_call_that_is_needed_is_not_called_needless(what: str) -> None:
    result = stridewise.explain_compile(NEEDED[what], torch.randn(16, 16), compare=False)
    trials = [trial for trial in result.trials if trial.call == "contiguous"]
    assert all(trial.failed is not None for trial in trials)
    assert [finding.code for finding in result.findings if finding.severity == "warning"] in ([], ["SW501"])


def test_a_copy_to_the_same_layout_counts_and_is_needless() -> None:
    result = stridewise.explain_compile(lambda x: x.t().contiguous() @ x, torch.randn(64, 64), compare=False)
    (graph,) = result.graphs
    assert (graph.kernels, graph.copies) == (1, 1)
    assert graph.copied[0].change == "none"
    assert codes(result) == ["SW505"]


def test_parts_of_a_concatenation_are_no_copies_for_layout() -> None:
    def concatenated(x: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        return torch.cat([token.expand(4, -1, -1), x.flatten(2).transpose(1, 2)], 1)

    result = stridewise.explain_compile(concatenated, torch.randn(4, 8, 5, 5), torch.randn(1, 1, 8), compare=False)
    assert [graph.copies for graph in result.graphs] == [0]


def test_each_compilation_of_a_function_counts_once() -> None:
    model = programs.ConvRelu().eval()
    other = programs.images().permute(0, 1, 3, 2)
    result = stridewise.explain_compile(model, programs.images(), calls=[(other,)], compare=False)
    assert [graph.copies for graph in result.graphs] == [2, 2]
    assert only(result, "SW501").cost.copies == 2
    assert "2 tensors are only copied" in str(result)
    assert "a call runs one compilation of each function" in str(result)


def breaks_inside(x: torch.Tensor) -> torch.Tensor:
    y = x @ x.t()[::2].t()
    torch._dynamo.graph_break()
    return y.relu()


def test_a_second_look_says_the_same() -> None:
    """Frames behind a break are of the program's own code, which Dynamo remembers."""
    found = [
        stridewise.explain_compile(lambda x: breaks_inside(x) + 1, torch.randn(16, 16), compare=False) for _ in range(2)
    ]
    assert len(found[0].graphs) > 1
    assert [(g.kernels, g.externs, g.copies) for g in found[0].graphs] == [
        (g.kernels, g.externs, g.copies) for g in found[1].graphs
    ]
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

    assert not _debug_get_cache_entry_list(breaks_inside.__code__)


def test_arguments_that_are_no_tensors_are_no_strides() -> None:
    def stepped(x: torch.Tensor, stride: int) -> torch.Tensor:
        return x[::stride] * 2

    result = stridewise.explain_compile(stepped, square(), 1, calls=[(square(), 2), (square(), 3)], compare=False)
    assert result.recompiles
    assert not result.findings


def test_a_break_for_a_value_is_not_one_for_a_layout() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        if x.is_contiguous() and x.sum() > 0:
            return x + 1
        return x - 1

    assert "SW503" not in codes(stridewise.explain_compile(branches, square(), compare=False))


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(x)
        return x * self.calls


def test_attributes_are_as_before_and_what_is_compiled_each_time_has_no_time() -> None:
    model, x, others = Counting(), square(), torch.zeros(4, 4)
    result = stridewise.explain_compile(model, x, calls=[(others,)], time_limit=3, try_without=False)
    assert (model.calls, model.seen) == (0, [])
    (compiled,) = [arm for arm in result.arms if arm.name == "compiled"]
    assert compiled.ratio is None
    assert "compiled again in each call" in str(compiled.failed)


def test_further_arguments_are_left_as_they_were() -> None:
    first, second = torch.zeros(4), torch.zeros(4)
    stridewise.explain_compile(lambda x: x.add_(1) * 2, first, calls=[(second,)], compare=False)
    assert not first.any()
    assert not second.any()


@pytest.mark.skipif(not programs.EXACT, reason="torch 2.6 compiles around it")
def test_a_scripted_module_is_said_not_to_be_compiled() -> None:
    scripted = torch.jit.script(programs.ConvRelu().eval())
    result = stridewise.explain_compile(scripted, programs.images(), compare=False)
    assert not result.graphs
    assert any("torch.jit" in note for note in result.notes)


# --------------------------------------------------------------------------------------------------------- elementwise

MIXES = {
    "contiguous": lambda: (square(), square()),
    "transposed and contiguous": lambda: (square().t(), square()),
    "contiguous and transposed": lambda: (square(), square().t()),
    "sliced and contiguous": lambda: (torch.randn(16, 32)[:, ::2], square()),
    "sliced and transposed": lambda: (torch.randn(16, 32)[:, ::2], square().t()),
    "expanded": lambda: (torch.randn(16, 1).expand(16, 16), square()),
}


@pytest.mark.parametrize("mix", list(MIXES))
def test_a_chain_is_one_kernel_whatever_the_layouts(mix: str) -> None:
    result = stridewise.explain_compile(programs.chain, *MIXES[mix](), compare=False)
    (graph,) = result.graphs
    assert (graph.kernels, graph.externs, graph.copies) == (1, 0, 0)
    assert not result.findings


# --------------------------------------------------------------------------------------------- recompilations, breaks


def test_another_stride_is_another_compilation_dynamic_or_not() -> None:
    result = explained("recompile")
    finding = only(result, "SW502")
    assert len(result.graphs) == 2
    assert "input `a`" in finding.message
    assert "stride mismatch" in finding.evidence[0]
    assert "`dynamic=True` does not help" in finding.message
    assert "`a = a.contiguous()`" in str(finding.advice)


def test_other_sizes_are_no_matter_of_strides() -> None:
    result = stridewise.explain_compile(
        programs.chain, square(), square(), calls=[(torch.randn(4, 4), torch.randn(4, 4))], compare=False
    )
    assert len(result.recompiles) == 1
    assert not result.recompiles[0].about_strides
    assert not result.findings


def test_a_graph_ends_where_the_program_prints_a_layout() -> None:
    result = explained("break")
    finding = only(result, "SW503")
    assert finding.site.line == line_of('print("contiguous:"')
    assert "is_contiguous()" in finding.message
    assert len(result.graphs) == 2


def test_another_break_is_listed_and_no_finding() -> None:
    result = explained("other break")
    assert [each.layout_call for each in result.breaks] == [None]
    assert not result.findings


# ------------------------------------------------------------------------------------------------------------ outputs


def test_results_lie_as_in_eager_mode() -> None:
    result = explained("conv")
    assert [(output.name, output.same) for output in result.outputs] == [("output", True)]


@pytest.mark.parametrize(
    ("path", "name"),
    [("", "output"), ("0", "output[0]"), ("0[1]", "output[0][1]"), ("logits", "output.logits"), ("a.b", "output.a.b")],
)
def test_results_are_named(path: str, name: str) -> None:
    from stridewise.compiled.explain import _named

    assert _named("output", path) == name


# --------------------------------------------------------------------------------------------------------- arms, state


def test_the_ways_to_run_it_are_counted_and_measured() -> None:
    model, image = programs.ConvRelu().eval(), programs.images()
    result = stridewise.explain_compile(model, image, time_limit=4, try_without=False)
    names = [arm.name for arm in result.arms]
    assert names == ["eager", "compiled", "layout optimization off", "layout optimization forced on"]
    eager, compiled, off, forced = result.arms
    assert eager.kernels is None
    assert off.copies == 0
    assert compiled.copies == forced.copies == 2
    assert all(arm.peak_bytes for arm in result.arms)
    assert all(arm.low is None or arm.low <= (arm.ratio or 0) <= (arm.high or 0) for arm in result.arms)


def test_without_a_convolution_the_layout_optimization_changes_nothing() -> None:
    import torch._inductor.config as config

    from stridewise.compiled.arms import LAYOUT_SETTINGS

    base = explained("mm").code["0/0 inference"]
    for settings in LAYOUT_SETTINGS.values():
        with config.patch(settings):
            found = stridewise.explain_compile(programs.product, *strided_left(), compare=False, try_without=False)
        assert found.code["0/0 inference"].partition("def call")[2] == base.partition("def call")[2]


def test_nothing_of_the_program_changes() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    image = torch.randn(2, 3, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    limit = sys.getrecursionlimit()
    copied = image.clone()
    stridewise.explain_compile(model, image, train=True, compare=False)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(torch.get_rng_state(), state)
    assert sys.getrecursionlimit() == limit
    assert torch.equal(image, copied)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_code_that_the_program_compiled_stays_compiled() -> None:
    import torch._dynamo.testing

    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(programs.chain, backend=counter)
    a, b = square(), square()
    compiled(a, b)
    stridewise.explain_compile(programs.chain, a, b, compare=False)
    compiled(a, b)
    assert counter.frame_count == 1


def test_what_is_compiled_already_is_compiled_anew() -> None:
    result = stridewise.explain_compile(torch.compile(programs.chain), square(), square(), compare=False)
    assert result.graphs[0].kernels == 1
    model = torch.compile(programs.ConvRelu().eval())
    assert stridewise.explain_compile(model, programs.images(), compare=False, try_without=False).graphs[0].copies == 2


def test_what_eager_mode_raises_is_raised() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        stridewise.explain_compile(programs.product, torch.randn(2, 3), torch.randn(2, 3))


def test_mistakes_in_the_call_are_told() -> None:
    with pytest.raises(UsageError, match="can't be called"):
        stridewise.explain_compile(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="time limit"):
        stridewise.explain_compile(programs.chain, time_limit=0)


def test_findings_are_selected() -> None:
    left, right = strided_left()
    result = stridewise.explain_compile(programs.product, left, right, compare=False, ignore=["SW5"])
    assert not result.findings
    assert result.ok
