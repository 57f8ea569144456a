"""Voyage's client."""

import asyncio

import voyageai
from harness import SETUP, call, error_calls, run

BASE, KEY, MODEL, QUERY, DOCUMENTS = (SETUP[name] for name in ("base", "key", "model", "query", "documents"))
client = voyageai.Client(api_key=KEY, base_url=BASE + "/v1")


def rows(answer):
    return [[result.index, result.relevance_score] for result in answer.results]


@call
def ranks():
    return rows(client.rerank(QUERY, DOCUMENTS, model=MODEL))


@call
def ranks_asynchronously():
    there = voyageai.AsyncClient(api_key=KEY, base_url=BASE + "/v1")
    return rows(asyncio.run(there.rerank(QUERY, DOCUMENTS, model=MODEL)))


@call
def top():
    return rows(client.rerank(QUERY, DOCUMENTS, model=MODEL, top_k=2))


@call
def total_tokens():
    return client.rerank(QUERY, DOCUMENTS, model=MODEL).total_tokens


@call
def texts():
    return [result.document for result in client.rerank(QUERY, DOCUMENTS, model=MODEL).results]


@call
def embeds():
    return client.embed(SETUP["texts"], model=SETUP["encoder"], input_type=None).embeddings


def rerank(base, key, model, documents):
    there = voyageai.Client(api_key=key, base_url=base + "/v1", max_retries=0)
    return rows(there.rerank(QUERY, documents, model=model))


error_calls(rerank)
run("voyageai")
