"""huggingface_hub's InferenceClient, pointed at the service as at an inference endpoint."""

import asyncio

from harness import SETUP, call, run
from huggingface_hub import AsyncInferenceClient, InferenceClient

BASE, KEY, TEXTS = (SETUP[name] for name in ("base", "key", "texts"))
client = InferenceClient(SETUP["encoder_base"], token=KEY)
ranker = InferenceClient(BASE, token=KEY)


@call
def embeds_one():
    return client.feature_extraction(TEXTS[0]).tolist()


@call
def embeds_with_choices():
    found = client.feature_extraction(TEXTS[0], normalize=True, truncate=True, truncation_direction="right")
    return found.tolist()


@call
def embeds_asynchronously():
    there = AsyncInferenceClient(SETUP["encoder_base"], token=KEY)
    return asyncio.run(there.feature_extraction(TEXTS[0])).tolist()


@call
def similar():
    return client.sentence_similarity(TEXTS[0], other_sentences=TEXTS[1:])


@call
def classifies():
    """A pair: a reranker classifies nothing else."""
    [found] = ranker.text_classification([[SETUP["query"], SETUP["documents"][0]]])
    return [found.label, found.score]


@call
def wrong_key():
    return InferenceClient(SETUP["encoder_base"], token="not-a-key").feature_extraction(TEXTS[0]).tolist()


@call
def too_large():
    return client.feature_extraction("word " * (SETUP["huge"] // 5)).tolist()


run("huggingface_hub")
