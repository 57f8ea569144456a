"""oneDNN's product of whole numbers, and whether it is right on this processor."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, cast

import torch
from torch import Tensor

ZERO: Final = 128
"""The byte that stands for 0."""
LARGEST: Final = 63
"""Largest number of a weight. Without VNNI, oneDNN adds two products in 16 bits, which 255 * 63 fills."""


def pack(weight: Tensor) -> Tensor:
    """Lay a weight out for the processor: (m, k) int8 within -63..63."""
    return cast(Tensor, torch.ops.onednn.qlinear_prepack(weight, None))


def multiply(rows: Tensor, packed: Tensor, columns: int) -> Tensor:
    """Multiply bytes, 128 for 0, by a packed weight: (t, k) uint8 -> (t, m) float32, whole numbers."""
    given = (rows, 1.0, ZERO, packed, *_units(columns))
    # No bias, no scale, no activation.
    wanted: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")
    return cast(Tensor, torch.ops.onednn.qlinear_pointwise(*given, *wanted))


@cache
def _units(columns: int) -> tuple[Tensor, Tensor]:
    """Return scales of 1 and zero points of 0."""
    with torch.inference_mode(False):
        return torch.ones(columns), torch.zeros(columns, dtype=torch.int32)


@cache
def is_exact() -> bool:
    """Return whether the product of the largest numbers is right."""
    rows = torch.tensor([[255], [1], [ZERO]], dtype=torch.uint8).repeat(1, 1024)
    weight = torch.tensor([[LARGEST], [-LARGEST]], dtype=torch.int8).repeat(8, 1024)
    expected = torch.tensor([[127.0], [-127.0], [0.0]]) * weight[:, 0] * 1024
    try:
        return torch.equal(multiply(rows, pack(weight), len(weight)), expected)
    except (RuntimeError, AttributeError):  # a build of PyTorch without it
        return False
