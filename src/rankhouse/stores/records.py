"""Names and sparse vectors of records, the same ones whenever they are made, and batches of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final
from uuid import UUID, uuid5

from rankhouse.stores.store import Record

DIMENSIONS: Final = 4_294_967_291  # the largest prime below 2^32; Milvus keeps the last numbers for itself
_SPACE: Final = UUID("5b2b6d4e-3c1f-5d2a-9a55-0d7a0c1f7a11")


def uuid_of(record_key: str) -> str:
    """Return the UUID that stands for a record where ids have to be UUIDs: always the same one."""
    return str(uuid5(_SPACE, record_key))


def hash_of(term: str) -> int:
    """Return a term's 64-bit hash."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little")


def dimension_of(term: str) -> int:
    """Return the number that stands for a term where dimensions have to be numbers: its hash, cut."""
    return hash_of(term) % DIMENSIONS


def sparse(weights: Mapping[str, float]) -> dict[int, float]:
    """Turn weights of terms into a sparse vector, dimensions ascending; terms that coincide are added."""
    vector: dict[int, float] = {}
    for term, weight in weights.items():
        place = dimension_of(term)
        vector[place] = vector.get(place, 0.0) + weight
    return dict(sorted(vector.items()))


def batches(records: Iterable[Record], count: int, size: int) -> Iterator[list[Record]]:
    """Group records so that no group is beyond the store's limits.

    Args:
        size: And about so many bytes, unless a single one has more.
    """
    group: list[Record] = []
    total = 0
    for record in records:
        if group and (len(group) == count or total + record.bytes > size):
            yield group
            group, total = [], 0
        group.append(record)
        total += record.bytes
    if group:
        yield group
