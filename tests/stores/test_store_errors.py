"""What goes wrong with a store is said in one line, without a secret; what others filled can be searched."""

import subprocess
import sys

import numpy as np
import pytest

from rankhouse.core.errors import BadData, MissingExtra, RankhouseError, StoreFailed, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.stores.clients import masked
from rankhouse.stores.names import open_store
from rankhouse.stores.pull import pull_dense, pull_documents, pull_impacts, pull_text
from rankhouse.stores.push import PushOptions, count_collisions, push
from rankhouse.stores.store import StoreRecord, batches, dimension_of, sparse, uuid_of

from .conftest import NEEDED, QUERIES, WordEncoder, _need

BM25 = "bm25(k1=0.9, b=0.4)"
NOWHERE = {
    "qdrant": 'qdrant("http://127.0.0.1:9", collection="c")',
    "milvus": 'milvus("http://127.0.0.1:9", collection="c")',
    "postgres": 'postgres("postgresql://127.0.0.1:9/x", table="c")',
    "opensearch": 'opensearch("http://127.0.0.1:9", index="c")',
    "elasticsearch": 'elasticsearch("http://127.0.0.1:9", index="c")',
}


@pytest.mark.parametrize("kind", NOWHERE)
def test_a_server_that_is_not_there(kind):
    _need(kind)
    with pytest.raises(StoreFailed, match=rf"^{kind} .*127\.0\.0\.1.*is the server running") as error:
        open_store(NOWHERE[kind]).exists()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ('nostore("x")', "not a known store"),
        ("qdrant()", "missing a required argument: 'where'; accepted: qdrant(where, collection"),
        (
            'qdrant(":memory:", collection="c", vectors="flat")',
            "vectors='flat', but it takes 'exact' or 'hnsw'",
        ),
        ('qdrant(":memory:", collection="a/b")', "none of them / or the like"),
        ('lancedb("x", table="a b")', "a table's name has letters"),
        ('milvus("x.db", collection="1")', "does not begin with a digit"),
        ('postgres("", table="x; drop table y")', "a table is named TABLE or SCHEMA.TABLE"),
        ('opensearch("http://127.0.0.1:9", index="Papers")', "an index's name is in lower case"),
        ('elasticsearch("http://127.0.0.1:9", index="_x")', "an index's name is in lower case"),
        (
            'qdrant("localhost:6333", collection="c")',
            "qdrant('localhost:6333'): is no address that can be asked",
        ),
        ('qdrant("htp://localhost", collection="c")', "write  http://HOST:6333"),
        ('qdrant_edge("http://localhost:6333", collection="c")', "it is a folder"),
        ('milvus("localhost:19530", collection="c")', "write  http://HOST:19530"),
        ('lancedb("db:/name", table="c")', "or  db://NAME"),
    ],
)
def test_a_notation_that_is_wrong(spec, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WrongUse) as error:
        open_store(spec)
    assert said in str(error.value)
    assert not list(tmp_path.iterdir())  # no folder of that name was made


@pytest.mark.parametrize(
    "spec",
    [
        'qdrant("https://me:hunter2secret@host", collection="c")',
        'qdrant("https://host", collection="c", api_key="hunter2secret")',
        'milvus("http://me:hunter2secret@host", collection="c")',
        'postgres("postgresql://me:hunter2secret@host/db", table="c")',
        'postgres("host=h password=hunter2secret", table="c")',
        'postgres("host=h password = hunter2secret oops", table="c")',
        'opensearch("https://me:hunter2secret@host", index="c")',
        'elasticsearch("https://me:hunter2secret@host", index="c", what=1)',
        'lancedb("db://x?api_key=hunter2secret", table="c")',
    ],
)
def test_a_secret_in_a_notation_is_refused_and_not_repeated(spec):
    with pytest.raises(WrongUse) as error:
        open_store(spec)
    assert "hunter2secret" not in str(error.value)


def test_a_secret_of_the_environment_is_never_shown(monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "hunter2secret")
    assert masked("401: bad key hunter2secret for https://me:pw12@host?token=abc") == (
        "401: bad key *** for https://***@host?token=***"
    )


def test_keys_and_passwords_reach_the_server(index, engine, monkeypatch):
    monkeypatch.setenv("OPENSEARCH_USERNAME", "me")
    monkeypatch.setenv("OPENSEARCH_PASSWORD", "hunter2secret")
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", "hunter2secret")
    for kind, scheme in (("opensearch", "Basic "), ("elasticsearch", "ApiKey ")):
        _need(kind)
        store = open_store(f"{kind}({engine.url!r}, index='nothing')")
        assert not store.exists()
        headers = {name.lower(): value for name, value in engine.requests[-1][2].items()}
        assert headers["authorization"].startswith(scheme)
        store.close()


@pytest.mark.parametrize("kind", NEEDED)
def test_a_missing_library_is_named(kind, monkeypatch):
    for name in NEEDED[kind]:
        monkeypatch.setitem(sys.modules, name, None)
    spec = NOWHERE.get(kind) or f'{kind}("x", {"table" if kind == "lancedb" else "collection"}="c")'
    extra = kind.replace("_", "-")
    with pytest.raises(MissingExtra, match=rf'pip install "rankhouse\[{extra}\]"'):
        open_store(spec)


def test_the_base_install_imports_no_client():
    clients = {name for names in NEEDED.values() for name in names}
    code = (
        "import sys, rankhouse.cli.commands.stores\n"
        f"heavy = {clients!r} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def record(doc_id="d", text="", **more):
    return StoreRecord(0, doc_id, 0, "", text, more.get("vector"), more.get("impacts", {}))


def test_batches_stay_within_count_and_size():
    records = [record(str(i), "x" * (1000 if i == 3 else 10)) for i in range(8)]
    groups = list(batches(records, 3, 900))
    assert [r for group in groups for r in group] == records
    assert [len(group) for group in groups] == [3, 1, 3, 1]


def test_names_and_dimensions_never_change():
    assert uuid_of("0/d1") == "ab26abc3-dfb5-5a54-8650-e6a9d87e1a2d"
    assert uuid_of("0/d1") != uuid_of("1/d1")
    assert dimension_of("ship") == 220096121 < 2**32 - 1
    assert sparse({"b": 1.0, "a": 2.0}) == dict(
        sorted({dimension_of("a"): 2.0, dimension_of("b"): 1.0}.items())
    )


def test_terms_that_coincide_are_counted(index, monkeypatch):
    assert count_collisions(index) == 0
    monkeypatch.setattr("rankhouse.stores.push.DIMENSIONS", 7)
    assert count_collisions(index) == index.distinct_terms() - 7


def test_a_text_beyond_the_field_is_named(tmp_path, store_of):
    build(
        [Document("long", "ship " * 20_000), Document("short", "lamp")],
        tmp_path / "i",
        BuildOptions(workers=1),
    )
    small, store = Index.open(tmp_path / "i"), store_of("milvus")
    with pytest.raises(BadData, match=r'document "long" has 1\d\d,\d{3} bytes of text.*--no-texts'):
        push(small, store, PushOptions(impacts=BM25))
    push(small, store, PushOptions(impacts=BM25, texts=False, overwrite=True))
    assert pull_impacts(store, [Query("q", "ships")])["q"].doc_ids == ("long",)


def test_an_index_that_has_grown_is_refused(tmp_path, store_of):
    _need("qdrant_edge")
    documents = [Document(f"d{i}", f"ship number{i}") for i in range(5)]
    build(documents[:4], tmp_path / "a", BuildOptions(workers=1))
    build(documents, tmp_path / "b", BuildOptions(workers=1))
    small, large = Index.open(tmp_path / "a"), Index.open(tmp_path / "b")
    store = store_of("qdrant_edge")
    push(small, store, PushOptions(impacts=BM25))
    with pytest.raises(
        WrongUse, match="holds another index, or another state of it; name another one, or --over"
    ):
        push(large, store, PushOptions(impacts=BM25))
    with pytest.raises(WrongUse, match="holds impacts of another index"):
        pull_impacts(store, QUERIES, feedback="rm3", index=large)
    assert push(large, store, PushOptions(impacts=BM25, overwrite=True)).written == 5
    assert pull_impacts(store, QUERIES) == retrieve(large, QUERIES, LexicalOptions(BM25))


# --- collections that somebody else filled --------------------------------------------------------------

TEXTS = {"a": "ships sail", "b": "lamps burn", "c": "winding stones"}


def foreign(kind, store, encoder, texts):
    """Fill a collection with another program's field names, through the engine's own client."""
    vectors = {name: encoder.encode_passages([text])[0] for name, text in texts.items()}
    numbered = all(isinstance(name, int) for name in texts)
    if kind == "qdrant":
        models = store._models
        size = models.VectorParams(size=encoder.dimension, distance=models.Distance.COSINE)
        store._client.create_collection("theirs", vectors_config={"minilm": size})
        points = [
            models.PointStruct(
                id=i, vector={"minilm": vectors[name].tolist()}, payload={"doc": name, "body": text}
            )
            for i, (name, text) in enumerate(texts.items())
        ]
        store._client.upsert("theirs", points)
    elif kind == "lancedb":
        pa = store._arrow
        columns = [
            ("doc", pa.int64() if numbered else pa.string()),
            ("body", pa.string()),
            ("minilm", pa.list_(pa.float32(), 16)),
        ]
        rows = [{"doc": n, "body": t, "minilm": vectors[n].tolist()} for n, t in texts.items()]
        table = pa.Table.from_pylist(rows, schema=pa.schema(columns))
        store._db.create_table("theirs", data=table, mode="overwrite")
    elif kind == "postgres":
        store._run("CREATE EXTENSION IF NOT EXISTS vector")
        store._run("DROP TABLE IF EXISTS theirs")
        key = "bigint" if numbered else "text"
        store._run(f"CREATE TABLE theirs (doc {key}, head text, body text, minilm vector(16))")
        for name, text in texts.items():
            values = [name, "", text, str(vectors[name].tolist())]
            store._run("INSERT INTO theirs VALUES (%s, %s, %s, %s)", values)
    else:
        kinds, client = store._milvus.DataType, store._client
        schema = client.create_schema(auto_id=False)
        if client.has_collection("theirs"):
            client.drop_collection("theirs")
        if numbered:
            schema.add_field("doc", kinds.INT64, is_primary=True)
        else:
            schema.add_field("doc", kinds.VARCHAR, is_primary=True, max_length=100)
        schema.add_field("body", kinds.VARCHAR, max_length=100)
        schema.add_field("minilm", kinds.FLOAT_VECTOR, dim=16)
        indexes = client.prepare_index_params()
        indexes.add_index("minilm", index_type="FLAT", metric_type="COSINE")
        client.create_collection("theirs", schema=schema, index_params=indexes, consistency_level="Strong")
        client.insert(
            "theirs", [{"doc": n, "body": t, "minilm": vectors[n].tolist()} for n, t in texts.items()]
        )


@pytest.mark.parametrize("kind", ["qdrant", "lancedb", "milvus", "postgres"])
@pytest.mark.parametrize("names", [("a", "b", "c"), (12, 7, -305)], ids=["words", "numbers"])
def test_a_collection_of_somebody_else(index, store_of, kind, names):
    texts = dict(zip(names, TEXTS.values(), strict=True))
    encoder = WordEncoder("cosine")
    store = store_of(kind, name="theirs", key="doc", title="head", text="body", vector="minilm")
    foreign(kind, store, encoder, texts)
    query = Query("q", "sail the ships")
    run = pull_dense(store, [query], encoder, 3)
    points, (point,) = encoder.encode_passages([*TEXTS.values()]), encoder.encode_queries([query.text])
    cosines = points @ point / np.linalg.norm(points, axis=1) / np.linalg.norm(point)
    wanted = dict(zip(map(str, names), cosines, strict=True))
    assert list(run["q"].doc_ids) == sorted(wanted, key=lambda name: -wanted[name])
    np.testing.assert_allclose(run["q"].scores, sorted(cosines, reverse=True), atol=1e-5)
    assert {d.id: d.text for d in pull_documents(store, run)} == {
        str(name): text for name, text in texts.items()
    }
    with pytest.raises(WrongUse, match="holds vectors of 16 numbers, the encoder makes 8"):
        pull_dense(store, [query], WordEncoder("cosine", 8))
    with pytest.raises(WrongUse, match="holds no impacts that rankhouse pushed"):
        pull_impacts(store, [query])
    with pytest.raises(WrongUse, match="was not pushed by rankhouse, and is never replaced unasked"):
        push(index, store, PushOptions(impacts=BM25 if "impacts" in store.holds else ""))
    if kind == "postgres":
        assert pull_text(store, [Query("q", "burning ships")])["q"].doc_ids == (str(names[1]), str(names[0]))


@pytest.mark.parametrize("kind", ["qdrant", "lancedb", "milvus", "postgres"])
def test_what_a_collection_holds_is_read_once_for_all_queries(store_of, kind):
    encoder = WordEncoder("cosine")
    store = store_of(kind, name="theirs", key="doc", title="head", text="body", vector="minilm")
    if not store.exists():
        foreign(kind, store, encoder, TEXTS)
    read, reads = store.read, []
    store.read = lambda: reads.append(kind) or read()
    list(pull_documents(store, pull_dense(store, QUERIES, encoder, 2)))
    assert len(reads) == 1


@pytest.mark.parametrize("kind", ["qdrant", "lancedb", "milvus", "postgres"])
def test_a_field_that_is_not_there_is_named(store_of, kind):
    encoder = WordEncoder("cosine")
    store = store_of(kind, name="theirs", key="doc", title="head", text="body", vector="oops")
    if not store.exists():
        foreign(kind, store, encoder, TEXTS)
        store.exists()
    with pytest.raises(WrongUse, match='has no (vector|column|field) "oops"'):
        pull_dense(store, QUERIES, encoder)


def test_a_refusal_of_the_engine_is_explained(index, vectors, store_of, engine):
    _need("opensearch")
    store = store_of("opensearch")
    push(index, store, PushOptions(vectors="whole"))
    bad = StoreRecord(0, "odd", 0, "", "", np.ones(3, np.float32), {})
    with pytest.raises(StoreFailed, match='refused document "odd": The vector has a different number'):
        store.write([bad])
    with pytest.raises(RankhouseError, match="Result window is too large"):
        store.search_text("ships", 10_001)
