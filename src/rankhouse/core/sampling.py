"""Draws that are the same on every machine and in every version: by a hash of a seed and of what is drawn.

A lot depends on nothing but the seed and the names of the thing that draws it: not on the order of work, nor
on what else draws. The smallest lots win. The hashes differ for history's sake only: a seed keeps its draw.
"""

from __future__ import annotations

from hashlib import blake2b, sha256

import numpy as np
from numpy.typing import NDArray

Lots = NDArray[np.uint64]


def lot(seed: int, *names: object) -> bytes:
    """Draw a lot of 32 bytes."""
    return sha256(_joined("\t", seed, *names)).digest()


def short_lot(seed: int, *names: object) -> int:
    """Draw a lot of 64 bits, which an array can hold."""
    return int.from_bytes(blake2b(_joined("\t", seed, *names), digest_size=8).digest(), "big")


def passage_lot(seed: int, doc_id: str, index: int) -> bytes:
    """Draw the lot of a passage among those of its document, 16 bytes."""
    return blake2b(_joined(" ", seed, index, doc_id), digest_size=16).digest()


def _joined(joint: str, *parts: object) -> bytes:
    return joint.join(map(str, parts)).encode("utf-8", "surrogatepass")


def order(seed: int, name: str) -> tuple[bytes, str]:
    """Return the key by which things are shuffled: their lot, and where lots are one, their name."""
    return lot(seed, name), name


def smallest(lots: Lots, wanted: int) -> NDArray[np.int64]:
    """Return the places of the smallest of n lots, (min(wanted, n),), sorted by place."""
    return np.sort(np.argsort(lots, kind="stable")[:wanted])


def generator(seed: int, *numbers: int) -> np.random.Generator:
    """Return numpy's generator for one purpose of a seed."""
    return np.random.default_rng((seed, *numbers))
