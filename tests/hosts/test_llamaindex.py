"""LlamaIndex: its own evaluator and query engine over the adapters, its bad nodes."""

import math

import pytest

pytest.importorskip("llama_index.core", reason="llama-index-core is not installed; make hosts")

from host_material import EXPRESSIONS, QRELS, QUERIES, TEXTS, TITLES, Broken, Overlap
from llama_index.core import QueryBundle, get_response_synthesizer
from llama_index.core.evaluation import RetrieverEvaluator
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode

from rankhouse.core.errors import BadData, BadModel, DuplicateId, WrongUse
from rankhouse.evaluation.measures import evaluate
from rankhouse.hosts.adapters import OldHost
from rankhouse.hosts.llamaindex import RankhousePostprocessor, RankhouseRetriever

pytestmark = [pytest.mark.outside, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def node(doc_id, text, score=1.0):
    return NodeWithScore(node=TextNode(id_=doc_id, text=text), score=score)


@pytest.mark.parametrize("expression", EXPRESSIONS)
async def test_a_retriever_ranks_as_the_command_line_does(expression, searched):
    expected = searched(expression)
    retriever = RankhouseRetriever(expression, "notes.index", k=20)
    for query_id, text in QUERIES.items():
        found = retriever.retrieve(text)
        ranking = expected[query_id]
        assert [(one.node_id, one.score) for one in found] == list(ranking.to_dict().items())
        for one in found:
            title = TITLES.get(one.node_id, "")
            assert one.node.metadata["title"] == title
            assert one.text == f"{title} {TEXTS[one.node_id]}".strip()
        assert await retriever.aretrieve(text) == found


async def test_its_evaluator_measures_what_the_command_line_measures(searched):
    expected = searched("bm25 % 10")
    retriever = RankhouseRetriever("bm25", "notes.index", k=10)
    evaluator = RetrieverEvaluator.from_metric_names(["mrr", "recall", "ap"], retriever=retriever)
    values = []
    for query_id, text in QUERIES.items():
        judged = list(QRELS[query_id])
        values.append((await evaluator.aevaluate(text, judged)).metric_vals_dict)
    own = evaluate(expected, QRELS, "RR@10 R@10")
    assert sum(one["mrr"] for one in values) / 3 == pytest.approx(own["RR@10"], abs=1e-6)
    assert sum(one["recall"] for one in values) / 3 == pytest.approx(own["R@10"], abs=1e-6)


def test_a_query_engine_ranks_as_the_command_line_does(searched):
    expected = searched('bm25 % 5 >> "ranker"')
    engine = RetrieverQueryEngine(
        RankhouseRetriever("bm25", "notes.index", k=5),
        get_response_synthesizer(llm=MockLLM()),
        node_postprocessors=[RankhousePostprocessor(ranker="ranker")],
    )
    for query_id, text in QUERIES.items():
        found = engine.query(text).source_nodes
        assert [(one.node_id, one.score) for one in found] == list(expected[query_id].to_dict().items())


async def test_the_best_are_kept_and_nodes_stay_as_they_are():
    nodes = [node("a", "b"), node("b", "a"), node("c", "a b", None)]
    reranker = RankhousePostprocessor(ranker=Overlap(), top_n=2)
    found = reranker.postprocess_nodes(nodes, query_str="a b")
    assert [(one.node_id, one.score) for one in found] == [("c", 2.0), ("b", 1.0)]
    assert await reranker.apostprocess_nodes(nodes, QueryBundle("a b")) == found
    assert [one.score for one in nodes] == [1.0, 1.0, None]
    assert reranker.postprocess_nodes([], query_str="a") == []
    assert reranker.class_name() == "RankhousePostprocessor"


def test_faults_are_named(folder):
    reranker = RankhousePostprocessor(ranker=Overlap())
    with pytest.raises(DuplicateId, match='the "node_id" of the nodes is "a" in rows 0 and 1'):
        reranker.postprocess_nodes([node("a", "x"), node("a", "y")], query_str="x")
    with pytest.raises(BadData, match='the "score" of the nodes is nan in row 1'):
        reranker.postprocess_nodes([node("a", "x"), node("b", "y", math.nan)], query_str="x")
    with pytest.raises(WrongUse, match="give query_str"):
        reranker.postprocess_nodes([node("a", "x")])
    with pytest.raises(BadModel, match="not a number"):
        RankhousePostprocessor(ranker=Broken()).postprocess_nodes([node("a", "x")], query_str="x")
    with pytest.raises(WrongUse, match="0 documents are asked for"):
        RankhouseRetriever("bm25", "notes.index", k=0).retrieve("ships")


def test_an_old_host_is_named_with_the_version_that_is_needed(old_host):
    with pytest.raises(
        OldHost, match=r"needs llama-index-core 0\.14\.19 or newer, and llama-index-core 0\.10\.68"
    ):
        old_host("llamaindex", "0.10.68")
