"""The union contract of rerankers, asked through the whole application."""

import random

import numpy as np
import pytest

from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.core.scores import probabilities
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.text.split import Sentences

TEXTS = ["storm harbour week", "grain prices", "harbour storm bread storm", "milk"]


@pytest.fixture
def ask(client):
    def post(path="/v2/rerank", status=200, **body):
        answer = client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return post


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_one_answer_holds_what_every_client_reads(ask, path):
    answer = ask(path, query="storm", documents=TEXTS, top_n=2, model="crossencoder")
    results = answer["results"]
    assert answer["data"] == results
    assert [set(result) for result in results] == [{"index", "relevance_score"}] * 2
    assert results[0]["relevance_score"] >= results[1]["relevance_score"]
    assert answer["object"] == "list"
    assert answer["model"] == "crossencoder"
    assert answer["usage"]["total_tokens"] == answer["meta"]["tokens"]["input_tokens"] > 4
    assert answer["meta"]["api_version"] == {"version": "2" if path.startswith("/v2") else "1"}
    assert answer["meta"]["billed_units"] == {"search_units": 1}
    assert answer["meta"]["warnings"] == []


@pytest.mark.quick("crossencoder", "tk")
@pytest.mark.parametrize("kind", ["crossencoder", "biencoder", "monot5", "tk"])
def test_scores_are_those_of_reranking_offline_to_the_bit(ask, tiny, kind):
    rng = random.Random(1)
    texts = [tiny.long_text(rng, rng.randint(1, 30)) for _ in range(40)]
    ask_for = {
        "query": "storm harbour",
        "documents": texts,
        "model": kind,
        "split": "sentences(10, 5)",
        "pool": "max",
    }
    answer = ask(**ask_for, raw_scores=True)
    ranker = open_ranker(tiny.tiny_model(kind, tiny.folder), ComputeOptions("fp32", "cpu", 1))
    first = Run.of({"q": {str(i): 1.0 / (i + 1) for i in range(len(texts))}})
    documents = {str(i): Document(str(i), text) for i, text in enumerate(texts)}
    offline = rerank(ranker, first, [Query("q", "storm harbour")], documents, Plan(split=Sentences(10, 5)))[
        "q"
    ]
    assert [str(result["index"]) for result in answer["results"]] == list(offline.doc_ids)
    assert [result["relevance_score"] for result in answer["results"]] == offline.scores.tolist()
    chances = [result["relevance_score"] for result in ask(**ask_for)["results"]]
    assert chances == probabilities(offline.scores, ranker.scale).tolist()
    assert (kind in ("crossencoder", "monot5")) == all(0 <= chance <= 1 for chance in chances)


def test_nulls_zero_and_voyages_name_mean_all_or_some(ask):
    body = {"query": "storm", "documents": TEXTS}
    nulls = dict.fromkeys(("top_n", "max_tokens_per_doc", "relevant_spans", "rank_fields", "model", "split"))
    for more, n in (
        (nulls, 4),
        ({"top_n": 0}, 4),
        ({"top_k": 3}, 3),
        ({"top_n": 99}, 4),
        ({"priority": 1}, 4),
    ):
        assert len(ask(**body, **more)["results"]) == n


def test_documents_may_be_objects_and_come_back(ask):
    documents = ["storm", {"text": "grain", "id": 7}, {"title": "milk", "body": "bread", "n": 3}]
    answer = ask("/v1/rerank", query="storm", documents=documents[:2], return_documents=True)
    back = {result["index"]: result["document"] for result in answer["results"]}
    assert back == {0: {"text": "storm"}, 1: {"text": "grain", "id": 7}}
    answer = ask(query="storm", documents=documents[2:], rank_fields=["title", "body"], return_documents=True)
    assert answer["results"][0]["document"] == {"text": "milk\nbread"}
    answer = ask(query="storm", documents=documents[:2], rank_fields=["title"], return_documents=True)
    assert {result["index"]: result["document"] for result in answer["results"]} == back
    refused = ask(status=422, query="storm", documents=documents)
    assert refused["error"]["param"] == "documents[2]"
    assert "it has 'body', 'n', 'title'" in refused["detail"]


def test_relevant_spans_are_code_points_of_the_text_as_given(ask, tiny):
    rng = random.Random(2)
    text = " \U0001f6a2\n" + tiny.long_text(rng, 25)
    spans = {"mode": "enabled", "threshold": 0.0, "max_spans": 2}
    body = {"query": "storm", "documents": ["milk", text], "relevant_spans": spans}
    result = next(one for one in ask(**body)["results"] if one["index"] == 1)
    told = result["relevant_spans"]
    assert 1 <= len(told) <= 2
    assert told[0]["score"] == result["relevance_score"]
    for span in told:
        part = text[span["start"] : span["end"]]
        assert part == part.strip() != ""
        alone = ask(query="storm", documents=[part])["results"][0]
        assert alone["relevance_score"] == pytest.approx(span["score"], abs=1e-6)
    assert "relevant_spans" not in ask(query="storm", documents=["milk"])["results"][0]


def test_truncation_and_poison_are_said(ask):
    documents = ["storm", "", "grain " * 300, " \n"]
    answer = ask(query="storm", documents=documents)
    assert [result["index"] for result in answer["results"]][2:] == [1, 3]
    assert [result["relevance_score"] for result in answer["results"]][2:] == [0.0, 0.0]
    assert answer["meta"]["warnings"][0] == "without text, ranked last: documents[1], documents[3]"
    assert answer["meta"]["warnings"][1].startswith("passages beyond the 64 tokens")
    cut = ask(query="storm", documents=["storm " * 30], max_tokens_per_doc=8)
    assert cut["meta"]["warnings"] == ["cut to 8 tokens (max_tokens_per_doc): documents[0]"]


def test_half_a_surrogate_pair_fails_nothing(client):
    body = b'{"query": "storm", "documents": ["grain", "half \\ud800 of one"]}'
    assert len(client.post("/v2/rerank", content=body).json()["results"]) == 2


def test_a_thousand_documents_are_one_request(ask, tiny):
    rng = random.Random(3)
    answer = ask(query="storm", documents=[tiny.text(rng, 30) for _ in range(1000)], model="tk")
    assert len(answer["results"]) == 1000
    assert answer["meta"]["billed_units"] == {"search_units": 10}


def test_texts_get_text_embeddings_inferences_list(ask):
    scores = ask("/rerank", query="storm", texts=TEXTS, top_n=1, truncate=None, return_text=True)
    assert sorted(one["index"] for one in scores) == [0, 1, 2, 3]
    assert all(one["text"] == TEXTS[one["index"]] for one in scores)
    assert [one["score"] for one in scores] == sorted((one["score"] for one in scores), reverse=True)
    raw = ask("/rerank", query="storm", texts=TEXTS, raw_scores=True)
    assert [one["index"] for one in raw] == [one["index"] for one in scores]
    assert scores[0]["score"] == pytest.approx(1 / (1 + np.exp(-raw[0]["score"])), abs=1e-12)
    assert set(raw[0]) == {"index", "score"}


def test_errors_of_texts_have_text_embeddings_inferences_shape(ask):
    assert ask("/rerank", 400, query="storm", texts=[])["error_type"] == "empty"
    refused = ask("/rerank", 422, query="storm", texts=["a", 3])
    assert (refused["error_type"], refused["param"]) == ("validation", "texts[1]")


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"documents": TEXTS}, 422, "query"),
        ({"query": "storm"}, 422, "documents"),
        ({"query": "storm", "documents": []}, 400, "documents"),
        ({"query": "storm", "documents": [*TEXTS, 5]}, 422, "documents[4]"),
        ({"query": "storm", "documents": [*TEXTS, None]}, 422, "documents[4]"),
        ({"query": 1, "documents": TEXTS}, 422, "query"),
        ({"query": "storm", "documents": TEXTS, "top_n": -1}, 422, "top_n"),
        ({"query": "storm", "documents": TEXTS, "top_n": "2"}, 422, "top_n"),
        ({"query": "storm", "documents": TEXTS, "model": "crossencodr"}, 404, "model"),
        (
            {"query": "storm", "documents": TEXTS, "relevant_spans": {"threshold": "x"}},
            422,
            "relevant_spans.threshold",
        ),
        ({"query": "storm", "documents": TEXTS, "split": "sentence(3)"}, 422, None),
        (
            {"query": "storm", "documents": TEXTS, "pool": "mean(scale='probability')", "model": "tk"},
            422,
            None,
        ),
    ],
)
def test_what_is_wrong_is_named(ask, body, status, param):
    refused = ask(status=status, **body)
    assert refused["error"]["param"] == param
    assert refused["message"] == refused["detail"] == refused["error"]["message"]


def test_what_is_no_json_is_refused(client):
    assert client.post("/v2/rerank", content=b"{").status_code == 400
    assert client.post("/rerank", content=b'{"texts": [').json()["error"]
    assert client.get("/v2/rerank").status_code == 405


def test_scores_of_pairs_are_in_the_order_given(ask):
    ranked = ask(query="storm", documents=TEXTS)["results"]
    scores = {result["index"]: result["relevance_score"] for result in ranked}
    for path, body in (
        ("/score", {"text_1": "storm", "text_2": TEXTS}),
        ("/v1/score", {"queries": ["storm"], "documents": TEXTS}),
        ("/v1/score", {"text_1": ["storm"] * 4, "text_2": TEXTS}),
    ):
        data = ask(path, **body)["data"]
        assert [one["score"] for one in data] == [scores[i] for i in range(4)]
        assert [(one["index"], one["object"]) for one in data] == [(i, "score") for i in range(4)]
    assert ask("/score", text_1="storm", text_2="milk")["data"][0]["score"] == scores[3]
    assert ask("/score", 422, text_1=["a", "b"], text_2=TEXTS)["error"]["param"] == "text_1"
