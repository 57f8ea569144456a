"""Milvus: a server, or a file through milvus-lite, by pymilvus (extra ``milvus``).

Impacts are a sparse vector, compared by the inner product. Every record of a collection has every field: a
document without a vector has one of zeros, and is left out when vectors are searched; one without terms has a
dimension that no term has. What the collection holds stands in its properties and its description. A field of
text holds at most 65,535 bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rankhouse.app.adapters.stores.clients import (
    cannot,
    check_name,
    explained,
    library,
    refuse_texts_only,
    silent,
    too_long,
    without_user,
)
from rankhouse.app.adapters.stores.impacts import NOTHING
from rankhouse.app.adapters.stores.records import DIMENSIONS, sparse
from rankhouse.app.adapters.stores.store import CONTENTS, Contents, Hits, Record, Structure, read_contents
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, FloatArray

_LONGEST: Final = 65_535  # bytes of a text field
_NO_TERM: Final = {DIMENSIONS: NOTHING}
_NO_VECTOR: Final = -1  # stands in the field "passage"


class Milvus:
    """A collection of Milvus.

    Args:
        where: The server's address, or a file of milvus-lite; a token is read from MILVUS_TOKEN.
        collection: Its name.
        key: Field of the document ids.
        title: Field of the titles.
        text: Field of the texts.
        vector: Field of the vectors.
        vectors: "exact", or "hnsw" for Milvus's approximate structure.
    """

    holds = frozenset({"vectors", "impacts"})
    hashed, weighs = True, False
    batch, batch_bytes, most = 500, 16 << 20, 16_384

    def __init__(
        self,
        where: str,
        collection: str,
        key: str = "id",
        title: str = "title",
        text: str = "text",
        vector: str = "vector",
        vectors: Structure = "exact",
    ) -> None:
        where = without_user(where, "put the token into MILVUS_TOKEN")
        rule = "a collection's name has letters, digits and _, and does not begin with a digit"
        check_name("milvus", "collection", collection, r"[A-Za-z_][A-Za-z0-9_]{0,254}", rule)
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it talks of forks and pings on standard error
        self._milvus: Any = library("pymilvus", "milvus", "milvus")
        self.name, self._collection, self.structure = (
            f"milvus {where}, collection {collection}",
            collection,
            vectors,
        )
        self._key, self._title, self._text, self._vector = key, title, text, vector
        self._known: Contents | None = None
        self._metrics: dict[str, str] = {}
        options: dict[str, Any] = {}
        if "://" in where:
            options = {"token": os.environ.get("MILVUS_TOKEN", ""), "timeout": 60}
        else:
            library("milvus_lite", "milvus", "milvus")
        with self._explained():
            self._client: Any = self._milvus.MilvusClient(where, **options)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        # The client logs every refusal with its whole traceback.
        faults = (self._milvus.MilvusException, OSError, ValueError, TypeError)
        with silent("pymilvus"), explained(self.name, *faults):
            yield

    def exists(self) -> bool:
        """Return whether there is such a collection; it is brought to memory, which a restart lets go."""
        with self._explained():
            is_there = bool(self._client.has_collection(self._collection))
            if is_there:
                self._client.load_collection(self._collection)
        return is_there

    def _described(self) -> dict[str, Any]:
        with self._explained():
            return dict(self._client.describe_collection(self._collection))

    def contents(self) -> Contents | None:
        """Return what the collection's properties, or its description, say."""
        described = self._described()
        said = (described.get("properties") or {}).get(CONTENTS) or described.get("description", "")
        self._known = read_contents(said if said.startswith("{") else None, self.name)
        return self._known

    def count(self) -> int:
        """Count the records."""
        with self._explained():
            return int(
                self._client.query(self._collection, filter="", output_fields=["count(*)"])[0]["count(*)"]
            )

    def dimension(self) -> int:
        """Return the size of the vectors that are searched."""
        fields = {field["name"]: field for field in self._described()["fields"]}
        if self._vector not in fields:
            raise WrongUse(f'{self.name}: has no field "{self._vector}"; there are: {", ".join(fields)}')
        return int(fields[self._vector]["params"].get("dim", 0))

    def check(self, contents: Contents) -> None:
        """Refuse a collection of texts only."""
        refuse_texts_only(self, contents)

    def create(self, contents: Contents) -> None:
        """Make the collection, with its structures."""
        kinds = self._milvus.DataType
        with self._explained():
            schema = self._client.create_schema(
                auto_id=False, enable_dynamic_field=False, description=contents.to_json()
            )
            schema.add_field("key", kinds.VARCHAR, is_primary=True, max_length=_LONGEST)
            schema.add_field("passage", kinds.INT64)
            for name in ("id", "title", "text"):
                schema.add_field(name, kinds.VARCHAR, max_length=_LONGEST)
            indexes = self._client.prepare_index_params()
            if contents.dimension:
                schema.add_field("vector", kinds.FLOAT_VECTOR, dim=contents.dimension)
                metric = "L2" if contents.similarity == "l2" else "IP"
                kind = "HNSW" if contents.structure == "hnsw" else "FLAT"
                params = {"M": 16, "efConstruction": 200} if kind == "HNSW" else {}
                indexes.add_index("vector", index_type=kind, metric_type=metric, params=params)
            if contents.impacts:
                schema.add_field("impacts", kinds.SPARSE_FLOAT_VECTOR)
                indexes.add_index("impacts", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
            self._client.create_collection(
                self._collection,
                schema=schema,
                index_params=indexes,
                consistency_level="Strong",
                properties={CONTENTS: contents.to_json()},
            )

    def drop(self) -> None:
        """Remove the collection."""
        self._known = None
        self._metrics.clear()
        with self._explained():
            self._client.drop_collection(self._collection)

    def write(self, records: Sequence[Record]) -> None:
        """Write records; those of the same keys are replaced."""
        contents = self._known or self.contents()
        assert contents is not None
        rows = [self._row(record, contents) for record in records]
        with self._explained():
            self._client.upsert(self._collection, rows)

    def _row(self, record: Record, contents: Contents) -> dict[str, Any]:
        for value in (record.doc_id, record.title, record.text):
            if (size := len(value.encode())) > _LONGEST:
                raise too_long(self, record, size, _LONGEST)
        row: dict[str, Any] = {"key": record.key, "id": record.doc_id, "passage": record.passage}
        row |= {"title": record.title, "text": record.text}
        if contents.dimension:
            row["vector"] = [0.0] * contents.dimension if record.vector is None else record.vector.tolist()
            if record.vector is None:
                row["passage"] = _NO_VECTOR
        if contents.impacts:
            row["impacts"] = sparse(record.impacts) or _NO_TERM
        return row

    def finish(self) -> None:
        """Put what was written on disk, and have it ready to be searched."""
        with self._explained():
            self._client.flush(self._collection)
            self._client.load_collection(self._collection)

    def nearest(self, vector: FloatArray, k: int, similarity: str) -> Hits:
        """Find the nearest records. Args: as in :meth:`Store.nearest`."""
        del similarity  # the collection has its own
        own = self._known or self.contents()
        options: dict[str, Any] = {"filter": f"passage > {_NO_VECTOR}"} if own else {}
        if self.structure == "hnsw":
            options["search_params"] = {"params": {"ef": max(64, k)}}
        return self._search(vector.tolist(), self._vector, k, options)

    def match(self, weights: Mapping[str, float], k: int) -> Hits:
        """Find records by their impacts. Args: as in :meth:`Store.match`."""
        query = sparse(weights)
        # Milvus may leave out small weights of a query to be quicker; it must not.
        exact = {"search_params": {"metric_type": "IP", "params": {"drop_ratio_search": 0.0}}}
        return self._search(query, "impacts", k, exact) if query else []

    def _search(self, vector: object, field: str, k: int, options: dict[str, Any]) -> Hits:
        with self._explained():
            hits = self._client.search(
                self._collection, [vector], anns_field=field, limit=k, output_fields=[self._key], **options
            )[0]
            metric = self._metric(field)
        sign = -1.0 if metric == "L2" else 1.0
        return [(str(hit["entity"][self._key]), sign * float(hit["distance"])) for hit in hits]

    def _metric(self, field: str) -> str:
        if field not in self._metrics:
            names = self._client.list_indexes(self._collection, field_name=field)
            index = self._client.describe_index(self._collection, names[0]) if names else {}
            self._metrics[field] = str(index.get("metric_type", "IP"))
        return self._metrics[field]

    def search_text(self, text: str, k: int) -> Hits:
        """Refuse: not asked of Milvus here. Args: as in :meth:`Store.search_text`."""
        raise cannot(self, f"has no text search that ranks (asked for {k} for {text[:40]!r})", "push impacts")

    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """Read documents by their ids."""
        own = self._known or self.contents()
        described = [field["name"] for field in self._described()["fields"]]
        fields = [name for name in (self._key, self._title, self._text) if name in described]
        field, values = ("key", [f"0/{doc_id}" for doc_id in doc_ids]) if own else (self._key, list(doc_ids))
        # As JSON: the client's own way of writing a list of texts trips over backslashes.
        where = f"{field} in {json.dumps(values, ensure_ascii=False)}"
        with self._explained():
            rows = self._client.query(self._collection, filter=where, output_fields=fields)
        seen: set[str] = set()
        for row in rows:
            if (doc_id := str(row[self._key])) not in seen:
                seen.add(doc_id)
                yield Document(doc_id, row.get(self._text) or "", row.get(self._title) or "")

    def close(self) -> None:
        """Close the connection."""
        self._client.close()
