"""Cohere's client, both versions of its interface, also asynchronously."""

import asyncio

import cohere
from harness import SETUP, call, error_calls, run

BASE, KEY, MODEL, QUERY, DOCUMENTS = (SETUP[name] for name in ("base", "key", "model", "query", "documents"))
ONCE = {"max_retries": 0}
v1 = cohere.Client(KEY, base_url=BASE)
v2 = cohere.ClientV2(KEY, base_url=BASE)


def rows(answer):
    return [[result.index, result.relevance_score] for result in answer.results]


@call
def ranks():
    return rows(v2.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS))


@call
def ranks_v1():
    return rows(v1.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS))


@call
def ranks_asynchronously():
    client = cohere.AsyncClientV2(KEY, base_url=BASE)
    return rows(asyncio.run(client.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS)))


@call
def top():
    return rows(v2.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS, top_n=2))


@call
def documents_v1():
    """Texts come back, of strings and of objects."""
    mixed = [text if i % 2 else {"text": text, "title": "left out"} for i, text in enumerate(DOCUMENTS)]
    answer = v1.rerank(model=MODEL, query=QUERY, documents=mixed, return_documents=True, rank_fields=["text"])
    return [[result.index, result.relevance_score, result.document.text] for result in answer.results]


@call
def fields_v1():
    """Named fields are ranked in the order given, whatever else a document has."""
    documents = [{"text": "not this", "about": text} for text in DOCUMENTS]
    return rows(v1.rerank(model=MODEL, query=QUERY, documents=documents, rank_fields=["about"]))


@call
def one_chunk_v1():
    return rows(v1.rerank(model=MODEL, query=QUERY, documents=[SETUP["long"]], max_chunks_per_doc=1))


@call
def few_tokens():
    answer = v2.rerank(model=MODEL, query=QUERY, documents=[SETUP["long"]], max_tokens_per_doc=8, priority=3)
    return {"rows": rows(answer), "warnings": answer.meta.warnings}


@call
def spans():
    """The passages that speak for a document; older clients do not know of them."""
    more = {"mode": "enabled", "threshold": 0.0, "max_spans": 3}
    try:
        answer = v2.rerank(model=MODEL, query=QUERY, documents=[SETUP["long"], "short"], relevant_spans=more)
    except TypeError:
        body = {"additional_body_parameters": {"relevant_spans": more}}
        answer = v2.rerank(model=MODEL, query=QUERY, documents=[SETUP["long"], "short"], request_options=body)

    def plain(span):
        return span if isinstance(span, dict) else span.model_dump()

    return {r.index: [plain(span) for span in r.relevant_spans or []] for r in answer.results}


@call
def meta():
    answer = v2.rerank(model=MODEL, query=QUERY, documents=DOCUMENTS)
    return {
        "id": answer.id,
        "version": answer.meta.api_version.version,
        "units": answer.meta.billed_units.search_units,
        "tokens": answer.meta.tokens.input_tokens,
    }


def rerank(base, key, model, documents):
    client = cohere.ClientV2(key, base_url=base)
    return rows(client.rerank(model=model, query=QUERY, documents=documents, request_options=ONCE))


error_calls(rerank)
run("cohere")
