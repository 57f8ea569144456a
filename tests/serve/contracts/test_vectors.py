"""Vectors, tokens and models, as clients of OpenAI and of Hugging Face ask for them."""

import asyncio
import base64
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from starlette.requests import Request

from rankhouse.serve.contracts.shapes import EmbedBody
from rankhouse.serve.contracts.vectors import embed
from rankhouse.serve.engine.jobs import Times, WorkResult
from rankhouse.systems.rankers import ComputeOptions, open_ranker

TEXTS = ["storm harbour", "grain prices this week", "milk"]


@pytest.fixture
def ask(client):
    def post(path, status=200, **body):
        answer = client.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return post


@pytest.fixture
def encoder(tiny):
    return open_ranker(tiny.tiny_model("biencoder", tiny.folder), ComputeOptions("fp32", "cpu", 1))


def unit(vectors):
    wide = np.asarray(vectors, np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings"])
def test_embeddings_are_the_encoders_own(ask, encoder, path):
    answer = ask(path, input=TEXTS, model="biencoder", encoding_format="float")
    vectors = np.array([one["embedding"] for one in answer["data"]], np.float32)
    assert np.array_equal(vectors, encoder.encode_passages(TEXTS))
    assert [one["index"] for one in answer["data"]] == [0, 1, 2]
    assert answer["usage"]["prompt_tokens"] > 6
    packed = ask(path, input=TEXTS, encoding_format="base64")["data"]
    rows = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in packed]
    assert np.array_equal(np.stack(rows), vectors)
    asked = ask(path, input="storm", input_type="query")["data"][0]["embedding"]
    assert np.array_equal(np.array(asked, np.float32), encoder.encode_queries(["storm"])[0])


def test_fewer_dimensions_have_length_one(ask, encoder):
    rows = [one["embedding"] for one in ask("/v1/embeddings", input=TEXTS, dimensions=8)["data"]]
    assert np.allclose(rows, unit(encoder.encode_passages(TEXTS)[:, :8]), atol=1e-6)
    assert ask("/v1/embeddings", 422, input=TEXTS, dimensions=800)["error"]["param"] == "dimensions"


def test_hugging_faces_vectors_have_length_one_unless_told_otherwise(ask, encoder):
    offline = encoder.encode_passages(TEXTS)
    assert np.allclose(ask("/embed", inputs=TEXTS), unit(offline), atol=1e-6)
    assert np.array_equal(np.array(ask("/embed", inputs=TEXTS, normalize=False), np.float32), offline)
    assert np.allclose(ask("/", inputs=TEXTS[0]), unit(offline[:1]), atol=1e-6)


def test_what_does_not_fit_is_cut_or_refused(ask, client):
    long = "storm " * 200
    assert len(ask("/embed", inputs=long)) == 1
    refused = ask("/embed", 422, inputs=["milk", long], truncate=False)
    assert refused["param"] == "inputs[1]"
    assert "tokens more than the model reads" in refused["error"]
    answer = client.post("/v1/embeddings", json={"input": [long]})
    assert int(answer.headers["x-truncated-tokens"]) > 100


def test_similarities_are_cosines(ask, encoder):
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    expected = unit(encoder.encode_passages(TEXTS))
    for path in ("/similarity", "/"):
        assert np.allclose(ask(path, inputs=inputs), expected @ expected[0], atol=1e-6)
    assert ask("/similarity", 400, inputs={"source_sentence": "a", "sentences": []})["error_type"] == "empty"


def test_pairs_are_predicted(ask):
    ranked = ask("/rerank", query="storm", texts=TEXTS)
    scores = {one["index"]: one["score"] for one in ranked}
    for path in ("/predict", "/"):
        predictions = ask(path, inputs=[["storm", text] for text in TEXTS])
        assert [one[0]["score"] for one in predictions] == [scores[i] for i in range(3)]
    assert ask("/predict", inputs=["storm", TEXTS[2]]) == [{"score": scores[2], "label": "relevant"}]
    assert ask("/predict", 422, inputs="storm")["error_type"] == "validation"
    assert ask("/predict", 422, inputs=[["a", "b"], ["c"]])["param"] == "inputs[1]"
    assert ask("/predict", 422, inputs=[["a", "b"], "c"])["param"] == "inputs[1]"
    assert ask("/", query="storm", texts=TEXTS) == ranked


def test_tokens_stand_where_they_are_said_to(ask):
    (tokens,) = ask("/tokenize", inputs="Storm \U0001f6a2 harbour", model="crossencoder")
    assert tokens[0]["special"]
    assert (tokens[0]["start"], tokens[0]["text"]) == (None, "[CLS]")
    own = [token for token in tokens if not token["special"]]
    assert all("Storm \U0001f6a2 harbour"[token["start"] : token["stop"]] == token["text"] for token in own)
    bare = ask("/tokenize", inputs=["storm", "milk"], add_special_tokens=False, model="monot5")
    assert not any(token["special"] for row in bare for token in row)
    assert ask("/tokenize", 422, inputs="storm", model="tk")["error_type"] == "backend"


def test_models_and_what_they_are(client):
    names = [one["id"] for one in client.get("/v1/models").json()["data"]]
    assert names == ["crossencoder", "biencoder", "monot5", "tk"]
    assert client.get("/v1/models/tk").json()["id"] == "tk"
    assert client.get("/v1/models/a/b").status_code == 404
    info = client.get("/info").json()
    assert (info["model_id"], info["max_input_length"], info["model_dtype"]) == (
        "crossencoder",
        64,
        "float32",
    )
    assert client.get("/info?model=biencoder").json()["model_type"] == {"embedding": {"pooling": "cls"}}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/embeddings", {"input": []}, 400),
        ("/v1/embeddings", {"input": [1, 2, 3]}, 422),
        ("/v1/embeddings", {"input": "a", "model": "monot5"}, 422),
        ("/v1/embeddings", {"input": "a", "model": "none"}, 404),
        ("/embed", {"inputs": None}, 422),
        ("/tokenize", {"inputs": 3}, 422),
        ("/", {}, 422),
        ("/", {"inputs": {"source_sentence": "a"}}, 422),
    ],
)
def test_what_is_wrong_is_refused(ask, path, body, status):
    ask(path, status, **body)


def test_the_service_describes_itself(client):
    import schemathesis

    made = client.get("/openapi.json").json()
    schemathesis.openapi.from_dict(made).validate()
    assert {"/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/embeddings", "/embed", "/"} <= made[
        "paths"
    ].keys()


@pytest.mark.parametrize(("path", "field"), [("/v1/embeddings", "input"), ("/embed", "inputs")])
def test_vectors_of_a_request_have_an_end(ask, path, field):
    answer = ask(path, 413, **{field: ["a"] * 50_001})
    assert f"{field}: has 50,001 texts; at most 50,000" in str(answer["error"])


def test_others_are_answered_while_many_vectors_are_written():
    values = np.random.default_rng(0).normal(size=(4096, 1024)).astype(np.float32)
    counts, done = np.zeros(len(values), np.int64), Future()
    done.set_result(WorkResult(values, counts, counts, Times(0, 0, 0)))
    dense = SimpleNamespace(model=SimpleNamespace(policy={"normalised": False}))
    encoder = SimpleNamespace(is_encoder=True, encode=lambda *_: done, require_encoder=lambda: dense)

    async def ask():
        body, request = EmbedBody(["storm"] * len(values), normalize=False), Request({"type": "http"})
        asked, turns = asyncio.create_task(embed(lambda: {"m": encoder}, request, body)), 0
        while not asked.done():
            await asyncio.sleep(0.001)
            turns += 1
        return asked.result(), turns

    with ThreadPoolExecutor(1) as apart:  # a browser of other tests may hold this thread's event loop
        rows, turns = apart.submit(lambda: asyncio.run(ask())).result()
    assert np.array_equal(np.array(msgspec.json.decode(rows[-1]), np.float32), values[-1])
    assert turns > 8
