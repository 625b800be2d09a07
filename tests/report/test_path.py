"""The way of a strided tensor: one row for an expression, and where it starts."""

from stridewise.findings import Carrier, Finding, Site
from stridewise.report.path import path_rows

from . import samples

STEM = "self.stem(images)"
INSIDE = "torch/nn/modules/activation.py:1460 in MultiheadAttention.forward"


def drawn(finding: Finding) -> str:
    return "\n".join(row.plain.rstrip() for row in path_rows(finding, 94))


def carrier(module: str, line: int = 39, expression: str = STEM, count: int = 1) -> Carrier:
    where = Site("model.py", line, 8, line, 25, module=module, expression=expression, via=f"{module}.py:1")
    return Carrier(where, "torch.conv2d", count)


def test_the_layers_of_one_expression_are_one_row() -> None:
    layers = [carrier("stem.0"), carrier("stem.1", count=2), carrier("stem.2"), carrier("mix", 16, "self.mix(x)")]
    start = Site("model.py", 38, expression="images.permute(0, 3, 1, 2)")
    path = drawn(
        samples.finding(origin=start, carriers=tuple(layers), payers=(samples.payer("self.norm(x)", 51, 1, 1, 1),))
    )
    assert path.count(STEM) == 1
    assert "passes it on, 4 times" in path
    assert "self.mix(x)" in path


def test_the_same_expression_elsewhere_has_its_own_row() -> None:
    path = drawn(samples.finding(carriers=(carrier("stem.0"), carrier("mix", 16, "self.mix(x)"), carrier("stem.0"))))
    assert path.count(STEM) == 2


def test_a_stream_that_starts_and_is_paid_for_in_one_expression_says_where_inside_torch() -> None:
    start = Site("train.py", 8, 4, 8, 12, expression="model(x)", via=INSIDE)
    payer = samples.payer("model(x)", 8, 3, 1, 1, file="train.py", column=4, end_line=8, end_column=12, via=INSIDE)
    path = drawn(
        samples.finding("SW103", site=start, origin=start, payers=(payer, payer, samples.payer("y", 9, 1, 1, 1)))
    )
    assert "starts in torch/nn/modules/activation.py:1460\n" in path
    elsewhere = drawn(samples.finding("SW103", site=start, origin=start, payers=(samples.payer("y", 9, 1, 1, 1),)))
    assert "starts here" in elsewhere
