"""LlamaIndex's rerankers for Cohere, Jina and text-embeddings-inference."""

from harness import SETUP, call, run
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

BASE, KEY, MODEL, QUERY, DOCUMENTS = (SETUP[name] for name in ("base", "key", "model", "query", "documents"))
ALL = len(DOCUMENTS)


def ranked(processor, documents=DOCUMENTS):
    nodes = [
        NodeWithScore(node=TextNode(id_=str(i), text=text), score=0.0) for i, text in enumerate(documents)
    ]
    found = processor.postprocess_nodes(nodes, QueryBundle(QUERY))
    return [[int(node.node.node_id), node.score] for node in found]


def tei(top_n, base=BASE, key=KEY):
    return TextEmbeddingInference(base_url=base, auth_token=f"Bearer {key}", top_n=top_n)


@call
def ranks_cohere():
    return ranked(CohereRerank(base_url=BASE, api_key=KEY, model=MODEL, top_n=ALL))


@call
def top_cohere():
    return ranked(CohereRerank(base_url=BASE, api_key=KEY, model=MODEL, top_n=2))


@call
def ranks_jina():
    return ranked(JinaRerank(base_url=BASE + "/v1", api_key=KEY, model=MODEL, top_n=ALL))


@call
def top_jina():
    return ranked(JinaRerank(base_url=BASE + "/v1", api_key=KEY, model=MODEL, top_n=2))


@call
def ranks_tei():
    return ranked(tei(ALL))


@call
def top_tei():
    return ranked(tei(2))


@call
def wrong_key_jina():
    return ranked(JinaRerank(base_url=BASE + "/v1", api_key="not-a-key", model=MODEL, top_n=ALL))


@call
def unknown_model_cohere():
    return ranked(CohereRerank(base_url=BASE, api_key=KEY, model="nobody", top_n=ALL))


@call
def unknown_model_jina():
    return ranked(JinaRerank(base_url=BASE + "/v1", api_key=KEY, model="nobody", top_n=ALL))


run(
    "llama-index-postprocessor-cohere-rerank",
    "llama-index-postprocessor-jinaai-rerank",
    "llama-index-postprocessor-tei-rerank",
    "llama-index-core",
)
