"""Base of models that read queries and passages apart: batches, and how texts become ids.

Also how alike the two are by a model's own word embeddings, before any of its layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.checkpoint import CheckpointModel, PairModel
from rankhouse.models.pair_encoding import Layout, TextReader, text_layout
from rankhouse.models.text_ids import IdArray, TextIds
from rankhouse.models.transformer_encoders import STATIC, Finish, VectorScorer
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Compute


@dataclass(frozen=True)
class DualBatch:
    """A batch of n pairs; each distinct query stands in it once."""

    queries: Packed  # u distinct queries
    which: Tensor  # (n,) int64, the query of each pair
    passages: Packed  # n passages

    @classmethod
    def join(cls, parts: Sequence[DualBatch]) -> DualBatch:
        """Put the pairs of several batches into one, in this order."""
        starts = accumulate((len(p.queries) for p in parts[:-1]), initial=0)
        which = torch.cat([p.which + start for p, start in zip(parts, starts, strict=True)])
        return cls(Packed.join([p.queries for p in parts]), which, Packed.join([p.passages for p in parts]))

    def __len__(self) -> int:
        return len(self.which)

    @property
    def lengths(self) -> Tensor:
        """(n,) int64: tokens of each passage; a query is computed once a batch."""
        return self.passages.lengths

    @property
    def lost(self) -> Tensor:
        """(n,) int64: tokens of either side that did not fit."""
        return self.passages.lost + self.query_lost

    @property
    def query_lost(self) -> Tensor:
        """(n,) int64: the query's among them."""
        return self.queries.lost[self.which]

    def take(self, rows: Tensor) -> DualBatch:
        """Return these rows, (m,) int64, in this order."""
        used, which = torch.unique(self.which[rows], return_inverse=True)
        return DualBatch(self.queries.take(used), which, self.passages.take(rows))

    def to(self, device: torch.device) -> DualBatch:
        """Move to a device."""
        return DualBatch(self.queries.to(device), self.which.to(device), self.passages.to(device))


def distinct(texts: Packed) -> tuple[Packed, Tensor]:
    """Return the distinct rows of n texts (m), and which of them each text is, (n,): encode them once."""
    places: dict[bytes, int] = {}
    kind = kinds(texts, places)
    if len(places) == len(texts):
        return texts, kind
    first = torch.full((len(places),), len(texts)).scatter_reduce_(0, kind, torch.arange(len(texts)), "amin")
    return texts.take(first.to(texts.lengths.device)), kind


def kinds(texts: Packed, places: dict[bytes, int]) -> Tensor:
    """Number n texts so that equal ones have one number, also across calls: (n,)."""
    rows = torch.split(texts.ids.values.cpu(), texts.lengths.tolist())
    return torch.tensor([places.setdefault(row.numpy().tobytes(), len(places)) for row in rows])


def also_right(batch: DualBatch, own: Tensor, which: Tensor) -> Tensor:
    """Return which passages are a query's right answer besides its own: (g, n) bool, to be left out.

    They are the same text as its own passage or as the query itself (the query is an entry of the catalogue),
    or the right passage of the same query asked in another group.
    """
    places: dict[bytes, int] = {}
    kind, asked = kinds(batch.passages, places), kinds(batch.queries, places)[which]
    same_query = which[:, None] == which
    right = (same_query[:, :, None] & (kind[own][None, :, None] == kind)).any(1)
    right |= asked[:, None] == kind
    right[torch.arange(len(own)), own] = False
    return right


class DualEncoder(CheckpointModel):
    """A checkpoint that reads queries and passages apart (bi-encoders, sparse encoders, late interaction).

    Its policy has "max_length", "query_prompt" and "passage_prompt".

    Args:
        layout: What stands around a text; None: what the tokenizer puts there.
    """

    def __init__(
        self,
        network: nn.Module,
        tokenizer: Tokenizer,
        policy: Mapping[str, Any],
        config: Mapping[str, Any],
        layout: Layout | None = None,
    ) -> None:
        super().__init__(network, tokenizer, policy, config)
        if layout is None:
            is_static = config["model_type"] == STATIC
            layout = Layout((), (), ()) if is_static else text_layout(self._tokenizer)
        kept = max(policy["max_length"], policy.get("query_length", 0))
        self._read = TextReader(TextIds(self._tokenizer, kept), layout, policy["max_length"])

    def encode(self, pairs: Sequence[Pair]) -> DualBatch:
        """Turn the text of n pairs into ids."""
        places: dict[str, int] = {}
        which = [places.setdefault(pair.query.text, len(places)) for pair in pairs]
        passages = self.encode_passages([pair.passage.text for pair in pairs])
        return DualBatch(self.encode_queries(list(places)), torch.tensor(which, dtype=torch.int64), passages)

    def characters_read(self, pair: Pair) -> int | None:
        """Return how many characters of the passage are read; None: all of them."""
        prompt = self.policy["passage_prompt"]
        end = self.text_reader.tokens(prompt + pair.passage.text).characters_read
        return None if end is None else max(0, end - len(prompt))

    def encode_queries(self, texts: Sequence[str]) -> Packed:
        """Turn n queries into ids, prompt before them."""
        return self._read(self.policy["query_prompt"] + text for text in texts)

    def encode_passages(self, texts: Sequence[str]) -> Packed:
        """Turn n passages into ids, prompt before them."""
        return self._read(self.policy["passage_prompt"] + text for text in texts)

    @property
    def text_reader(self) -> TextReader:
        """Reader that turns texts, prompt included, into ids."""
        return self._read

    def forget(self) -> None:
        """Drop the ids of texts that were tokenised before."""
        self._read.texts.forget()


class OnceScorer(VectorScorer):
    """Computes the vector of a text once and keeps it, for a network that does not change."""

    _most: Final = 256 * 2**20  # bytes of vectors and of what finds them; beyond that it begins again
    _beside: Final = 256  # bytes of a digest, of a row as an object, and of its place in the table

    def __init__(self, base: nn.Module, pooling: str, finish: Finish, compute: Compute) -> None:
        super().__init__(base, pooling, finish, compute)
        self._known: dict[bytes, NDArray[np.float32]] = {}

    def __call__(self, batch: Packed) -> Tensor:
        """Return the vectors of n texts, without gradients: (n, d)."""
        if not len(batch):
            return super().__call__(batch)
        rows = torch.split(batch.ids.values.cpu(), batch.lengths.tolist())
        names = [blake2b(row.numpy().tobytes(), digest_size=16).digest() for row in rows]
        known = {name: self._known[name] for name in names if name in self._known}
        missing = {name: place for place, name in enumerate(names) if name not in known}
        if missing:
            places = torch.tensor(list(missing.values()), device=batch.lengths.device)
            with torch.no_grad(), torch.autocast(self._device.type, enabled=False):
                fresh = super().__call__(batch.take(places)).float().cpu().numpy()
            known |= dict(zip(missing, fresh, strict=True))
            if len(self._known) * (fresh[0].nbytes + self._beside) > self._most:
                self._known.clear()
            self._known |= known
        return torch.from_numpy(np.stack([known[name] for name in names])).to(self._device)


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

    Raises WrongUse: it has none, or none that is looked up token by token.
    """
    match model:
        case PairModel():
            return WordSimilarity(model.network, model.pair_reader.texts)
        case DualEncoder():
            return WordSimilarity(model.network, model.text_reader.texts)
    raise WrongUse(
        f"see(keep=...) drops documents by the word embeddings of the ranker behind it, and {name} has none "
        "that it can compare; put it before a transformer:  crossencoder, monot5, causal, biencoder, sparse "
        "or colbert, or cut by rank instead:  % 50 >> ..."
    )
