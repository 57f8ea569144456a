"""Rotary positions: queries and keys are turned by angles that grow with their place in the row.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, eq. 34: numbers i and
i + d / 2 of a head are one complex number, multiplied by exp(i place frequency). Here the two stand side by
side, which the weights are laid out for (:func:`interleaved`): products of queries and keys do not change.
Shapes: t tokens, h heads, d width of a head.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Turn = Callable[..., Tensor]
"""Turns queries and keys (t, p * h * d) of a batch; given places in it (m,), those of some tokens."""


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

    def at(self, places: Tensor, heads: int) -> Turn:
        """Return what turns tokens at these places (t,) of their rows.

        Of rows with several parts of h * d numbers side by side, all but the last (the values) are turned.
        """
        angles = places.float()[:, None] * self._frequencies.to(places.device)
        circle = torch.polar(torch.full_like(angles, self._scale), angles)[:, None, None]

        def turn(x: Tensor, chosen: Tensor | None = None) -> Tensor:
            by = circle if chosen is None else circle[chosen]
            width = heads * 2 * angles.shape[1]
            parts = x.shape[1] // width
            turned = x[:, : max(1, parts - 1) * width]
            own = turned.float() if x.dtype is not torch.float32 else turned
            numbers = torch.view_as_complex(own.view(len(x), -1, heads, angles.shape[1], 2))
            if own is turned:
                numbers.mul_(by)
            else:
                turned.copy_(torch.view_as_real(numbers.mul_(by)).flatten(1))
            return x

        return turn
