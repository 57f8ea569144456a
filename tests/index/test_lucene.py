"""Statistics, scores and feedback weights are those of real Lucene, on its toy corpus."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rankhouse.index.index import Index
from rankhouse.index.lexical import build as building
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, Retriever
from rankhouse.index.lexical.segment import DECODED, codes_of
from rankhouse.io.corpora import read_documents, read_queries

GOLDEN = Path(__file__).parents[1] / "golden" / "lucene"
LUCENE = json.loads((GOLDEN / "lucene_golden.json").read_text())
RUNS = LUCENE["runs"]


@pytest.fixture(scope="module", params=[1 << 20, 300], ids=["one segment", "many segments"])
def index(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("lucene") / "index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "CHUNK_DOCUMENTS", 4)
        options = BuildOptions(segment_tokens=request.param, workers=1)
        build(read_documents([GOLDEN / "corpus.jsonl"]), out, options)
    index = Index.open(out)
    assert (len(index.segments) == 1) == (request.param > 10_000)
    return index


def search_of(said: str) -> LexicalOptions:
    """Translate the golden file's name of a model into our notation."""
    model, _, feedback = said.partition("+")
    for theirs, ours in (("bm25accurate(", 'bm25(lengths="exact", '), ("qljm", "jm"), ("qld", "ql")):
        model = model.replace(theirs, ours)
    if feedback:
        given = dict(re.findall(r"(fbTerms|fbDocs|originalQueryWeight)=([\d.]+)", feedback))
        plain = ", filter=False" if "noTermFilter" in feedback else ""
        feedback = f"rm3({given['fbTerms']}, {given['fbDocs']}, {given['originalQueryWeight']}{plain})"
    return LexicalOptions(model, feedback)


def test_statistics_are_lucenes(index):
    collection = index.collection
    assert (collection.documents, collection.with_terms, collection.tokens) == (
        30,
        29,
        LUCENE["sumTotalTermFreq"],
    )
    assert collection.mean_length == pytest.approx(LUCENE["avgdl_float"], abs=1e-5)
    assert index.distinct_terms() == len(LUCENE["terms_df_cf"])
    assert {term: list(index.counts(term)) for term in LUCENE["terms_df_cf"]} == LUCENE["terms_df_cf"]


def test_tokens_and_lengths_are_lucenes(index):
    rows = {doc_id: row for row, doc_id in enumerate(index.documents)}
    for said in LUCENE["docs"]:
        part, row = index.place(rows[said["docid"]])
        assert sorted(t for t, tf in part.terms_of(row) for _ in range(tf)) == sorted(said["tokens"])
        assert part.lengths[row] == said["length"]
        assert DECODED[part.codes[row]] == said["length_decoded_from_norm"]


def test_length_codes_are_lucenes():
    table = json.loads((GOLDEN / "smallfloat_length_codec.json").read_text())
    assert DECODED[codes_of(np.arange(len(table), dtype=np.int32))].tolist() == table


@pytest.mark.parametrize("said", sorted({run["model"] for run in RUNS}))
def test_scores_and_feedback_are_lucenes(index, said):
    retriever = Retriever(index, search_of(said))
    for golden in (run for run in RUNS if run["model"] == said):
        weights = retriever.terms(golden["query"])
        if retriever.feedback is not None:
            first = retriever.hits(weights, retriever.feedback.docs)
            weights = retriever.expand(weights, first, retriever.feedback).weights
            assert weights == pytest.approx(golden["feedback_query"], abs=1e-7)
        hits = retriever.hits(weights, 1000)
        assert index.ids(hits.rows) == [doc_id for doc_id, _ in golden["hits"]]
        assert hits.scores.tolist() == pytest.approx([score for _, score in golden["hits"]], abs=2e-6)


VARIANTS = {
    "bm25_exact_length(k1=0.9,b=0.4)": 'bm25(lengths="exact")',
    "dirichlet_sum_log_p(mu=1000),cf/|C|,exact length,all query terms": 'ql(1000, "indri", "sum")',
    "dirichlet_sum_log_p(mu=2500),cf/|C|,exact length,all query terms": 'ql(form="indri", combine="sum")',
    "dirichlet_mean_log_p(mu=2500) (Indri #combine)": 'ql(form="indri")',
}


@pytest.mark.parametrize("name", VARIANTS)
def test_textbook_forms_are_offered_too(index, name):
    golden = json.loads((GOLDEN / "formula_variants.json").read_text())["variants"]
    retriever = Retriever(index, LexicalOptions(VARIANTS[name]))
    texts = {query.id: query.text for query in read_queries(GOLDEN / "queries.tsv")}
    compared = 0
    for query_id, forms in golden.items():
        hits = retriever.hits(retriever.terms(texts[query_id]), 1000)
        expected = dict(forms[name])
        assert len(hits.rows) == len(expected)
        for doc_id, score in zip(index.ids(hits.rows), hits.scores.tolist(), strict=True):
            assert score == pytest.approx(expected[doc_id], abs=4e-6)
            compared += 1
    assert compared > 30
