"""What a loader yields is described, and neither it nor its data set is another afterwards."""

import itertools
import multiprocessing
import random
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils import data
from torch.utils.data import DataLoader, Dataset, IterableDataset

from stridewise.checks.data import collate, inspect_loader
from stridewise.errors import InputError, UsageError
from stridewise.results.checks import LoaderReport

Pair = namedtuple("Pair", ["left", "right"])


def image(side: int = 8) -> Tensor:
    return torch.zeros(side, side, 3).permute(2, 0, 1)


class Random(Dataset[dict[str, Any]]):
    """Draws from every generator there is, counts its reads, and fills a cache."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(0)
        self.python = random.Random(0)
        self.reads = 0
        self.cache: dict[int, float] = {}

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.reads += 1
        self.cache[index] = random.random() + np.random.rand() + self.own.random() + self.python.random()
        return {"image": torch.rand(3, 4, 4) + self.cache[index], "label": index}


class Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return (image() + step for step in itertools.count())


class Raises(Dataset[Tensor]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        if index > 0:
            raise ValueError("the file is broken.")
        return torch.zeros(3)


@dataclass
class Target:
    boxes: Any
    name: str = "a"


def codes(report: LoaderReport) -> list[str]:
    return [finding.code for finding in report.findings]


def paths(report: LoaderReport) -> list[str]:
    return [field.path for field in report.fields]


def as_list(samples: list[Any]) -> list[Any]:
    return samples


# -- what it says ----------------------------------------------------------------------------------------------------


def test_fields_of_any_nesting() -> None:
    sample = {
        "image": torch.zeros(3, 4, 4),
        "pair": Pair(np.zeros(2), [torch.zeros(5), "text"]),
        "target": {"boxes": torch.zeros(2, 4)[:, ::2], "count": 3},
    }
    report = inspect_loader(DataLoader([sample] * 4, batch_size=2))
    assert paths(report) == [
        "image",
        "pair.left",
        "pair.right[0]",
        "target.boxes",
        "target.count",
    ]
    boxes = report.fields[3]
    assert boxes.sample == "gapped, (2, 2) with strides (4, 2)"
    assert boxes.batch == "contiguous, (2, 2, 2) with strides (4, 2, 1)"
    assert (boxes.view_bytes, boxes.storage_bytes, boxes.copies) == (16, 32, 0)
    assert report.fields[4].sample is None
    assert report.ok
    assert report.batches == 2


def test_dataclasses() -> None:
    samples = [Target(torch.zeros(3, 4))] * 2
    report = inspect_loader(DataLoader(samples, batch_size=2, collate_fn=lambda found: {"target": found[0]}))
    assert paths(report) == ["target.boxes"]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_loses_its_order_in_collate(workers: int) -> None:
    report = inspect_loader(DataLoader([(image(200), 1)] * 8, batch_size=4, num_workers=workers))
    (lost,) = report.findings
    assert (lost.code, lost.severity) == ("SW216", "warning")
    assert lost.evidence[0] == "sample: (3, 200, 200) with strides (1, 600, 3)"
    assert lost.evidence[1] == "batch: (4, 3, 200, 200) with strides (120000, 40000, 200, 1)"
    assert lost.evidence[2].startswith("stacking this batch took ")
    assert lost.advice is not None
    assert "stridewise.collate" in lost.advice
    assert report.workers == workers
    cured = inspect_loader(DataLoader([(image(200), 1)] * 8, batch_size=4, num_workers=workers, collate_fn=collate))
    assert cured.ok
    assert not cured.findings
    assert cured.fields[0].batch.startswith("channels_last")


@pytest.mark.parametrize(
    "make",
    [
        lambda samples: data.Subset(samples, [0, 2, 4]),
        lambda samples: data.ConcatDataset([samples, samples]),
        lambda samples: data.StackDataset(samples, samples),
        lambda samples: data.StackDataset(a=samples, b=samples),
    ],
    ids=["Subset", "ConcatDataset", "StackDataset", "StackDataset of names"],
)
def test_the_site_is_the_data_set_that_makes_the_sample(make: Callable[[Any], Dataset[Any]]) -> None:
    class Images(Dataset[Tensor]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Tensor:
            return image()

    report = inspect_loader(DataLoader(make(Images()), batch_size=2))
    assert set(codes(report)) == {"SW216"}
    for finding in report.findings:
        assert finding.site.expression is not None
        assert finding.site.expression.endswith("Images.__getitem__")
        assert finding.site.file is not None
        assert finding.site.file.endswith("test_inspect.py")


def test_a_view_ships_its_storage() -> None:
    class Crops(Dataset[Tensor]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Tensor:
            return torch.zeros(3, 500, 500)[0, 40:41]

    class Clones(Crops):
        def __getitem__(self, index: int) -> Tensor:
            return super().__getitem__(index).clone()

    class Contiguous(Crops):
        def __getitem__(self, index: int) -> Tensor:
            return super().__getitem__(index).contiguous()

    for dataset, expected in ((Crops(), ["SW215"]), (Contiguous(), ["SW215"]), (Clones(), [])):
        report = inspect_loader(DataLoader(dataset, batch_size=2, num_workers=1, collate_fn=as_list))
        assert codes(report) == expected
        assert paths(report) == ["[*]"]
    report = inspect_loader(DataLoader(Crops(), batch_size=None, num_workers=1))
    (found,) = report.findings
    assert found.message == "Field `batch` is a view of 2 kB, and its worker sends all of the storage behind it: 3 MB."
    assert codes(inspect_loader(DataLoader(Crops(), batch_size=None))) == []  # nothing is sent
    assert codes(inspect_loader(DataLoader(Crops(), batch_size=2, num_workers=1))) == []  # stacked


def test_copies_that_collate_makes() -> None:
    def twice(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        images = torch.stack([first.clone() for first, _ in samples])
        return images, torch.stack([second.double() for _, second in samples])

    samples = [(torch.zeros(3, 64, 64), torch.zeros(4096))] * 4
    report = inspect_loader(DataLoader(samples, batch_size=4, collate_fn=twice))
    assert [field.copies for field in report.fields] == [4, 0]
    (found,) = report.findings
    assert (found.code, found.severity) == ("SW226", "note")
    assert found.site.expression is not None
    assert found.site.expression.endswith("twice")
    assert report.ok


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.clone(),
        lambda x: x.mT.contiguous(),
        lambda x: x.to(torch.float32, copy=True),
        lambda x: x.mT.reshape(-1),
        lambda x: x.mT.flatten(),
        lambda x: torch.clone(x),
        lambda x: torch.empty_like(x).set_(x.clone()),
    ],
)
def test_every_way_to_copy_is_counted(copy: Callable[[Tensor], Tensor]) -> None:
    def collate_copies(samples: list[Tensor]) -> Tensor:
        return torch.stack([copy(sample) for sample in samples])

    loader = DataLoader([torch.zeros(3, 128, 64)] * 4, batch_size=4, collate_fn=collate_copies)
    assert codes(inspect_loader(loader)) == ["SW226"]


# -- what is not changed ---------------------------------------------------------------------------------------------


def states(loader: DataLoader[Any]) -> list[Any]:
    dataset, generator = loader.dataset, loader.generator
    assert isinstance(dataset, Random)
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        [np.asarray(part).tolist() for part in np.random.get_state()],
        dataset.own.bit_generator.state,
        dataset.python.getstate(),
        dataset.reads,
        dict(dataset.cache),
        None if generator is None else generator.get_state().tolist(),
    ]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seeded", [False, True])
def test_states_are_as_before(workers: int, seeded: bool) -> None:
    generator = torch.Generator().manual_seed(3) if seeded else None
    loader = DataLoader(Random(), batch_size=2, shuffle=True, num_workers=workers, generator=generator)
    before, attributes = states(loader), dict(vars(loader))
    inspect_loader(loader)
    assert states(loader) == before
    assert vars(loader) == attributes
    assert not multiprocessing.active_children()


def test_the_next_pass_is_the_one_that_would_have_been() -> None:
    passes = []
    for inspected in (False, True):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        loader = DataLoader(Random(), batch_size=2, shuffle=True)
        if inspected:
            inspect_loader(loader)
        passes.append([batch["image"] for batch in loader])
    assert all(torch.equal(a, b) for a, b in zip(*passes, strict=True))


def test_a_pass_that_runs_with_persistent_workers_goes_on() -> None:
    loader = DataLoader(list(range(8)), batch_size=1, num_workers=1, persistent_workers=True)
    running = iter(loader)
    seen = [int(next(running)), int(next(running))]
    workers = multiprocessing.active_children()
    inspect_loader(loader)
    assert multiprocessing.active_children() == workers
    seen += [int(batch) for batch in running]
    assert seen == list(range(8))
    running._shutdown_workers()  # type: ignore[attr-defined]


def test_warnings_of_the_program_are_not_used_up() -> None:
    class Warns(Raises):
        def __getitem__(self, index: int) -> Tensor:
            warnings.warn("once", UserWarning, stacklevel=1)
            return torch.zeros(3)

    loader = DataLoader(Warns(), batch_size=2)
    inspect_loader(loader)
    with pytest.warns(UserWarning, match="once"):
        next(iter(loader))


# -- loaders of all kinds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_without_an_end(workers: int) -> None:
    report = inspect_loader(DataLoader(Stream(), batch_size=4, num_workers=workers), batches=3)
    assert report.batches == 3
    assert codes(report) == ["SW216"]


def test_an_iterator_as_data_set_is_not_used_up() -> None:
    class Once(IterableDataset[int]):
        def __init__(self) -> None:
            self.source = iter(range(4))

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            return next(self.source)

    dataset = Once()
    report = inspect_loader(DataLoader(dataset, batch_size=2))
    assert report.batches == 0
    assert any("would use it up" in note for note in report.notes)
    assert list(dataset) == [0, 1, 2, 3]


def test_without_automatic_batches() -> None:
    report = inspect_loader(DataLoader([{"x": torch.zeros(4, 3).t()}] * 3, batch_size=None))
    assert report.fields[0].sample == report.fields[0].batch == "permuted, (3, 4) with strides (1, 3)"


def test_data_sets_that_read_many_at_once() -> None:
    class Table:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            raise NotImplementedError

        def __getitems__(self, indices: list[int]) -> list[dict[str, Tensor]]:
            return [{"ids": torch.full((5,), index)} for index in indices]

    report = inspect_loader(DataLoader(Table(), batch_size=2))  # type: ignore[arg-type]
    assert report.fields[0].sample == "contiguous, (5,) with strides (1,)"
    assert report.ok


def test_an_iterable_of_batches() -> None:
    report = inspect_loader([(torch.zeros(2, 3), np.zeros(2))] * 3)
    assert paths(report) == ["[0]", "[1]"]
    assert report.batches == 2
    assert report.notes == ("Samples were not read: it is no DataLoader.",)


def test_empty_ones() -> None:
    for loader in (DataLoader([], batch_size=2), DataLoader([1], batch_size=2, drop_last=True), []):
        report = inspect_loader(loader)
        assert report.batches == 0
        assert "The loader gave no batch." in report.notes
        assert report.ok


def test_layouts_that_change_between_batches() -> None:
    report = inspect_loader([torch.zeros(3, 4), torch.zeros(4, 3).t()])
    assert any("contiguous, (3, 4)" in note and "permuted, (3, 4)" in note for note in report.notes)


# -- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_that_raises(workers: int) -> None:
    with pytest.raises(InputError) as caught:
        inspect_loader(DataLoader(Raises(), batch_size=2, num_workers=workers))
    assert str(caught.value).startswith("the loader raised ValueError: the file is broken at ")
    assert "test_inspect.py" in str(caught.value)
    assert not multiprocessing.active_children()


def test_a_collate_that_raises() -> None:
    with pytest.raises(InputError, match="stack expects each tensor to be equal size"):
        inspect_loader(DataLoader([torch.zeros(3), torch.zeros(4)], batch_size=2))


def test_samples_that_only_a_worker_can_read() -> None:
    class InWorkers(Raises):
        def __getitem__(self, index: int) -> Tensor:
            assert data.get_worker_info() is not None, "no worker"
            return torch.zeros(3)

    report = inspect_loader(DataLoader(InWorkers(), batch_size=2, num_workers=1))
    assert report.fields[0].sample is None
    assert report.notes == ("Reading samples outside of a worker raised AssertionError: no worker.",)


def test_no_loader() -> None:
    with pytest.raises(UsageError, match="a loader of type int"):
        inspect_loader(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="an iterator"):
        inspect_loader(iter([torch.zeros(3)]))
    with pytest.raises(UsageError, match="batches=0"):
        inspect_loader([torch.zeros(3)], batches=0)
