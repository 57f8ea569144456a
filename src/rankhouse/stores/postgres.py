"""PostgreSQL with pgvector, by psycopg (extra ``postgres``).

A table has a row a record; what it holds stands in its comment. Impacts are a table of postings beside it,
TABLE_postings (term, number, weight), which a query joins with its own terms and sums up: exact, by an
ordinary B-tree, and without pgvector's limit of 16,000 terms a document. Texts are ranked by PostgreSQL's own
ts_rank_cd.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Final

from rankhouse.core.errors import StoreFailed, WrongUse
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.stores.clients import check_name, explained, library, masked, too_long, without_user
from rankhouse.stores.store import FieldStore, Hits, StoreContents, StoreRecord, read_contents

_OPERATORS: Final = {"dot": "<#>", "cosine": "<=>", "l2": "<->"}
_CLASSES: Final = {"dot": "vector_ip_ops", "cosine": "vector_ip_ops", "l2": "vector_l2_ops"}
_LONGEST: Final = 100_000_000  # bytes of a text; PostgreSQL's own limit for a field is 1 GB
_LEXED: Final = 200_000  # characters of a text that its own search reads: a tsvector has at most 1 MB


@dataclass(eq=False, repr=False)
class Postgres(FieldStore):
    """A table of PostgreSQL."""

    holds = frozenset({"vectors", "impacts", "texts"})
    batch, batch_bytes, most = 2000, 32 << 20, 1 << 20

    # "postgresql://host/database", "host=... dbname=...", or "" for what the PG... variables say; the
    # password comes from PGPASSWORD or ~/.pgpass.
    where: str
    table: str

    def __post_init__(self) -> None:
        self._psycopg: Any = library("psycopg", "postgres", "postgres")
        self._sql: Any = library("psycopg.sql", "postgres", "postgres")
        rule = "a table is named TABLE or SCHEMA.TABLE, of letters, digits and _, 50 characters at most"
        check_name("postgres", "table", self.table, r"(\w{1,50}\.)?\w{1,50}", accepted=rule)
        self.name = f"postgres {self._address()}, table {self.table}"
        with self.explained():
            self._connection: Any = self._psycopg.connect(self.where, autocommit=True, connect_timeout=10)

    def _address(self) -> str:
        how = "put the password into PGPASSWORD or ~/.pgpass"
        try:
            facts = self._psycopg.conninfo.conninfo_to_dict(self.where)
        except self._psycopg.Error:
            without_user(self.where, how)
            raise WrongUse(
                'postgres(...): the address cannot be read; write  "postgresql://host:5432/database"  or  '
                '"host=... dbname=..."'
            ) from None
        if facts.get("password"):
            raise WrongUse(f"postgres(...): leave the password out of the address; {how}")
        return masked(f"{facts.get('host', 'here')}/{facts.get('dbname', '')}".rstrip("/"))

    def explained(self) -> AbstractContextManager[None]:
        return explained(self.name, self._psycopg.Error, OSError)

    def _run(self, statement: str, values: Sequence[object] | Mapping[str, object] = (), **parts: Any) -> Any:  # noqa: ANN401 - psycopg's objects
        """Carry a statement out: names of tables and columns in braces, values as %s."""
        sql = self._sql
        columns = {"id": self.key, "title": self.title, "text": self.text, "vector": self.vector}
        names = {"t": self._identifier(), "postings": self._identifier("_postings")}
        names |= {name: sql.Identifier(column) for name, column in columns.items()}
        return self._connection.execute(sql.SQL(statement).format(**(names | parts)), values or None)

    def _identifier(self, more: str = "") -> Any:  # noqa: ANN401 - psycopg's object
        *schema, table = self.table.split(".")
        return self._sql.Identifier(*schema, table + more)

    def _regclass(self) -> str:
        return str(self._identifier().as_string(self._connection))

    def exists(self) -> bool:
        return self._run("SELECT to_regclass(%s)", [self._regclass()]).fetchone()[0] is not None

    def read(self) -> StoreContents | None:
        answer = self._run(
            "SELECT obj_description(to_regclass(%s), 'pg_class')", [self._regclass()]
        ).fetchone()[0]
        return read_contents(answer if answer and answer.startswith("{") else None, self.name)

    def count(self) -> int:
        return int(self._run("SELECT count(*) FROM {t}").fetchone()[0])

    def dimension(self) -> int:
        query = "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = %s"
        found = self._run(query, [self._regclass(), self.vector]).fetchone()
        if found is None:
            raise WrongUse(f'{self.name}: has no column "{self.vector}"; name it, as in  vector="..."')
        return max(0, int(found[0]))

    def create(self, contents: StoreContents) -> None:
        """Make the tables, both or none."""
        sql, column = self._sql, self._sql.SQL("")
        if contents.dimension:
            try:
                self._run("CREATE EXTENSION IF NOT EXISTS vector")
            except StoreFailed as error:
                raise StoreFailed(
                    f"{error}; pgvector has to be installed there, and enabled by its owner"
                ) from None
            column = sql.SQL(", vector vector({})").format(sql.Literal(contents.dimension))
        with self._connection.transaction():
            self._run(
                "CREATE TABLE {t} (id text, passage int, number bigint, title text, text text{column}, "
                "PRIMARY KEY (id, passage))",
                column=column,
            )
            if contents.impacts:
                self._run(
                    "CREATE TABLE {postings} (term text, number bigint, weight real, PRIMARY KEY (term, "
                    "number) INCLUDE (weight))"
                )
                self._run("CREATE INDEX ON {postings} (number)")
                self._run("CREATE INDEX ON {t} (number)")
            self.describe(contents)

    def describe(self, contents: StoreContents) -> None:
        self._run("COMMENT ON TABLE {t} IS {facts}", facts=self._sql.Literal(contents.to_json()))

    def drop(self) -> None:
        held: StoreContents | None = None
        with suppress(StoreFailed):  # it cannot be read, and need not be
            held = self.known()
        self._is_known = False
        with self._connection.transaction():
            if held is not None and held.impacts:  # another's table of that name is none of our postings
                self._run("DROP TABLE IF EXISTS {postings}")
            self._run("DROP TABLE {t}")

    def write(self, records: Sequence[StoreRecord]) -> None:
        """Write rows in one transaction; those of the same documents and passages are replaced."""
        contents = self.known()
        assert contents is not None
        for record in records:
            if (size := len(record.text.encode())) > _LONGEST:
                raise too_long(self, record, size, _LONGEST)
        numbers = [record.number for record in records if record.passage == 0]
        with self._connection.transaction():
            self._run(
                "DELETE FROM {t} USING unnest(%s::text[], %s::int[]) AS new(i, p) WHERE id = i AND passage "
                "= p",
                [[record.doc_id for record in records], [record.passage for record in records]],
            )
            more = ", vector" if contents.dimension else ""
            rows = (_row(record, contents) for record in records)
            self._copy(f"COPY {{t}} (id, passage, number, title, text{more}) FROM STDIN", rows)
            if contents.impacts:
                self._run("DELETE FROM {postings} WHERE number = ANY(%s)", [numbers])
                postings = ((_storable(t), r.number, w) for r in records for t, w in r.impacts.items())
                self._copy("COPY {postings} (term, number, weight) FROM STDIN", postings)

    def _copy(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        names = {"t": self._identifier(), "postings": self._identifier("_postings")}
        with (
            self._connection.cursor() as cursor,
            cursor.copy(self._sql.SQL(statement).format(**names)) as copy,
        ):
            for row in rows:
                copy.write_row(row)

    def finish(self) -> None:
        contents = self.contents()
        assert contents is not None
        name = self.table.rpartition(".")[2]
        if contents.texts:
            self._run(
                "CREATE INDEX IF NOT EXISTS {name} ON {t} USING gin ({lexemes}) WHERE passage = 0",
                name=self._sql.Identifier(f"{name}_words"),
                lexemes=self._lexemes(),
            )
        if contents.structure == "hnsw" and contents.dimension:
            self._run(
                "CREATE INDEX IF NOT EXISTS {name} ON {t} USING hnsw (vector {kind})",
                name=self._sql.Identifier(f"{name}_hnsw"),
                kind=self._sql.SQL(_CLASSES[contents.similarity]),
            )
        self._run("ANALYZE {t}")
        if contents.impacts:
            self._run("VACUUM ANALYZE {postings}")  # so that sums read the index alone

    def nearest(self, vector: FloatArray, k: int, similarity: str) -> Hits:
        kind = self.compared(similarity)
        values = {"q": str(vector.tolist()), "k": k}
        with self._connection.transaction():
            if self.vectors == "exact":
                self._run("SET LOCAL enable_indexscan = off")
            else:
                self._run(f"SET LOCAL hnsw.ef_search = {min(1000, max(40, k))}")
                self._run("SET LOCAL hnsw.iterative_scan = strict_order")
            rows = self._run(
                "SELECT {id}, {vector} {far} %(q)s::vector FROM {t} WHERE {vector} IS NOT NULL "
                "ORDER BY {vector} {far} %(q)s::vector LIMIT %(k)s",
                values,
                far=self._sql.SQL(_OPERATORS[kind]),
            ).fetchall()
        return [
            (str(doc_id), -(far**2) if kind == "l2" else 1 - far if kind == "cosine" else -far)
            for doc_id, far in rows
        ]

    def match(self, weights: Mapping[str, float], k: int) -> Hits:
        """Sum the postings of the query's terms."""
        rows = self._run(
            "WITH best AS (SELECT number, sum(weight::float8 * boost)::float4 AS score FROM {postings} "
            "JOIN unnest(%s::text[], %s::float8[]) AS query(word, boost) ON term = word GROUP BY number) "
            "SELECT id, score FROM best JOIN {t} USING (number) WHERE passage = 0 "
            'ORDER BY score DESC, id COLLATE "C" LIMIT %s',
            [list(weights), list(weights.values()), k],
        )
        return [(doc_id, score) for doc_id, score in rows.fetchall()]

    def search_text(self, text: str, k: int) -> Hits:
        """Rank by ts_rank_cd the rows that hold any of the words."""
        rows = self._run(
            "WITH asked AS (SELECT replace(plainto_tsquery('english', %s)::text, '&', '|')::tsquery AS "
            "words) SELECT {id}, ts_rank_cd({lexemes}, words) AS score FROM {t}, asked WHERE {lexemes} @@ "
            'words{main} ORDER BY score DESC, {id}::text COLLATE "C" DESC LIMIT %s',
            [text, k],
            lexemes=self._lexemes(),
            main=self._main(),
        )
        return [(str(doc_id), float(score)) for doc_id, score in rows.fetchall()]

    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        statement = "SELECT {id}::text, {title}, {text} FROM {t} WHERE {id}::text = ANY(%s){main}"
        for doc_id, title, text in self._run(statement, [list(doc_ids)], main=self._main()).fetchall():
            yield Document(doc_id, text or "", title or "")

    def _main(self) -> Any:  # noqa: ANN401 - psycopg's object
        """Leave out further passages, which have no text, where the table is ours."""
        return self._sql.SQL(" AND passage = 0" if self.known() is not None else "")

    def _lexemes(self) -> Any:  # noqa: ANN401 - psycopg's object
        sql = self._sql
        title, text = (sql.Identifier(name) for name in (self.title, self.text))
        whole = sql.SQL("coalesce({}, '') || ' ' || coalesce({}, '')").format(title, text)
        return sql.SQL("to_tsvector('english', left({}, {}))").format(whole, sql.Literal(_LEXED))

    def close(self) -> None:
        self._connection.close()


def _row(record: StoreRecord, contents: StoreContents) -> tuple[object, ...]:
    texts = [_storable(one) if record.passage == 0 else None for one in (record.title, record.text)]
    vector = None if record.vector is None else str(record.vector.tolist())
    return record.doc_id, record.passage, record.number, *texts, *([vector] if contents.dimension else [])


def _storable(text: str) -> str:
    """Return a text without the null character, which PostgreSQL does not keep."""
    return text.replace("\0", "\ufffd")
