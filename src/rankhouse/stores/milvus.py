"""Milvus: a server, or a file through milvus-lite, by pymilvus (extra ``milvus``).

Impacts are a sparse vector, compared by the inner product. Every record of a collection has every field: a
document without a vector has one of zeros, and is left out when vectors are searched; one without terms has a
dimension that no term has. What the collection holds stands in its properties and its description. A field of
text holds at most 65,535 bytes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.io.outputs import check_own_folder
from rankhouse.stores import clients
from rankhouse.stores import store as base

_LONGEST: Final = 65_535  # bytes of a text field
_NO_TERM: Final = {base.DIMENSIONS: base.NOTHING}
_NO_VECTOR: Final = -1  # stands in the field "passage"


@dataclass(eq=False, repr=False)
class Milvus(base.FieldStore):
    """A collection of Milvus: of a server, its token in MILVUS_TOKEN, or in a file of milvus-lite."""

    holds = frozenset({"vectors", "impacts"})
    hashed = True
    batch, batch_bytes, most = 500, 16 << 20, 16_384

    where: str
    collection: str

    def __post_init__(self) -> None:
        where = clients.without_user(self.where, "put the token into MILVUS_TOKEN")
        rule = "a collection's name has letters, digits and _, and does not begin with a digit"
        clients.check_name(
            "milvus", "collection", self.collection, r"[A-Za-z_][A-Za-z0-9_]{0,254}", accepted=rule
        )
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it talks of forks and pings on standard error
        self._milvus: Any = clients.library("pymilvus", "milvus", "milvus")
        self.name = f"milvus {where}, collection {self.collection}"
        self._metrics: dict[str, str] = {}
        self._made: Path | None = None
        options: dict[str, Any] = {}
        if "://" in where:
            options = {"token": os.environ.get("MILVUS_TOKEN", ""), "timeout": 60}
        else:
            clients.folder_or_file(
                "milvus", where, "write  http://HOST:19530  or the server's https:// address"
            )
            clients.library("milvus_lite", "milvus", "milvus")
            if Path(where).is_dir():  # from version 3 on; before, it is a file
                check_own_folder(Path(where), ("LOCK",))
            self._made = clients.unmade(where)
            # The client pings every 10 s; on a slow machine milvus-lite took that for an attack and hung up.
            options = {"grpc_options": {"grpc.keepalive_time_ms": 2**31 - 1}, "timeout": 60}
        with self.explained():
            self._client: Any = self._milvus.MilvusClient(where, **options)

    @contextmanager
    def explained(self) -> Iterator[None]:
        # Client and engine log every refusal with its whole traceback.
        faults = (self._milvus.MilvusException, OSError, ValueError, TypeError)
        with clients.silent("pymilvus", "milvus_lite"), clients.explained(self.name, *faults):
            yield

    def exists(self) -> bool:
        """Return whether there is such a collection; it is brought to memory, which a restart lets go."""
        is_there = bool(self._client.has_collection(self.collection))
        if is_there:
            self._client.load_collection(self.collection)
        return is_there

    def _described(self) -> dict[str, Any]:
        return dict(self._client.describe_collection(self.collection))

    def read(self) -> base.StoreContents | None:
        described = self._described()
        text = (described.get("properties") or {}).get(base.CONTENTS) or described.get("description", "")
        return base.read_contents(text if text.startswith("{") else None, self.name)

    def count(self) -> int:
        return int(self._client.query(self.collection, filter="", output_fields=["count(*)"])[0]["count(*)"])

    def dimension(self) -> int:
        fields = {field["name"]: field for field in self._described()["fields"]}
        if self.vector not in fields:
            raise WrongUse(f'{self.name}: has no field "{self.vector}"; there are: {", ".join(fields)}')
        return int(fields[self.vector]["params"].get("dim", 0))

    def create(self, contents: base.StoreContents) -> None:
        begun = Path(self.where) / "collections" / self.collection
        if begun.is_dir():  # of a collection that a full disk or a kill kept from being one
            clients.refuse_foreign(self.name, begun, lambda name: name.startswith("schema.json"))
            shutil.rmtree(begun)
        kinds = self._milvus.DataType
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
            self.collection,
            schema=schema,
            index_params=indexes,
            consistency_level="Strong",
            properties={base.CONTENTS: contents.to_json()},
        )

    def describe(self, contents: base.StoreContents) -> None:
        self._client.alter_collection_properties(
            self.collection, properties={base.CONTENTS: contents.to_json()}
        )

    def drop(self) -> None:
        self._is_known = False
        self._metrics.clear()
        self._client.drop_collection(self.collection)

    def write(self, records: Sequence[base.StoreRecord]) -> None:
        contents = self.known()
        assert contents is not None
        rows = [self._row(record, contents) for record in records]
        self._client.upsert(self.collection, rows)

    def _row(self, record: base.StoreRecord, contents: base.StoreContents) -> dict[str, Any]:
        for value in (record.doc_id, record.title, record.text):
            if (size := len(value.encode())) > _LONGEST:
                raise clients.too_long(self, record, size, _LONGEST)
        row: dict[str, Any] = {"key": record.key, "id": record.doc_id, "passage": record.passage}
        row |= {"title": record.title, "text": record.text}
        if contents.dimension:
            row["vector"] = [0.0] * contents.dimension if record.vector is None else record.vector.tolist()
            if record.vector is None:
                row["passage"] = _NO_VECTOR
        if contents.impacts:
            row["impacts"] = base.sparse(record.impacts) or _NO_TERM
        return row

    def finish(self) -> None:
        """Put what was written on disk, and have it ready to be searched."""
        self._client.flush(self.collection)
        self._client.load_collection(self.collection)

    def nearest(self, vector: FloatArray, k: int, similarity: str) -> base.Hits:
        del similarity  # the collection has its own
        own = self.known()
        options: dict[str, Any] = {"filter": f"passage > {_NO_VECTOR}"} if own else {}
        if self.vectors == "hnsw":
            options["search_params"] = {"params": {"ef": max(64, k)}}
        return self._search(vector.tolist(), self.vector, k, options)

    def match(self, weights: Mapping[str, float], k: int) -> base.Hits:
        query = base.sparse(weights)
        # Milvus may leave out small weights of a query to be quicker; it must not.
        exact = {"search_params": {"metric_type": "IP", "params": {"drop_ratio_search": 0.0}}}
        return self._search(query, "impacts", k, exact) if query else []

    def _search(self, vector: object, field: str, k: int, options: dict[str, Any]) -> base.Hits:
        hits = self._client.search(
            self.collection, [vector], anns_field=field, limit=k, output_fields=[self.key], **options
        )[0]
        metric = self._metric(field)
        sign = -1.0 if metric == "L2" else 1.0
        return [(str(hit["entity"][self.key]), sign * float(hit["distance"])) for hit in hits]

    def _metric(self, field: str) -> str:
        if field not in self._metrics:
            names = self._client.list_indexes(self.collection, field_name=field)
            index = self._client.describe_index(self.collection, names[0]) if names else {}
            self._metrics[field] = str(index.get("metric_type", "IP"))
        return self._metrics[field]

    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        own = self.known()
        kinds = {field["name"]: field["type"] for field in self._described()["fields"]}
        fields = [name for name in (self.key, self.title, self.text) if name in kinds]
        values: list[Any] = [f"0/{doc_id}" for doc_id in doc_ids] if own else list(doc_ids)
        if kinds.get(self.key, self._milvus.DataType.VARCHAR) != self._milvus.DataType.VARCHAR:
            values = clients.whole_numbers(doc_ids)
        if not values:
            return
        field = "key" if own else self.key
        # As JSON: the client's own way of writing a list of texts trips over backslashes.
        where = f"{field} in {json.dumps(values, ensure_ascii=False)}"
        rows = self._client.query(self.collection, filter=where, output_fields=fields)
        for row in rows:
            yield Document(str(row[self.key]), row.get(self.text) or "", row.get(self.title) or "")

    def close(self) -> None:
        clients.remove_unused(self._made, ("LOCK",))
        self._client.close()
