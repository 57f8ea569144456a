"""A catalogue's queries dealt into parts that share no product, for systems that learn from one another.

The annotation paper (Chiu, Shinzato, section 4.3) teaches three models in a row on three sets of query
products without a common product. A product here is what keys join: two queries with a key in common (a
relevant document, the same text) are of one product, and so are those joined by way of others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.sampling import order


def products(keys: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Join queries by their keys: the queries of each product, in the order given.

    Args:
        keys: Query id -> whatever it shares with others of its product.
    """
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
        seed: Changes the dealing.
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
        _deal(sorted(some, key=lambda queries: order(seed, min(queries))), shares, parts)
    return {name: tuple(sorted(queries)) for name, queries in parts.items()}


def _deal(dealt: list[tuple[str, ...]], shares: Mapping[str, float], parts: Mapping[str, list[str]]) -> None:
    """Deal each product to the part that lacks most of its share by then."""
    total = sum(map(len, dealt))
    lacking = {name: share * total for name, share in shares.items()}
    for queries in dealt:
        name = max(lacking, key=lambda part: lacking[part])
        lacking[name] -= len(queries)
        parts[name].extend(queries)
