"""Haystack's rankers for Cohere, Jina and text-embeddings-inference."""

import asyncio

from harness import SETUP, call, run
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.jina import JinaRanker

BASE, KEY, MODEL, QUERY, DOCUMENTS = (SETUP[name] for name in ("base", "key", "model", "query", "documents"))
ALL = len(DOCUMENTS)
SECRET = Secret.from_token(KEY)
GIVEN = [Document(id=str(i), content=text) for i, text in enumerate(DOCUMENTS)]


def rows(answer):
    return [[int(document.id), document.score] for document in answer["documents"]]


def cohere(top_k):
    return CohereRanker(model=MODEL, api_base_url=BASE, api_key=SECRET, top_k=top_k)


def jina(top_k, model=MODEL, secret=SECRET):
    return JinaRanker(model=model, api_key=secret, base_url=BASE + "/v1/rerank", top_k=top_k)


def tei(top_k, secret=SECRET, base=BASE):
    return HuggingFaceTEIRanker(url=base, top_k=top_k, token=secret, max_retries=1, retry_status_codes=[599])


@call
def ranks_cohere():
    return rows(cohere(ALL).run(query=QUERY, documents=GIVEN))


@call
def top_cohere():
    return rows(cohere(2).run(query=QUERY, documents=GIVEN))


@call
def ranks_jina():
    return rows(jina(None).run(query=QUERY, documents=GIVEN))


@call
def top_jina():
    return rows(jina(2).run(query=QUERY, documents=GIVEN))


@call
def ranks_jina_asynchronously():
    return rows(asyncio.run(jina(None).run_async(query=QUERY, documents=GIVEN)))


@call
def meta_jina():
    return jina(None).run(query=QUERY, documents=GIVEN)["meta"]


@call
def ranks_tei():
    return rows(tei(ALL).run(query=QUERY, documents=GIVEN))


@call
def top_tei():
    return rows(tei(2).run(query=QUERY, documents=GIVEN))


@call
def raw_tei():
    ranker = HuggingFaceTEIRanker(url=BASE, top_k=ALL, token=SECRET, raw_scores=True)
    return rows(ranker.run(query=QUERY, documents=GIVEN))


@call
def wrong_key_jina():
    return rows(jina(None, secret=Secret.from_token("not-a-key")).run(query=QUERY, documents=GIVEN))


@call
def unknown_model_jina():
    return rows(jina(None, model="nobody").run(query=QUERY, documents=GIVEN))


@call
def wrong_key_tei():
    return rows(tei(ALL, secret=Secret.from_token("not-a-key")).run(query=QUERY, documents=GIVEN))


run("haystack-ai", "cohere-haystack", "jina-haystack", "huggingface-api-haystack")
