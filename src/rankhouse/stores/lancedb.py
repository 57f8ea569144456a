"""LanceDB: tables of texts and vectors in a folder or a bucket (extra ``lancedb``).

It has no sparse vectors, so no impacts; it ranks by its own full-text search. What a table holds is in the
metadata of its schema, and in that of the field "key", which can be changed later.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from rankhouse.core.errors import StoreFailed, WrongUse
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.io.outputs import only_writer
from rankhouse.stores import clients
from rankhouse.stores.store import CONTENTS, FieldStore, Hits, StoreContents, StoreRecord, read_contents


@dataclass(eq=False, repr=False)
class LanceDB(FieldStore):
    """A table of LanceDB: in a folder, s3://bucket/folder or the like, or db://name with LANCEDB_API_KEY."""

    holds = frozenset({"vectors", "texts"})
    batch, batch_bytes, most = 4096, 64 << 20, 1 << 20

    where: str
    table: str

    def __post_init__(self) -> None:
        where = clients.without_user(self.where, "put the key into LANCEDB_API_KEY")
        rule = "a table's name has letters, digits, _, - and ."
        clients.check_name("lancedb", "table", self.table, r"[\w.-]+", accepted=rule)
        self._folder: Path | None = None  # where the table lies, if that is on this machine
        self._made: Path | None = None
        if "://" not in where:
            clients.folder_or_file(
                "lancedb", where, "name a folder, s3://BUCKET/FOLDER or the like, or  db://NAME"
            )
            self._folder = Path(where) / f"{self.table}.lance"
            self._made = clients.unmade(where)
        os.environ.setdefault("LANCE_LOG", "error")  # it warns of every table that is new
        self._lance: Any = clients.library("lancedb", "lancedb", "lancedb")
        self._arrow: Any = clients.library("pyarrow", "lancedb", "lancedb")
        self.name = f"lancedb {where}, table {self.table}"
        secret = os.environ.get("LANCEDB_API_KEY") or None
        options = {"api_key": secret} if where.startswith("db://") else {}
        with self.explained():
            self._db: Any = self._lance.connect(where, **options)
        self._table: Any = None
        self._is_new = False

    @contextmanager
    def explained(self) -> Iterator[None]:
        with clients.explained(self.name, ValueError, RuntimeError, OSError), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield

    def writer(self) -> AbstractContextManager[object]:
        return nullcontext() if self._folder is None else only_writer(self._folder)

    def exists(self) -> bool:
        self._is_new = False  # what is there already may hold the same keys
        if self._table is None:
            try:
                self._table = self._db.open_table(self.table)
            except ValueError as error:
                if "not found" not in str(error):
                    raise
        return self._table is not None

    def read(self) -> StoreContents | None:
        schema = self._table.schema
        metadata = dict(schema.metadata or {})
        if "key" in schema.names:
            metadata |= schema.field("key").metadata or {}
        return read_contents(metadata.get(CONTENTS.encode()), self.name)

    def describe(self, contents: StoreContents) -> None:
        metadata = {CONTENTS: contents.to_json()}
        if hasattr(self._table, "update_field_metadata"):
            self._table.update_field_metadata({"path": "key", "metadata": metadata})
        else:  # lancedb before 0.33
            self._table.replace_field_metadata("key", metadata)

    def count(self) -> int:
        return int(self._table.count_rows())

    def dimension(self) -> int:
        schema = self._table.schema
        place = schema.get_field_index(self.vector)
        if place < 0:
            raise WrongUse(
                f'{self.name}: has no column "{self.vector}"; there are: {", ".join(schema.names)}'
            )
        return int(getattr(schema.field(place).type, "list_size", 0))

    def create(self, contents: StoreContents) -> None:
        self._refuse_foreign()
        pa = self._arrow
        columns = [("key", pa.string()), ("id", pa.string()), ("passage", pa.int32())]
        columns += [("title", pa.string()), ("text", pa.string())]
        if contents.dimension:
            columns.append(("vector", pa.list_(pa.float32(), contents.dimension)))
        schema = pa.schema(columns, metadata={CONTENTS: contents.to_json()})
        self._table = self._db.create_table(self.table, schema=schema)
        self._is_new = self._folder is not None  # nobody else writes there now, see writer

    def _refuse_foreign(self) -> None:
        if self._folder is not None:
            clients.refuse_foreign(
                self.name, self._folder, lambda name: name == "data" or name.startswith("_")
            )

    def drop(self) -> None:
        self._refuse_foreign()
        self._db.drop_table(self.table)
        self._table = None

    def write(self, records: Sequence[StoreRecord]) -> None:
        """Add rows; into a table that this process did not make, replace those of the same keys."""
        pa, schema = self._arrow, self._table.schema
        # A further passage has no text: null, so that no text search counts it as a document.
        texts = [(r.title, r.text) if r.passage == 0 else (None, None) for r in records]
        columns: dict[str, Any] = {
            "key": [r.key for r in records],
            "id": [r.doc_id for r in records],
            "passage": [r.passage for r in records],
            "title": [title for title, _ in texts],
            "text": [text for _, text in texts],
        }
        if "vector" in schema.names:
            vectors = [None if r.vector is None else r.vector.tolist() for r in records]
            columns["vector"] = pa.array(vectors, schema.field("vector").type)
        rows = pa.table(columns, schema=schema)
        if self._is_new:
            self._table.add(rows, on_bad_vectors="null")
        else:
            merge = self._table.merge_insert("key").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(rows, on_bad_vectors="null")

    def finish(self) -> None:
        """Join the small files of the batches, and build the structures that searches use."""
        contents = self.contents()
        assert contents is not None
        if self.count() > contents.records:
            raise StoreFailed(
                f"{self.name}: holds {self.count():,} records where {contents.records:,} were to be: two "
                "pushes wrote at once; push again with --overwrite"
            )
        built = {column for index in self._table.list_indices() for column in index.columns}
        indexes: Any = clients.library("lancedb.index", "lancedb", "lancedb")
        if contents.texts:
            for column in {"title", "text"} - built:
                self._table.create_index(column, config=indexes.FTS())
        if contents.structure == "hnsw" and contents.dimension and "vector" not in built:
            lists = max(1, math.ceil(self.count() / 4096))
            metric = "l2" if contents.similarity == "l2" else "dot"
            config = indexes.HnswSq(distance_type=metric, num_partitions=lists)
            self._table.create_index("vector", config=config)
        self._table.optimize(cleanup_older_than=timedelta(days=7))

    def nearest(self, vector: FloatArray, k: int, similarity: str) -> Hits:
        metric = self.compared(similarity)
        query = self._table.search(vector, vector_column_name=self.vector).distance_type(metric).limit(k)
        if self.vectors == "exact":
            query = query.bypass_vector_index()
        else:
            query = query.nprobes(20).ef(max(100, 2 * k)).refine_factor(2)
        rows = query.select([self.key, "_distance"]).to_arrow()
        far = rows["_distance"].to_pylist()
        # LanceDB's distance of the dot product and of the cosine is 1 minus it, and of l2 its square.
        scores = [-d for d in far] if metric == "l2" else [1 - d for d in far]
        return list(zip(map(str, rows[self.key].to_pylist()), scores, strict=True))

    def search_text(self, text: str, k: int) -> Hits:
        """Search titles and texts by LanceDB's own BM25."""
        queries: Any = clients.library("lancedb.query", "lancedb", "lancedb")
        columns = [name for name in (self.title, self.text) if name in self._table.schema.names]
        question = queries.MultiMatchQuery(text, columns)
        found = self._table.search(question, query_type="fts").limit(k)
        rows = found.select([self.key, "_score"]).to_arrow()
        return list(zip(map(str, rows[self.key].to_pylist()), rows["_score"].to_pylist(), strict=True))

    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        names = self._table.schema.names
        columns = [name for name in (self.key, self.title, self.text) if name in names]
        values = ["'" + doc_id.replace("'", "''") + "'" for doc_id in doc_ids]
        if self.key in names and self._arrow.types.is_integer(self._table.schema.field(self.key).type):
            values = list(map(str, clients.whole_numbers(doc_ids)))
        if not values:
            return
        first = " AND passage = 0" if self.known() is not None else ""
        where = f"`{self.key}` IN ({', '.join(values)}){first}"
        found = self._table.search().where(where).limit(100 * len(doc_ids))
        rows = found.select(columns).to_arrow().to_pylist()
        for row in rows:
            yield Document(str(row[self.key]), row.get(self.text) or "", row.get(self.title) or "")

    def close(self) -> None:
        clients.remove_unused(self._made)
