"""Rotary positions: queries and keys are turned by angles that grow with their place in the row.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, eq. 34: numbers i and
i + d / 2 of a head are one complex number, multiplied by exp(i place frequency). Here the two stand side by
side, which the weights are laid out for (:func:`interleaved`): products of queries and keys do not change.
Shapes: t tokens, h heads, d width of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def interleaved(rows: Tensor, heads: int) -> Tensor:
    """Put numbers i and i + d / 2 of each head side by side: rows (h * d, ...) of a weight or bias."""
    return rows.view(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


class Rotary:
    """Turns by place.

    Args:
        frequencies: (d / 2,) float32, radians a place.
        scale: What queries and keys are multiplied by besides (YaRN).
    """

    def __init__(self, frequencies: Tensor, scale: float = 1.0) -> None:
        self._frequencies, self._scale = frequencies.detach().float(), scale

    def at(self, places: Tensor) -> Turn:
        """Return what turns tokens at these places (t,) of their rows."""
        angles = places.float()[:, None] * self._frequencies.to(places.device)
        return Turn(torch.polar(torch.full_like(angles, self._scale), angles))


class Turn(NamedTuple):
    """Turns the tokens of a batch.

    Attributes:
        circle: (t, d / 2) complex64.
    """

    circle: Tensor

    def __call__(self, x: Tensor, heads: int, chosen: Tensor | None = None) -> Tensor:
        """Turn the first ``heads`` heads of x (t, any * d), in place; return x.

        Args:
            chosen: (t,) int64, which of the batch's tokens these are; None: all.
        """
        circle = self.circle if chosen is None else self.circle[chosen]
        turned = x[:, : heads * 2 * circle.shape[1]]
        own = turned.float()
        numbers = torch.view_as_complex(own.view(len(x), heads, circle.shape[1], 2))
        numbers.mul_(circle[:, None])
        if own.data_ptr() != turned.data_ptr():
            turned.copy_(own)
        return x
