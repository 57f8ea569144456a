"""The library rerankers, whose ranker of an interface takes an address."""

from harness import SETUP, call, run
from rerankers import Reranker

BASE, KEY, MODEL, QUERY, DOCUMENTS = (SETUP[name] for name in ("base", "key", "model", "query", "documents"))
PROVIDERS = {
    "cohere": "/v1/rerank",
    "jina": "/v1/rerank",
    "voyage": "/v1/rerank",
    "text-embeddings-inference": "/rerank",
}


def register(provider, path):
    def ranks():
        ranker = Reranker(MODEL, model_type="APIRanker", api_key=KEY, api_provider=provider, url=BASE + path)
        found = ranker.rank(QUERY, DOCUMENTS, doc_ids=list(range(len(DOCUMENTS))))
        return [[row.doc_id, row.score] for row in found.results]

    ranks.__name__ = f"ranks_{provider}"
    call(ranks)


for name, address in PROVIDERS.items():
    register(name, address)
run("rerankers")
