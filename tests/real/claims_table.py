"""The article's measured tables of hidden copies (claims.md, script t2; torch 2.13, CPU, one thread), as printed.

What the printed figures mean, found by counting again in every way and keeping the one that gives all of them:

- the bytes are those written by all of the operator's `aten::copy_` on the view, less those on a row-major twin of
  equal values, never below 0. Whether a copy changes strides does not matter to them, and **an element counts as 4
  bytes whatever its dtype**, since the profiler's event lists, which the script read, have shapes without dtypes;
- the number is that of the `aten::copy_` below `clone`, `contiguous` or `reshape` on the view, and not less the twin's.
"""

from typing import NamedTuple


class Row(NamedTuple):
    """One operator on one view."""

    op: str
    pattern: str
    megabytes: float
    """Extra bytes over the twin, in units of 10⁶ bytes."""
    copies: int
    """Copies below `clone`, `contiguous` or `reshape`, on the view."""


_HIDDEN = """
conv2d w=NCHW
    0.15  1  channels_last; HWC permuted (=CL strides)
    6.42  1  H<->W transposed; N<->C transposed; chan slice [:, :C] of 2C; crop [..,:H,:W] of +8; spatial ::2
    6.42  1  batch ::2; batch expand
    6.57  2  CL crop
conv2d weight
    0.15  1  permuted; strided
conv2d 1x1
    6.42  1  H<->W transposed
conv2d depthwise
    6.42  1  H<->W transposed
conv1d
    4.10  1  (B,T,C).transpose(1,2); narrow T; permute+narrow
conv_transpose2d
    6.42  2  H<->W transposed; crop [..,:H,:W] of +8
conv2d float64
    0.15  1  CL
    1.61  1  H<->W t
adaptive_avg_pool2d(7)
    6.42  1  H<->W transposed; N<->C transposed; chan slice [:, :C] of 2C; crop [..,:H,:W] of +8; spatial ::2
    6.42  1  batch ::2; batch expand; CL crop
avg_pool2d
    6.42  1  H<->W transposed; N<->C transposed; chan slice [:, :C] of 2C; crop [..,:H,:W] of +8; spatial ::2
    6.42  1  batch ::2; batch expand; CL crop
max_pool2d
    6.42  1  H<->W transposed; N<->C transposed; chan slice [:, :C] of 2C; crop [..,:H,:W] of +8; spatial ::2
    6.42  1  batch ::2; batch expand; CL crop
interp bilinear 1/2 3ch
    0.00  2  H<->W transposed; N<->C transposed; chan slice [:, :C] of 2C; crop [..,:H,:W] of +8; spatial ::2
    0.00  2  batch ::2; batch expand
    0.00  1  CL crop
group_norm
    6.42  1  H<->W transposed; crop [..,:H,:W] of +8
instance_norm
    6.42  1  channels_last; H<->W transposed
pixel_shuffle
    6.42  1  H<->W transposed
pad reflect
    6.42  1  H<->W transposed
unfold
    6.42  1  channels_last; H<->W transposed
bmm A pattern
    2.10 64  permute(2,0,1) of (N,K,B); last ::2; rows expand; cols expand; (B,K,2N)[:,:, ::2].T
bmm B pattern
    2.10 64  last ::2; permute batch innermost
baddbmm A pattern
    2.10 64  permute(2,0,1) of (N,K,B); last ::2
matmul 4D q@k^T
    4.19  2  (B,S,H,D).transpose(1,2); qkv chunk
matmul 3D@2D
    2.10  1  last ::2
mm A pattern
    1.05  1  cols ::2; both ::2; expand rows; expand cols
mm B pattern
    0.26  1  cols ::2
addmm bias
    1.05  1  cols ::2
mv
    1.05  1  cols ::2
linear bias
    0.00  1  last ::2
linear nobias
    8.39  1  last ::2
linear weight pattern
    0.26  1  col ::2
einsum bhqd,bhkd
    4.19  2  (B,S,H,D).transpose
layer_norm
    8.39  1  transpose(0,1); transpose(1,2); last narrow; last ::2; seq narrow; batch expand
rms_norm
    8.39  1  transpose(0,1); transpose(1,2)
softmax -1
    8.39  1  transpose(0,1); transpose(1,2); last narrow; last ::2; seq narrow; batch expand
softmax dim1
    8.39  1  transpose(0,1); transpose(1,2); last narrow
log_softmax -1
    8.39  1  transpose(0,1); transpose(1,2); last narrow
index_select 1
    8.39  1  transpose(1,2); last narrow; last ::2
embedding idx
    0.03  1  transposed
masked_select
    8.39  0  transpose(1,2); last narrow; last ::2
cross_entropy
    8.39  1  transpose(1,2); last narrow; last ::2
cross_entropy (B,C,S)
    8.39  1  logits.transpose(1,2)
flatten(0,1)
    8.39  1  transpose(1,2)
flatten(1)
    8.39  1  transpose(1,2); last narrow
sdpa MATH
    6.29  3  (B,S,H,D).transpose(1,2); packed qkv (B,S,3,H,D)
    2.10 32  D strided ::2
    2.10  1  k,v head-expanded (GQA)
sdpa default
    2.10 32  D strided ::2
MHA bf=True train nw
    0.00  2  (B,E,N).transpose(1,2)
    6.42  1  transpose(0,1)
MHA bf=True eval nw
    0.00  1  (B,E,N).transpose(1,2); transpose(0,1)
MHA bf=False train nw
    0.00  2  (B,E,N).transpose(1,2); transpose(0,1)
MHA bf=False eval nw
    0.00  2  (B,E,N).transpose(1,2); transpose(0,1)
LSTM batch_first
    0.00  1  transpose(1,2)
LSTM seq_first
    0.20  1  transpose(0,1)
fft -1
    8.39  1  transpose(1,2)
stft
    0.51  1  transposed; narrow
cdist
    1.05  2  transpose(1,2); last ::2
histc/unique
    0.26  1  t
"""
"""Per operator: extra MB, copies, and the patterns that have them."""

_SLOW = """
adaptive_avg_pool2d(1): spatial ::2; CL crop
batch_norm train: spatial ::2; CL crop
batch_norm eval: H<->W transposed; chan slice [:, :C] of 2C; spatial ::2
pad: H<->W transposed
bmm B pattern: from (M,B,K)
linear bias: last narrow; seq narrow [:, :128]; seq ::2; batch expand
rms_norm: last narrow
sum all: last ::2; last narrow
sum 1: last ::2
sum 0: transpose(1,2)
mean 0: transpose(1,2)
amax -1: last ::2
max -1 (idx): transpose(1,2); last ::2
argmax -1: last ::2
norm -1: transpose(1,2); last ::2
logsumexp -1: last ::2
relu: last ::2
gelu: transpose(1,2); last ::2; last narrow
exp: last ::2; last narrow
add: transpose(1,2); last ::2; mixed: A.T + B; mixed: B + A.T
chain relu(x*2+y)+1: last ::2; mixed: A.T + B; mixed: B + A.T
clamp/mul inplace: last ::2
to bf16: last ::2; last narrow
cat dim0: transpose(1,2); last narrow; last ::2
cat dim1: transpose(1,2); last ::2
cat dim-1: transpose(1,2); last narrow; last ::2
stack: transpose(1,2); last narrow; last ::2
cat ch 4D: H<->W transposed
split+cat roundtrip: channels_last
index_select 0: transpose(1,2); last ::2
scatter_ 1: transpose(1,2)
index_add 1: transpose(1,2); last ::2
embedding weight: t(); col ::2
flip: last ::2
roll: transpose(1,2); last ::2
repeat_interleave: transpose(1,2); last narrow; last ::2
flatten(0,1): last narrow; last ::2
flatten(1): last ::2
sdpa default: (B,H,D,S).transpose
fft -1: last ::2
mse_loss: t
"""
"""No hidden copy, yet slower on the view: operator and patterns."""

_CLEAN = """
conv2d w=CL; cumsum -1; dropout p=.1 train; gather 1; gather idx nc; grid_sample; interp bicubic aa
interp bilinear x2; interp nearest x2; linalg.inv; linalg.solve; masked_fill; matmul bcast 4D@3D; mean -1; nonzero
numpy(); outer/kron; scatter_ into nc self; scatter_add 1; sdpa FLASH_ATTENTION; sdpa default+bool mask; sort -1
sum -1; tolist-free: view_as_complex; topk 8; tril; var -1; where; x[:,idx]
"""
"""Neither a hidden copy nor slower, on any pattern that was tried."""


def _hidden_rows() -> list[Row]:
    rows, op = [], ""
    for line in _HIDDEN.strip().splitlines():
        if not line.startswith(" "):
            op = line
            continue
        megabytes, copies, patterns = line.split(maxsplit=2)
        rows += [Row(op, pattern, float(megabytes), int(copies)) for pattern in patterns.split("; ")]
    return rows


def _slow_rows() -> list[tuple[str, str]]:
    lines = [line.split(": ", 1) for line in _SLOW.strip().splitlines()]
    return [(op, pattern) for op, patterns in lines for pattern in patterns.split("; ")]


HIDDEN = _hidden_rows()
SLOW = _slow_rows()
CLEAN = [op for line in _CLEAN.strip().splitlines() for op in line.split("; ")]
