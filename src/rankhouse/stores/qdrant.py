"""Qdrant: a server, a folder, or memory, through qdrant-client (extra ``qdrant``).

Every record is a point; its UUID is made from the document's id, which stands in the payload. Impacts are a
sparse vector, compared by the dot product. The collection's metadata says what it holds (servers from 1.16
on). The client runs without a server too, in memory or on a folder, comparing everything with everything: for
tests and small collections.

Qdrant Edge is Qdrant's own engine in a folder, without a server (extra ``qdrant-edge``), with the same
records: a shard for each collection, and beside it a file that says what the collection holds. One process at
a time can open a shard.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from rankhouse.core.errors import StoreFailed, WrongUse
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.io.decoding import read_own
from rankhouse.io.outputs import check_own_folder, only_writer, writing, writing_failures
from rankhouse.stores import clients
from rankhouse.stores import store as base

IMPACTS: Final = "impacts"
NAME_PATTERN: Final = r'[^/\\<>:"|?*\x00-\x1f]{1,255}'
NAME_RULE: Final = "a collection's name has 1 to 255 characters, none of them / or the like"
_EDGE_FILES: Final = ("edge_config.json", "segments", "wal")
_NOT_ITS_OWN: Final = "it is not Qdrant's, or damaged: name another folder"
_EDGE_ROOM: Final = 4 << 20  # bytes that an empty shard takes, and its log
_DISTANCES: Final = {"dot": "DOT", "cosine": "DOT", "l2": "EUCLID"}  # our cosine vectors have length 1


class _Meta(msgspec.Struct):
    collections: dict[str, dict[str, Any]]
    aliases: dict[str, str]


def _is_begun(meta: Path) -> bool:
    """Return whether a folder holds no more than what the client leaves where the disk was full at once."""
    folder = meta.parent
    names = [one.name for one in folder.iterdir()] if folder.is_dir() else []
    names = [name for name in names if not name.startswith(".")]
    return names == [meta.name] and meta.is_file() and not meta.stat().st_size


@dataclass(eq=False, repr=False)
class Qdrant(base.FieldStore):
    """A collection of Qdrant.

    Args:
        where: The server's address, a folder, or ":memory:"; a key is read from QDRANT_API_KEY.
        vector: Name of the vector; "" for the one without a name.
    """

    holds = frozenset({"vectors", "impacts"})
    hashed = True
    batch, batch_bytes, most = 256, 8 << 20, 1 << 17

    where: str
    collection: str

    def __post_init__(self) -> None:
        where = clients.without_user(self.where, "put the key into QDRANT_API_KEY")
        clients.check_name("qdrant", "collection", self.collection, NAME_PATTERN, accepted=NAME_RULE)
        qdrant = clients.library("qdrant_client", "qdrant", "qdrant")
        self._models: Any = qdrant.models
        self.name = f"qdrant {where}, collection {self.collection}"
        self._known_distance: str | None = None
        self._folder: Path | None = None  # of the collection, where there is no server
        self._made: Path | None = None
        with self.explained():
            if where.startswith(("http://", "https://")):
                secret = os.environ.get("QDRANT_API_KEY") or None
                options: dict[str, Any] = {"api_key": secret, "timeout": 120, "check_compatibility": False}
                self._client: Any = qdrant.QdrantClient(url=where, **options)
            elif where == ":memory:":
                self._client = qdrant.QdrantClient(":memory:")
            else:
                clients.folder_or_file("qdrant", where, "write  http://HOST:6333  or  https://HOST:PORT")
                check_own_folder(Path(where), ("meta.json",))
                meta = Path(where) / "meta.json"
                if _is_begun(meta):
                    meta.unlink()
                elif meta.exists():
                    read_own(meta, _Meta, _NOT_ITS_OWN, error=StoreFailed)
                self._folder = Path(where) / "collection" / self.collection
                self._made = clients.unmade(where)
                # Otherwise the client opens a connection of SQLite to ask about threads, and leaves it open.
                try:
                    self._client = qdrant.QdrantClient(path=where, force_disable_check_same_thread=True)
                except (ValueError, TypeError, KeyError) as fault:
                    what = "holds settings of collections that Qdrant's client cannot read"
                    raise StoreFailed(f"{meta}: {what}; {_NOT_ITS_OWN}") from fault

    @contextmanager
    def explained(self) -> Iterator[None]:
        http = clients.library("qdrant_client.http.exceptions", "qdrant", "qdrant")
        faults: tuple[type[Exception], ...] = (http.ApiException, ValueError, RuntimeError, OSError)
        if not self.where.startswith(("http://", "https://")):
            faults = (Exception,)  # SQLite's, pickle's, its own: whatever a damaged or full folder leads to
        with clients.explained(self.name, *faults), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "local mode is not recommended for ..."
            yield

    def exists(self) -> bool:
        return bool(self._client.collection_exists(self.collection))

    def _config(self) -> Any:  # noqa: ANN401 - the client's model
        return self._client.get_collection(self.collection).config

    def read(self) -> base.StoreContents | None:
        metadata = getattr(self._config(), "metadata", None) or {}
        return base.read_contents(metadata.get(base.CONTENTS), self.name)

    def count(self) -> int:
        return int(self._client.count(self.collection, exact=True).count)

    def dimension(self) -> int:
        params, one = self._params()
        if one is None:
            there = ", ".join(params) if isinstance(params, dict) else ""
            raise WrongUse(f'{self.name}: has no vector "{self.vector}"; there are: {there or "none"}')
        return int(one.size)

    def _params(self) -> tuple[Any, Any]:
        """Return the parameters of all vectors, and of the one that is searched."""
        params = self._config().params.vectors
        return params, params.get(self.vector) if isinstance(params, dict) else params

    def _refuse_foreign(self) -> None:
        if self._folder is not None:
            clients.refuse_foreign(self.name, self._folder, lambda name: name.startswith("storage.sqlite"))

    def create(self, contents: base.StoreContents) -> None:
        self._refuse_foreign()
        models, vectors = self._models, dict[str, Any]()
        if contents.dimension:
            exact = models.HnswConfigDiff(m=0) if contents.structure == "exact" else None
            distance = getattr(models.Distance, _DISTANCES[contents.similarity])
            vectors["vector"] = models.VectorParams(
                size=contents.dimension, distance=distance, hnsw_config=exact
            )
        impacts = {IMPACTS: models.SparseVectorParams()} if contents.impacts else None
        noted = {base.CONTENTS: contents.to_json()}
        self._client.create_collection(
            self.collection, vectors_config=vectors, sparse_vectors_config=impacts, metadata=noted
        )
        if self.contents() is None:
            self.drop()
            reason = "the server keeps no metadata of collections; Qdrant 1.16 or later does"
            raise StoreFailed(f"{self.name}: {reason}")

    def describe(self, contents: base.StoreContents) -> None:
        self._client.update_collection(self.collection, metadata={base.CONTENTS: contents.to_json()})

    def drop(self) -> None:
        self._refuse_foreign()
        self._known_distance = None
        if self._folder is not None and self.exists():  # the client leaves the database open
            self._client._client.collections[self.collection].close()  # noqa: SLF001 - no other way there
        self._client.delete_collection(self.collection)

    def write(self, records: Sequence[base.StoreRecord]) -> None:
        parts = ((base.uuid_of(record.key), *parts_of(record, self._models)) for record in records)
        points = [self._models.PointStruct(id=i, vector=vectors, payload=said) for i, vectors, said in parts]
        self._client.upsert(self.collection, points=points, wait=True)

    def nearest(self, vector: FloatArray, k: int, similarity: str) -> base.Hits:
        del similarity  # the collection has its own
        exact = self._models.SearchParams(exact=self.vectors == "exact")
        hits = self._query(vector.tolist(), self.vector or None, k, exact)
        if self._distance() == "Euclid":
            return [(doc_id, -(score**2)) for doc_id, score in hits]
        return [(doc_id, -score) for doc_id, score in hits] if self._distance() == "Manhattan" else hits

    def _distance(self) -> str:
        if self._known_distance is None:
            _, one = self._params()
            self._known_distance = str(one.distance.value) if one is not None else ""
        return self._known_distance

    def match(self, weights: Mapping[str, float], k: int) -> base.Hits:
        return self._query(sparse_of(self._models, weights), IMPACTS, k, None) if weights else []

    def _query(self, vector: object, using: str | None, k: int, params: object) -> base.Hits:
        fields = [self.key] if self.key else False
        points = self._client.query_points(
            self.collection, query=vector, using=using, limit=k, with_payload=fields, search_params=params
        ).points
        return [(self._id_of(point), float(point.score)) for point in points]

    def _id_of(self, point: Any) -> str:  # noqa: ANN401 - the client's model
        if not self.key:
            return str(point.id)
        return self.id_among(point.payload or {}, f"the point {point.id}", "the points'")

    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """Read documents: by their points' ids, or by the field that holds the ids."""
        fields = [name for name in (self.key, self.title, self.text) if name]
        if not self.key or self.known() is not None:
            own = (int(d) if d.isdecimal() else d for d in doc_ids)
            ids = [base.uuid_of(f"0/{d}") for d in doc_ids] if self.key else list(own)
            points = self._client.retrieve(self.collection, ids=ids, with_payload=fields)
        else:
            models = self._models
            values = [some for some in (list(doc_ids), clients.whole_numbers(doc_ids)) if some]
            matches = [models.MatchAny(any=some) for some in values]
            either = models.Filter(should=[models.FieldCondition(key=self.key, match=m) for m in matches])
            points, _ = self._client.scroll(
                self.collection, scroll_filter=either, limit=100 * len(doc_ids), with_payload=fields
            )
        for point in points:
            payload = point.payload or {}
            if self.text not in fields or self.text in payload:
                text, title = (str(payload.get(name) or "") for name in (self.text, self.title))
                yield Document(self._id_of(point), text, title)

    def close(self) -> None:
        clients.remove_unused(self._made, (".lock", "meta.json"))
        self._client.close()


def sparse_of(library: Any, weights: Mapping[str, float]) -> Any:  # noqa: ANN401 - the client's, or the engine's
    """Return weights of terms as the sparse vector of a library."""
    vector = base.sparse(weights)
    return library.SparseVector(indices=list(vector), values=list(vector.values()))


def parts_of(record: base.StoreRecord, library: Any) -> tuple[dict[str, Any], dict[str, str]]:  # noqa: ANN401 - as above
    """Return a point's vectors and its payload."""
    vectors: dict[str, Any] = {}
    if record.vector is not None:
        vectors["vector"] = record.vector.tolist()
    if record.impacts:
        vectors[IMPACTS] = sparse_of(library, record.impacts)
    payload = {"id": record.doc_id}
    if record.passage == 0:
        payload |= {"title": record.title, "text": record.text}
    return vectors, payload


@dataclass(eq=False, repr=False)
class QdrantEdge(base.Store):
    """A collection in a folder, run by Qdrant's engine."""

    holds = frozenset({"vectors", "impacts"})
    hashed = True
    batch, batch_bytes, most = 1000, 32 << 20, 1 << 17

    folder: str
    collection: str

    def __post_init__(self) -> None:
        clients.check_name("qdrant_edge", "collection", self.collection, NAME_PATTERN, accepted=NAME_RULE)
        instead = 'it is a folder; a server is asked by  qdrant("http://...")'
        clients.folder_or_file("qdrant_edge", self.folder, instead)
        self._edge: Any = clients.library("qdrant_edge", "qdrant_edge", "qdrant-edge")
        self._folder = Path(self.folder) / self.collection
        self._facts = Path(self.folder) / f"{self.collection}.json"
        self.name = f"qdrant_edge {self.folder}, collection {self.collection}"
        self._shard: Any = None

    def explained(self) -> AbstractContextManager[None]:
        return clients.explained(self.name, Exception)  # the engine raises nothing more special

    def _open(self) -> Any:  # noqa: ANN401 - the engine's object
        if self._shard is None:
            try:
                with self.explained():
                    self._shard = self._edge.EdgeShard.load(str(self._folder))
            except StoreFailed as error:
                if "WouldBlock" in str(error):
                    reason = "is open in another process; end that one first"
                    raise StoreFailed(f"{self.name}: {reason}") from None
                raise
        return self._shard

    def exists(self) -> bool:
        return (self._folder / "edge_config.json").exists()

    def writer(self) -> AbstractContextManager[object]:
        return only_writer(self._folder)

    def read(self) -> base.StoreContents | None:
        raw = self._facts.read_bytes() if self._facts.exists() else None
        return base.read_contents(
            raw, f"{self.name}: {self._facts}", "move it away, and push with --overwrite"
        )

    def _refuse_foreign(self) -> None:
        """Refuse to touch what is neither a shard of the engine nor what a killed push left of one."""
        is_noted = self._facts.exists()
        if is_noted and self.read() is None:
            raise WrongUse(
                f"{self.name}: {self._facts} is not by rankhouse, and is never replaced; name another "
                "collection, or move it away"
            )
        own = _EDGE_FILES if is_noted or self.exists() else ()
        clients.refuse_foreign(self.name, self._folder, own.__contains__)

    def count(self) -> int:
        return int(self._open().count(self._edge.CountRequest(exact=True)))

    def dimension(self) -> int:
        contents = self.contents()
        return contents.dimension if contents else 0

    def create(self, contents: base.StoreContents) -> None:
        edge, vectors = self._edge, dict[str, Any]()
        if contents.dimension:
            distance = edge.Distance.Euclid if contents.similarity == "l2" else edge.Distance.Dot
            vectors["vector"] = edge.EdgeVectorParams(size=contents.dimension, distance=distance)
        sparse_vectors = {IMPACTS: edge.EdgeSparseVectorParams()} if contents.impacts else None
        self._refuse_foreign()
        self.describe(contents)
        with writing_failures(self._folder):
            if self._folder.exists():  # empty, or what a killed push left
                shutil.rmtree(self._folder)
            self._folder.mkdir(parents=True)
        clients.check_room(self.name, self._folder, _EDGE_ROOM)
        config = edge.EdgeConfig(vectors=vectors or None, sparse_vectors=sparse_vectors)
        self._shard = edge.EdgeShard.create(str(self._folder), config)

    def describe(self, contents: base.StoreContents) -> None:
        with writing(self._facts) as file:
            file.write(contents.to_json() + "\n")

    def drop(self) -> None:
        self.close()
        self._refuse_foreign()
        self._facts.unlink(missing_ok=True)
        shutil.rmtree(self._folder)

    def write(self, records: Sequence[base.StoreRecord]) -> None:
        edge = self._edge
        # Each record stands in the log too.
        clients.check_room(self.name, self._folder, _EDGE_ROOM + 2 * sum(one.bytes for one in records))
        points = [edge.Point(base.uuid_of(record.key), *parts_of(record, edge)) for record in records]
        self._open().update(edge.UpdateOperation.upsert_points(points))

    def finish(self) -> None:
        """Build what searches quickly, and put everything on disk."""
        shard = self._open()
        held = sum(512 * path.stat().st_blocks for path in self._folder.rglob("*"))
        clients.check_room(self.name, self._folder, _EDGE_ROOM + held)
        shard.optimize()
        shard.flush()

    def nearest(self, vector: FloatArray, k: int, similarity: str) -> base.Hits:
        hits = self._query(vector.tolist(), "vector", k)
        return [(doc_id, -(score**2)) for doc_id, score in hits] if similarity == "l2" else hits

    def match(self, weights: Mapping[str, float], k: int) -> base.Hits:
        return self._query(sparse_of(self._edge, weights), IMPACTS, k) if weights else []

    def _query(self, vector: object, name: str, k: int) -> base.Hits:
        edge, shard = self._edge, self._open()
        params = edge.SearchParams(exact=self.vectors == "exact")
        nearest = edge.Query.Nearest(vector, name)
        request = edge.QueryRequest(limit=k, query=nearest, params=params, with_payload=["id"])
        return [(str(point.payload["id"]), float(point.score)) for point in shard.query(request)]

    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        ids = [base.uuid_of(f"0/{doc_id}") for doc_id in doc_ids]
        for point in self._open().retrieve(ids, True, False):
            payload = point.payload
            yield Document(str(payload["id"]), str(payload.get("text", "")), str(payload.get("title", "")))

    def close(self) -> None:
        if self._shard is not None:
            self._shard.close()
            self._shard = None
