"""The reference packages of ``benchmarks/formats.py``: scores and token ids of pairs by their own code.

The first line of each function's docstring is its name in the table.
"""

# ruff: noqa: ANN401, ARG001  # objects of libraries without types; one signature for all
from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from rankhouse.core.nouns import Pair

PACKAGES = ("sentence-transformers", "transformers", "tokenizers", "torch", "mxbai-rerank", "FlagEmbedding")
_PYLATE = """
import json, sys
from importlib.metadata import version
from pylate import models
queries, texts = json.load(sys.stdin)
model = models.ColBERT(sys.argv[1], device="cpu")
asked = model.encode(queries, is_query=True, show_progress_bar=False)
read = model.encode(texts, is_query=False, show_progress_bar=False)
print(json.dumps([[float((q @ d.T).max(1).sum()) for q, d in zip(asked, read)], version("pylate")]))
"""


def versions() -> str:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} is not installed")
    return ", ".join(found)


def sides(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    return [pair.query.text for pair in pairs], [pair.passage.text for pair in pairs]


# --- scores


def cross(folder: Path, model: Any, pairs: Sequence[Pair]) -> np.ndarray:
    """sentence-transformers' CrossEncoder."""
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(str(folder), device="cpu")
    theirs.tokenizer.split_special_tokens = True
    logits = theirs.predict(
        list(zip(*sides(pairs), strict=True)), activation_fn=torch.nn.Identity(), show_progress_bar=False
    )
    return logits if logits.ndim == 1 else logits[:, 1] - logits[:, 0]


def chat(folder: Path, model: Any, pairs: Sequence[Pair]) -> np.ndarray:
    """sentence-transformers' CrossEncoder with LogitScore."""
    from sentence_transformers import CrossEncoder

    theirs = CrossEncoder(str(folder), device="cpu")
    return theirs.predict(
        list(zip(*sides(pairs), strict=True)), activation_fn=torch.nn.Identity(), show_progress_bar=False
    )


def dual(folder: Path, model: Any, pairs: Sequence[Pair]) -> np.ndarray:
    """sentence-transformers' SentenceTransformer."""
    from sentence_transformers import SentenceTransformer

    return _compared(SentenceTransformer(str(folder), device="cpu"), *sides(pairs))


def sparse(folder: Path, model: Any, pairs: Sequence[Pair]) -> np.ndarray:
    """sentence-transformers' SparseEncoder."""
    from sentence_transformers import SparseEncoder

    return _compared(SparseEncoder(str(folder), device="cpu"), *sides(pairs))


def late(folder: Path, model: Any, pairs: Sequence[Pair]) -> np.ndarray:
    """sentence-transformers' MultiVectorEncoder."""
    from sentence_transformers import MultiVectorEncoder

    theirs = MultiVectorEncoder(str(folder), device="cpu")
    return _compared(theirs, *([_apart(text) for text in side] for side in sides(pairs)), split=False)


def _apart(text: str) -> str:
    """Part brackets from what they enclose: WordPiece reads the same, and no special token."""
    return re.sub(r"\[(\w+)\]", r"[ \1 ]", text)


def _compared(theirs: Any, queries: list[str], texts: list[str], *, split: bool = True) -> np.ndarray:
    if split:
        for module in theirs.modules():
            tokenizer = getattr(module, "tokenizer", None)
            name = "encode_special_tokens" if isinstance(tokenizer, Tokenizer) else "split_special_tokens"
            if tokenizer is not None:
                setattr(tokenizer, name, True)
    asked = theirs.encode_query(queries, show_progress_bar=False)
    read = theirs.encode_document(texts, show_progress_bar=False)
    return np.asarray(theirs.similarity_pairwise(asked, read), np.float64)


def causal(folder: Path, model: Any, pairs: Sequence[Pair]) -> np.ndarray:
    """transformers, a pair at a time."""
    import transformers

    classes = model.policy["head"].endswith("SequenceClassification")
    network = getattr(transformers, model.policy["head"]).from_pretrained(folder).eval()
    scores = []
    for pair in pairs:
        ids = model.encode([pair]).ids.values[None]
        with torch.inference_mode():
            logits = network(input_ids=ids).logits
        numbers = logits[0] if classes else logits[0, -1, model.policy["targets"]]
        scores.append(float(numbers[0] - numbers[1:].sum()))
    return np.array(scores)


def by_pylate(folder: Path, pairs: Sequence[Pair], python: str) -> tuple[np.ndarray, str]:
    queries, texts = ([_apart(text) for text in side] for side in sides(pairs))
    done = subprocess.run(
        [python, "-c", _PYLATE, str(folder)],
        input=json.dumps([queries, texts]),
        capture_output=True,
        text=True,
        check=True,
    )
    scores, version = json.loads(done.stdout.splitlines()[-1])
    return np.array(scores), version


# --- token ids


def pair_ids(folder: Path, model: Any, pairs: Sequence[Pair]) -> str:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    rows = tokenizer(*sides(pairs), truncation=True, max_length=model.policy["max_length"]).input_ids
    return _equal(model, pairs, rows)


def qwen_ids(folder: Path, model: Any, pairs: Sequence[Pair]) -> str:
    """As Qwen3-Reranker's model card has it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    before = (
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
        'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
    )
    behind = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    task = "Given a web search query, retrieve relevant passages that answer the query"
    ends = [tokenizer.encode(text, add_special_tokens=False) for text in (before, behind)]
    room = model.policy["max_length"] - len(ends[0]) - len(ends[1])
    rows = []
    for query, text in zip(*sides(pairs), strict=True):
        body = f"<Instruct>: {task}\n<Query>: {query}\n<Document>: {text}"
        ids = tokenizer(
            body,
            truncation="longest_first",
            max_length=room,
            split_special_tokens=True,
            add_special_tokens=False,
        ).input_ids
        rows.append([*ends[0], *ids, *ends[1]])
    return _equal(model, pairs, rows)


def mxbai_ids(folder: Path, model: Any, pairs: Sequence[Pair]) -> str:
    try:
        from FlagEmbedding.utils.tokenizer_compat import prepare_for_model_compat
        from mxbai_rerank import MxbaiRerankV2
        from transformers import AutoTokenizer
    except ImportError:
        return "mxbai_rerank and FlagEmbedding are not installed"
    theirs = MxbaiRerankV2(str(folder), device="cpu", torch_dtype=torch.float32)
    theirs.max_length = model.policy["max_length"] - theirs.predefined_length
    theirs.tokenizer.split_special_tokens = True
    if not hasattr(theirs.tokenizer, "prepare_for_model"):  # transformers 5 has none
        plain = AutoTokenizer.from_pretrained(folder)
        theirs.tokenizer.prepare_for_model = partial(prepare_for_model_compat, plain)
    rows = theirs.prepare_inputs(*sides(pairs))
    both = zip(rows["input_ids"], rows["attention_mask"].bool(), strict=True)
    return _equal(model, pairs, [ids[mask].tolist() for ids, mask in both])


def gemma_ids(folder: Path, model: Any, pairs: Sequence[Pair]) -> str:
    try:
        from FlagEmbedding.inference.reranker.decoder_only.base import DatasetForReranker
    except ImportError:
        return "FlagEmbedding is not installed"
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    queries, texts = sides(pairs)

    def read(texts: list[str], most: int) -> list[dict[str, list[int]]]:
        given = {"add_special_tokens": False, "max_length": most, "truncation": True}
        return [{"input_ids": tokenizer(text, **given).input_ids} for text in texts]

    rows = DatasetForReranker(
        read([f"A: {text}" for text in queries], 384),
        read([f"B: {text}" for text in texts], 512),
        str(folder),
        512,
    )
    return _equal(model, pairs, [rows[i]["input_ids"] for i in range(len(pairs))])


def _equal(model: Any, pairs: Sequence[Pair], rows: Sequence[Sequence[int]]) -> str:
    batch = model.encode(pairs)
    ours = batch.ids.values.split(batch.lengths.tolist())
    same = sum(own.tolist() == list(row) for own, row in zip(ours, rows, strict=True))
    return f"{same} of {len(pairs)}"
