"""Haystack: its own evaluators and pipelines over the components, saved and opened again, bad documents."""

import math
import os

import pytest

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read at import
pytest.importorskip("haystack.components", reason="haystack-ai is not installed; make hosts")

from haystack import Document, Pipeline
from haystack.components.evaluators import DocumentMRREvaluator, DocumentRecallEvaluator
from host_material import EXPRESSIONS, QRELS, QUERIES, TEXTS, TITLES, Broken, Overlap

from rankhouse.core.errors import BadData, BadModel, DuplicateId, WrongUse
from rankhouse.evaluation.measures import evaluate
from rankhouse.hosts.adapters import OldHost
from rankhouse.hosts.haystack import RankhouseRanker, RankhouseRetriever
from rankhouse.systems.notation import system as as_system

pytestmark = [pytest.mark.outside, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def pipeline_of(retriever, ranker):
    pipeline = Pipeline()
    pipeline.add_component("retriever", retriever)
    pipeline.add_component("ranker", ranker)
    pipeline.connect("retriever.documents", "ranker.documents")
    return pipeline


def asked(pipeline, text):
    found = pipeline.run({"retriever": {"query": text}, "ranker": {"query": text}})["ranker"]["documents"]
    return [(one.id, one.score) for one in found]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_retriever_ranks_as_the_command_line_does(expression, searched):
    expected = searched(expression)
    retriever = RankhouseRetriever(expression, "notes.index", top_k=20)
    for query_id, text in QUERIES.items():
        found = retriever.run(text)["documents"]
        assert [(one.id, one.score) for one in found] == list(expected[query_id].to_dict().items())
        assert [one.meta["title"] for one in found] == [TITLES.get(one.id, "") for one in found]
        assert len(retriever.run(text, top_k=1)["documents"]) == 1


def test_a_pipeline_ranks_as_the_command_line_does_saved_and_opened_again(searched):
    expected = searched('bm25 % 5 >> "ranker"')
    pipeline = pipeline_of(RankhouseRetriever("bm25", "notes.index", top_k=5), RankhouseRanker("ranker"))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["rankhouse.hosts.haystack"])
    for query_id, text in QUERIES.items():
        assert asked(pipeline, text) == asked(again, text) == list(expected[query_id].to_dict().items())
    options = RankhouseRanker('open("ranker", depth=2, tail="drop")', top_k=4).to_dict()["init_parameters"]
    assert options == {"ranker": 'open("ranker", depth=2, tail="drop")', "top_k": 4}
    options = RankhouseRanker('crossencoder("ranker", max_length=8)').to_dict()["init_parameters"]
    assert type(options["ranker"]) is str  # YAML writes no other kind of text


def test_its_evaluators_measure_what_the_command_line_measures(searched):
    expected = searched('bm25 % 5 >> "ranker"')
    retriever = RankhouseRetriever('bm25 % 5 >> "ranker"', "notes.index")
    found = [retriever.run(text)["documents"] for text in QUERIES.values()]
    texts = {i: f"{TITLES.get(i, '')} {text}".strip() for i, text in TEXTS.items()}
    truth = [[Document(content=texts[i]) for i in grades] for grades in QRELS.values()]
    own = evaluate(expected, QRELS, "RR@10 R@10")
    mrr = DocumentMRREvaluator().run(ground_truth_documents=truth, retrieved_documents=found)
    assert mrr["score"] == pytest.approx(own["RR@10"])
    recall = DocumentRecallEvaluator(mode="multi_hit").run(
        ground_truth_documents=truth, retrieved_documents=found
    )
    assert recall["score"] >= own["R@10"] - 1e-6  # d1 and d4 have one text, which counts as found once


def test_documents_that_are_given_stay_as_they_are():
    documents = [Document(id="a", content="b"), Document(id="b", content="a", score=3.0)]
    found = RankhouseRanker(Overlap(), top_k=1).run("a", documents)["documents"]
    assert [(one.id, one.score) for one in found] == [("b", 1.0)]
    assert [one.score for one in documents] == [None, 3.0]
    assert RankhouseRanker(Overlap()).run("a", [])["documents"] == []


def test_faults_are_named(folder):
    ranker, one = RankhouseRanker(Overlap()), Document(id="a", content="x")
    with pytest.raises(DuplicateId, match='the "id" of the documents is "a" in rows 0 and 1'):
        ranker.run("x", [one, one])
    with pytest.raises(BadData, match='the "score" of the documents is nan in row 0'):
        ranker.run("x", [Document(id="a", content="x", score=math.nan)])
    with pytest.raises(BadData, match='the "content" of document "a" is None'):
        ranker.run("x", [Document(id="a")])
    with pytest.raises(BadModel, match="not a number"):
        RankhouseRanker(Broken()).run("x", [one])
    with pytest.raises(WrongUse, match="0 documents are asked for"):
        RankhouseRetriever("bm25", "notes.index", top_k=0)
    with pytest.raises(WrongUse, match="is not saved"):
        ranker.to_dict()
    with pytest.raises(WrongUse, match="is not saved"):
        RankhouseRetriever(as_system("bm25") >> Overlap(), "notes.index").to_dict()


def test_an_old_host_is_named_with_the_version_that_is_needed(old_host):
    with pytest.raises(OldHost, match=r"needs haystack-ai 3\.0 or newer, and haystack-ai 2\.9\.0"):
        old_host("haystack", "2.9.0")
