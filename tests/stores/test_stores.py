"""What is pushed ranks as it does here: every real engine, end to end."""

import numpy as np
import pytest

from rankhouse.core.errors import MissingInput, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.index.dense.exact import ExactSearcher, search
from rankhouse.index.impacts.impacts import PackedImpacts
from rankhouse.index.impacts.search import ImpactSearcher, search_impacts
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions
from rankhouse.index.lexical.ciff import build_from_ciff, write_index
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.stores.pull import pull_dense, pull_documents, pull_impacts, pull_sparse, pull_text
from rankhouse.stores.push import PushOptions, push
from rankhouse.stores.store import StoreRecord, uuid_of

from .conftest import AWKWARD, ENGINES, NEEDED, QUERIES, SPARSE, TEXTS, WordEncoder, WordWeigher

BM25 = "bm25(k1=0.9, b=0.4)"


def assert_same(run, own):
    assert list(run) == list(own)
    for query_id in own:
        assert run[query_id].doc_ids == own[query_id].doc_ids, query_id
        np.testing.assert_allclose(run[query_id].scores, own[query_id].scores, rtol=2e-5, atol=2e-6)


@pytest.mark.quick("*qdrant*")
@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.parametrize("model", [BM25, "ql(mu=50)"])
def test_impacts_rank_as_the_index_does(index, store_of, kind, model):
    store = store_of(kind)
    push(index, store, PushOptions(impacts=model))
    for feedback in ("", "rm3"):
        for k in (1000, 5):
            own = retrieve(index, QUERIES, LexicalOptions(model, feedback, k=k))
            assert_same(pull_impacts(store, QUERIES, k, feedback, index), own)


@pytest.mark.parametrize("kind", [kind for kind in SPARSE if kind not in ENGINES])
def test_weights_of_a_sparse_encoder_rank_as_the_index_does(index, impacts, store_of, kind):
    stored, encoder = impacts
    store = store_of(kind)
    push(index, store, PushOptions(impacts="sparse", texts=False))
    for k in (1000, 5):
        own = search_impacts(ImpactSearcher(PackedImpacts(stored)), encoder, QUERIES, k)
        assert own["1"].doc_ids
        assert_same(pull_sparse(store, QUERIES, encoder, k), own)
    assert store.contents().weigher == encoder.fingerprint
    with pytest.raises(WrongUse, match="holds weights of a sparse encoder; ask it with  --model 'sparse"):
        pull_impacts(store, QUERIES)
    other = WordWeigher()
    other.fingerprint = "weigher-2"
    with pytest.raises(
        WrongUse, match="its weights were made by weigher-1, the queries' would be by weigher-2"
    ):
        pull_sparse(store, QUERIES, other)
    with pytest.raises(WrongUse, match="holds sparse impacts instead of bm25"):
        push(index, store, PushOptions(impacts=BM25, texts=False))


@pytest.mark.parametrize("kind", [*ENGINES, "lancedb"])
def test_stores_without_sparse_vectors_refuse_an_encoders_weights(index, impacts, store_of, kind):
    with pytest.raises(WrongUse, match="computes the weights of words itself|holds no impacts"):
        push(index, store_of(kind), PushOptions(impacts="sparse"))
    with pytest.raises(WrongUse, match="no argument|sparse"):
        push(index, store_of("qdrant"), PushOptions(impacts="sparse(nonsense=1)"))


@pytest.mark.parametrize("query", ["bm25", "content"])
def test_a_model_that_reads_queries_in_its_own_way_is_not_pushed(index, store_of, query):
    """A store is asked by all words of a query: its rankings were others, without a word."""
    with pytest.raises(WrongUse, match="take bm25"):
        push(index, store_of("qdrant"), PushOptions(impacts=f'bm25(query="{query}")'))


def test_an_index_of_a_ciff_file_is_pushed_without_texts(index, store_of, tmp_path):
    write_index(index, tmp_path / "index.ciff")
    build_from_ciff(tmp_path / "index.ciff", tmp_path / "imported", BuildOptions())
    imported, store = Index.open(tmp_path / "imported"), store_of("qdrant")
    with pytest.raises(WrongUse, match="made from a CIFF file"):
        push(imported, store_of("qdrant"), PushOptions(impacts=BM25))
    push(imported, store, PushOptions(impacts=BM25, texts=False))
    assert_same(pull_impacts(store, QUERIES, 20), retrieve(index, QUERIES, LexicalOptions(BM25, k=20)))


@pytest.mark.quick("*qdrant*", "*lancedb*", "*milvus*", "*postgres*", "cut-opensearch")
@pytest.mark.parametrize("kind", NEEDED)
@pytest.mark.parametrize("name", ["whole", "cut", "l2"])
def test_vectors_rank_as_the_index_does(index, vectors, store_of, kind, name):
    stored, encoder = vectors[name]
    store = store_of(kind)
    push(index, store, PushOptions(vectors=name))
    own = search(ExactSearcher(stored), encoder, QUERIES, 20)
    run = pull_dense(store, QUERIES, encoder, 20)
    assert list(run) == list(own)
    for query_id in own:
        # Rows of equal texts may differ in the last bit there, so that their order may differ too.
        assert set(run[query_id].doc_ids[:5]) <= set(own[query_id].doc_ids)
        np.testing.assert_allclose(run[query_id].scores, own[query_id].scores, rtol=1e-4, atol=1e-4)
    assert not run["7"].doc_ids


@pytest.mark.parametrize("kind", NEEDED)
def test_documents_come_back_as_they_went(index, vectors, store_of, kind):
    _, encoder = vectors["cut"]
    store = store_of(kind)
    push(index, store, PushOptions(vectors="cut"))
    run = pull_dense(store, [Query("q", "ships lamps")], encoder, 1000)
    back = {document.id: document for document in pull_documents(store, run)}
    assert len(back) == 149  # one has no text, and no vector
    assert back == {d.id: d for d in index.documents.fetch(list(back))}


@pytest.mark.parametrize("kind", TEXTS)
def test_own_text_search(index, vectors, store_of, kind):
    store = store_of(kind)
    push(index, store, PushOptions(vectors="cut"))
    run = pull_text(store, QUERIES, 50)
    assert len(run["3"].doc_ids) == 50
    texts = {d.id: d.full_text for d in index.documents.fetch(run["3"].doc_ids)}
    assert all("wind" in text for text in texts.values())
    assert not run["7"].doc_ids


@pytest.mark.quick("qdrant*")
@pytest.mark.parametrize("kind", NEEDED)
def test_pushing_again_changes_nothing_and_a_kill_is_gone_on_from(index, vectors, store_of, kind):
    what = PushOptions(impacts=BM25 if kind in SPARSE else "", vectors="cut")
    killed = store_of(kind)
    killed.batch = 40

    def kill(done, total):
        if done >= 80:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        push(index, killed, what, kill)
    there = killed.count()
    assert 80 <= there < killed.contents().records
    done = push(index, killed, what)
    assert 0 < done.written < done.contents.records
    assert killed.count() == done.contents.records
    again = push(index, killed, what)
    assert (again.written, killed.count()) == (0, done.contents.records)
    whole = store_of(kind)
    assert push(index, whole, what).written == done.contents.records
    encoder = vectors["cut"][1]
    assert_same(pull_dense(killed, QUERIES, encoder), pull_dense(whole, QUERIES, encoder))
    if kind in SPARSE:
        assert_same(pull_impacts(killed, QUERIES), pull_impacts(whole, QUERIES))


REMOVALS = {
    "qdrant": lambda store, key: store._client.delete(store.collection, [uuid_of(key)]),
    "milvus": lambda store, key: store._client.delete(store.collection, ids=[key]),
    "postgres": lambda store, key: store._run("DELETE FROM {t} WHERE id = %s", [key[2:]]),
    "lancedb": lambda store, key: store._table.delete(f"key = '{key}'"),
}


@pytest.mark.parametrize("kind", REMOVALS)
def test_records_that_were_removed_there_are_written_again(index, store_of, kind):
    what = PushOptions(impacts=BM25 if kind in SPARSE else "")
    store = store_of(kind)
    store.batch = 20
    push(index, store, what)
    REMOVALS[kind](store, "0/" + index.ids(np.array([9]))[0])
    assert store.count() == len(index) - 1
    done = push(index, store, what)
    assert store.count() == len(index) == done.written
    assert push(index, store, what).written == 0


@pytest.mark.parametrize("kind", ENGINES)
def test_what_a_killed_push_replaced_is_purged_by_the_next_one(index, address, store_of, kind):
    spec = address(kind)
    push(index, killed := store_of(spec), PushOptions(impacts=BM25))
    killed.write([StoreRecord(0, AWKWARD[0], 0, "", "", None, {})])  # and killed before it was purged
    store = store_of(spec)
    assert push(index, store, PushOptions(impacts=BM25)).written == 0
    assert_same(pull_impacts(store, QUERIES), retrieve(index, QUERIES, LexicalOptions(BM25, k=1000)))


@pytest.mark.parametrize("kind", NEEDED)
def test_another_collection_is_never_replaced_unasked(index, vectors, store_of, kind):
    store = store_of(kind)
    push(index, store, PushOptions(vectors="whole"))
    other = PushOptions(vectors="cut")
    with pytest.raises(
        WrongUse, match="holds vectors of another encoder; name another one, or --overwrite it"
    ):
        push(index, store, other)
    assert store.contents().vectors == vectors["whole"][0].fingerprint
    push(index, store, PushOptions(vectors="cut", overwrite=True))
    assert store.contents().vectors == vectors["cut"][0].fingerprint
    assert store.count() == store.contents().records > 150
    with pytest.raises(WrongUse, match="its vectors were made by words-dot-16"):
        pull_dense(store, QUERIES, WordEncoder("cosine"))


@pytest.mark.quick("qdrant*")
@pytest.mark.parametrize("kind", sorted(set(NEEDED) - {"qdrant"}))
def test_another_process_finds_what_was_pushed(index, vectors, address, store_of, kind):
    spec, encoder = address(kind), vectors["whole"][1]
    first = store_of(spec)
    push(index, first, PushOptions(vectors="whole"))
    run = pull_dense(first, QUERIES, encoder)
    if kind == "milvus":  # as a restart does
        first._client.release_collection(first.collection)
    first.close()
    second = store_of(spec)
    assert_same(pull_dense(second, QUERIES, encoder), run)
    assert push(index, second, PushOptions(vectors="whole")).written == 0


@pytest.mark.parametrize("kind", sorted(set(SPARSE) - {"postgres"}))
def test_what_cannot_be_held_replaces_nothing(index, vectors, store_of, kind):
    store = store_of(kind)
    push(index, store, PushOptions(impacts=BM25))
    wrong, said = PushOptions(overwrite=True), "keeps nothing without vectors or impacts"
    if kind in ENGINES:
        wrong, said = (
            PushOptions(impacts='bm25(lengths="exact")', overwrite=True),
            "is no similarity of Lucene's",
        )
    with pytest.raises(WrongUse, match=said):
        push(index, store, wrong)
    assert (store.count(), store.contents().impacts) == (150, BM25)


@pytest.mark.quick("qdrant*")
@pytest.mark.parametrize("kind", SPARSE)
def test_a_collection_that_is_overwritten_by_another_kind(index, vectors, store_of, kind):
    store = store_of(kind)
    push(index, store, PushOptions(vectors="l2"))
    pull_dense(store, QUERIES, vectors["l2"][1])
    push(index, store, PushOptions(impacts=BM25, vectors="whole", overwrite=True))
    assert_same(pull_impacts(store, QUERIES), retrieve(index, QUERIES, LexicalOptions(BM25, k=1000)))
    stored, encoder = vectors["whole"]
    run, own = pull_dense(store, QUERIES, encoder, 5), search(ExactSearcher(stored), encoder, QUERIES, 5)
    np.testing.assert_allclose(run["1"].scores, own["1"].scores, atol=1e-4)
    push(index, store, PushOptions(impacts=BM25, overwrite=True))
    with pytest.raises(WrongUse, match="holds no vectors"):
        pull_dense(store, QUERIES, encoder)


@pytest.mark.parametrize("kind", NEEDED)
def test_what_is_not_there_is_named(index, vectors, store_of, kind):
    store = store_of(kind)
    with pytest.raises(MissingInput, match="there is no such collection; fill it with  rankhouse push"):
        pull_dense(store, QUERIES, WordEncoder())
    if kind in SPARSE:
        with pytest.raises(WrongUse, match="which is no sum of posting weight times query weight"):
            push(index, store, PushOptions(impacts='ql(form="indri")'))
        push(index, store, PushOptions(impacts=BM25, texts=False))
        with pytest.raises(WrongUse, match="holds no vectors"):
            pull_dense(store, QUERIES, WordEncoder())
        with pytest.raises(WrongUse, match="name the index"):
            pull_impacts(store, QUERIES, feedback="rm3")
        with pytest.raises(MissingInput, match="holds no text of these documents"):
            list(pull_documents(store, pull_impacts(store, QUERIES)))
    else:
        with pytest.raises(WrongUse, match="holds no impacts"):
            push(index, store, PushOptions(impacts=BM25))
        push(index, store, PushOptions(vectors="whole"))
        with pytest.raises(
            WrongUse, match="holds no impacts that rankhouse pushed; ask it with  --model text"
        ):
            pull_impacts(store, QUERIES)
        with pytest.raises(WrongUse, match="holds vectors, and none are to be pushed"):
            push(index, store, PushOptions())


@pytest.mark.parametrize("kind", sorted(set(NEEDED) - set(TEXTS)))
def test_no_text_search_is_said(index, vectors, store_of, kind):
    store = store_of(kind)
    push(index, store, PushOptions(vectors="whole"))
    with pytest.raises(WrongUse, match="has no text search that ranks"):
        pull_text(store, QUERIES)


def test_a_cut_among_equal_scores_is_said(index, store_of):
    store = store_of("qdrant")
    push(index, store, PushOptions(impacts=BM25))
    # Six documents are the same; the store gives no more than three of them.
    query = [Query("1", "harbour")]
    own = retrieve(index, query, LexicalOptions(BM25, k=2))
    assert_same(pull_impacts(store, query, 2), own)
    store.most = 3
    with pytest.warns(RankhouseWarning, match="gives at most 3 records a query, and for 1 of 1 queries"):
        run = pull_impacts(store, query, 2)
    assert len(run["1"].doc_ids) == 2


@pytest.mark.parametrize("kind", NEEDED)
def test_the_approximate_structure(index, vectors, store_of, kind):
    stored, encoder = vectors["whole"]
    store = store_of(kind, vectors="hnsw")
    push(index, store, PushOptions(vectors="whole"))
    assert store.contents().structure == "hnsw"
    own = search(ExactSearcher(stored), encoder, QUERIES[:4], 10)
    run = pull_dense(store, QUERIES[:4], encoder, 10)
    shared = [len(set(run[q].doc_ids) & set(own[q].doc_ids)) for q in own]
    assert min(shared) >= 5  # ties at the end may differ
