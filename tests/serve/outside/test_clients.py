"""Unmodified clients of others against the running service; `make clients` installs them."""

import json
import math
import shutil
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.outside

ROOT = Path(__file__).parents[3]
SCRIPTS, NPM, VENVS = ROOT / "tests/serve/clients", ROOT / "tests/serve/npm", ROOT / ".venv-clients"
NODE = shutil.which("node")
INSTALLED = (VENVS / ".installed").exists()
QUERY = "boats at the coast"
DOCUMENTS = [
    "an engine broke; the boat was late.",
    "clocks cost 500 crowns each.",
    "bread and flour were cheap after the war; ünïcode \U0001f30a “quotes” too.",
    "the army crossed the coast at 12. " * 12,  # more than the model's 64 tokens: read in passages
    "a boat at the coast",
    "z" * 300,
]
WORDS = "clocks bread flour crowns engine boat army data cross cheap cost war"
LONG = " ".join(
    f"Sentence {i} says that {word} went by the coast." for i, word in enumerate(WORDS.split() * 3)
)
TEXTS = ["clocks cost crowns", "a boat at the coast", "bread, flour & ünïcode"]
HUGE = 1 << 21
RUNS = {
    "cohere": ("sdks", "cohere_calls.py"),
    "cohere 5": ("frameworks", "cohere_calls.py"),
    "voyageai": ("sdks", "voyage_calls.py"),
    "openai": ("sdks", "openai_calls.py"),
    "huggingface_hub": ("sdks", "hub_calls.py"),
    "huggingface_hub 1": ("frameworks", "hub_calls.py"),
    "litellm": ("frameworks", "litellm_calls.py"),
    "langchain-cohere": ("frameworks", "langchain_calls.py"),
    "llama-index": ("frameworks", "llamaindex_calls.py"),
    "haystack": ("frameworks", "haystack_calls.py"),
    "rerankers": ("frameworks", "rerankers_calls.py"),
    "npm": ("", "calls.mjs"),
}
QUIET = {"HAYSTACK_TELEMETRY_ENABLED": "False", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""Clients that would tell their makers."""


@pytest.fixture(scope="module")
def busy(serving, tiny, tmp_path_factory):
    """A service whose queue is full: others ask it for more than it holds, all the time."""
    arguments = ["--ranker", f"tiny={tiny['tiny']}", "--queue", 2000]
    body = {"model": "tiny", "query": QUERY, "documents": DOCUMENTS[:3] * 2000}
    over = threading.Event()
    with serving(tmp_path_factory.mktemp("busy"), *arguments) as running:

        def ask():
            while not over.wait(0.02):
                assert running.post("/rerank", body).status in (200, 429)

        others = [threading.Thread(target=ask) for _ in range(4)]
        for thread in others:
            thread.start()
        yield running
        over.set()
        for thread in others:
            thread.join()


@pytest.fixture(scope="module")
def offline(tiny, tmp_path_factory):
    """The same rankers without any service: an index, a run of it reranked, vectors."""
    import rankhouse as rh

    encoder = rh.open_ranker(tiny["enc"])

    class Offline:
        def scores(self, documents=DOCUMENTS, query=QUERY, split="sentences(10, 5)"):
            """(n,) scores by `rh.rerank`, in the documents' order."""
            records = [{"id": str(i), "text": text} for i, text in enumerate(documents)]
            index = rh.Index.build(records, tmp_path_factory.mktemp("offline") / "index")
            run = rh.Run.of({"q": {str(i): -float(i) for i in range(len(documents))}})
            found = rh.rerank(tiny["tiny"], run, {"q": query}, index, split=split)["q"]
            by_id = dict(zip(found.doc_ids, found.scores, strict=True))
            return [float(by_id[str(i)]) for i in range(len(documents))]

        def ranking(self, documents=DOCUMENTS, *, raw=False, **more):
            scores = self.scores(documents, **more)
            order = sorted(range(len(scores)), key=lambda i: -scores[i])
            return [[i, scores[i] if raw else 1 / (1 + math.exp(-scores[i]))] for i in order]

        def vectors(self, texts=TEXTS):
            return encoder.encode_passages(texts)

    return Offline()


@pytest.fixture(scope="module")
def answers(service, busy):
    """From a client's name to what its calls gave."""
    if not INSTALLED:
        pytest.skip("other people's clients are not installed: make clients")
    setup = {"base": service.base, "encoder_base": service.base, "busy": busy.base, "key": service.key}
    setup |= {"model": "tiny", "encoder": "enc", "query": QUERY, "documents": DOCUMENTS, "texts": TEXTS}
    setup |= {"long": LONG, "huge": HUGE}
    found = {}

    def ask(name):
        if name not in found:
            venv, script = RUNS[name]
            if not venv and NODE is None:
                pytest.skip("node is not installed")
            program = [VENVS / venv / "bin/python", SCRIPTS / script] if venv else [NODE, NPM / script]
            done = subprocess.run(
                program, check=False, input=json.dumps(setup), capture_output=True, text=True,
                timeout=300, env={"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": "/nonexistent", **QUIET},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr[-3000:]
            found[name] = json.loads(done.stdout.splitlines()[-1])["calls"]
        return found[name]

    return ask


def cases(said):
    """Return (client, call) pairs of lines `client: call call`."""
    lines = (line.strip().partition(": ") for line in said.strip().splitlines())
    return [(client, call) for client, _, calls in lines for call in calls.split()]


RANKS = cases("""
    cohere: ranks ranks_v1 ranks_asynchronously fields_v1
    cohere 5: ranks ranks_v1 ranks_asynchronously fields_v1
    voyageai: ranks ranks_asynchronously
    openai: ranks
    litellm: ranks_cohere ranks_jina_ai ranks_infinity ranks_huggingface ranks_voyage ranks_hosted_vllm
    langchain-cohere: ranks
    llama-index: ranks_cohere ranks_jina ranks_tei
    haystack: ranks_cohere ranks_jina ranks_jina_asynchronously ranks_tei
    rerankers: ranks_cohere ranks_jina ranks_voyage ranks_text-embeddings-inference
    npm: cohere_ranks cohere_ranks_v1 voyage_ranks openai_ranks
""")
TOPS = cases("""
    cohere: top
    cohere 5: top
    voyageai: top
    litellm: top_cohere top_jina_ai top_infinity top_voyage top_hosted_vllm
    langchain-cohere: top
    llama-index: top_cohere top_jina top_tei
    haystack: top_cohere top_jina top_tei
    npm: cohere_top voyage_top
""")
VECTORS = cases("""
    openai: embeds embeds_floats
    npm: openai_embeds
    litellm: embeds
    voyageai: embeds
""")
ONE_VECTOR = cases("""
    openai: embeds_one
    huggingface_hub: embeds_one embeds_with_choices embeds_asynchronously
    huggingface_hub 1: embeds_one embeds_with_choices embeds_asynchronously
    npm: hub_embeds_one
""")
SIMILAR = [("huggingface_hub", "similar"), ("huggingface_hub 1", "similar"), ("npm", "hub_similar")]


def same(found, expected):
    """Compare rankings: the order, and the numbers to the bit where the processor promises it."""
    from rankhouse.nn import machine

    # A float32 is known by 8 digits; what is left at 14 is how the logistic function is rounded.
    error = 1e-14 if machine.INFER_LOOPS else 1e-5
    assert [row[0] for row in found] == [row[0] for row in expected]
    assert [row[1] for row in found] == pytest.approx([row[1] for row in expected], rel=error)


@pytest.mark.parametrize(("client", "call"), RANKS)
def test_rankings_are_those_of_the_offline_ranker(answers, offline, client, call):
    same(answers(client)[call], offline.ranking())


@pytest.mark.parametrize(("client", "call"), TOPS)
def test_the_best_two(answers, offline, client, call):
    same(answers(client)[call], offline.ranking()[:2])


def test_litellm_s_huggingface_gets_all_as_from_its_own_server(answers, offline):
    """It sends top_n beside texts, which text-embeddings-inference does not read."""
    same(answers("litellm")["top_huggingface"], offline.ranking())


def test_raw_scores_are_the_ranker_s_own(answers, offline):
    same(answers("haystack")["raw_tei"], offline.ranking(raw=True))


@pytest.mark.parametrize("client", ["cohere", "cohere 5"])
def test_cohere_s_first_version(answers, offline, client):
    found = answers(client)
    same([row[:2] for row in found["documents_v1"]], offline.ranking())
    assert [row[2] for row in found["documents_v1"]] == [DOCUMENTS[i] for i, _ in offline.ranking()]


@pytest.mark.parametrize("client", ["cohere", "cohere 5"])
def test_spans_are_passages_of_the_text(answers, offline, client):
    """Offsets are code points; the first span is what the whole document's score came from."""
    found = answers(client)["spans"]["0"]
    assert 1 <= len(found) <= 3
    assert all(0 <= span["start"] < span["end"] <= len(LONG) for span in found)
    assert [span["score"] for span in found] == sorted((span["score"] for span in found), reverse=True)
    [[_, score]] = offline.ranking([LONG])
    assert found[0]["score"] == pytest.approx(score, abs=1e-6)
    for span in found:
        [[_, alone]] = offline.ranking([LONG[span["start"] : span["end"]]], split="whole")
        assert alone == pytest.approx(span["score"], abs=1e-6)


@pytest.mark.parametrize("client", ["cohere", "cohere 5"])
def test_less_of_a_document_is_read_on_request(answers, offline, client):
    """Eight tokens of the document, with a warning that says so."""
    found = answers(client)["few_tokens"]
    [[_, whole]] = offline.ranking([LONG])
    assert found["rows"][0][1] != pytest.approx(whole, abs=1e-6)
    assert "8 tokens" in " ".join(found["warnings"])
    [[_, score]] = answers(client)["one_chunk_v1"]
    assert score != pytest.approx(whole, abs=1e-6)


def test_usage_is_told(answers):
    meta = answers("cohere")["meta"]
    assert meta["version"] == "2"
    assert meta["units"] == 1
    assert meta["tokens"] == answers("voyageai")["total_tokens"] > len(DOCUMENTS)
    assert meta["id"]
    jina = answers("haystack")["meta_jina"]
    assert jina["model"] == "tiny"
    assert jina["usage"]["total_tokens"] == meta["tokens"]


def test_texts_belong_to_the_results(answers, offline):
    assert answers("voyageai")["texts"] == [DOCUMENTS[i] for i, _ in offline.ranking()]


@pytest.mark.parametrize(("client", "call"), VECTORS)
def test_vectors_are_those_of_the_offline_encoder(answers, offline, client, call):
    found = np.array(answers(client)[call])
    assert np.allclose(found, offline.vectors(), atol=1e-6)


@pytest.mark.parametrize(("client", "call"), ONE_VECTOR)
def test_the_vector_of_one_text(answers, offline, client, call):
    """Hugging Face's clients get it with length 1, which is what their servers do unless told otherwise."""
    found, expected = np.array(answers(client)[call]).reshape(1, -1), offline.vectors(TEXTS[:1])
    assert np.allclose(found, expected if client == "openai" else unit(expected), atol=1e-6)


def test_shorter_vectors_are_unit_vectors_too(answers, offline):
    found = np.array(answers("openai")["embeds_short"])
    assert np.allclose(found, unit(offline.vectors()[:, :8]), atol=1e-6)


@pytest.mark.parametrize(("client", "call"), SIMILAR)
def test_similarity_is_the_cosine(answers, offline, client, call):
    first, *others = unit(offline.vectors())
    assert answers(client)[call] == pytest.approx([float(first @ other) for other in others], abs=1e-5)


@pytest.mark.parametrize("client", ["huggingface_hub", "huggingface_hub 1"])
def test_the_class_of_a_pair_is_its_relevance(answers, offline, client):
    label, score = answers(client)["classifies"]
    assert label == "relevant"
    assert score == pytest.approx(offline.ranking(DOCUMENTS[:1])[0][1], abs=1e-6)


def test_models_are_listed(answers):
    assert answers("openai")["models"] == answers("npm")["openai_models"] == ["tiny", "enc"]
    assert answers("openai")["one_model"] == "tiny"


def test_openai_s_usage(answers):
    prompt, total = answers("openai")["usage"]
    assert prompt == total > len(TEXTS)


REFUSALS = {
    "cohere": {
        "wrong_key": ("UnauthorizedError", 401, "key"),
        "unknown_model": ("NotFoundError", 404, "tiny"),
        "too_large": ("ApiError", 413, "1,048,576"),
        "wrong_type": ("UnprocessableEntityError", 422, "documents[1]"),
        "nothing": ("BadRequestError", 400, "documents"),
        "overloaded": ("TooManyRequestsError", 429, "queue"),
    },
    "voyageai": {
        "wrong_key": ("AuthenticationError", 401, "key"),
        "unknown_model": ("APIError", 404, "tiny"),
        "too_large": ("APIError", 413, "1,048,576"),
        "wrong_type": ("MalformedRequestError", 422, "documents[1]"),
        "nothing": ("InvalidRequestError", 400, "documents"),
        "overloaded": ("RateLimitError", 429, "queue"),
    },
    "openai": {
        "wrong_key": ("AuthenticationError", 401, "key"),
        "unknown_model": ("NotFoundError", 404, "tiny"),
        "too_large": ("APIStatusError", 413, "1,048,576"),
        "wrong_type": ("UnprocessableEntityError", 422, "documents[1]"),
        "nothing": ("BadRequestError", 400, "documents"),
        "overloaded": ("RateLimitError", 429, "queue"),
        "no_such_model": ("NotFoundError", 404, "nobody"),
        "no_vectors": ("UnprocessableEntityError", 422, "tiny"),
    },
    "huggingface_hub": {
        "wrong_key": ("HfHubHTTPError", 401, "key"),
        "too_large": ("HfHubHTTPError", 413, "1,048,576"),
    },
    "litellm": {
        "wrong_key": ("AuthenticationError", 401, "key"),
        "unknown_model": ("NotFoundError", 404, "tiny"),
        "too_large": ("BadRequestError", 413, "1,048,576"),
        "nothing": ("BadRequestError", 400, "documents"),
        "overloaded": ("RateLimitError", 429, "queue"),
    },
    "llama-index": {
        "wrong_key_jina": ("RuntimeError", None, "key"),
        "unknown_model_cohere": ("NotFoundError", 404, "nobody"),
        "unknown_model_jina": ("RuntimeError", None, "nobody"),
    },
    "haystack": {
        "wrong_key_jina": ("RuntimeError", None, "key"),
        "unknown_model_jina": ("RuntimeError", None, "nobody"),
        "wrong_key_tei": ("RuntimeError", None, "401"),
    },
    "npm": {
        "cohere_wrong_key": ("UnauthorizedError", 401, "key"),
        "cohere_unknown_model": ("NotFoundError", 404, "tiny"),
        "cohere_too_large": ("CohereError", 413, "1,048,576"),
        "cohere_nothing": ("BadRequestError", 400, "documents"),
        "cohere_overloaded": ("TooManyRequestsError", 429, "queue"),
        "openai_unknown_model": ("NotFoundError", 404, "nobody"),
    },
}
REFUSALS["cohere 5"] = REFUSALS["langchain-cohere"] = REFUSALS["cohere"]
REFUSALS["huggingface_hub 1"] = REFUSALS["huggingface_hub"]


@pytest.mark.parametrize(("client", "call"), [(name, call) for name in REFUSALS for call in REFUSALS[name]])
def test_refusals_reach_people_as_their_client_s_errors(answers, client, call):
    kind, status, word = REFUSALS[client][call]
    found = answers(client)[call]
    assert (found["raised"], found["status"]) == (kind, status)
    assert word in found["message"]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
