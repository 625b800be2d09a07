import pytest
import torch
from torch import nn

from ..texts import findings, fixed, rule_of, run

CODE = "SW309"
BUFFER, CLONED, DATA, ATTRIBUTE = rule_of(CODE).fires


@pytest.mark.parametrize("example", [BUFFER, CLONED, DATA, ATTRIBUTE])
def test_it_raises_as_it_stands_and_not_with_the_fix(example: object) -> None:
    with pytest.raises(RuntimeError):
        run(example.source)["program"]()  # type: ignore[attr-defined]
    run(example.fixed)["program"]()  # type: ignore[attr-defined]


def test_what_is_quiet_runs_and_is_contiguous_where_it_is_saved() -> None:
    for text in rule_of(CODE).quiet:
        module, layer = run(text)["program"]()
        frozen = ("frozen", "placeholder")
        assert all(each.is_contiguous() for name, each in module.state_dict().items() if name not in frozen)
        assert layer.weight.is_contiguous()  # turned around twice


def gradient(parameter: nn.Parameter) -> nn.Parameter:
    parameter.grad = torch.arange(float(parameter.numel())).reshape(parameter.shape)
    return parameter


def test_an_optimizer_refuses_an_expanded_parameter_or_updates_it_several_times() -> None:
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.optim.SGD([gradient(nn.Parameter(torch.zeros(3).expand(2, 3)))], lr=1.0).step()
    fused = gradient(nn.Parameter(torch.zeros(3).expand(2, 3)))
    torch.optim.SGD([fused], lr=1.0, fused=True).step()
    right = gradient(nn.Parameter(torch.zeros(3).expand(2, 3).contiguous()))
    torch.optim.SGD([right], lr=1.0, fused=True).step()
    assert not torch.equal(fused, right)


def test_a_write_into_an_expanded_buffer_changes_its_repetitions() -> None:
    scale = run(BUFFER.source)["Scale"](2).scale
    scale[0, 0] = 9
    assert scale[1, 0] == 9
    assert run(BUFFER.fixed or "")["Scale"](2).scale.is_contiguous()


def test_a_fused_optimizer_is_wrong_for_a_transposed_parameter_with_another_gradient() -> None:
    def stepped(parameter: nn.Parameter, **how: bool) -> torch.Tensor:
        gradient(parameter)
        torch.optim.SGD([parameter], lr=1.0, **how).step()
        return parameter.detach()

    base = torch.arange(6.0).reshape(2, 3)
    right = stepped(nn.Parameter(base.clone().t()))
    assert not torch.equal(stepped(nn.Parameter(base.clone().t()), fused=True), right)
    assert torch.equal(stepped(nn.Parameter(base.t().contiguous()), fused=True), right)


def test_lbfgs_raises_for_a_transposed_parameter() -> None:
    def step(parameter: nn.Parameter) -> None:
        optimizer = torch.optim.LBFGS([parameter])

        def closure() -> torch.Tensor:
            loss = (parameter**2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)

    base = torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="view size"):
        step(nn.Parameter(base.t()))
    step(nn.Parameter(base.t().contiguous()))


def test_a_transposed_buffer_is_not_saved_by_safetensors_nor_flattened_by_view() -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    with pytest.raises(ValueError, match="non contiguous"):
        safetensors.save({"w": torch.ones(2, 3).t()})
    safetensors.save({"w": torch.ones(2, 3).t().contiguous()})
    with pytest.raises(RuntimeError, match="view size"):
        torch.ones(2, 3).t().view(-1)


def test_a_buffer_that_nothing_saves_may_be_expanded() -> None:
    for given, fires in (("", True), (", persistent=True", True), (", persistent=False", False)):
        text = f"{START}m.b = nn.Buffer(rows.expand(n, -1){given})\n"
        assert bool(findings(text, CODE)) == fires
        assert (list(run(text)["m"].state_dict()) == ["b"]) == fires


START = "import torch\nfrom torch import nn\n\nn, w, rows = 3, torch.ones(2, 3), torch.ones(1, 3)\nm = nn.Module()\n"
STRIDED = [
    "w.t()",
    "w.T",
    "w.detach().t()",
    "w.transpose(0, 1)",
    "w.permute(1, 0)",
    "w.t().clone()",
    "w.t().float().clone()",
    "torch.transpose(w, 0, 1)",
    "rows.expand(n, -1)",
    "rows.expand(n, 3).detach()",
    "torch.broadcast_to(rows, (n, 3))",
]
PLAIN = [
    "w",
    "w.t().contiguous()",
    "w.t().t()",
    "w.t().clone(memory_format=torch.contiguous_format)",
    "w.t() @ w",
    "w + 1",
    "w.unsqueeze(0).transpose(0, 1)",
    "torch.zeros(1, n).t()",
    "torch.zeros(n, 1).transpose(0, 1)",
    "rows.expand(1, -1)",
    "rows.expand((1, -1))",
    "rows.expand(n, -1).clone()",
    "rows.expand(n, -1).double()",
    "torch.ones(n, n).expand(1, 1, n, n)",
    "torch.arange(n).float().expand(1, n)",
    "torch.zeros(2, 3).expand(2, 3)",
    "torch.zeros(5).expand(1, 5)",
    "rows.expand(rows.shape)",
    "rows.expand_as(rows)",
]


@pytest.mark.parametrize("expression", STRIDED)
def test_views_are_found(expression: str) -> None:
    text = f"{START}value = {expression}\nm.register_buffer('b', value)\nm.p = nn.Parameter({expression})\n"
    assert len(findings(text, CODE)) == 2
    module = run(text)["m"]
    assert not module.b.is_contiguous()
    assert not module.p.is_contiguous()
    module = run(fixed(text, CODE))["m"]
    assert module.b.is_contiguous()
    assert module.p.is_contiguous()


@pytest.mark.parametrize("expression", PLAIN)
def test_what_is_contiguous_in_the_end_is_let_be(expression: str) -> None:
    text = f"{START}value = {expression}\nm.register_buffer('b', value)\nm.p = nn.Parameter({expression})\n"
    assert findings(text, CODE) == ()
    module = run(text)["m"]
    assert module.b.is_contiguous()
    assert module.p.is_contiguous()


def test_an_expanded_parameter_is_an_error() -> None:
    (found,) = findings(f"{START}m.p = nn.Parameter(rows.expand(n, -1))\n", CODE)
    assert found.severity == "error"
    (found,) = findings(f"{START}m.p = nn.Parameter(w.t())\n", CODE)
    assert found.severity == "warning"
    assert all(edit.safety == "unsafe" for edit in found.edits)
