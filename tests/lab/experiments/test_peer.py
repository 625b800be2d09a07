"""Claims about other libraries: what is found where they can be imported, and where they can't."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from stridewise.lab import session
from stridewise.lab.bench import Bench
from stridewise.lab.experiments import image_transforms, lora_merge, narrow_and_crop
from stridewise.lab.peer import imported
from stridewise.results.lab import ExperimentResult


def verdicts(experiment: object, bench: Bench) -> dict[str, str]:
    found: ExperimentResult = session.run_one(experiment, bench)
    assert found.failed is None
    return {claim.number: claim.verdict for claim in found.claims}


@pytest.fixture
def put(monkeypatch):
    """Makes a module importable, with these names in it; None: not importable."""

    def install(name: str, names: dict[str, object] | None) -> None:
        for part in {name.partition(".")[0], name}:
            module = None if names is None else ModuleType(part)
            monkeypatch.setitem(sys.modules, part, module)
        if names is not None:
            vars(sys.modules[name]).update(names)

    return install


def test_modules_come_in_order():
    assert imported("json", "os.path") == [sys.modules["json"], sys.modules["os.path"]]


def test_what_is_not_installed_is_said(put):
    put("peft", None)
    assert imported("json", "peft") == "it takes peft, which is not installed here"


def test_whatever_an_import_raises_is_a_reason(tmp_path, monkeypatch):
    (tmp_path / "of_another_torch.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    said = "it takes of_another_torch, which can't be imported beside this torch (RuntimeError)"
    assert imported("of_another_torch") == said


class Crop:
    """As torchvision's, by slices."""

    def __init__(self, size):
        self.height, self.width = size

    def __call__(self, image):
        return image[..., : self.height, : self.width]


class Narrow(Crop):
    """As the article says."""

    def __call__(self, image):
        return image.narrow(-2, 0, self.height)


def pixels(image):
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(*image.size[::-1], 3).permute(2, 0, 1)


TRANSFORMS = {
    "CenterCrop": Crop,
    "ToTensor": lambda: lambda image: pixels(image).contiguous(),
    "PILToTensor": lambda: pixels,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"C82": "does not hold", "C83": "does not hold"}),
        ({"ToTensor": lambda: pixels}, {"C82": "holds", "C83": "holds in part"}),
    ],
    ids=["contiguous", "strided"],
)
def test_what_to_tensor_gives_is_looked_at(bench, put, change, expected):
    put("torchvision.transforms", TRANSFORMS | change)
    assert verdicts(image_transforms.EXPERIMENT, bench) == expected


def test_without_torchvision_pillow_alone_is_asked(bench, put):
    put("torchvision.transforms", None)
    assert verdicts(image_transforms.EXPERIMENT, bench) == {"C82": "cannot be tested here", "C83": "does not hold"}


def test_without_pillow_nothing_is_said_of_images(bench, put):
    put("PIL.Image", None)
    assert set(verdicts(image_transforms.EXPERIMENT, bench).values()) == {"cannot be tested here"}


@pytest.mark.parametrize(("crop", "expected"), [(Crop, [False, False]), (Narrow, [False, True]), (None, [False, None])])
def test_center_crop_is_recorded(bench, put, crop, expected):
    put("torchvision.transforms", crop and {"CenterCrop": crop})
    narrow_and_crop.run(bench, batch=2, channels=4, length=16)
    told = {number: [made.came_true for name, made in bench.predictions if name == number] for number in ("C27", "C28")}
    assert told == {"C27": [False, None if crop is None else False], "C28": expected}


class Adapted(nn.Module):
    """As peft's, but that adapters may stay."""

    def __init__(self, net, leave):
        super().__init__()
        self.net, self.leave = net, leave
        self.lora_A = nn.Linear(4, 2)
        self.lora_A.weight = nn.Parameter(torch.randn(4, 2).t())

    def merge_and_unload(self):
        if not self.leave:
            return self.net
        weight = self.net[0].weight
        weight.data = weight.data.t().contiguous().t()
        return self


@pytest.mark.parametrize(("leave", "verdict"), [(False, "does not hold"), (True, "holds")])
def test_what_a_merge_leaves_is_looked_at(bench, put, leave, verdict):
    def get_peft_model(net, config):
        assert config.target_modules == ["0", "1"]
        return Adapted(net, leave)

    put("peft", {"LoraConfig": lambda **given: SimpleNamespace(**given), "get_peft_model": get_peft_model})
    put("transformers.pytorch_utils", {"Conv1D": nn.Linear})
    found = verdicts(lora_merge.EXPERIMENT, bench)
    assert found == {"C65": verdict, "C66": verdict, "C67": "holds" if leave else "holds in part"}


def test_a_merge_that_leaves_no_weight_and_no_adapter_to_look_at_says_nothing_of_them(bench, put):
    adapted = SimpleNamespace(named_parameters=list, merge_and_unload=nn.ReLU)
    put("peft", {"LoraConfig": SimpleNamespace, "get_peft_model": lambda net, config: adapted})
    put("transformers.pytorch_utils", {"Conv1D": nn.Linear})
    found = verdicts(lora_merge.EXPERIMENT, bench)
    assert found == {"C65": "does not hold", "C66": "cannot be tested here", "C67": "does not hold"}


def test_a_merge_that_is_refused_is_something_seen(bench, put):
    def refuse():
        raise RuntimeError("no merge of strided weights")

    def get_peft_model(net, config):
        adapted = Adapted(net, leave=True)
        adapted.merge_and_unload = refuse
        return adapted

    put("peft", {"LoraConfig": SimpleNamespace, "get_peft_model": get_peft_model})
    put("transformers.pytorch_utils", {"Conv1D": nn.Linear})
    found = verdicts(lora_merge.EXPERIMENT, bench)
    assert found == {"C65": "does not hold", "C66": "does not hold", "C67": "holds in part"}


def test_without_peft_nothing_is_said_of_it(bench, put):
    put("peft", None)
    assert set(verdicts(lora_merge.EXPERIMENT, bench).values()) == {"cannot be tested here"}
