"""Queries dealt apart: folds for cross-validation, and parts of a catalogue that share no product.

A fold file is JSON: ``{"seed": 1, "folds": [["q1", "q7"], ["q2", "q5"]]}``. A query belongs to one fold only.
The annotation paper (Chiu, Shinzato, section 4.3) teaches three models in a row on three sets of query
products without a common product. A product here is what keys join: two queries with a key in common (a
relevant document, the same text) are of one product, and so are those joined by way of others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.core.sampling import order
from rankhouse.io.decoding import from_json
from rankhouse.io.files import read_whole
from rankhouse.io.outputs import writing


class Split(NamedTuple):
    """One round: queries of one fold to test on, of the next to choose by, of the rest to learn from."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]


class Folds(NamedTuple):
    """Queries dealt into folds; ``seed`` is None for folds that someone else made."""

    seed: int | None
    folds: tuple[tuple[str, ...], ...]

    @property
    def query_ids(self) -> tuple[str, ...]:
        """All queries, fold by fold."""
        return tuple(query_id for fold in self.folds for query_id in fold)

    def split(self, number: int, validate: bool = True) -> Split:
        """Test on one fold (counted from 0), choose on the next, learn from the others.

        Args:
            validate: False gives the next fold to training too and leaves ``valid`` empty.

        Raises:
            WrongUse: No such fold, or two folds and a validation fold wanted.
        """
        count = len(self.folds)
        if not 0 <= number < count:
            raise WrongUse(f"fold {number} was asked for; there are folds 0 to {count - 1}")
        if validate and count == 2:
            raise WrongUse("two folds leave nothing to learn from beside test and validation; make 3 or more")
        held = (number + 1) % count if validate else number
        train = [fold for i, fold in enumerate(self.folds) if i not in (number, held)]
        valid = self.folds[held] if validate else ()
        return Split(tuple(q for fold in train for q in fold), valid, self.folds[number])


def deal(query_ids: Iterable[str], folds: int = 5, seed: int = 0) -> Folds:
    """Deal queries into folds of equal size (or one more), by a hash of seed and query id.

    The same queries and seed give the same folds, whatever the order, the machine or the versions.

    Args:
        query_ids: All different.

    Raises:
        WrongUse: Fewer than two folds, or fewer queries than folds.
        BadData: A query is given twice.
    """
    ids = list(query_ids)
    if repeated := [query_id for query_id, times in Counter(ids).items() if times > 1]:
        raise BadData(f"queries given twice: {name_few(repeated, 8)}; a query belongs to one fold")
    if not 2 <= folds <= len(ids):
        raise WrongUse(f"{folds} folds of {len(ids)} queries were asked for; 2 to {len(ids)} are possible")
    shuffled = sorted(ids, key=lambda query_id: order(seed, query_id))
    return Folds(seed, tuple(tuple(sorted(shuffled[start::folds])) for start in range(folds)))


def write_folds(folds: Folds, path: Path | str) -> None:
    """Write a fold file, one fold a line.

    Raises:
        OutputFailed: It cannot be written.
    """
    lines = [msgspec.json.encode(fold).decode() for fold in folds.folds]
    seed = msgspec.json.encode(folds.seed).decode()
    with writing(Path(path)) as out:
        out.write(f'{{"seed": {seed}, "folds": [\n' + ",\n".join(lines) + "\n]}\n")


class _FoldFile(msgspec.Struct, forbid_unknown_fields=True):
    folds: list[list[str]]
    seed: int | None = None


_decoder = msgspec.json.Decoder(_FoldFile)
_WANTED = 'is no fold file; a fold file holds  {"seed": 1, "folds": [["q1", "q2"], ["q3", "q4"]]}'


def read_folds(path: Path | str) -> Folds:
    """Read and check a fold file.

    Raises:
        MissingInput: No such file.
        BadData: Not such JSON, fewer than two folds, an empty fold, or a query in two places.
    """
    path = Path(path)
    file = from_json(_decoder, read_whole(path), _WANTED, path)
    places: dict[str, list[int]] = {}
    for number, fold in enumerate(file.folds):
        for query_id in fold:
            places.setdefault(query_id, []).append(number)
    if leaks := [f"{q} (folds {' and '.join(map(str, at))})" for q, at in places.items() if len(at) > 1]:
        raise BadData(
            f"{len(leaks)} queries stand in more than one place, so that training sees what is tested: "
            f"{name_few(leaks, 8)}; keep each in one fold",
            path,
        )
    if len(file.folds) < 2 or not all(file.folds):
        sizes = ", ".join(str(len(fold)) for fold in file.folds) or "none"
        raise BadData(f"two or more folds with queries are needed; the sizes found are: {sizes}", path)
    return Folds(file.seed, tuple(map(tuple, file.folds)))


def products(keys: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Join queries by their keys: the queries of each product, in the order given."""
    from scipy.sparse import coo_array  # noqa: PLC0415 - takes a while to load
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    numbers: dict[str, int] = {}
    edges = [
        (query, len(keys) + numbers.setdefault(key, len(numbers)))
        for query, own in enumerate(keys.values())
        for key in own
    ]
    ends = np.array(edges, np.int64).reshape(-1, 2).T
    size = len(keys) + len(numbers)
    graph = coo_array((np.ones(len(edges), np.int8), (ends[0], ends[1])), (size, size))
    components = connected_components(graph, directed=False)[1] if size else ()
    groups: dict[int, list[str]] = {}
    for query_id, component in zip(keys, components, strict=False):
        groups.setdefault(int(component), []).append(query_id)
    return [tuple(queries) for queries in groups.values()]


def divide(
    keys: Mapping[str, Iterable[str]], shares: Mapping[str, float], seed: int = 0, even: Iterable[str] = ()
) -> dict[str, tuple[str, ...]]:
    """Deal queries into named parts, no product into two.

    Products come in the order of a hash of seed and query ids, each to the part that lacks most; so the same
    queries, shares and seed give the same parts, whatever the order or the machine.

    Args:
        keys: Query id -> what it shares with others of its product.
        shares: Part -> its share of the queries; they add up to 1.
        even: Queries to be dealt before the others, so that every part gets its share of both kinds (those
            that have a match, say).

    Raises:
        WrongUse: No part, a share that is not above 0, or shares that do not add up to 1.
        BadData: Fewer products than parts.
    """
    if not shares or min(shares.values()) <= 0 or not math.isclose(sum(shares.values()), 1, abs_tol=1e-6):
        given = ", ".join(f"{name}={share:g}" for name, share in shares.items()) or "none"
        raise WrongUse(f"the parts are {given}: each has a share above 0, and together they are 1")
    first = set(even)
    dealt = products(keys)
    if len(dealt) < len(shares):
        raise BadData(
            f"{len(keys):,} queries of {len(dealt):,} products cannot fill {len(shares)} parts (the largest "
            f"product has {max(map(len, dealt), default=0):,} queries): queries with a match in common are "
            "of one product, and so are those joined by way of others, so a few wrong matches chain whole "
            "catalogues; give fewer parts, cleaner matches, or a key that says the product "
            "(--by product_id)"
        )
    parts: dict[str, list[str]] = {name: [] for name in shares}
    for kind in (True, False):
        some = [queries for queries in dealt if kind == (not first.isdisjoint(queries))]
        lacking = {name: share * sum(map(len, some)) for name, share in shares.items()}
        for queries in sorted(some, key=lambda queries: order(seed, min(queries))):
            name = max(lacking, key=lacking.__getitem__)
            lacking[name] -= len(queries)
            parts[name].extend(queries)
    return {name: tuple(sorted(queries)) for name, queries in parts.items()}
