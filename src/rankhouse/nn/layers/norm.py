"""Layer norm and root mean square in fp32, rounded for the product behind them.

The compiled loops do it in one pass where they can, PyTorch elsewhere. Shapes: t rows, w width.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn.compute import Compute
from rankhouse.nn.cpu.infer import FusedNorm, fits


class Norm(Protocol):
    """Normalises rows."""

    def __call__(self, x: Tensor) -> tuple[Tensor, Any]:
        """Return x (t, w) float32, itself normalised by a layer norm, and the rows the next product reads.

        x may be changed in place.
        """
        ...


class PlainNorm:
    """The same in PyTorch; without a gain, x is left as it is."""

    def __init__(self, gain: Tensor | None, shift: Tensor | None, eps: float, compute: Compute) -> None:
        device = compute.device
        self._gain = None if gain is None else gain.detach().float().to(device)
        self._shift = None if shift is None else shift.detach().float().to(device)
        self._eps, self._dtype = eps, compute.dtype

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return x (t, w) float32 and its rows (t, w) in the precision of the computation."""
        if self._gain is None:
            return x, root_mean_square(x, self._eps).to(self._dtype)
        x = F.layer_norm(x, self._gain.shape, self._gain, self._shift, self._eps)
        return x, x.to(self._dtype)


def layer_norm(gain: Tensor, shift: Tensor, eps: float, compute: Compute) -> Norm:
    """Make a layer norm: gain and shift (w,)."""
    make = FusedNorm if fits(compute, len(gain)) else PlainNorm
    return make(gain, shift, eps, compute)


def root_mean_square_norm(width: int, eps: float, compute: Compute) -> Norm:
    """Make T5's norm, whose gain belongs to the product behind it."""
    make = FusedNorm if fits(compute, width) else PlainNorm
    return make(None, None, eps, compute)


def root_mean_square(x: Tensor, eps: float) -> Tensor:
    """Divide rows (t, w) float32 by their root mean square.

    Args:
        x: (t, w) float32.
    """
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.rsqrt(norm.square_().div_(x.shape[-1]).add_(eps))
