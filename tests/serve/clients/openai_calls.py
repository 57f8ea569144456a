"""OpenAI's client: embeddings, the list of models, and a reranking in its raw way."""

import openai
from harness import SETUP, call, error_calls, run

BASE, KEY, MODEL, QUERY, DOCUMENTS = (SETUP[name] for name in ("base", "key", "model", "query", "documents"))
ENCODER, TEXTS = SETUP["encoder"], SETUP["texts"]
client = openai.OpenAI(api_key=KEY, base_url=BASE + "/v1", max_retries=0)


def vectors(answer):
    return [row.embedding for row in sorted(answer.data, key=lambda row: row.index)]


@call
def embeds():
    """In base64, which the client asks for by itself."""
    return vectors(client.embeddings.create(model=ENCODER, input=TEXTS))


@call
def embeds_floats():
    return vectors(client.embeddings.create(model=ENCODER, input=TEXTS, encoding_format="float"))


@call
def embeds_one():
    return vectors(client.embeddings.create(model=ENCODER, input=TEXTS[0], user="somebody"))


@call
def embeds_short():
    return vectors(client.embeddings.create(model=ENCODER, input=TEXTS, dimensions=8))


@call
def usage():
    used = client.embeddings.create(model=ENCODER, input=TEXTS).usage
    return [used.prompt_tokens, used.total_tokens]


@call
def models():
    return [model.id for model in client.models.list()]


@call
def one_model():
    return client.models.retrieve(MODEL).id


@call
def no_such_model():
    return client.models.retrieve("nobody").id


@call
def no_vectors():
    """A reranker has none."""
    return vectors(client.embeddings.create(model=MODEL, input=TEXTS))


@call
def ranks():
    body = {"model": MODEL, "query": QUERY, "documents": DOCUMENTS}
    answer = client.post("/rerank", body=body, cast_to=object)
    return [[row["index"], row["relevance_score"]] for row in answer["results"]]


def rerank(base, key, model, documents):
    there = openai.OpenAI(api_key=key, base_url=base + "/v1", max_retries=0)
    body = {"model": model, "query": QUERY, "documents": documents}
    return there.post("/rerank", body=body, cast_to=object)


error_calls(rerank)
run("openai")
