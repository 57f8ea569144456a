"""LangChain's CohereRerank."""

import cohere
from harness import SETUP, call, error_calls, run
from langchain_cohere import CohereRerank
from langchain_core.documents import Document

BASE, KEY, MODEL, QUERY, DOCUMENTS = (SETUP[name] for name in ("base", "key", "model", "query", "documents"))
ranker = CohereRerank(base_url=BASE, cohere_api_key=KEY, model=MODEL)


@call
def ranks():
    found = ranker.rerank(DOCUMENTS, QUERY, top_n=None)
    return [[row["index"], row["relevance_score"]] for row in found]


@call
def top():
    """As a compressor of what a retriever found."""
    documents = [Document(text, metadata={"at": i}) for i, text in enumerate(DOCUMENTS)]
    few = CohereRerank(base_url=BASE, cohere_api_key=KEY, model=MODEL, top_n=2)
    found = few.compress_documents(documents, QUERY)
    return [[document.metadata["at"], document.metadata["relevance_score"]] for document in found]


def rerank(base, key, model, documents):
    client = cohere.ClientV2(key, base_url=base)
    there = CohereRerank(client=client, model=model)
    retries = client.rerank
    client.rerank = lambda **asked: retries(**asked, request_options={"max_retries": 0})
    if not documents:
        return client.rerank(model=model, query=QUERY, documents=[])
    return there.rerank(documents, QUERY, top_n=None)


error_calls(rerank)
run("langchain-cohere", "langchain-core", "cohere")
