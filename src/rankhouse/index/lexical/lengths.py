"""Lucene's one-byte document length: exact to 40, then four significant bits, always rounded down.

The scheme is that of Lucene's SmallFloat.intToByte4: a length below 24 is its own code; above, what
exceeds 24 is coded by an exponent and three bits after the leading one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FREE = 24  # the codes left over once the largest 32-bit length has one


def _decode(code: int) -> int:
    if code < _FREE:
        return code
    rest = code - _FREE
    exponent, mantissa = rest >> 3, rest & 7
    return _FREE + (mantissa if exponent == 0 else (mantissa | 8) << (exponent - 1))


DECODED: NDArray[np.float64] = np.array([_decode(code) for code in range(256)], np.float64)
"""Length that each of the 256 codes stands for."""


def codes_of(lengths: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Code true lengths, (rows,) -> (rows,), each by the largest code that does not exceed it."""
    return (np.searchsorted(DECODED, lengths, side="right") - 1).astype(np.uint8)
