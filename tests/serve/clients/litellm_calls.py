"""LiteLLM's rerank under each provider that takes an address, and its embeddings."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its table of prices is not fetched

import litellm
from harness import SETUP, call, error_calls, run

BASE, KEY, MODEL, QUERY, DOCUMENTS = (SETUP[name] for name in ("base", "key", "model", "query", "documents"))
PROVIDERS = {
    "cohere": BASE,
    "jina_ai": BASE,
    "infinity": BASE,
    "huggingface": BASE,
    "voyage": BASE + "/v1",
    "hosted_vllm": BASE,
    "together_ai": None,
}
litellm.suppress_debug_info = True


def rows(answer):
    return [[row["index"], row["relevance_score"]] for row in answer.results]


def rerank_as(provider, base, **more):
    ask = {"query": QUERY, "documents": DOCUMENTS, "api_key": KEY, "api_base": base, **more}
    return litellm.rerank(model=f"{provider}/{MODEL}", **ask)


def register(provider, base):
    # Infinity's own documents are strings; the union's are objects, as Cohere's: ask without them.
    more = {"return_documents": False} if provider == "infinity" else {}

    def ranks():
        return rows(rerank_as(provider, base, **more))

    def top():
        return rows(rerank_as(provider, base, top_n=2, **more))

    ranks.__name__, top.__name__ = f"ranks_{provider}", f"top_{provider}"
    call(ranks)
    call(top)


for name, address in PROVIDERS.items():
    if address:
        register(name, address)


@call
def embeds():
    found = litellm.embedding(
        f"openai/{SETUP['encoder']}", SETUP["texts"], api_base=BASE + "/v1", api_key=KEY
    )
    return [row["embedding"] for row in found.data]


def rerank(base, key, model, documents):
    ask = {"query": QUERY, "documents": documents, "api_key": key, "api_base": base, "num_retries": 0}
    return rows(litellm.rerank(model=f"cohere/{model}", **ask))


error_calls(rerank)
run("litellm")
