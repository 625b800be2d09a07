"""Writes the pages on the article's claims from results of the lab: `python docs/lab.py`. A test holds them current.

`docs/results/*.json` are runs of `stridewise lab --json`. The claims pages show the run named REFERENCE; the machines
page lays all of them side by side. What none of them has is on no page. `docs/zh/claims.tsv` has the sentences of the
claims in Chinese, beside the English ones that they are of.
"""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

import stridewise
from stridewise.report.lab_words import VERDICTS, copied, counted, counted_as, headline, machine, mark, ran, ratio
from stridewise.results import numbers
from stridewise.results.lab import ClaimResult, ExperimentResult, Lab, LabComparison

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
REFERENCE = "xeon-1-thread"
CLAIMS, MACHINES = DOCS / "explanation" / "claims.md", DOCS / "explanation" / "machines.md"
CHINESE, TRANSLATED = DOCS / "zh" / "claims.md", DOCS / "zh" / "claims.tsv"
BY_HAND = DOCS / "checked.tsv"
"""Verdicts that were reached without the lab."""
BEGIN = "<!-- from docs/results: python docs/lab.py -->"
END = "<!-- end of the results -->"

SECTIONS = {
    "1": "What the article promises",
    "2.1": "What contiguous means",
    "2.2": "How tensors become strided",
    "2.3": "Why torch doesn't copy by itself",
    "3.1": "Convolutions and cuDNN",
    "3.2": "Matrix products and cuBLAS",
    "3.3": "Autocast",
    "3.4": "torch.compile and fusion",
    "4.1": "Finding strided tensors",
    "4.2": "When to copy",
    "4.3": "Rules to keep",
    "5.1": "DDP and collectives",
    "5.2": "The compiler's logs",
    "5.3": "Kernels of one's own",
    "6.1": "view and reshape",
    "6.2": "Pinned memory and the GPU",
    "6.3": "Copies that the compiler makes",
    "6.4": "Buffers",
    "6.5": "Tracing",
    "7": "Anecdotes and the notebook",
}
"""The article's sections, in words of our own."""

SECTIONS_ZH = {
    "1": "文章许诺了什么",
    "2.1": "“连续”是什么意思",
    "2.2": "张量怎样变得不连续",
    "2.3": "torch 为什么不自动复制",
    "3.1": "卷积与 cuDNN",
    "3.2": "矩阵乘法与 cuBLAS",
    "3.3": "自动混合精度",
    "3.4": "torch.compile 与算子融合",
    "4.1": "找出不连续的张量",
    "4.2": "什么时候该复制",
    "4.3": "应当遵守的规则",
    "5.1": "DDP 与集合通信",
    "5.2": "编译器的日志",
    "5.3": "自己写的算子",
    "6.1": "view 与 reshape",
    "6.2": "锁页内存与 GPU",
    "6.3": "编译器自己加的复制",
    "6.4": "缓冲区",
    "6.5": "jit.trace",
    "7": "实例与笔记本",
}
VERDICTS_ZH = {
    "holds": "成立",
    "holds in part": "部分成立",
    "does not hold": "不成立",
    "cannot be tested here": "此处无法检验",
}


def pages() -> dict[Path, str]:
    """The pages with the results in them."""
    files = sorted(RESULTS.glob("*.json"))
    reference = stridewise.read_lab(RESULTS / f"{REFERENCE}.json")
    made_of = {
        CLAIMS: claims(reference),
        CHINESE: chinese(reference),
        MACHINES: machines(stridewise.compare_labs(files)),
    }
    found = {}
    for path, lines in made_of.items():
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        made = "\n".join(lines)
        found[path] = f"{before}{BEGIN}\n\n{made}\n{END}{rest.partition(END)[2]}"
    return found


def claims(lab: Lab) -> Iterator[str]:
    """Each claim with its verdict, by section, then what was measured."""
    every = lab.claims()
    yield f"{headline(lab)} Measured on {machine(lab.machine)} ({ran(lab)})."
    yield ""
    yield from _not_tested(every)
    experiments: dict[str, list[str]] = {}
    for experiment in lab.experiments:
        for claim in experiment.claims:
            experiments.setdefault(claim.number, []).append(experiment.name)
    for section, title in SECTIONS.items():
        told = [claim for claim in every if claim.section == section]
        counts = counted(claim.verdict for claim in told)
        yield f"## {section} {title}"
        yield ""
        yield f"{'; '.join(f'{verdict}: {count}' for verdict, count in counts.items() if count)}.".capitalize()
        yield ""
        yield "| | what the article says | measured | what is right | experiment |"
        yield "|---|---|---|---|---|"
        for claim in told:
            yield _row(claim, experiments[claim.number])
        yield ""
    yield "## What was measured"
    yield ""
    for experiment in lab.experiments:
        yield from _measured(experiment)


def _not_tested(every: Iterable[ClaimResult]) -> Iterator[str]:
    """What a check by hand says of claims that the lab could not test."""
    rows = csv.DictReader(BY_HAND.read_text(encoding="utf-8").splitlines(), delimiter="\t")
    by_hand = {row["claim"]: row["verdict"] for row in rows}
    left = [claim.number for claim in every if claim.verdict == "cannot be tested here"]
    said: dict[str, list[str]] = {}
    for number in left:
        verdict = by_hand[number]
        said.setdefault("left open" if verdict == "cannot be tested here" else verdict, []).append(number)
    if said:
        parts = (f"{verdict}: {', '.join(numbers)}" for verdict, numbers in said.items())
        yield f"What could not be tested here, judged without the lab: {'; '.join(parts)}."
        yield ""


def chinese(lab: Lab) -> Iterator[str]:
    """Each claim with its verdict, in Chinese. Raises KeyError for one that nobody has translated as it is now."""
    told = {(row["claim"], row["text"], row["correct"]): row for row in translated()}
    counts = counted(claim.verdict for claim in lab.claims())
    yield f"测量环境：{machine(lab.machine)}（{lab.date}）。"
    yield ""
    yield f"{'，'.join(f'{VERDICTS_ZH[verdict]} {count} 条' for verdict, count in counts.items())}。"
    yield ""
    for section, title in SECTIONS_ZH.items():
        yield f"## {section} {title}"
        yield ""
        yield "| | 文章的说法 | 实测 | 正确的说法 |"
        yield "|---|---|---|---|"
        for claim in lab.claims():
            if claim.section == section:
                row = told[claim.number, claim.text, claim.correct]
                verdict = VERDICTS_ZH[claim.verdict]
                yield f"| {claim.number} | {_cell(row['说法'])} | **{verdict}** | {_cell(row['正确的说法'])} |"
        yield ""


def translated() -> list[dict[str, str]]:
    """The rows of the translation: claim, text, correct, 说法, 正确的说法."""
    return list(csv.DictReader(TRANSLATED.read_text(encoding="utf-8").splitlines(), delimiter="\t"))


def _row(claim: ClaimResult, experiments: list[str]) -> str:
    links = ", ".join(f"[{name}](#{name})" for name in experiments)
    verdict = f"**{claim.verdict}**"
    return f"| {claim.number} | {_cell(claim.text)} | {verdict} | {_cell(claim.correct)} | {links} |"


def _measured(experiment: ExperimentResult) -> Iterator[str]:
    yield f"### {_cell(experiment.title)} {{ #{experiment.name} }}"
    yield ""
    yield f"{experiment.method} Run it: `stridewise lab {experiment.name}`."
    yield ""
    for comparison in experiment.comparisons:
        yield f"| {_cell(comparison.title)} | time | over the first | copies of a call |"
        yield "|---|---:|---:|---|"
        for arm in comparison.arms:
            over = "" if arm.ratio is None else ratio(arm.ratio)
            yield f"| {_code(arm.name)} | {numbers.duration(arm.median_ns)} | {over} | {copied(arm)} |"
        yield ""
    for counts in experiment.counts:
        yield f"| {_cell(counts.title)} | counted |"
        yield "|---|---:|"
        for label, value in counts.values.items():
            yield f"| {_cell(label)} | {counted_as(value, counts.unit)} |"
        yield ""
    yield "| claim | what it predicts | came true | seen |"
    yield "|---|---|---|---|"
    for claim in experiment.claims:
        for made in claim.predictions:
            yield f"| {claim.number} | {_cell(made.text)} | {mark(made)} | {_cell(made.measured)} |"
    yield ""


def machines(comparison: LabComparison) -> Iterator[str]:
    """Machines, verdicts that differ, and ratios."""
    names = [side.name for side in comparison.sides]
    yield "| run | machine | device | how | date |"
    yield "|---|---|---|---|---|"
    for side in comparison.sides:
        how = "quick" if side.quick else "full"
        yield f"| {side.name} | {_cell(machine(side.machine))} | {side.device} | {how} | {side.date} |"
    yield ""
    if all(side.device == "cpu" for side in comparison.sides):
        yield "No run on a GPU is among them: the lab has not been run on one yet."
        yield ""
    yield "## Verdicts"
    yield ""
    yield f"| verdict | {' | '.join(names)} |"
    yield f"|---|{'---:|' * len(names)}"
    columns = [counted(row.verdicts[at] for row in comparison.claims) for at in range(len(names))]
    for verdict in VERDICTS:
        yield f"| {verdict} | {' | '.join(str(counts[verdict]) for counts in columns)} |"
    yield ""
    if len(names) > 1:
        yield from _disputed(comparison, names)
    yield "## Ratios of time"
    yield ""
    yield f"| experiment | arm | over | {' | '.join(names)} |"
    yield f"|---|---|---|{'---:|' * len(names)}"
    for row in comparison.arms:
        cells = ("" if each is None else ratio(each) for each in row.ratios)
        link = f"[{row.experiment}](claims.md#{row.experiment})"
        yield f"| {link} | {_code(row.arm)} | {_code(row.over)} | {' | '.join(cells)} |"
    yield ""


def _disputed(comparison: LabComparison, names: Iterable[str]) -> Iterator[str]:
    if not comparison.disputed:
        yield "The runs agree on every claim that they tested."
        yield ""
        return
    yield f"| claim | what is claimed | {' | '.join(names)} |"
    yield f"|---|---|{'---|' * len(comparison.sides)}"
    for row in comparison.disputed:
        yield f"| {row.number} | {_cell(row.text)} | {' | '.join(each or '' for each in row.verdicts)} |"
    yield ""


def _cell(text: str) -> str:
    """Text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    return _cell(text) if "`" in text else f"`{_cell(text)}`"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
