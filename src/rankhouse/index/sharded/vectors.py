"""The vectors, or the impacts, of several indexes, searched as one.

Exact search gives what one index gives: a score depends on nothing but query and document. Of an approximate
structure each shard searches its own, so that together they find at least as much as any one of them. A
search of impacts is always exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
import numpy as np

from rankhouse.core.errors import BadIndex, MissingInput
from rankhouse.core.nouns import Encoder, FloatArray
from rankhouse.index.append_state import AGAIN, EncodedState, LogKind, encoded_otherwise
from rankhouse.index.dense.exact import Neighbours
from rankhouse.index.dense.vectors import VECTORS, VectorsState
from rankhouse.index.impacts.impacts import IMPACTS, Impacts, ImpactsState, QueryWeigher
from rankhouse.index.impacts.search import ImpactSearcher
from rankhouse.index.lexical.scorer import Hits
from rankhouse.index.sharded.shard import IndexShard
from rankhouse.index.sharded.sharded_index import ShardedIndex, best_of_shards

if TYPE_CHECKING:
    import scipy.sparse

_StateT = TypeVar("_StateT", VectorsState, ImpactsState)


class ShardedVectors:
    """The vectors of this name of all shards. Open them with :func:`open_vectors`."""

    def __init__(self, name: str, state: VectorsState) -> None:
        self.name, self.state = name, state

    def require_encoder(self, encoder: Encoder) -> ShardedVectors:
        """Refuse (BadIndex) queries that another encoder encodes than the documents'."""
        _require(encoder.fingerprint, self.state, f'vectors "{self.name}"')
        return self


def _require(fingerprint: str, state: EncodedState, what: str) -> None:
    if fingerprint != state.encoder:
        how = encoded_otherwise(state.encoder, fingerprint, what)
        raise BadIndex(f"the {what} of the shards were encoded {how}")


class ShardedSearcher:
    """Finds the nearest documents among those of all shards."""

    def __init__(self, index: ShardedIndex, vectors: ShardedVectors, structure: str) -> None:
        self._index, self.vectors, self._structure = index, vectors, structure

    def best(self, points: FloatArray, k: int) -> list[Neighbours]:
        """Find ids and scores for each of q points (q, d)."""
        name, encoder = self.vectors.name, self.vectors.state.encoder
        request = partial(
            IndexShard.nearest, vectors=name, encoder=encoder, structure=self._structure, points=points, k=k
        )
        columns = zip(*self._index.ask_all(request).values(), strict=True)
        return [self._joined(column, k) for column in columns]

    def _joined(self, of_shards: Sequence[Neighbours], k: int) -> Neighbours:
        ids = tuple(chain.from_iterable(shard.ids for shard in of_shards))
        scores = np.concatenate([shard.scores for shard in of_shards])
        order = best_of_shards(self._index.distinct(ids), scores, k, descending_ids=True)
        return Neighbours([ids[place] for place in order.tolist()], scores[order])


def open_vectors(index: ShardedIndex, name: str) -> ShardedVectors:
    """Return the vectors of this name that all shards have.

    Raises MissingInput: a shard has none that cover its documents; BadIndex: they were not made alike.
    """
    states = _alike({shard: info.vectors.get(name) for shard, info in index.infos.items()}, VECTORS, name)
    counted = {key: sum(getattr(s, key) for s in states) for key in ("documents", "rows")}
    dimension = max(state.dimension for state in states)
    return ShardedVectors(name, msgspec.structs.replace(states[0], dimension=dimension, **counted))


def _alike(given: Mapping[str, _StateT | None], kind: LogKind[_StateT], name: str) -> list[_StateT]:
    """Return what all shards have of a name; MissingInput where one has none, BadIndex where they differ."""
    what = f'{"vectors" if kind is VECTORS else "impacts"} "{name}"'
    states = {shard: state for shard, state in given.items() if state is not None}
    if lacking := [shard for shard in given if shard not in states]:
        raise MissingInput(
            f"{' and '.join(lacking)}: has no {what} of all its documents; {AGAIN}, for each shard"
        )
    (first, one), *others = states.items()
    for shard, state in others:
        for field in kind.same:
            if getattr(state, field) != getattr(one, field):
                raise BadIndex(
                    f"the {what} of {shard} have {field} {getattr(state, field)}, those of {first} "
                    f"{getattr(one, field)}; encode all shards alike"
                )
    return list(states.values())


# --- impacts ----------------------------------------------------------------------------------------------


class ShardedImpacts:
    """The impacts of this name of all shards. Open them with :func:`open_impacts`."""

    def __init__(self, index: ShardedIndex, name: str, state: ImpactsState) -> None:
        self._index, self.name, self.state = index, name, state

    def __len__(self) -> int:
        return len(self._index)

    def require_encoder(self, encoder: QueryWeigher) -> ShardedImpacts:
        """Refuse (BadIndex) queries that another encoder weighs than the documents'."""
        _require(encoder.fingerprint, self.state, f'impacts "{self.name}"')
        return self

    def query_files(self) -> dict[str, bytes]:
        """Read the files that weigh queries without the model; none where it has no table."""
        request = partial(IndexShard.query_files, impacts=self.name, encoder=self.state.encoder)
        return cast(dict[str, bytes], self._index.ask_one(request))


class ShardedImpactSearcher:
    """Finds the best documents of all shards by their impacts."""

    def __init__(self, index: ShardedIndex, impacts: ShardedImpacts) -> None:
        self._index, self.impacts = index, impacts
        self.ids_of, self.together = index.ids_of, index.together

    def best(self, weights: scipy.sparse.csr_array, k: int) -> list[Hits]:
        """Find the best k documents for each of q queries, whose weights of words are (q, v) float32."""
        name, encoder = self.impacts.name, self.impacts.state.encoder
        request = partial(IndexShard.weigh, impacts=name, encoder=encoder, weights=weights, k=k)
        return self._index.best_of_all(request, k)


def open_impacts(index: ShardedIndex, name: str) -> ShardedImpacts:
    """Return the impacts of this name that all shards have.

    Raises MissingInput: a shard has none that cover its documents; BadIndex: they were not made alike.
    """
    states = _alike({shard: info.impacts.get(name) for shard, info in index.infos.items()}, IMPACTS, name)
    documents = sum(state.documents for state in states)
    return ShardedImpacts(index, name, msgspec.structs.replace(states[0], documents=documents))


AnyImpacts = Impacts | ShardedImpacts
AnyImpactSearcher = ImpactSearcher | ShardedImpactSearcher
