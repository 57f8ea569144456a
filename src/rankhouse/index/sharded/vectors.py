"""The vectors of several indexes, searched as one.

Exact search gives what one index gives: a score depends on nothing but query and document. Of an approximate
structure each shard searches its own, so that together they find at least as much as any one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import msgspec
import numpy as np

from rankhouse.core.errors import BadIndex, MissingInput
from rankhouse.core.nouns import Encoder, FloatArray
from rankhouse.index.append_state import AGAIN
from rankhouse.index.dense.exact import Neighbours
from rankhouse.index.dense.vectors import VECTORS, VectorsState
from rankhouse.index.sharded.shard import IndexShard
from rankhouse.index.sharded.sharded_index import ShardedIndex, best_of_shards


class ShardedVectors:
    """The vectors of this name of all shards. Open them with :func:`open_vectors`."""

    def __init__(self, name: str, state: VectorsState) -> None:
        self.name, self.state = name, state

    def require_encoder(self, encoder: Encoder) -> ShardedVectors:
        """Refuse (BadIndex) queries that another encoder encodes than the documents'."""
        if encoder.fingerprint != self.state.encoder:
            raise BadIndex(
                f'the vectors "{self.name}" of the parts were encoded by {self.state.encoder}, the queries '
                f"would be by {encoder.fingerprint}; search with the encoder that made them, or encode again"
            )
        return self


class ShardedSearcher:
    """Finds the nearest documents among those of all shards."""

    def __init__(self, index: ShardedIndex, vectors: ShardedVectors, structure: str) -> None:
        self._index, self.vectors, self._structure = index, vectors, structure

    def best(self, points: FloatArray, k: int) -> list[Neighbours]:
        """Find ids and scores for each of q points (q, d)."""
        name, structure = self.vectors.name, self._structure
        request = partial(IndexShard.nearest, vectors=name, structure=structure, points=points, k=k)
        columns = zip(*self._index.ask_all(request).values(), strict=True)
        return [self._joined(column, k) for column in columns]

    def _joined(self, of_shards: Sequence[Neighbours], k: int) -> Neighbours:
        ids = tuple(chain.from_iterable(shard.ids for shard in of_shards))
        scores = np.concatenate([shard.scores for shard in of_shards])
        order = best_of_shards(self._index.distinct(ids), scores, k, descending_ids=True)
        return Neighbours([ids[place] for place in order.tolist()], scores[order])


def open_vectors(index: ShardedIndex, name: str) -> ShardedVectors:
    """Return the vectors of this name that all shards have.

    Raises:
        MissingInput: A shard has none that cover its documents.
        BadIndex: They were not made alike.
    """
    states = {shard: info.vectors[name] for shard, info in index.infos.items() if name in info.vectors}
    if lacking := [shard for shard in index.infos if shard not in states]:
        raise MissingInput(
            f'{" and ".join(lacking)}: has no vectors "{name}" of all its documents; {AGAIN}, for each part'
        )
    (first, one), *others = states.items()
    for shard, state in others:
        for field in VECTORS.same:
            if getattr(state, field) != getattr(one, field):
                raise BadIndex(
                    f'the vectors "{name}" of {shard} have {field} {getattr(state, field)}, those of {first} '
                    f"{getattr(one, field)}; encode all parts alike"
                )
    counted = {key: sum(getattr(s, key) for s in states.values()) for key in ("documents", "rows")}
    dimension = max(state.dimension for state in states.values())
    return ShardedVectors(name, msgspec.structs.replace(one, dimension=dimension, **counted))
