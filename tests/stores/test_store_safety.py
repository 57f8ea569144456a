"""A push touches nothing of others, a pull knows whether the push was whole, two pushes never mix."""

import json
import subprocess
import sys
import threading
from contextlib import closing

import msgspec
import pytest

from rankhouse.core.errors import RankhouseError, StoreFailed, WrongUse
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.stores.names import open_store
from rankhouse.stores.pull import pull_impacts, pull_text
from rankhouse.stores.push import PushOptions, push

from .conftest import NEEDED, QUERIES, SPARSE, _need

BM25 = "bm25(k1=0.9, b=0.4)"
WORD = {"lancedb": "table", "postgres": "table", "opensearch": "index", "elasticsearch": "index"}
WHERE = {
    "opensearch": "http://127.0.0.1:9",
    "elasticsearch": "http://127.0.0.1:9",
    "postgres": "host=nowhere",
}


def options_of(kind, **more):
    return PushOptions(impacts=BM25 if kind in SPARSE else "", **more)


def pulled(kind, store):
    return pull_impacts(store, QUERIES) if kind in SPARSE else pull_text(store, QUERIES)


@pytest.mark.parametrize("kind", NEEDED)
def test_a_name_that_leads_elsewhere_is_refused(kind, tmp_path, monkeypatch):
    _need(kind)
    monkeypatch.chdir(tmp_path)
    for name in (".", "..", "", "a/b", "a\\b", "../x", "/x", "a\nb", "a\0b", "a\x7fb", "a\udcffb"):
        with pytest.raises(WrongUse):
            open_store(f"{kind}({WHERE.get(kind, 'store')!r}, {WORD.get(kind, 'collection')}={name!r})")
    assert not list(tmp_path.iterdir())


def snapshot(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Kind -> where, and somebody else's files that stand where the collection "papers" would.
STRANGERS = {
    "qdrant_edge, a folder": ("qdrant_edge", ".", {"papers/thesis.txt": "x"}),
    "qdrant_edge, a file": ("qdrant_edge", ".", {"papers.json": '{"title": "My papers"}'}),
    "qdrant_edge, in a shard": (
        "qdrant_edge", ".", {"papers/edge_config.json": "{}", "papers/mine.txt": "x"},
    ),
    "lancedb, a folder": ("lancedb", ".", {"papers.lance/thesis.txt": "x"}),
    "lancedb, a part of one": ("lancedb", ".", {"papers.lance/data/x": "x", "papers.lance/mine.txt": "x"}),
    "qdrant, a folder": ("qdrant", "store", {"store/thesis.txt": "x"}),
    "qdrant, meta.json": ("qdrant", "store", {"store/meta.json": '{"name": "mine"}'}),
    "qdrant, no JSON": ("qdrant", "store", {"store/meta.json": "{"}),
    "qdrant, a list": ("qdrant", "store", {"store/meta.json": "[1]"}),
    "qdrant, odd settings": (
        "qdrant", "store", {"store/meta.json": '{"collections": {"papers": {"vectors": 3}}, "aliases": {}}'},
    ),
    "qdrant, a collection": (
        "qdrant", "store",
        {"store/meta.json": '{"collections": {}, "aliases": {}}', "store/collection/papers/mine.txt": "x"},
    ),
    "milvus, a folder": ("milvus", "store.db", {"store.db/thesis.txt": "x"}),
    "milvus, a file": ("milvus", "store.db", {"store.db": "x"}),
}  # fmt: skip


@pytest.mark.parametrize("name", STRANGERS)
def test_files_of_somebody_else_stay(index, tmp_path, monkeypatch, capfd, name):
    kind, where, files = STRANGERS[name]
    _need(kind)
    monkeypatch.chdir(tmp_path)
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    before = snapshot(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(RankhouseError) as error:
            spec = f"{kind}({where!r}, {WORD.get(kind, 'collection')}='papers')"
            with closing(open_store(spec)) as store:
                push(index, store, options_of(kind, overwrite=overwrite))
        assert "papers" in str(error.value) or where in str(error.value)
        after = snapshot(tmp_path)
        assert {path: after.get(path) for path in before} == before, error.value
        assert "validation error" not in str(error.value)
    said = capfd.readouterr()
    assert "Traceback" not in said.out + said.err


@pytest.mark.parametrize("kind", ["qdrant_edge", "lancedb", "qdrant"])
def test_a_file_that_was_put_among_a_collections_own_is_not_deleted(index, store_of, tmp_path, kind):
    _need(kind)
    spec = f"{kind}({str(tmp_path / 'store')!r}, {WORD.get(kind, 'collection')}='papers')"
    store = store_of(spec)
    push(index, store, options_of(kind))
    places = {"qdrant_edge": "papers", "lancedb": "papers.lance", "qdrant": "collection/papers"}
    mine = tmp_path / "store" / places[kind] / "mine.txt"
    mine.write_text("x")
    with pytest.raises(WrongUse, match="mine.txt"):
        push(index, store, options_of(kind, overwrite=True))
    mine.unlink()
    assert push(index, store, options_of(kind, overwrite=True)).written == len(index)


@pytest.mark.slow
def test_a_table_beside_a_foreign_one_is_not_dropped_with_it(index, store_of):
    store = store_of("postgres", name="plain")
    store._run("CREATE TABLE plain (x int)")
    store._run("CREATE TABLE plain_postings (x int)")
    push(index, store, PushOptions(overwrite=True))
    assert store._run("SELECT count(*) FROM plain_postings").fetchone()[0] == 0


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_push(index, store, options, after=2):
    """Push, and end after some batches."""
    store.batch, write, batches = 20, store.write, []

    def ending(records):
        if len(batches) == after:
            raise Killed
        batches.append(len(records))
        write(records)

    store.write = ending
    with pytest.raises(Killed):
        push(index, store, options)
    del store.write
    return sum(batches)


@pytest.mark.quick("qdrant*", "opensearch")
@pytest.mark.parametrize("kind", NEEDED)
def test_a_pull_refuses_what_a_killed_push_left(index, store_of, kind):
    store = store_of(kind)
    assert killed_push(index, store, options_of(kind)) == 40
    with pytest.raises(StoreFailed, match="ended before all 150 records were there; push again"):
        pulled(kind, store)
    push(index, store, options_of(kind))
    assert store.contents().complete
    run = pulled(kind, store)
    if kind in SPARSE:
        assert run["1"].doc_ids == retrieve(index, QUERIES, LexicalOptions(BM25))["1"].doc_ids
    killed_push(index, store, options_of(kind, overwrite=True))
    with pytest.raises(StoreFailed, match="push again"):
        pulled(kind, store)


@pytest.mark.parametrize("kind", ["qdrant", "lancedb", "milvus", "postgres"])
def test_a_push_that_is_killed_as_it_replaces_removed_records_is_not_whole(index, store_of, kind):
    from .test_stores import REMOVALS

    store = store_of(kind)
    store.batch = 20
    push(index, store, options_of(kind))
    for i in range(140, 150):
        REMOVALS[kind](store, f"0/{index.segments[1].ids[i - 90]}")
    killed_push(index, store, options_of(kind), after=0)
    with pytest.raises(StoreFailed, match="push again"):
        pulled(kind, store)


@pytest.mark.quick("qdrant*")
@pytest.mark.parametrize("kind", NEEDED)
def test_what_an_earlier_version_pushed_is_judged_by_its_count(index, store_of, kind):
    store = store_of(kind)
    push(index, store, options_of(kind))
    store.describe(msgspec.structs.replace(store.contents(), complete=None))
    assert pulled(kind, store)["1"].doc_ids
    killed = store_of(kind)
    killed_push(index, killed, options_of(kind))
    killed.describe(msgspec.structs.replace(killed.contents(), complete=None))
    with pytest.raises(StoreFailed, match="push again"):
        pulled(kind, killed)
    push(index, store, options_of(kind))
    assert store.contents().complete


def test_a_collection_of_somebody_else_is_pulled_with_a_remark(store_of, monkeypatch):
    store, remarks = store_of("lancedb", name="theirs_with_remark"), []
    store._db.create_table("theirs_with_remark", data=[{"id": "a", "title": "", "text": "ships sail"}])
    store.exists()
    indexes = pytest.importorskip("lancedb.index")
    for column in ("title", "text"):
        store._table.create_index(column, config=indexes.FTS())
    monkeypatch.setattr("rankhouse.stores.pull.note", remarks.append)
    assert pull_text(store, QUERIES[:1])["1"].doc_ids == ("a",)
    assert "was not pushed by rankhouse, so nothing says whether the collection is complete" in remarks[0]


@pytest.mark.slow
def test_two_pushes_at_once_store_every_document_once(index, tmp_path):
    """As separate processes, begun together, into a table that neither found."""
    _need("lancedb")
    code = (
        "import sys\nfrom rankhouse.index.index import Index\n"
        "from rankhouse.core.errors import RankhouseError\n"
        "from rankhouse.stores.names import open_store\nfrom rankhouse.stores.push import PushOptions, push\n"
        "store = open_store(sys.argv[2]); store.batch = 3\n"
        "index = Index.open(sys.argv[1])\n"
        "sys.stdin.readline()\n"
        "try: push(index, store, PushOptions())\n"
        "except RankhouseError as error: print(error)\n"
    )
    spec = f"lancedb({str(tmp_path / 'db')!r}, table='t')"
    line = [sys.executable, "-c", code, str(index.path), spec]
    both = [
        subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for one in both:
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [one.communicate()[0] for one in both]
    store = open_store(spec)
    assert store.exists()
    assert store.count() == 150
    assert [text for text in said if text] == [] or "another process is writing it" in "".join(said)


@pytest.mark.parametrize("kind", ["lancedb", "qdrant_edge"])
def test_a_second_push_waits_for_nobody(index, store_of, tmp_path, kind):
    _need(kind)
    spec = f"{kind}({str(tmp_path / 'store')!r}, {WORD.get(kind, 'collection')}='papers')"
    first, faults = store_of(spec), []

    def second():
        try:
            push(index, open_store(spec), options_of(kind))
        except WrongUse as error:
            faults.append(str(error))

    with first.writer():
        other = threading.Thread(target=second)
        other.start()
        other.join()
    assert "another process is writing it" in faults[0]
    push(index, first, options_of(kind))


def test_a_damaged_note_of_a_collection_says_what_to_do(index, store_of, tmp_path):
    _need("qdrant_edge")
    store = store_of(f"qdrant_edge({str(tmp_path / 'store')!r}, collection='papers')")
    push(index, store, options_of("qdrant_edge"))
    facts = tmp_path / "store" / "papers.json"
    sound = facts.read_bytes()
    for damaged in (sound[:-3], sound.replace(b"150", b'"x"', 1), sound.replace(b"{", b"\xff", 1)):
        facts.write_bytes(damaged)
        for overwrite in (False, True):
            with pytest.raises(StoreFailed, match=r"papers\.json.*move it away, and push with --overwrite"):
                push(index, store, options_of("qdrant_edge", overwrite=overwrite))
    facts.unlink()
    push(index, store, options_of("qdrant_edge", overwrite=True))
    assert json.loads(facts.read_text())["complete"] is True


def test_an_engine_that_maps_its_files_is_not_asked_to_fill_a_disk(index, store_of, monkeypatch):
    """A signal ended the process, and nothing was said."""
    from rankhouse.stores import clients

    store = store_of("qdrant_edge")
    left = iter([1 << 30, 5 << 20, *[1 << 10] * 2])
    real = clients.shutil.disk_usage
    monkeypatch.setattr(clients.shutil, "disk_usage", lambda path: real(path)._replace(free=next(left)))
    store.batch = 20
    with pytest.raises(StoreFailed, match=r"the disk is full: 0\.0 MiB are left where 4\.\d MiB are needed"):
        push(index, store, options_of("qdrant_edge"))
    monkeypatch.undo()
    assert store.count() == 20
    with pytest.raises(StoreFailed, match="push again"):
        pulled("qdrant_edge", store)
    push(index, store, options_of("qdrant_edge"))
    assert pulled("qdrant_edge", store)["1"].doc_ids


# Kind -> what a full disk leaves of a first push, below the working folder.
BEGUN = {"qdrant": "store/meta.json", "milvus": "store.db/collections/papers/schema.json.tmp"}


@pytest.mark.parametrize("kind", BEGUN)
def test_a_push_goes_on_from_what_a_full_disk_kept_it_from_beginning(
    index, store_of, kind, tmp_path, monkeypatch
):
    _need(kind)
    monkeypatch.chdir(tmp_path)
    left = tmp_path / BEGUN[kind]
    left.parent.mkdir(parents=True)
    left.write_bytes(b"")
    if kind == "milvus":
        (tmp_path / "store.db" / "LOCK").touch()
        mine = left.with_name("mine.txt")
        mine.touch()
    store = store_of(f"{kind}({left.parts[len(tmp_path.parts)]!r}, collection='papers')")
    if kind == "milvus":
        with pytest.raises(WrongUse, match=r"holds something else \(mine.txt\)"):
            push(index, store, options_of(kind))
        mine.unlink()
    assert push(index, store, options_of(kind)).written == len(index)
    assert pulled(kind, store)["1"].doc_ids


@pytest.mark.parametrize("kind", ["qdrant", "qdrant_edge", "lancedb", "milvus"])
def test_a_folder_that_opening_made_and_others_use_is_not_removed(kind, tmp_path):
    _need(kind)
    store = open_store(f"{kind}({str(tmp_path / 'store.db')!r}, {WORD.get(kind, 'collection')}='papers')")
    store.exists()
    (tmp_path / "store.db" / "notes").mkdir(parents=True, exist_ok=True)
    (tmp_path / "store.db" / "notes" / "mine.txt").write_text("mine")
    store.close()
    assert (tmp_path / "store.db" / "notes" / "mine.txt").read_text() == "mine"
