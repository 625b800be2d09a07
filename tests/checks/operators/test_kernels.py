"""C kernels that are right, and wrong in the ways that public reports tell of: each gets its verdict, and a program."""

import pytest
import torch

from stridewise.checks.operators.check import check_op

from . import kernels as K

OUT = torch.zeros(3, 4)
RIGHT = {"copies_first": (), "takes_strides": (), "RightBackward": ()}
WRONG = {
    "assumes_contiguous": ({"SW401"}, ()),
    "both_flat": ({"SW401"}, ()),
    "empty_like_of_the_original": ({"SW401"}, ()),
    "address_of_temporary": ({"SW401"}, ()),
    "check_without_call": ({"SW401"}, ()),
    "discards_contiguous": ({"SW401"}, ()),
    "reads_beyond": ({"SW402"}, ()),
    "into_flat_output": ({"SW401", "SW402"}, (OUT,)),
    "writes_beyond": ({"SW402"}, (OUT,)),
    "in_place_on_copy": ({"SW405"}, ()),
    "in_place_flat": ({"SW402"}, ()),
    "FlatBackward": ({"SW404"}, ()),
    "ExpandedBackward": ({"SW404"}, ()),
    "refuses": ({"SW407"}, ()),
    "refuses_darkly": ({"SW407"}, ()),
}


def checked(name, *others, **options):
    return check_op(getattr(K, name), *K.sample(), *others, name=name, target=f"kernels:{name}", **options)


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_honour_strides(name):
    result = checked(name)
    assert result.findings == ()
    assert {operand.verdict for operand in result.operands} == {"honours strides"}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_named(name):
    codes, others = WRONG[name]
    result = checked(name, *others)
    assert {finding.code for finding in result.findings} == codes
    assert result.ok is (name == "refuses")
    assert bool(result.snippets) is not result.ok
    for snippet in result.snippets:  # each was run in the child, and says so if it did not fail there
        compile(snippet.code, name, "exec")
        assert not snippet.code.startswith("#")


@pytest.mark.parametrize(
    ("name", "layouts"),
    [("both_flat", ["gaps", "expanded"]), ("empty_like_of_the_original", ["permuted"])],
)
def test_a_message_tells_which_layouts(name, layouts):
    (finding,) = checked(name).findings
    assert all(word in finding.message for word in layouts)
    assert "It is right for `x`" in finding.message


def test_half_a_fix_gets_the_advice_that_fits():
    (finding,) = checked("empty_like_of_the_original").findings
    assert finding.advice is not None
    assert "empty_like" in finding.advice


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("right_fake", set()),
        ("fake_like_input", {"SW403"}),
        ("fake_contiguous", {"SW403"}),
        ("right_by_luck", {"SW401"}),
    ],
)
def test_fake_kernels_are_held_to_what_they_promise(name, codes):
    result = check_op(K.operators()[name], *K.sample())
    assert {finding.code for finding in result.findings} == codes


def test_torchs_own_check_passes_a_kernel_that_is_wrong_on_parts_of_a_split():
    op = K.operators()["right_by_luck"]
    torch.library.opcheck(op, K.sample())
    torch.library.opcheck(op, (torch.arange(12.0).reshape(4, 3).t(),))
    (finding,) = check_op(op, *K.sample()).findings
    assert finding.code == "SW401"
    assert "with gaps" in finding.message


@pytest.mark.parametrize(
    ("name", "others", "contract"),
    [
        ("assumes_contiguous", (), 'x="contiguous"'),
        ("both_flat", (), 'x="dense"'),
        ("FlatBackward", (), 'grads="contiguous"'),
    ],
)
def test_a_contract_makes_it_right(name, others, contract):
    result = checked(name, *others, contract=True)
    assert result.contract == f'@stridewise.expect_layout({contract}, mode="convert")'
    assert result.contract_holds is True
