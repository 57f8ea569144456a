"""Qdrant Edge: a shard of Qdrant's own engine in a folder, without a server (extra ``qdrant-edge``).

The records are those of :mod:`qdrant`. A folder holds a shard for each collection, and beside it a file that
says what the collection holds. One process at a time can open a shard.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankhouse.core.errors import StoreFailed
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.io.outputs import writing
from rankhouse.stores.clients import check_name, explained, folder_or_file, library
from rankhouse.stores.qdrant import IMPACTS, NAME_PATTERN, NAME_RULE, parts_of
from rankhouse.stores.records import sparse, uuid_of
from rankhouse.stores.store import Contents, Hits, Record, Store, read_contents


@dataclass(eq=False, repr=False)
class QdrantEdge(Store):
    """A collection in a folder, run by Qdrant's engine."""

    holds = frozenset({"vectors", "impacts"})
    hashed = True
    batch, batch_bytes, most = 1000, 32 << 20, 1 << 17

    folder: str
    collection: str

    def __post_init__(self) -> None:
        check_name("qdrant_edge", "collection", self.collection, NAME_PATTERN, NAME_RULE)
        folder_or_file(
            "qdrant_edge", self.folder, 'it is a folder; a server is asked by  qdrant("http://...")'
        )
        self._edge: Any = library("qdrant_edge", "qdrant_edge", "qdrant-edge")
        self._folder = Path(self.folder) / self.collection
        self._facts = Path(self.folder) / f"{self.collection}.json"
        self.name = f"qdrant_edge {self.folder}, collection {self.collection}"
        self._shard: Any = None

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.name, Exception)  # the engine raises nothing more special

    def _open(self) -> Any:  # noqa: ANN401 - the engine's object
        if self._shard is None:
            try:
                with self._explained():
                    self._shard = self._edge.EdgeShard.load(str(self._folder))
            except StoreFailed as error:
                if "WouldBlock" in str(error):
                    raise StoreFailed(
                        f"{self.name}: is open in another process; end that one first"
                    ) from None
                raise
        return self._shard

    def exists(self) -> bool:
        """Return whether there is such a shard."""
        return (self._folder / "edge_config.json").exists()

    def read(self) -> Contents | None:
        """Return what the file beside the shard says."""
        return read_contents(self._facts.read_bytes() if self._facts.exists() else None, self.name)

    def count(self) -> int:
        """Count the points."""
        shard = self._open()
        with self._explained():
            return int(shard.count(self._edge.CountRequest(exact=True)))

    def dimension(self) -> int:
        """Return the size of the vectors, 0 where there are none."""
        contents = self.contents()
        return contents.dimension if contents else 0

    def create(self, contents: Contents) -> None:
        """Make the shard."""
        edge, vectors = self._edge, dict[str, Any]()
        if contents.dimension:
            distance = edge.Distance.Euclid if contents.similarity == "l2" else edge.Distance.Dot
            vectors["vector"] = edge.EdgeVectorParams(size=contents.dimension, distance=distance)
        sparse_vectors = {IMPACTS: edge.EdgeSparseVectorParams()} if contents.impacts else None
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._explained():
            config = edge.EdgeConfig(vectors=vectors or None, sparse_vectors=sparse_vectors)
            self._shard = edge.EdgeShard.create(str(self._folder), config)
        with writing(self._facts) as file:
            file.write(contents.to_json() + "\n")

    def drop(self) -> None:
        """Remove the shard."""
        self.close()
        self._facts.unlink(missing_ok=True)
        shutil.rmtree(self._folder)

    def write(self, records: Sequence[Record]) -> None:
        """Write points; those of the same ids are replaced."""
        shard = self._open()
        with self._explained():
            shard.update(
                self._edge.UpdateOperation.upsert_points([self._point(record) for record in records])
            )

    def _point(self, record: Record) -> Any:  # noqa: ANN401 - the engine's object
        return self._edge.Point(uuid_of(record.key), *parts_of(record, self._sparse))

    def _sparse(self, weights: Mapping[str, float]) -> Any:  # noqa: ANN401 - the engine's object
        vector = sparse(weights)
        return self._edge.SparseVector(list(vector), list(vector.values()))

    def finish(self) -> None:
        """Build what searches quickly, and put everything on disk."""
        shard = self._open()
        with self._explained():
            shard.optimize()
            shard.flush()

    def nearest(self, vector: FloatArray, k: int, similarity: str) -> Hits:
        """Find the nearest points. Args: as in :meth:`Store.nearest`."""
        hits = self._query(vector.tolist(), "vector", k)
        return [(doc_id, -(score**2)) for doc_id, score in hits] if similarity == "l2" else hits

    def match(self, weights: Mapping[str, float], k: int) -> Hits:
        """Find points by their impacts. Args: as in :meth:`Store.match`."""
        return self._query(self._sparse(weights), IMPACTS, k) if weights else []

    def _query(self, vector: object, name: str, k: int) -> Hits:
        edge, shard = self._edge, self._open()
        with self._explained():
            params = edge.SearchParams(exact=self.vectors == "exact")
            nearest = edge.Query.Nearest(vector, name)
            request = edge.QueryRequest(limit=k, query=nearest, params=params, with_payload=["id"])
            return [(str(point.payload["id"]), float(point.score)) for point in shard.query(request)]

    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """Read documents by the ids of their points."""
        shard = self._open()
        with self._explained():
            points = shard.retrieve([uuid_of(f"0/{doc_id}") for doc_id in doc_ids], True, False)
        for point in points:
            payload = point.payload
            yield Document(str(payload["id"]), str(payload.get("text", "")), str(payload.get("title", "")))

    def close(self) -> None:
        """Put everything on disk, and let go of the folder."""
        if self._shard is not None:
            self._shard.close()
            self._shard = None
