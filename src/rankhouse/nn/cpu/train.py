"""The compiled loops of a training step: what can use them, attention and norms, and how the rest calls them.

Going forward they serve scoring too: each text's numbers have the same bits whatever stands beside it.

``_learn.c`` is optional and made for x86 processors with AVX512, in float32; everywhere else the modules that
call this one and learned.py compute the same in PyTorch (kernels.py, convolve.py, encoder.py, and Conv-KNRM).
Shapes: n rows or texts, t tokens, d width, h heads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rankhouse.nn.layers.linear import multiplies

try:
    from rankhouse.nn.cpu import _train as _learn
except ImportError:  # not compiled on this machine
    SUPPORTED = False
else:
    SUPPORTED = _learn.supported()

DEEPEST = 64
"""Most columns of a head that :func:`attend` takes."""

_PART_ROWS = 256


def fits(*tensors: Tensor) -> bool:
    """Return whether the compiled loops serve these tensors now: float32, on the processor."""
    return SUPPORTED and multiplies(*tensors)


def rounded(rows: int) -> int:
    """Return the next multiple of 256: products are laid out anew for every number of rows they meet."""
    return -(-rows // _PART_ROWS) * _PART_ROWS


class Head(NamedTuple):
    """How attention is cut.

    Attributes:
        ends: (n + 1,) int64, where rows begin and end in t.
        heads: h.
        scale: What products of queries and keys are multiplied by.
    """

    ends: Tensor
    heads: int
    scale: float


def attend(qkv: Tensor, head: Head) -> tuple[Tensor, Tensor]:
    """Softmax attention of rows over themselves, without gradients.

    Args:
        qkv: (t, 3 * h * d); tokens behind the last row hear nothing and give zeros.
        head: How it is cut.

    Returns:
        (t, h * d), and (h, 2, t) what :func:`attend_back` needs.
    """
    ends, heads, scale = head
    tokens, width = len(qkv), qkv.shape[1] // 3
    _check(qkv, tokens, 3 * width)
    last = int(ends[-1])
    if ends.dtype is not torch.int64 or not ends.is_contiguous() or last > tokens or width > heads * DEEPEST:
        raise ValueError(f"{heads} heads of {width} columns, rows end at {last}, there are {tokens} tokens")
    out, stats = qkv.new_empty(tokens, width), qkv.new_empty(heads, 2, tokens)
    out[last:] = 0
    run(
        "attend", False, qkv, ends, len(ends) - 1, heads, width // heads, tokens, scale, out, stats, 0, 0
    )  # fmt: skip
    return out, stats


def attend_back(gradient: Tensor, qkv: Tensor, head: Head, out: Tensor, stats: Tensor) -> Tensor:
    """Turn the gradient of ``out`` (t, h * d) into that of ``qkv``."""
    ends, heads, scale = head
    tokens, width = out.shape
    gradient = gradient.contiguous()
    _check(gradient, tokens, width)
    back = torch.empty_like(qkv)
    back[int(ends[-1]) :] = 0
    run(
        "attend", True, qkv, ends, len(ends) - 1, heads, width // heads, tokens, scale,
        out, stats, gradient, back,
    )  # fmt: skip
    return back


class NormKind(NamedTuple):
    """A layer norm's small constant, and whether it stands outside the root."""

    eps: float
    outer: bool


def norm(x: Tensor, gain: Tensor, shift: Tensor, kind: NormKind) -> tuple[Tensor, Tensor]:
    """Layer norm without gradients: (t, d), and (2, t) what :func:`norm_back` needs."""
    rows, width = x.shape
    _check(x, rows, width)
    _check(gain[None], 1, width)
    _check(shift[None], 1, width)
    out, stats = torch.empty_like(x), x.new_empty(2, rows)
    run("norm", False, x, gain, shift, rows, width, kind.outer, kind.eps, out, stats, 0, 0, 0, 0)
    return out, stats


def norm_back(
    gradient: Tensor, x: Tensor, gain: Tensor, stats: Tensor, kind: NormKind
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, gain and shift; with eps outside the root, its part of x's is left out."""
    rows, width = x.shape
    gradient = gradient.contiguous()
    _check(gradient, rows, width)
    to = torch.empty_like(x), torch.empty_like(gain), torch.empty_like(gain)
    run(
        "norm", True, x, gain, 0, rows, width, kind.outer, kind.eps, 0, stats, gradient, *to
    )  # fmt: skip
    return to


def run(loop: str, *arguments: Tensor | float | None) -> None:
    """Call a compiled loop with the addresses of contiguous tensors, 0 for what is not there."""
    getattr(_learn, loop)(
        *(0 if x is None else x.data_ptr() if isinstance(x, Tensor) else x for x in arguments)
    )


def _check(x: Tensor, rows: int, width: int) -> None:
    """Refuse what the compiled loops would misread: they see addresses only."""
    if x.dtype is not torch.float32 or x.shape != (rows, width) or not x.is_contiguous() or x.is_cuda:
        raise ValueError(f"({rows}, {width}) float32 were expected, {tuple(x.shape)} {x.dtype} came")


def check_lengths(lengths: Tensor, n: int, most: int) -> None:
    """Refuse lengths that are not (n,) int64 of at most ``most``."""
    if lengths.dtype is not torch.int64 or lengths.shape != (n,) or not lengths.is_contiguous():
        raise ValueError(f"{n} lengths of int64 were expected, {tuple(lengths.shape)} {lengths.dtype} came")
    if n and int(lengths.max()) > most:
        raise ValueError(f"a length of {int(lengths.max())} in rows of {most}")


def check_rows(index: Tensor, lengths: Tensor, rows: int) -> None:
    """Refuse an index (n, p) that leads outside a table of so many rows, or texts longer than it."""
    check_lengths(lengths, *index.shape)
    low, high = index.aminmax() if index.numel() else (0, 0)
    if index.dtype is not torch.int64 or low < 0 or high >= rows:
        raise ValueError(f"rows {int(low)} to {int(high)} of {rows}, as {index.dtype}; int64 were expected")
