"""The best k: compiled (all added up, or pruned), in numpy and by brute force the same, ties included."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.nouns import Document, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical import kernel, scorer
from rankhouse.index.lexical.build import BuildOptions, append, build, delete
from rankhouse.index.lexical.search import IndexSource, LexicalOptions, Retriever, retrieve
from rankhouse.index.lexical.segment import DECODED, codes_of
from rankhouse.index.lexical.weighting import Collection, TermCounts

MODELS = (
    "bm25",
    "bm25(k1=0.0)",
    "bm25(b=1.0)",
    'bm25(k1=1.2, b=0.75, lengths="exact")',
    "ql",
    "ql(mu=5)",
    "jm",
    'ql(form="indri")',
    "impact",
)


def collection(seed, size, words, spread):
    """Texts of words by a Zipf law; some without words, some long, ids in order or not."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(size) if seed % 2 else np.arange(size)
    lengths = rng.integers(0, spread, size)
    if seed % 3 == 0:
        lengths[0] += 400
    return [
        Document(f"d{name:06d}", " ".join(f"w{w}" for w in np.minimum(rng.zipf(1.2, n), words)))
        for name, n in zip(names.tolist(), lengths.tolist(), strict=True)
    ]


def by_hand(documents, model, weights):
    """Score all documents with any of the terms, one after the other: (id, score), best first."""
    bags = [(d.id, Counter(d.text.split())) for d in documents]
    with_text, tokens = sum(bool(d.text.strip()) for d in documents), sum(bag.total() for _, bag in bags)
    whole = Collection(len(documents), with_text, sum(bool(bag) for _, bag in bags), tokens)
    counts = {
        t: TermCounts(sum(t in bag for _, bag in bags), sum(bag[t] for _, bag in bags)) for t in weights
    }
    held = {t: (w, counts[t]) for t, w in weights.items() if counts[t].documents}
    if model.mean and held:
        total = sum(w for w, _ in held.values())
        held = {t: (w / total, c) for t, (w, c) in held.items()}
    scores = {}
    for doc_id, bag in bags:
        if not bag.keys() & held.keys():
            continue
        tokens = np.array([bag.total()], np.int32)
        length = tokens.astype(np.float64) if model.exact_lengths else DECODED[codes_of(tokens)]
        total = 0.0
        for term, (weight, one) in sorted(held.items()):
            if bag[term]:
                total += float(np.float32(model.term(np.array([bag[term]]), length, one, whole, weight)[0]))
        if model.prior is not None:
            total += float(model.prior(length, [held[t] for t in sorted(held)], whole)[0])
        scores[doc_id] = np.float32(total)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def ways(index, options, weights, k):
    """Rank in all ways: pruned always, never, as it is worth it, and in numpy."""
    found = []
    for compiled, pruning in ((True, 2), (True, 0), (True, 1), (False, 0)):
        if compiled and not kernel.COMPILED:
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "COMPILED", compiled)
            patch.setattr(scorer, "PRUNING", pruning)
            hits = Retriever(Index.open(index), options).hits(weights, k)
            found.append(list(zip(Index.open(index).ids(hits.rows), hits.scores.tolist(), strict=True)))
    return found


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([1, 40, 700]),
    st.sampled_from([5, 60, 3_000]),
    st.sampled_from([3, 40]),
    st.integers(1, 4),
    st.sampled_from([1, 3, 10, 1000]),
)
def test_all_ways_give_the_ranking_made_by_hand(tmp_path_factory, seed, size, words, spread, segments, k):
    documents, rng = collection(seed, size, words, spread), np.random.default_rng(seed)
    index, step = tmp_path_factory.mktemp("rank") / "index", -(-size // segments)
    for start in range(0, size, step):
        (append if start else build)(
            documents[start : start + step], index, BuildOptions("whitespace", workers=1)
        )
    weights = {
        f"w{w}": float(rng.choice([1, 2, 0.3])) for w in rng.integers(1, words + 1, rng.integers(1, 6))
    }
    options = LexicalOptions(MODELS[seed % len(MODELS)], "", k)
    expected = by_hand(documents, Retriever(Index.open(index), options).model, weights)[:k]
    for found in ways(index, options, weights, k):
        assert found == expected


def matching(index, model, asked, k, *, every):
    """Rank and count with the kernel and without it; both say the same."""
    found = []
    for compiled in {kernel.COMPILED, False}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "COMPILED", compiled)
            source = IndexSource(Index.open(index))
            retriever = Retriever(source, LexicalOptions(model))
            terms = retriever.weighted(asked)
            scorer = source.scorer(retriever.model)
            [hits], (also, n) = scorer.hits([terms], k, every=every), scorer.counted(terms, k, every=every)
            assert scorer.counted(terms, 0, every=every)[1] == n
            assert also.rows.tolist() == hits.rows.tolist()
            ids = Index.open(index).ids(hits.rows)
            found.append((list(zip(ids, hits.scores.tolist(), strict=True)), n))
    assert all(other == found[0] for other in found)
    return found[0]


def check_matches(tmp_path, documents, model, asked):
    """Those with every term are ranked as among those with any, and counted right, deleted ones left out."""
    most = len(documents) * 4 // 5
    build(documents[:most], tmp_path / "i", BuildOptions("whitespace", workers=1))
    append(documents[most:], tmp_path / "i", BuildOptions(workers=1))
    for gone in (set(), {d.id for d in documents[::5]}):
        if gone:
            delete(gone, tmp_path / "i")
        bags = {d.id: set(d.text.split()) for d in documents if d.id not in gone}
        for weights in asked:
            held = {t for t in weights if any(t in bag for bag in bags.values())}
            ranked, n = matching(tmp_path / "i", model, weights, len(bags), every=False)
            assert n == len(ranked) == sum(bool(held & bag) for bag in bags.values())
            with_all = [hit for hit in ranked if held <= bags[hit[0]]]
            assert matching(tmp_path / "i", model, weights, 7, every=True) == (with_all[:7], len(with_all))


@pytest.mark.quick("bm25")
@pytest.mark.parametrize("model", ["bm25", "ql", "jm"])
def test_documents_with_every_term_are_found_and_counted(tmp_path, model):
    documents = collection(4, 400, 40, 30)
    asked = [
        dict.fromkeys(names.split(), 1.5) for names in ("w1", "w1 w2", "w3 w1 w40", "w2 w5 w9 w7", "w90 w1")
    ]
    check_matches(tmp_path, documents, model, asked)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bm25", "ql", "jm", 'ql(form="indri")'])
def test_matches_of_many_documents_are_found_and_counted(tmp_path, model):
    """Large enough for frequent terms with bounds of areas, lists of many blocks and two windows of marks."""
    documents = collection(5, 90_000 if model == "bm25" else 9_000, 300, 7)
    rng = np.random.default_rng(1)
    asked = [
        {f"w{int(w)}": 1.0 for w in np.minimum(rng.zipf(1.15, n), 3_000)} for n in (1, 2, 2, 3, 3, 4, 5, 8)
    ]
    check_matches(tmp_path, documents, model, asked)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_pruned_rankings_of_many_documents_are_those_of_all_added_up(tmp_path, model):
    """Large enough for several windows, frequent terms with bounds of areas, and blocks of postings."""
    documents = collection(5, 50_000, 4_000, 25)
    build(documents[:30_000], tmp_path / "i", BuildOptions("whitespace", workers=1))
    append(documents[30_000:], tmp_path / "i", BuildOptions(workers=1))
    rng = np.random.default_rng(3)
    for size in (1, 2, 3, 5, 9, 30):
        weights = {f"w{int(w)}": float(w % 7 + 1) for w in np.minimum(rng.zipf(1.1, size), 4_000)}
        for k in (1, 10, 300):
            first, *others = ways(tmp_path / "i", LexicalOptions(model), weights, k)
            assert all(other == first for other in others)


@pytest.mark.skipif(not kernel.COMPILED, reason="the kernel was not compiled on this machine")
def test_sums_at_the_edge_of_a_float32_are_rounded_as_in_the_terms_order(tmp_path, monkeypatch):
    """2**-24 more than 1 is as near to 1 as to the float32 above: what decides are the bits behind."""
    monkeypatch.setattr(scorer, "PRUNING", 2)
    rng = np.random.default_rng(0)
    texts = [" ".join(f"t{t}" for t in range(6) if rng.random() < 0.6) for _ in range(3_000)]
    build(
        [Document(f"{i:05d}", text) for i, text in enumerate(texts)],
        tmp_path / "i",
        BuildOptions("whitespace", workers=1),
    )
    index = Index.open(tmp_path / "i")
    values = dict(
        zip((f"t{t}" for t in range(6)), (1.0, 2.0**-24, 2.0**-52, 2.0**-53, 2.0**-54, 3.0), strict=True)
    )
    retriever = Retriever(index, LexicalOptions("bm25(k1=0.0)"))
    for scale in (1.0, 1.1):
        weights = {t: v * scale / math.log(1 + 0.5 / 1) for t, v in values.items()}
        hits = retriever.hits(weights, 50)
        monkeypatch.setattr(kernel, "COMPILED", False)
        plain = Retriever(index, LexicalOptions("bm25(k1=0.0)")).hits(weights, 50)
        monkeypatch.setattr(kernel, "COMPILED", True)
        assert np.array_equal(hits.rows, plain.rows)
        assert np.array_equal(hits.scores, plain.scores)


def test_a_match_worth_nothing_is_still_a_match(tmp_path):
    """Lucene cuts Dirichlet scores at 0; such documents are ranked all the same."""
    documents = [Document("c", "a " + "b " * 500), Document("b", "a " + "b " * 400), Document("d", "b")]
    build(documents, tmp_path / "i", BuildOptions("whitespace", workers=1))
    for found in ways(tmp_path / "i", LexicalOptions("ql"), {"a": 1.0}, 5):
        assert found == [("b", 0.0), ("c", 0.0)]


@pytest.mark.slow
@pytest.mark.skipif(not kernel.COMPILED, reason="the kernel was not compiled on this machine")
def test_pruning_reads_few_postings(tmp_path):
    rng = np.random.default_rng(1)
    documents = [
        Document(f"{i:06d}", " ".join(f"w{w}" for w in np.minimum(rng.zipf(1.3, 12), 2_000)))
        for i in range(60_000)
    ]
    build(documents, tmp_path / "i", BuildOptions("whitespace", workers=1))
    queries = [Query(str(i), f"w{200 + i} w{3 + i % 4}") for i in range(20)]
    read = {}
    for pruning in (0, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scorer, "PRUNING", pruning)
            retriever = Retriever(Index.open(tmp_path / "i"), LexicalOptions(k=5))
            retriever.search_all(queries)
            counted = retriever.source.scorer(retriever.model).postings
        read[pruning] = counted[1] / counted[0]
    assert read[0] == 1
    assert read[2] < 0.7


@pytest.mark.slow
def test_large_counts_and_long_documents_rank_alike(tmp_path):
    """Counts above what tables hold, and a document as long as most collections."""
    documents = [
        Document("a", "ship " * 70_000),
        Document("b", "ship " * 300 + "grain " * 5_000),
        Document("c", "ship grain"),
        Document("d", "grain " * 256),
    ]
    build(documents, tmp_path / "i", BuildOptions("whitespace", workers=1))
    for model in MODELS:
        options = LexicalOptions(model)
        held = Retriever(Index.open(tmp_path / "i"), options).model
        for weights in ({"ship": 1.0}, {"ship": 0.5, "grain": 2.0}):
            expected = by_hand(documents, held, weights)
            assert all(found == expected for found in ways(tmp_path / "i", options, weights, 10))


@pytest.mark.parametrize("model", MODELS)
def test_queries_counted_by_the_kernel_rank_as_weighted_ones(tmp_path, model):
    """With words twice, words of no document, one in more places than the kernel's formulas go, deletions."""
    documents = [Document("long", "w1 " * 5_000), *collection(7, 300, 20, 30)]
    build(documents[:200], tmp_path / "i", BuildOptions("whitespace", workers=1))
    append(documents[200:], tmp_path / "i", BuildOptions(workers=1))
    delete({documents[5].id}, tmp_path / "i")
    queries = [Query(str(i), text) for i, text in enumerate(("w3 w2 w3", "none w2", "none", "", "w1 w9 w1"))]
    engine = Retriever(Index.open(tmp_path / "i"), LexicalOptions(model, k=20))
    other = Retriever(Index.open(tmp_path / "i"), LexicalOptions(model, k=20))
    for query, found in zip(queries, engine.search_all(queries), strict=True):
        expected = other.hits(other.terms(query.text), 20)
        assert found.rows.tolist() == expected.rows.tolist()
        assert found.scores.tobytes() == expected.scores.tobytes()
    run = retrieve(Index.open(tmp_path / "i"), queries, LexicalOptions(model, k=20))
    alone = Retriever(Index.open(tmp_path / "i"), LexicalOptions(model, k=20))
    for query in queries * 2:  # the second time its terms are known
        ranking = alone.ranking(query)
        assert ranking == run[query.id]
        assert ranking.scores.tobytes() == run[query.id].scores.tobytes()


@pytest.mark.skipif(not kernel.COMPILED, reason="the kernel was not compiled on this machine")
def test_one_query_may_ask_for_more_documents_than_any_memory_holds(tmp_path):
    build(collection(7, 50, 20, 30), tmp_path / "i", BuildOptions("whitespace", workers=1))
    engine = Retriever(Index.open(tmp_path / "i"), LexicalOptions(k=50))
    scorer_of_all = engine.source.scorer(engine.model)
    assert scorer_of_all.ranking(["w1", "w2"], 10**15) == engine.ranking(Query("q", "w1 w2"))


def test_a_run_reads_ids_when_somebody_looks(tmp_path):
    documents = collection(7, 300, 20, 30)
    build(documents[:200], tmp_path / "i", BuildOptions("whitespace", workers=1))
    append(documents[200:], tmp_path / "i", BuildOptions(workers=1))
    queries = [Query(f"q{i}", f"w{i + 1} w{i + 2}") for i in range(5)]
    run = retrieve(Index.open(tmp_path / "i"), queries)
    one, some = run["q3"], run.restrict(["q4", "q1"]).top(7)
    assert run._read is None
    assert some["q1"].doc_ids == run["q1"].doc_ids[:7]
    whole = retrieve(Index.open(tmp_path / "i"), queries)
    assert whole.nbytes > 0  # reads all ids
    assert whole._read is not None
    assert whole == run
    assert whole["q3"] == one
    assert whole.restrict(["q4", "q1"]).top(7) == some
