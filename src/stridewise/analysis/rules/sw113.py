"""SW113 strided-transfer: a tensor with gaps goes between host and device through a temporary.

What it means
    A copy between host and device is one transfer only if both sides lie in memory alike. If they do not, torch packs
    the tensor into a temporary first, transfers that, and may unpack it on the other side. The temporary on the host is
    not pinned: the transfer is then not asynchronous, `non_blocking=True` or not. Pinning a tensor that has gaps pins
    the gaps, too, and does not help.

Why it happens
    A slice or a step (`batch[:, :n]`, `x[..., ::2]`) is sent as it is. Dense tensors are not concerned, whatever their
    order: permuted and channels_last tensors are sent in one piece. (`copy_requires_temporaries` in
    aten/src/ATen/native/cuda/Copy.cu.)

How to fix it
    Make the tensor dense on the host, then pin it, then send it: `x.contiguous().pin_memory().to(device,
    non_blocking=True)`; best in the loader's workers. Or send the whole tensor, and slice it on the device.

When to ignore it
    When it is small, or sent once.
"""

from collections.abc import Iterator, Sequence

from stridewise import layout
from stridewise.analysis.case import Case
from stridewise.analysis.functions import short_name
from stridewise.analysis.rule import Claim, Words

_TRANSFER = """
def op(name, ts, dur, sizes, strides):
    args = {"Input Dims": sizes, "Input Strides": strides, "Input type": ["float"] * len(sizes)}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}
def device(category, name, ts, dur, number):
    args = {"correlation": number, "device": 0, "stream": 7}
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}
def launch(ts, number):
    return {**device("cuda_runtime", "cudaMemcpyAsync", ts, 5, number), "pid": 1, "tid": 1}
"""

FIRES = (
    _TRANSFER
    + """
sizes, gapped, dense = [[64, 100]] * 2, [[100, 1], [200, 1]], [[100, 1]] * 2
TRACE = [
    op("aten::to", 0, 100, sizes[:1], gapped[1:]),
    op("aten::copy_", 10, 80, sizes, gapped),
    op("aten::contiguous", 20, 30, sizes[:1], gapped[1:]),
    op("aten::copy_", 25, 20, sizes, gapped),
    op("aten::copy_", 60, 20, sizes, dense),
    launch(65, 3),
    device("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 70, 8, 3),
]
""",
    _TRANSFER + 'TRACE = [op("aten::_pin_memory", 0, 100, [[64, 100]], [[200, 1]])]',
)
QUIET = (
    _TRANSFER
    + """
sizes, permuted = [[64, 100]] * 2, [[1, 64]] * 2
TRACE = [
    op("aten::_pin_memory", 0, 5, sizes[:1], permuted[1:]),
    op("aten::to", 10, 90, sizes[:1], permuted[1:]),
    op("aten::copy_", 20, 70, sizes, permuted),
    launch(65, 3),
    device("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 70, 8, 3),
]
""",
)

_PINS = ("aten::_pin_memory", "aten::pin_memory")


def claims(case: Case, copies: Sequence[int]) -> Iterator[Claim]:
    """The copies that transfers make on either side, by transfer; and tensors that are pinned with their gaps."""
    groups: dict[int, list[int]] = {}
    for position in copies:
        transfer = next((op for op in case.around(position) if op in case.transfers), None)
        if transfer is not None:
            groups.setdefault(transfer, []).append(position)
    for transfer, group in groups.items():
        yield Claim(
            copies=tuple(group),
            site=case.site_of_copy(group[0]),
            details=(case.transfers[transfer], short_name(case.payer_name(group[0]))),
        )
    for op in case.trace.ops.named(*_PINS):
        sizes, strides, _ = next(case.trace.ops.args[op].inputs, ((), None, ""))
        if strides is not None and layout.is_gapped(layout.Layout(sizes, strides)):
            yield Claim(copies=(), site=case.site_of_op(op), details=("pin", f"{list(sizes)}", f"{list(strides)}"))


def words(case: Case, claims: Sequence[Claim]) -> Words:
    """What to say of a transfer, or of a pinned tensor."""
    details = claims[0].details
    if details[0] == "pin":
        return Words(
            message=f"A tensor of sizes {details[1]} and strides {details[2]} is pinned with its gaps: pinning does not"
            " make its transfer asynchronous.",
            advice="Make it dense before pinning it.",
        )
    transfer, function = details
    way = "to the device" if "HtoD" in transfer or "HostToDevice" in transfer else "to the host"
    return Words(
        message=f"`{function}` sends a tensor that lies differently on the two sides {way}: it is copied into a"
        " temporary, and the transfer is not asynchronous.",
        advice="Make it dense first, on the host then pin it, and send it with `non_blocking=True`.",
        evidence=(transfer,),
    )
