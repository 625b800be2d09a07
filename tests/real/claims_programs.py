"""The operators of the article's measured tables, each with the views that it was measured on.

The measuring script (t2) is not published. What is: sizes, dtypes, the bytes and the number of the copies. Parameters
that the tables do not name (kernel sizes, channels of conv1d, the length of stft's signal) are the ones that give the
printed bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .claims_views import CHANNELS_LAST, batches, images, matrices, sequences, tensor

Inputs = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Program:
    """`run(*view, *others)`: the operands in `views` are the strided ones, `others` never change."""

    run: Callable[..., object]
    views: Mapping[str, Callable[[], Inputs]]
    others: tuple[Callable[[], Tensor], ...] = ()


IMAGES = images()
RGB = images(c=3, h=224, w=224)
SEQUENCES = sequences()
DOUBLES = images(h=28, w=28, dtype=torch.float64)


def _channels_last_weight() -> Tensor:
    return torch.randn(64, 64, 3, 3).contiguous(memory_format=CHANNELS_LAST)


def _mask() -> Tensor:
    return torch.randn(64, 128, 256) > 0


def _integers(high: int, *sizes: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, high, sizes)


# -- convolutions, pooling, resizing -----------------------------------------------------------------------------------

conv3x3 = partial(F.conv2d, padding=1)


def depthwise(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, padding=1, groups=64)


VISION = {
    "conv2d w=NCHW": Program(conv3x3, IMAGES, (tensor(64, 64, 3, 3),)),
    "conv2d w=CL": Program(conv3x3, IMAGES, (_channels_last_weight,)),
    "conv2d weight": Program(
        lambda weight, x: conv3x3(x, weight),
        {
            "permuted": lambda: torch.randn(64, 64, 3, 3).transpose(0, 1),
            "strided": lambda: torch.randn(64, 64, 3, 6)[..., ::2],
        },
        (tensor(8, 64, 56, 56),),
    ),
    "conv2d 1x1": Program(F.conv2d, IMAGES, (tensor(64, 64, 1, 1),)),
    "conv2d depthwise": Program(depthwise, IMAGES, (tensor(64, 1, 3, 3),)),
    "conv1d": Program(
        partial(F.conv1d, padding=1),
        {
            "(B,T,C).transpose(1,2)": lambda: torch.randn(16, 1000, 64).transpose(1, 2),
            "narrow T": lambda: torch.randn(16, 64, 1008)[..., :1000],
            "permute+narrow": lambda: torch.randn(16, 1008, 64).transpose(1, 2)[..., :1000],
        },
        (tensor(64, 64, 3),),
    ),
    "conv_transpose2d": Program(partial(F.conv_transpose2d, stride=2), IMAGES, (tensor(64, 32, 2, 2),)),
    "conv2d float64": Program(
        conv3x3,
        {"CL": DOUBLES["channels_last"], "H<->W t": DOUBLES["H<->W transposed"]},
        (tensor(64, 64, 3, 3, dtype=torch.float64),),
    ),
    "adaptive_avg_pool2d(7)": Program(lambda x: F.adaptive_avg_pool2d(x, 7), IMAGES),
    "adaptive_avg_pool2d(1)": Program(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGES),
    "avg_pool2d": Program(lambda x: F.avg_pool2d(x, 2), IMAGES),
    "max_pool2d": Program(lambda x: F.max_pool2d(x, 2), IMAGES),
    "interp bilinear 1/2 3ch": Program(lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), RGB),
    "interp bilinear x2": Program(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IMAGES),
    "interp nearest x2": Program(lambda x: F.interpolate(x, scale_factor=2, mode="nearest"), IMAGES),
    "interp bicubic aa": Program(lambda x: F.interpolate(x, scale_factor=0.5, mode="bicubic", antialias=True), RGB),
    "grid_sample": Program(
        partial(F.grid_sample, align_corners=False), IMAGES, (lambda: torch.rand(8, 56, 56, 2) * 2 - 1,)
    ),
    "group_norm": Program(lambda x: F.group_norm(x, 8), IMAGES),
    "instance_norm": Program(F.instance_norm, IMAGES),
    "batch_norm train": Program(
        partial(F.batch_norm, training=True), IMAGES, (lambda: torch.zeros(64), lambda: torch.ones(64))
    ),
    "batch_norm eval": Program(F.batch_norm, IMAGES, (lambda: torch.zeros(64), lambda: torch.ones(64))),
    "pixel_shuffle": Program(lambda x: F.pixel_shuffle(x, 2), IMAGES),
    "pad": Program(lambda x: F.pad(x, (1, 1, 1, 1)), IMAGES),
    "pad reflect": Program(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), IMAGES),
    "unfold": Program(lambda x: F.unfold(x, 3), IMAGES),
    "cat ch 4D": Program(lambda x: torch.cat([x, x], 1), IMAGES),
    "split+cat roundtrip": Program(lambda x: torch.cat(x.split(32, 1), 1), IMAGES),
}


# -- matrix products ---------------------------------------------------------------------------------------------------


def heads() -> Tensor:
    """(B, H, S, D) as attention modules make it."""
    return torch.randn(8, 128, 8, 64).transpose(1, 2)


def chunked_heads() -> tuple[Tensor, Tensor]:
    q, k, _ = torch.randn(8, 128, 3 * 8 * 64).chunk(3, -1)
    return q.view(8, 128, 8, 64).transpose(1, 2), k.view(8, 128, 8, 64).transpose(1, 2)


A = matrices(1024, 256)
SQUARE = matrices(256, 256)
BATCHES = batches(64, 128, 64)

PRODUCTS = {
    "bmm A pattern": Program(torch.bmm, BATCHES, (tensor(64, 64, 128),)),
    "bmm B pattern": Program(
        lambda b, a: torch.bmm(a, b),
        {
            "last ::2": lambda: torch.randn(64, 64, 256)[..., ::2],
            "permute batch innermost": lambda: torch.randn(64, 128, 64).permute(2, 0, 1),
            "from (M,B,K)": lambda: torch.randn(64, 64, 128).transpose(0, 1),
        },
        (tensor(64, 128, 64),),
    ),
    "baddbmm A pattern": Program(
        lambda a, b, start: torch.baddbmm(start, a, b), BATCHES, (tensor(64, 64, 128), tensor(64, 128, 128))
    ),
    "matmul 4D q@k^T": Program(
        lambda q, k: q @ k.transpose(-1, -2),
        {"(B,S,H,D).transpose(1,2)": lambda: (heads(), heads()), "qkv chunk": chunked_heads},
    ),
    "matmul bcast 4D@3D": Program(
        torch.matmul,
        {
            "3D transpose(1,2)": lambda: (torch.randn(8, 8, 128, 64), torch.randn(8, 128, 64).transpose(1, 2)),
            "4D transpose(2,3)": lambda: (torch.randn(8, 8, 64, 128).transpose(2, 3), torch.randn(8, 64, 128)),
            "4D (B,S,H,D).transpose(1,2)": lambda: (heads(), torch.randn(8, 64, 128)),
        },
    ),
    "matmul 3D@2D": Program(torch.matmul, BATCHES, (tensor(64, 64),)),
    "mm A pattern": Program(torch.matmul, A, (tensor(256, 256),)),
    "mm B pattern": Program(lambda b, a: a @ b, SQUARE, (tensor(1024, 256),)),
    "addmm bias": Program(lambda a, b, bias: torch.addmm(bias, a, b), A, (tensor(256, 256), tensor(256))),
    "mv": Program(torch.matmul, A, (tensor(256),)),
    "linear bias": Program(
        F.linear,
        SEQUENCES | {"seq narrow [:, :128]": SEQUENCES["seq narrow"]},
        (tensor(256, 256), tensor(256)),
    ),
    "linear nobias": Program(F.linear, SEQUENCES, (tensor(256, 256),)),
    "linear weight pattern": Program(
        lambda weight, x, bias: F.linear(x, weight, bias),
        {"col ::2": SQUARE["cols ::2"]},
        (tensor(64, 128, 256), tensor(256)),
    ),
    "einsum bhqd,bhkd": Program(
        partial(torch.einsum, "bhqd,bhkd->bhqk"), {"(B,S,H,D).transpose": lambda: (heads(), heads())}
    ),
    "outer/kron": Program(lambda x: (torch.outer(x, x), torch.kron(x, x)), {"::2": lambda: torch.randn(512)[::2]}),
    "linalg.inv": Program(torch.linalg.inv, {"t": SQUARE["t"], "cols ::2": SQUARE["cols ::2"]}),
    "linalg.solve": Program(torch.linalg.solve, {"t": SQUARE["t"], "cols ::2": SQUARE["cols ::2"]}, (tensor(256, 64),)),
    "cdist": Program(lambda x: torch.cdist(x, x), sequences(16, 128, 64)),
}


# -- attention and recurrent layers ------------------------------------------------------------------------------------


def three(view: Callable[[], Tensor]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (view(), view(), view())


def packed() -> tuple[Tensor, ...]:
    qkv = torch.randn(4, 256, 3, 8, 64)
    return tuple(qkv[:, :, position].transpose(1, 2) for position in range(3))


def expanded_heads() -> tuple[Tensor, ...]:
    k, v = torch.randn(2, 4, 1, 256, 64).expand(2, 4, 8, 256, 64)
    return torch.randn(4, 8, 256, 64), k, v


QKV = {
    "(B,S,H,D).transpose(1,2)": three(lambda: torch.randn(4, 256, 8, 64).transpose(1, 2)),
    "packed qkv (B,S,3,H,D)": packed,
    "D strided ::2": three(lambda: torch.randn(4, 8, 256, 128)[..., ::2]),
    "k,v head-expanded (GQA)": expanded_heads,
    "(B,H,D,S).transpose": three(lambda: torch.randn(4, 8, 64, 256).transpose(2, 3)),
}
FLASH_QKV = {name: QKV[name] for name in QKV if name not in ("D strided ::2", "(B,H,D,S).transpose")}
"""flash attention takes no others: it wants a stride of 1 in the last dimension."""


def attention(backend: SDPBackend) -> Callable[..., Tensor]:
    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v)

    return run


def multihead(batch_first: bool, train: bool) -> Program:
    """8 images of 196 patches, 512 wide."""
    module = nn.MultiheadAttention(512, 8, batch_first=batch_first).train(train)
    views = sequences(8, 196, 512) if batch_first else sequences(196, 8, 512)
    return Program(
        lambda x: module(x, x, x, need_weights=False),
        {"(B,E,N).transpose(1,2)": views["transpose(1,2)"], "transpose(0,1)": views["transpose(0,1)"]},
    )


LAYERS = {
    "sdpa MATH": Program(attention(SDPBackend.MATH), QKV),
    "sdpa FLASH_ATTENTION": Program(attention(SDPBackend.FLASH_ATTENTION), FLASH_QKV),
    "sdpa default": Program(F.scaled_dot_product_attention, QKV),
    "sdpa default+bool mask": Program(
        F.scaled_dot_product_attention, FLASH_QKV, (lambda: torch.ones(256, 256, dtype=torch.bool).tril(),)
    ),
    "MHA bf=True train nw": multihead(batch_first=True, train=True),
    "MHA bf=True eval nw": multihead(batch_first=True, train=False),
    "MHA bf=False train nw": multihead(batch_first=False, train=True),
    "MHA bf=False eval nw": multihead(batch_first=False, train=False),
    "LSTM batch_first": Program(nn.LSTM(64, 64, batch_first=True), sequences(16, 50, 64)),
    "LSTM seq_first": Program(nn.LSTM(64, 64), sequences(50, 16, 64)),
    "layer_norm": Program(lambda x: F.layer_norm(x, (256,)), SEQUENCES),
    "rms_norm": Program(lambda x: F.rms_norm(x, (256,)), SEQUENCES),
    "softmax -1": Program(lambda x: x.softmax(-1), SEQUENCES),
    "softmax dim1": Program(lambda x: x.softmax(1), SEQUENCES),
    "log_softmax -1": Program(lambda x: x.log_softmax(-1), SEQUENCES),
    "dropout p=.1 train": Program(lambda x: F.dropout(x, 0.1, True), SEQUENCES),
    "cross_entropy": Program(
        lambda x, target: F.cross_entropy(x.flatten(0, 1), target), SEQUENCES, (_integers(256, 64 * 128),)
    ),
    "cross_entropy (B,C,S)": Program(
        F.cross_entropy, {"logits.transpose(1,2)": SEQUENCES["transpose(1,2)"]}, (_integers(128, 64, 256),)
    ),
    "mse_loss": Program(F.mse_loss, SQUARE, (tensor(256, 256),)),
}


# -- elementwise operators and reductions ------------------------------------------------------------------------------


def chain(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu(x * 2 + y) + 1


PAIRS = {
    **{name: (lambda view=view: (view(), view())) for name, view in SEQUENCES.items()},
    "mixed: A.T + B": lambda: (SEQUENCES["transpose(1,2)"](), torch.randn(64, 128, 256)),
    "mixed: B + A.T": lambda: (torch.randn(64, 128, 256), SEQUENCES["transpose(1,2)"]()),
}

POINTWISE = {
    "sum all": Program(torch.sum, SEQUENCES),
    "sum -1": Program(lambda x: x.sum(-1), SEQUENCES),
    "sum 1": Program(lambda x: x.sum(1), SEQUENCES),
    "sum 0": Program(lambda x: x.sum(0), SEQUENCES),
    "mean 0": Program(lambda x: x.mean(0), SEQUENCES),
    "mean -1": Program(lambda x: x.mean(-1), SEQUENCES),
    "var -1": Program(lambda x: x.var(-1), SEQUENCES),
    "amax -1": Program(lambda x: x.amax(-1), SEQUENCES),
    "max -1 (idx)": Program(lambda x: x.max(-1), SEQUENCES),
    "argmax -1": Program(lambda x: x.argmax(-1), SEQUENCES),
    "norm -1": Program(lambda x: x.norm(dim=-1), SEQUENCES),
    "logsumexp -1": Program(lambda x: x.logsumexp(-1), SEQUENCES),
    "cumsum -1": Program(lambda x: x.cumsum(-1), SEQUENCES),
    "relu": Program(torch.relu, SEQUENCES),
    "gelu": Program(F.gelu, SEQUENCES),
    "exp": Program(torch.exp, SEQUENCES),
    "add": Program(torch.add, PAIRS),
    "chain relu(x*2+y)+1": Program(chain, PAIRS),
    "clamp/mul inplace": Program(lambda x: x.clamp_(-1, 1).mul_(2), SEQUENCES),
    "to bf16": Program(lambda x: x.to(torch.bfloat16), SEQUENCES),
    "where": Program(lambda x, y: torch.where(x > 0, x, y), PAIRS),
    "masked_fill": Program(lambda x, mask: x.masked_fill(mask, 0.0), SEQUENCES, (_mask,)),
    "tril": Program(torch.tril, SEQUENCES | SQUARE),
}


# -- moving and picking elements ---------------------------------------------------------------------------------------

ROWS = _integers(128, 64, 128, 256)
INDICES = {"transposed": lambda: torch.randint(0, 1000, (128, 64)).t()}
TABLES = {
    "t()": lambda: torch.randn(256, 1000).t(),
    "col ::2": lambda: torch.randn(1000, 512)[:, ::2],
}

MOVES = {
    "cat dim0": Program(lambda x: torch.cat([x, x], 0), SEQUENCES),
    "cat dim1": Program(lambda x: torch.cat([x, x], 1), SEQUENCES),
    "cat dim-1": Program(lambda x: torch.cat([x, x], -1), SEQUENCES),
    "stack": Program(lambda x: torch.stack([x, x]), SEQUENCES),
    "flatten(0,1)": Program(lambda x: x.flatten(0, 1), SEQUENCES),
    "flatten(1)": Program(lambda x: x.flatten(1), SEQUENCES),
    "flip": Program(lambda x: x.flip(-1), SEQUENCES),
    "roll": Program(lambda x: x.roll(1, 1), SEQUENCES),
    "repeat_interleave": Program(lambda x: x.repeat_interleave(2, 1), SEQUENCES),
    "index_select 0": Program(lambda x, rows: x.index_select(0, rows), SEQUENCES, (_integers(64, 64),)),
    "index_select 1": Program(lambda x, rows: x.index_select(1, rows), SEQUENCES, (_integers(128, 128),)),
    "x[:,idx]": Program(lambda x, rows: x[:, rows], SEQUENCES, (_integers(128, 128),)),
    "gather 1": Program(lambda x, rows: x.gather(1, rows), SEQUENCES, (ROWS,)),
    "gather idx nc": Program(
        lambda rows, x: x.gather(1, rows),
        {"transpose(1,2)": lambda: torch.randint(0, 128, (64, 256, 128)).transpose(1, 2)},
        (tensor(64, 128, 256),),
    ),
    "scatter_ 1": Program(lambda source, rows, x: x.scatter_(1, rows, source), SEQUENCES, (ROWS, tensor(64, 128, 256))),
    "scatter_ into nc self": Program(
        lambda x, rows, source: x.scatter_(1, rows, source),
        {name: SEQUENCES[name] for name in SEQUENCES if name != "batch expand"},
        (ROWS, tensor(64, 128, 256)),
    ),
    "scatter_add 1": Program(
        lambda source, rows, x: x.scatter_add(1, rows, source), SEQUENCES, (ROWS, tensor(64, 128, 256))
    ),
    "index_add 1": Program(
        lambda source, rows, x: x.index_add(1, rows, source), SEQUENCES, (_integers(128, 128), tensor(64, 128, 256))
    ),
    "embedding idx": Program(F.embedding, INDICES, (tensor(1000, 256),)),
    "embedding weight": Program(lambda table, rows: F.embedding(rows, table), TABLES, (_integers(1000, 64, 128),)),
    "masked_select": Program(torch.masked_select, SEQUENCES, (_mask,)),
    "nonzero": Program(torch.nonzero, SEQUENCES),
    "sort -1": Program(lambda x: x.sort(-1), SEQUENCES),
    "topk 8": Program(lambda x: x.topk(8), SEQUENCES),
    "histc/unique": Program(torch.unique, SQUARE),
    "fft -1": Program(torch.fft.rfft, SEQUENCES),
    "stft": Program(
        lambda x, window: torch.stft(x, 400, 160, window=window, return_complex=True),
        {
            "transposed": lambda: torch.randn(16000, 8).t(),
            "narrow": lambda: torch.randn(8, 16160)[:, :16000],
        },
        (lambda: torch.hann_window(400),),
    ),
    "numpy()": Program(lambda x: x.numpy(), SEQUENCES),
    "tolist-free: view_as_complex": Program(
        torch.view_as_complex, {"strided rows": lambda: torch.randn(64, 256, 2)[:, ::2]}
    ),
}

PROGRAMS: dict[str, Program] = {**VISION, **PRODUCTS, **LAYERS, **POINTWISE, **MOVES}
