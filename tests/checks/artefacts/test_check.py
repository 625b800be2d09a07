"""What an exported program does with layouts that it was not made for."""

import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

import stridewise
from stridewise.checks.artefacts.check import check_export
from stridewise.errors import UsageError

from . import models
from .models import IS_OLD, exported

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # of torch.export, in torch itself
    pytest.mark.filterwarnings("ignore:`torch.jit.*deprecated"),
]


def codes(result):
    return [(finding.code, finding.severity) for finding in result.findings]


def counts(row):
    return row.right, row.refused, row.wrong, row.failed


def matrix():
    return torch.randn(4, 6)


# --------------------------------------------------------------------------------------------------------- healthy


def bert():
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    ids = torch.randint(0, 50, (2, 7))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return transformers.BertModel(config).eval(), (), given


def vit():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4
    )
    return transformers.ViTModel(config).eval(), (torch.randn(2, 3, 8, 8),), {}


def convnet():
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
    net = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(8, 4))
    return net, (torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last),), {}


@pytest.mark.parametrize("decomposed", [False, True], ids=["as exported", "decomposed"])
@pytest.mark.parametrize("make", [bert, vit, convnet])
def test_healthy_models_have_no_finding(make, decomposed):
    if make in (bert, vit) and IS_OLD:
        pytest.skip("torch 2.6 can't export models of transformers 5")
    model, args, kwargs = make()
    program = torch.export.export(model, args, kwargs)
    program = program.run_decompositions() if decomposed else program
    result = check_export(program, model=model)
    assert codes(result) == []
    assert result.guard is None
    assert all(row.right == row.tried > 5 for row in result.inputs)
    assert result.notes == ()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_traced_convolution_takes_every_layout(layout, tmp_path):
    model = torch.nn.Conv2d(3, 4, 3).eval()
    image = torch.randn(2, 3, 5, 5).contiguous(memory_format=layout)
    torch.jit.trace(model, (image,)).save(tmp_path / "conv.pt")
    result = check_export(tmp_path / "conv.pt", model=model)  # the file keeps what it was traced with
    (row,) = result.inputs
    assert codes(result) == []
    assert (row.name, row.strides, row.checks, row.verdict) == ("input", image.stride(), "no", "honours strides")
    assert result.kind == "TorchScript module"


def test_a_traced_contiguous_stays_as_it_is():
    """Unlike torch.export, torch.jit.trace keeps the call, and it copies where it must."""
    result = check_export(torch.jit.trace(models.Flat(), (matrix(),)), matrix(), model=models.Flat())
    assert codes(result) == []


# ---------------------------------------------------------------------------------------------------- SW207, SW208


def test_wrong_values_without_an_error_are_an_error():
    result = check_export(exported(models.Strides(), matrix()))
    assert codes(result) == [("SW207", "error")]
    (finding,), (row,), (snippet,) = result.findings, result.inputs, result.snippets
    assert "`x` of (4, 6) with strides (6, 1)" in finding.message
    assert "`x.t()`, (4, 6) with strides (1, 4)" in finding.evidence[0]
    assert "`x.contiguous()`" in finding.advice
    assert row.wrong == finding.count > 5
    assert counts(row) == (row.tried - row.wrong, 0, row.wrong, 0)
    program = exported(models.Strides(), matrix()).module()
    with pytest.raises(AssertionError, match="not close"):
        exec(snippet.code, {"program": program})
    assert result.guard_holds


def test_a_question_of_the_model_that_was_fixed_is_told_with_the_model():
    result = check_export(exported(models.Strides(), matrix()), model=models.Strides())
    assert codes(result) == [("SW208", "error")]
    assert "stride" in result.findings[0].message
    assert result.findings[0].site.file.endswith("models.py")


@pytest.mark.parametrize("how", ["export", "trace"])
def test_a_branch_that_was_fixed_is_an_error_where_values_differ(how):
    x = matrix()
    program = exported(models.Branch(), x) if how == "export" else torch.jit.trace(models.Branch(), (x,))
    result = check_export(program, x, model=models.Branch())
    assert codes(result) == [("SW208", "error")]
    (finding,) = result.findings
    assert finding.site.text.strip() == "if x.is_contiguous():"
    assert "True in the layout it was made for, and False for `x.t()`" in finding.evidence[0]
    (row,) = result.inputs
    assert row.wrong == finding.count == row.tried - 1  # one element into its storage it is contiguous
    program = program.module() if how == "export" else program
    with pytest.raises(AssertionError, match="not close"):
        exec(result.snippets[0].code, {"program": program, "model": models.Branch()})
    transposed = matrix().t().contiguous().t()
    assert torch.equal(torch.compile(models.Branch(), backend="eager")(transposed), 3 * transposed)


def test_without_the_model_a_fixed_branch_can_not_be_seen():
    assert codes(check_export(exported(models.Branch(), matrix()))) == []


def test_a_scripted_branch_is_right():
    result = check_export(torch.jit.script(models.Branch()), matrix(), model=models.Branch())
    assert codes(result) == []


def test_a_fixed_branch_that_raises_is_a_warning():
    class Views(torch.nn.Module):
        def forward(self, x):
            if x.is_contiguous():
                return x.view(-1)
            return x.clone(memory_format=torch.contiguous_format).view(-1)

    result = check_export(exported(Views(), matrix()), model=Views())
    assert codes(result) == [("SW208", "warning")]
    assert "raises where the model is right" in result.findings[0].message


def test_the_advice_on_branches_cures_them():
    class Cured(models.Branch):
        def forward(self, x):
            return super().forward(x.clone(memory_format=torch.contiguous_format))

    assert codes(check_export(exported(Cured(), matrix()), model=Cured())) == []


def test_another_model_is_not_held_against_it():
    result = check_export(exported(models.Rows(), matrix()), model=lambda x: x.sum(0)[:4])
    assert codes(result) == []
    assert "differs from the program even in the layouts it was made for" in result.notes[0]
    result = check_export(exported(models.Rows(), matrix()), model=lambda x: x.sum(7))
    assert "raises even in the layouts" in result.notes[0]
    result = check_export(exported(models.Rows(), matrix()), model=lambda x: (x, x))
    assert "others in number" in result.notes[0]


def test_a_model_that_goes_by_layout_without_asking_is_told_apart():
    class Flat(torch.nn.Module):
        def forward(self, x):
            return x + x.untyped_storage().nbytes()

    result = check_export(torch.jit.trace(models.Rows(), (matrix(),)), matrix(), model=models.Rows())
    assert codes(result) == []
    program = torch.jit.trace(Flat(), (matrix(),))
    result = check_export(program, matrix(), model=Flat())
    assert all(code != "SW208" for code, _ in codes(result))


# ----------------------------------------------------------------------------------------------------------- SW506


@pytest.mark.parametrize("with_model", [False, True])
@pytest.mark.parametrize(
    ("model", "line"), [(models.Flat, "return 2 * x.contiguous().view(-1)"), (models.Earlier, "x = x.contiguous()")]
)
def test_a_copy_that_is_not_in_the_program_is_a_warning(model, line, with_model):
    result = check_export(exported(model(), matrix()), model=model() if with_model else None)
    assert codes(result) == [("SW506", "warning")]
    (finding,), (row,) = result.findings, result.inputs
    assert finding.site.text.strip() == line
    assert "node `view`, aten.view.default" in finding.message
    assert "view size is not compatible" in finding.evidence[0]
    assert row.refused == finding.count > 5
    assert row.wrong == row.failed == 0
    assert result.guard_holds
    with pytest.raises(RuntimeError, match="view size"):
        exec(result.snippets[0].code, {"program": exported(model(), matrix()).module()})


def test_a_copy_that_vanished_is_told_also_beside_a_question():
    class Asks(torch.nn.Module):
        def forward(self, x):
            assert x.stride(0) >= 0
            return x.contiguous().view(-1)

    assert codes(check_export(exported(Asks(), matrix()), model=Asks())) == [("SW506", "warning")]


def test_flatten_becomes_a_view_once_it_is_decomposed():
    program = exported(torch.nn.Flatten(), torch.randn(2, 3, 4))
    assert codes(check_export(program)) == []
    assert codes(check_export(program.run_decompositions())) == [("SW506", "warning")]


def test_a_view_of_the_source_is_only_refused():
    """In eager mode it raises too."""

    class View(torch.nn.Module):
        def forward(self, x):
            return x.view(-1)

    result = check_export(exported(View(), matrix()))
    assert codes(result) == []
    assert result.inputs[0].refused > 5
    assert "guarded(program, MADE_FOR" in result.guard


def test_the_advice_on_copies_cures_them():
    class Cured(torch.nn.Module):
        def forward(self, x):
            return x.clone(memory_format=torch.contiguous_format).view(-1)

    program = exported(Cured(), matrix())
    assert codes(check_export(program, model=Cured())) == []
    assert codes(check_export(program.run_decompositions(), model=Cured())) == []
    transposed = torch.randn(6, 4).t()
    as_fed = check_export(exported(models.Flat(), transposed))
    (row,) = as_fed.inputs
    assert row.strides == (1, 4)
    assert row.right == row.tried


# ------------------------------------------------------------------------------------------------- kinds of inputs


def test_keywords_dicts_numbers_and_buffers():
    model = models.Named()
    image = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    program = exported(model, image, 3, extra={"b": torch.randn(6), "a": torch.randn(6)})
    before = {name: buffer.clone() for name, buffer in program.state_dict.items()}
    result = check_export(program, model=model)
    assert [row.name for row in result.inputs] == ["image", "extra.b", "extra.a"]
    assert result.inputs[0].strides == image.stride()
    assert codes(result) == []
    assert all(torch.equal(program.state_dict[name], buffer) for name, buffer in before.items())


def test_keywords_may_come_in_another_order():
    class Minus(torch.nn.Module):
        def forward(self, *, a, b):
            return a - b

    program = exported(Minus(), a=torch.ones(3, 2), b=torch.ones(2, 3).t())
    result = check_export(program, kwargs={"b": torch.ones(3, 2), "a": torch.ones(3, 2)})
    assert {row.name: row.strides for row in result.inputs} == {"a": (2, 1), "b": (1, 3)}


def test_sizes_that_may_change_have_strides_in_the_same_order():
    sizes = {"x": {0: torch.export.Dim("rows", min=2, max=64)}}
    program = torch.export.export(models.Rows(), (torch.randn(6, 4).t(),), dynamic_shapes=sizes)
    result = check_export(program, torch.randn(9, 6))
    assert (result.inputs[0].sizes, result.inputs[0].strides) == ((9, 6), (1, 9))


def test_arguments_are_made_where_none_are_kept(tmp_path):
    class Table(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = torch.nn.Embedding(5, 4)

        def forward(self, at, scale, flags):
            return self.rows(at) * scale + flags[:, :, None]

    given = torch.tensor([[1, 4, 2], [0, 0, 3]]), torch.randn(4), torch.ones(2, 3, dtype=torch.bool)
    program = exported(Table(), *given)
    program._example_inputs = None
    result = check_export(program)
    assert [(row.sizes, row.dtype) for row in result.inputs] == [((2, 3), "int64"), ((4,), "float32"), ((2, 3), "bool")]
    assert codes(result) == []


def test_example_inputs_that_share_elements():
    result = check_export(exported(models.Rows(), torch.randn(4, 1).expand(4, 6)))
    assert result.inputs[0].strides == (1, 0)
    assert codes(result) == []


def test_an_input_that_is_written():
    program = exported(models.Adds(), matrix())
    result = check_export(program)
    assert result.inputs[0].refused > 3
    x = torch.randn(6, 4).t()
    expected = (x + 1).contiguous()
    assert torch.equal(stridewise.guard_artefact(program, result)(x), expected.view(-1))
    assert torch.equal(x, expected)


def test_a_function_that_was_traced():
    result = check_export(torch.jit.trace(lambda matrix: 2 * matrix, (matrix(),)), matrix())
    assert [row.name for row in result.inputs] == ["matrix"]
    assert codes(result) == []


def test_random_results_are_not_compared():
    result = check_export(exported(torch.nn.Dropout(), torch.randn(8, 9)))
    assert codes(result) == []
    assert [row.verdict for row in result.inputs] == ["not comparable"]
    assert "change with the seed" in "".join(result.notes)


def test_what_is_given_stays_as_it_was():
    x = torch.randn(6, 4).t()
    values, version = x.clone(), x._version
    state = torch.get_rng_state()
    model = torch.nn.BatchNorm1d(6)
    program = exported(model, x)
    check_export(program, x, model=model)
    assert torch.equal(x, values)
    assert (x._version, x.stride()) == (version, (1, 4))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.num_batches_tracked == 0
    assert model.training


# --------------------------------------------------------------------------------------------- mistakes, and its end


def test_what_was_tried_is_told_after_an_interrupt():
    def progress(done, total):
        if done == 4:
            raise KeyboardInterrupt

    result = check_export(exported(models.Strides(), matrix()), progress=progress)
    assert result.interrupted
    assert len(result.cases) == 4
    assert result.left > 5
    assert codes(result) == [("SW207", "error")]
    assert "it was interrupted" in result.notes[0]


def test_time_that_is_over_is_told():
    result = check_export(exported(models.Rows(), matrix()), time_limit=1e-6)
    assert result.left > 5
    assert "its time was over" in result.notes[0]


def test_a_crash_is_a_finding():
    with torch.library._scoped_library("sw_artefact_test", "FRAGMENT") as library:
        library.define("ends(Tensor x) -> Tensor")

        def ends(x):
            if not x.is_contiguous():
                os.abort()
            return x.clone()

        library.impl("ends", ends, "CPU")
        library.impl("ends", torch.empty_like, "Meta")

        class Ends(torch.nn.Module):
            def forward(self, x):
                return torch.ops.sw_artefact_test.ends(x)

        result = check_export(exported(Ends(), torch.randn(3, 2)))
    assert codes(result) == [("SW207", "error")]
    assert "crashes or hangs" in result.findings[0].message
    assert result.inputs[0].failed > 3


def test_arguments_that_it_does_not_take():
    with pytest.raises(UsageError, match="fails for the layouts that it was made for"):
        check_export(exported(models.Rows(), matrix()), torch.randn(5, 5))


def test_what_is_no_exported_program():
    with pytest.raises(UsageError, match="Linear is no exported program"):
        check_export(torch.nn.Linear(2, 2), torch.randn(2, 2))
    with pytest.raises(UsageError, match="Give the ExportedProgram itself"):
        check_export(exported(models.Rows(), matrix()).module(), matrix())
    with pytest.raises(UsageError, match="does not tell its arguments"):
        check_export(torch.jit.script(models.Branch()))
    with pytest.raises(UsageError, match="no operand to lay out"):
        check_export(exported(models.Rows(), matrix()), 3)
    with pytest.raises(UsageError, match="is on meta"):
        check_export(exported(models.Rows(), matrix()), torch.empty(4, 6, device="meta"))
    with pytest.raises(UsageError, match="The model is int"):
        check_export(exported(models.Rows(), matrix()), model=3)
    with pytest.raises(UsageError, match="kwargs are list"):
        check_export(exported(models.Rows(), matrix()), kwargs=[])


def _truncated(path):
    torch.export.save(exported(models.Rows(), matrix()), path)
    path.write_bytes(path.read_bytes()[:500])


def _garbled(path):
    torch.export.save(exported(models.Rows(), matrix()), path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"graph_module"', b"#graph_module#", 1))


def _pickle(path):
    path.write_bytes(pickle.dumps(models.Rows))


def _zip(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("read/me", "nothing")


FILES = {
    "cut off or damaged": _truncated,
    "can't be loaded|damaged": _garbled,
    "is empty": lambda path: path.write_bytes(b""),
    "is a pickle": _pickle,
    "state_dict": lambda path: torch.save(torch.nn.Linear(2, 2).state_dict(), path),
    "is a folder": lambda path: path.mkdir(),
    "is no zip archive": lambda path: path.write_text("print('a model')"),
    "but no exported program": _zip,
    "There is no file": lambda path: None,
}


@pytest.mark.parametrize("says", FILES)
def test_files_that_are_no_artefact(says, tmp_path):
    path = tmp_path / "model.pt2"
    FILES[says](path)
    with pytest.raises(UsageError, match=says) as caught:
        check_export(path)
    assert "\n" not in caught.value.given


def test_a_file_runs_in_a_child_process(tmp_path):
    """Nothing that a file does on its way is done here."""
    path = tmp_path / "rows.pt2"
    torch.export.save(exported(models.Rows(), matrix()), path)
    result = check_export(str(path))
    assert "in a child process" in result.contained
    assert result.name == "rows.pt2"
    assert result.versions.get("torch", torch.__version__) == torch.__version__  # torch 2.6 does not write it down
    assert Path(path).exists()


def test_the_public_function_selects_findings():
    result = stridewise.check_export(exported(models.Strides(), matrix()), ignore=["SW207"])
    assert result.findings == ()
    assert result.inputs[0].wrong > 5
    assert "silently wrong" in str(result)
