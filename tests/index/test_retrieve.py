"""Rankings: the same whatever the segments and threads, k, and the kernel; ties as Lucene orders them."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.scores import strictly_falling
from rankhouse.index.index import Index
from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.build import BuildOptions, append, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.trec import read_run, write_run
from rankhouse.text.analyze import ANALYZERS

SEARCHES = [
    LexicalOptions("bm25"),
    LexicalOptions("ql", "rm3"),
    LexicalOptions("jm(lambda=0.3)"),
    LexicalOptions('bm25(query="bm25")'),
    LexicalOptions('bm25(query="content")', "rm3"),
    LexicalOptions('ql(form="indri")', "rm3(terms=5, docs=3)"),
    LexicalOptions('bm25(k1=1.2, b=0.75, lengths="exact")', "rm3"),
    LexicalOptions("bm25f(title=3, b_title=0.7)"),
    LexicalOptions("bm25f(text=0)", "rm3"),
]
FIELDS = BuildOptions(workers=1, fields=True)


@pytest.fixture(scope="module")
def one(documents, tmp_path_factory):
    out = tmp_path_factory.mktemp("one") / "index"
    build(documents, out, FIELDS)
    return Index.open(out)


@pytest.fixture(scope="module")
def many(documents, tmp_path_factory):
    """The same documents in a dozen segments, the last ones added later."""
    out = tmp_path_factory.mktemp("many") / "index"
    for first in range(0, 300, 25):
        (append if first else build)(documents[first : first + 25], out, FIELDS)
    return Index.open(out)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: f"{s.model}+{s.feedback}")
def test_rankings_do_not_depend_on_segments(one, many, queries, search):
    assert len(one.segments) == 1
    assert len(many.segments) == 12
    assert retrieve(one, queries, search) == retrieve(many, queries, search)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: f"{s.model}+{s.feedback}")
def test_rankings_do_not_depend_on_threads_or_company(one, queries, search):
    together = retrieve(one, queries * 1, search)
    for query in queries:
        alone = retrieve(one, [query], LexicalOptions(search.model, search.feedback, search.k, threads=1))
        assert alone == together.restrict([query.id])


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: f"{s.model}+{s.feedback}")
def test_rankings_do_not_depend_on_the_kernel(one, queries, search, monkeypatch):
    fast = retrieve(one, queries, search)
    monkeypatch.setattr(kernel, "COMPILED", False)
    assert retrieve(one, queries, search) == fast


@pytest.mark.parametrize("k", [1, 3, 10, 299, 100_000])
def test_fewer_documents_are_the_head_of_more(one, queries, k):
    everything = retrieve(one, queries, LexicalOptions(k=10**6))
    assert retrieve(one, queries, LexicalOptions(k=k)) == everything.top(k)


def by_definition(documents, query, weights, norms, k1=0.9):
    """BM25F of every document that holds a term, from the texts: scores by id."""
    analyzer = ANALYZERS["english"]()
    fields = {d.id: (Counter(analyzer(d.title)), Counter(analyzer(d.text))) for d in documents}
    held = [both for both in fields.values() if any(both)]
    means = [sum(both[f].total() for both in held) / len(held) for f in (0, 1)]
    scores = {}
    for doc_id, both in fields.items():
        total, found = 0.0, False
        for term, weight in sorted(Counter(analyzer(query)).items()):
            n = sum(any(counts[term] for counts in other) for other in held)
            parts = zip(both, weights, norms, means, strict=True)
            tf = sum(w * c[term] / (1 - b + b * c.total() / mean) for c, w, b, mean in parts if c[term])
            idf = math.log(1 + (len(held) - n + 0.5) / (n + 0.5))
            total += float(np.float32(weight * idf * tf / (k1 + tf)))
            found = found or any(counts[term] for counts in both)
        if found:
            scores[doc_id] = np.float32(total)
    return scores


@pytest.mark.parametrize("arguments", [(2, 1, 0.4, 0.4), (5, 0.5, 1, 0), (0, 1, 0.4, 1), (1, 0, 0, 0)])
def test_bm25f_is_its_definition_and_fields_leave_the_rest_of_an_index_alone(
    documents, queries, many, arguments, tmp_path
):
    title, text, b_title, b_text = arguments
    model = f"bm25f(title={title}, text={text}, b_title={b_title}, b_text={b_text})"
    run = retrieve(many, queries, LexicalOptions(model))
    for query in queries:
        scores = by_definition(documents, query.text, (title, text), (b_title, b_text))
        best = sorted(scores, key=lambda doc_id: (-scores[doc_id], doc_id))
        assert run[query.id].doc_ids == tuple(best)
        expected = strictly_falling(np.array([scores[doc_id] for doc_id in best], np.float32))
        assert run[query.id].scores.tobytes() == expected.tobytes()
    build(documents[:25], tmp_path / "plain", BuildOptions(workers=1))
    segment = many.path / "segments" / "000000"
    for path in (tmp_path / "plain" / "segments" / "000000").iterdir():
        assert path.read_bytes() == (segment / path.name).read_bytes(), path.name
    with pytest.raises(WrongUse, match="rankhouse index --field title,text"):
        retrieve(Index.open(tmp_path / "plain"), queries, LexicalOptions(model))


def test_equal_documents_tie_by_id_with_bm25f(tmp_path):
    build([Document(i, "same words", "title") for i in "cabed"], tmp_path / "index", FIELDS)
    run = retrieve(Index.open(tmp_path / "index"), [Query("q", "words title")], LexicalOptions("bm25f"))
    assert run["q"].doc_ids == ("a", "b", "c", "d", "e")


def test_queries_without_a_known_term_get_an_empty_ranking(one, queries):
    run = retrieve(one, queries)
    assert [q for q in run if not run[q].doc_ids] == ["q3", "q4", "q5"]
    assert list(run) == [q.id for q in queries]


def test_equal_scores_come_by_id_ascending_and_stay_so_in_a_run_file(tmp_path):
    build([Document(i, "same words") for i in "cabed"], tmp_path / "index", BuildOptions(workers=1))
    run = retrieve(Index.open(tmp_path / "index"), [Query("q", "words")])
    assert run["q"].doc_ids == ("a", "b", "c", "d", "e")
    assert run["q"].scores.max() - run["q"].scores.min() < 1e-6
    write_run(run, tmp_path / "run")
    assert read_run(tmp_path / "run")["q"].doc_ids == ("a", "b", "c", "d", "e")


@settings(max_examples=300)
@given(
    st.lists(
        st.floats(-(2.0**100), 2.0**100, width=32) | st.sampled_from([0.0, 1.0, -1.0, 1e-45]), max_size=40
    )
)
def test_strictly_falling_scores_fall_strictly_and_barely_move(values):
    scores = np.array(sorted(values, reverse=True), np.float32)
    fallen = strictly_falling(scores)
    assert (fallen[1:] < fallen[:-1]).all()
    assert (fallen <= scores).all()
    by_hand = scores.copy()
    for i in range(1, len(by_hand)):
        if by_hand[i] >= by_hand[i - 1]:
            by_hand[i] = np.nextafter(by_hand[i - 1], np.float32(-np.inf))
    assert np.array_equal(fallen, by_hand)
    assert fallen.tobytes() == strictly_falling(scores, np.array([0, len(scores)])).tobytes()


@pytest.mark.parametrize(
    ("search", "complaint"),
    [
        (LexicalOptions("bm52"), 'did you mean "bm25"'),
        (LexicalOptions("bm25(k=1)"), "accepted: bm25"),
        (LexicalOptions("bm25(b=2)"), "b must be between 0 and 1"),
        (LexicalOptions("bm25(k1=-1)"), "k1 must be 0 or more"),
        (LexicalOptions('bm25(lengths="short")'), '"lucene" or "exact"'),
        (LexicalOptions('bm25(query="idf")'), '"counts", "bm25", "content"'),
        (LexicalOptions('bm25(query="bm25")', "rm3"), "leave feedback out"),
        (LexicalOptions("bm25f(b_title=2)"), "b_title must be between 0 and 1"),
        (LexicalOptions("bm25f(title=-1)"), "title must be 0 or more"),
        (LexicalOptions("bm25f(title=0, text=0)"), "text must be above 0 where title is 0"),
        (LexicalOptions("ql(mu=0)"), "mu must be above 0"),
        (LexicalOptions('ql(form="x")'), '"lucene" or "indri"'),
        (LexicalOptions('ql(form="indri", combine="x")'), '"mean" or "sum"'),
        (LexicalOptions("jm(lambda=1)"), "between 0 and 1"),
        (LexicalOptions("bm25", "rm4"), "choose from: rm3"),
        (LexicalOptions("bm25", "rm3(docs=0)"), "docs must be 1 or more"),
        (LexicalOptions("bm25", "rm3(weight=2)"), "between 0 and 1"),
        (LexicalOptions(k=0), "ask for 1 document or more"),
    ],
)
def test_bad_choices_are_explained(one, search, complaint):
    with pytest.raises(WrongUse, match=complaint):
        retrieve(one, [Query("q", "ship")], search)


def test_models_print_as_they_are_written():
    from rankhouse.core.notation import make
    from rankhouse.index.lexical.feedback import FEEDBACKS
    from rankhouse.index.lexical.weighting import WEIGHTINGS

    for text in (
        "bm25(k1=0.9, b=0.4)",
        "bm25(k1=1.2, b=0.0, lengths='exact')",
        "bm25(k1=0.9, b=0.4, query='bm25')",
        "ql(mu=1000)",
        "ql(form='indri', mu=2500)",
        "ql(form='indri', mu=2500, combine='sum')",
        "jm(lambda=0.1)",
        "impact",
    ):
        assert str(make(text, WEIGHTINGS, "model")) == text
    for text in (
        "rm3(terms=10, docs=10, weight=0.5)",
        "rm3(terms=5, docs=3, weight=0.1, filter=False, common=0.2)",
    ):
        assert str(make(text, FEEDBACKS, "feedback")) == text


def test_bm25_on_both_sides_weighs_the_query_as_a_document(one):
    """By the formula: idf tf / (tf + k1 (1 - b + b length / mean)), of query and document, multiplied."""
    text = "the ships and a harbour, the ship of ships unheardofword"
    search = LexicalOptions('bm25(k1=1.2, b=0.75, lengths="exact", query="bm25")', "", 300)
    found = retrieve(one, [Query("q", text)], search)["q"]
    asked = {term: n for term, n in Counter(one.analyzer(text)).items() if one.counts(term).documents}
    mean, n = one.collection.mean_length, one.collection.with_terms
    assert asked["ship"] == 3
    assert "unheardofword" not in asked

    def weights(tfs):
        norm = 1.2 * (0.25 + 0.75 * sum(tfs.values()) / mean)
        idf = {
            t: np.log(1 + (n - one.counts(t).documents + 0.5) / (one.counts(t).documents + 0.5)) for t in tfs
        }
        return {t: idf[t] * tf / (tf + norm) for t, tf in tfs.items()}

    query = weights(asked)
    assert len(found.doc_ids) > 20
    for doc_id, score in zip(found.doc_ids, found.scores.tolist(), strict=True):
        held = weights(Counter(one.analyzer(one.documents[doc_id].full_text)))
        assert score == pytest.approx(sum(w * held.get(t, 0.0) for t, w in query.items()), rel=1e-5)


@pytest.mark.parametrize("feedback", ["", "rm3"])
def test_function_words_of_a_question_are_left_out_where_there_are_others(tmp_path, feedback):
    texts = [
        "How do I steer my ships?",
        "Ships steer by their rudders.",
        "Who are they, and what do they do?",
    ]
    build([Document(str(n), text) for n, text in enumerate(texts)], tmp_path / "index")

    def found(text, model):
        return retrieve(Index.open(tmp_path / "index"), [Query("q", text)], LexicalOptions(model, feedback))[
            "q"
        ]

    content, usual = 'bm25(query="content")', "bm25"
    asked = "How do I find my ships, and which of them does she steer?"
    assert found(asked, content) == found("find ships steer", usual) != found(asked, usual)
    assert found("Who do they?", content) == found("Who do they?", usual)
    assert found("What's in their rudders?", content) == found("rudders", usual)


def test_words_with_the_stem_of_a_function_word_stay_in_a_question(one):
    """\"Does\" is stemmed to "doe", and "his" to "hi"."""
    assert one.analyzer.content("Does a doe say hi to his ship?") == ["doe", "sai", "hi", "ship"]


def test_tweets_have_their_own_limit_of_common_terms():
    from rankhouse.index.lexical.feedback import RM3

    assert RM3().common_share("english", 10**9) == 0.1
    assert RM3().common_share("tweet", 10**6) == 0.01
    assert RM3().common_share("tweet", 10**9) == 0.007
    assert RM3(common=0.5).common_share("tweet", 1) == 0.5


def test_indri_feedback_weighs_by_likelihood(one):
    """Log probabilities are negative; as weights they would turn feedback upside down."""
    from rankhouse.index.lexical.search import Retriever

    retriever = Retriever(one, LexicalOptions('ql(form="indri")', "rm3"))
    terms = retriever.terms("ships rivers")
    weights = retriever.expand(terms, retriever.hits(terms, 10), retriever.feedback).weights
    assert min(weights.values()) > 0
    assert sum(weights.values()) == pytest.approx(1)


def test_progress_counts_queries(one, queries):
    seen = []
    retrieve(one, queries, progress=seen.append)
    assert seen == list(range(1, len(queries) + 1))


@pytest.mark.parametrize("stem", ["", "long-common-beginning-of-every-id-"])
def test_ties_across_segments_come_by_id_however_long(tmp_path, stem):
    names = [f"{stem}{i * 7919 % 1000:03d}" for i in range(60)]
    for first in range(0, 60, 12):
        part = [Document(name, "same words") for name in names[first : first + 12]]
        (append if first else build)(part, tmp_path / "index", BuildOptions(workers=1))
    index = Index.open(tmp_path / "index")
    assert len(index.segments) == 5
    assert not index.in_id_order
    for k in (7, 1000):
        run = retrieve(index, [Query("q", "words")], LexicalOptions(k=k))
        assert list(run["q"].doc_ids) == sorted(names)[:k]


def test_ties_across_segments_of_a_sorted_collection_come_by_id(tmp_path):
    names = [f"{i:03d}" for i in range(60)]
    for first in range(0, 60, 12):
        part = [Document(name, "same words") for name in names[first : first + 12]]
        (append if first else build)(part, tmp_path / "index", BuildOptions(workers=1))
    index = Index.open(tmp_path / "index")
    assert index.in_id_order
    assert list(retrieve(index, [Query("q", "words")], LexicalOptions(k=30))["q"].doc_ids) == names[:30]


@pytest.mark.parametrize("model", ["bm25(b=1.0)", "bm25(k1=0.0)", "bm25(k1=0.0, b=1.0)"])
def test_numbers_at_the_end_of_their_range_rank_too(tmp_path, model):
    texts = {"a": "ships ships", "b": "ships and grain", "c": "the"}
    build([Document(name, text) for name, text in texts.items()], tmp_path / "i")
    ranking = retrieve(Index.open(tmp_path / "i"), [Query("q", "ships")], LexicalOptions(model))["q"]
    assert np.isfinite(ranking.scores).all()
    if "k1=0.0" in model:  # counts and lengths no longer matter
        assert set(ranking.doc_ids) == {"a", "b"}
        assert ranking.scores == pytest.approx([np.log(1 + 0.5 / 2.5)] * 2)
    else:
        assert ranking.doc_ids == ("a", "b")
