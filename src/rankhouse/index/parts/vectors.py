"""The vectors of several indexes, searched as one.

Exact search gives what one index gives: a score depends on nothing but query and document. Of an approximate
structure each part searches its own, so that together they find at least as much as any one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec
import numpy as np

from rankhouse.core.errors import BadIndex, MissingInput
from rankhouse.core.nouns import Encoder, FloatArray
from rankhouse.index.append_state import AGAIN
from rankhouse.index.dense.vectors import VectorsState
from rankhouse.index.parts.part import NamedNeighbours, NearestDocuments
from rankhouse.index.parts.parted_index import PartedIndex, best_of_parts

_ALIKE = ("encoder", "policy", "similarity", "dtype")


class PartedVectors:
    """The vectors of this name of all parts. Open them with :func:`open_vectors`."""

    def __init__(self, name: str, state: VectorsState) -> None:
        self.name, self.state = name, state

    def require_encoder(self, encoder: Encoder) -> PartedVectors:
        """Make sure queries will be encoded by what encoded the documents.

        Raises:
            BadIndex: It is another encoder.
        """
        if encoder.fingerprint != self.state.encoder:
            raise BadIndex(
                f'the vectors "{self.name}" of the parts were encoded by {self.state.encoder}, the queries '
                f"would be by {encoder.fingerprint}; search with the encoder that made them, or encode anew"
            )
        return self


class PartedSearcher:
    """Finds the nearest documents among those of all parts."""

    def __init__(self, index: PartedIndex, vectors: PartedVectors, structure: str) -> None:
        self._index, self.vectors, self._structure = index, vectors, structure

    def best(self, points: FloatArray, k: int) -> list[tuple[Sequence[str], FloatArray]]:
        """Find ids and scores for each of q points (q, d)."""
        request = NearestDocuments(self.vectors.name, self._structure, points, k)
        columns = zip(*self._index.ask_all(request).values(), strict=True)
        return [self._joined(column, k) for column in columns]

    def _joined(self, of_parts: Sequence[NamedNeighbours], k: int) -> tuple[Sequence[str], FloatArray]:
        ids = tuple(chain.from_iterable(part.ids for part in of_parts))
        scores = np.concatenate([part.scores for part in of_parts])
        order = best_of_parts(self._index.distinct(ids), scores, k, descending_ids=True)
        return [ids[place] for place in order.tolist()], scores[order]


def open_vectors(index: PartedIndex, name: str) -> PartedVectors:
    """Return the vectors of this name that all parts have.

    Raises:
        MissingInput: A part has none that cover its documents.
        BadIndex: They were not made alike.
    """
    states = {part: info.vectors[name] for part, info in index.infos.items() if name in info.vectors}
    if lacking := [part for part in index.infos if part not in states]:
        raise MissingInput(
            f'{" and ".join(lacking)}: has no vectors "{name}" of all its documents; {AGAIN}, for each part'
        )
    (first, one), *others = states.items()
    for part, state in others:
        for field in _ALIKE:
            if getattr(state, field) != getattr(one, field):
                raise BadIndex(
                    f'the vectors "{name}" of {part} have {field} {getattr(state, field)}, those of {first} '
                    f"{getattr(one, field)}; encode all parts alike"
                )
    counted = {key: sum(getattr(s, key) for s in states.values()) for key in ("documents", "rows")}
    dimension = max(state.dimension for state in states.values())
    return PartedVectors(name, msgspec.structs.replace(one, dimension=dimension, **counted))
