"""How alike query and documents are by a model's own word embeddings, before any of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray
from rankhouse.models.contract import TokenModel
from rankhouse.models.dual_encoder import DualEncoder
from rankhouse.models.text_ids import IdArray, TextIds


class WordSimilarity:
    """The sum over a query's tokens of the best cosine with any of a document's (SEE, "amax"), weighted.

    A token weighs log((n + 1) / (f + 0.5)), f of the n documents holding it.

    Args:
        texts: What cuts texts into the network's tokens; of a passage as many count as the model could read.
    """

    def __init__(self, network: Any, texts: TextIds) -> None:  # noqa: ANN401  # transformers has no common type
        self._words, self._texts = network.get_input_embeddings(), texts

    def __call__(self, query: str, documents: Sequence[Sequence[str]]) -> FloatArray:
        """Compare a query with the passages of n documents: (n,) float32; -inf for one without tokens."""
        ids = [np.concatenate([np.empty(0, np.int32), *self._ids(passages)]) for passages in documents]
        likeness = np.full(len(ids), -np.inf, np.float32)
        asked = self._ids([query])[0]
        known, places = np.unique(np.concatenate([np.empty(0, np.int32), *ids]), return_inverse=True)
        cosines = self._vectors(known) @ self._vectors(asked).T  # (u, q), of distinct tokens
        held = sum((np.isin(asked, own) for own in ids), np.zeros(len(asked)))
        weights = np.log((len(ids) + 1) / (held + 0.5))
        ends = np.cumsum([len(own) for own in ids])
        for number, (own, end) in enumerate(zip(ids, ends.tolist(), strict=True)):
            if len(own):
                likeness[number] = cosines[places[end - len(own) : end]].max(0) @ weights
        return likeness

    def _ids(self, texts: Sequence[str]) -> list[IdArray]:
        return [one.kept for one in self._texts(texts)]

    def _vectors(self, ids: IdArray) -> NDArray[np.float64]:
        """Return unit vectors of tokens, (n, w), in float64: near ties then fall alike on every machine."""
        weight = self._words.weight.detach()
        rows: NDArray[np.float64] = weight[weight.new_tensor(ids, dtype=int)].double().cpu().numpy()
        units: NDArray[np.float64] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return units


def word_similarity(model: object, name: object) -> WordSimilarity:
    """Return how a model's own word embeddings compare texts.

    Args:
        name: Names the ranker in the error.

    Raises:
        WrongUse: It has none, or none that is looked up token by token.
    """
    network: Any = getattr(model, "network", None)
    match model:
        case TokenModel():
            texts: TextIds | None = model.pair_reader.texts
        case DualEncoder():
            texts = model.text_reader.texts
        case _:
            texts = None
    if texts is None or not hasattr(network, "get_input_embeddings"):
        raise WrongUse(
            f"see(keep=...) drops documents by the word embeddings of the ranker behind it, and {name} has "
            "none that it can compare; put it before a transformer:  crossencoder, monot5, causal, "
            "biencoder, sparse or colbert, or cut by rank instead:  % 50 >> ..."
        )
    return WordSimilarity(network, texts)
