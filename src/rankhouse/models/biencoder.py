"""Bi-encoder: query and passage become one vector each, by the same encoder; the score compares the vectors.

Papers: Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020, eq. 1 and 2 (dot product, negative log
likelihood with in-batch passages); Reimers, Gurevych, "Sentence-BERT", EMNLP 2019 (mean pooling).
Deviations: one encoder for both sides; one similarity for training and for search (the reference trains by
dot product and searches by L2, which orders differently, see docs/bi-encoder.md); passages of the batch that
are the right answer of the query are no contrast to it.
Shapes: n pairs, g groups of s passages, t tokens together, w width of the encoder, d width of vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, Self

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair
from rankhouse.models.checkpoint import (
    CheckpointModel,
    find,
    load_network,
    load_tokenizer,
    network_of,
    read_assets,
    read_config,
)
from rankhouse.models.checkpoint_kinds import require
from rankhouse.models.contract import Objective
from rankhouse.models.pair_encoding import TextIds, TextReader, text_layout
from rankhouse.models.sentence_transformers import EncoderSettings, Pooling, read_dense, read_settings
from rankhouse.models.transformer_encoders import Finish, VectorScorer, by_rows, encoder_of, length_limit
from rankhouse.nn.compute import Compute
from rankhouse.nn.layers.linear import packed_linears
from rankhouse.nn.layers.ragged import Packed

Similarity = Literal["dot", "cosine", "l2"]
SIMILARITIES: tuple[Similarity, ...] = ("dot", "cosine", "l2")

_COSINE_TEMPERATURE = 0.05
_HEADLESS = ("position_ids", "pooler")  # tensors that a bare encoder may hold unread


@dataclass(frozen=True)
class DualBatch:
    """A batch of n pairs; each distinct query stands in it once.

    Attributes:
        queries: u distinct queries.
        which: (n,) int64, the query of each pair.
        passages: n passages.
    """

    queries: Packed
    which: Tensor
    passages: Packed

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
        return self.passages.lost + self.queries.lost[self.which]

    def take(self, rows: Tensor) -> DualBatch:
        """Return these rows, (m,) int64, in this order."""
        used, which = torch.unique(self.which[rows], return_inverse=True)
        return DualBatch(self.queries.take(used), which, self.passages.take(rows))

    def to(self, device: torch.device) -> DualBatch:
        """Move to a device."""
        return DualBatch(self.queries.to(device), self.which.to(device), self.passages.to(device))


class BiEncoder(CheckpointModel):
    """An encoder that ranks by vectors.

    Attributes:
        temperature: What similarities are divided by in the loss.
    """

    family = "biencoder"
    objective: Objective = "positives"
    scale = "similarity"

    def __init__(
        self,
        network: nn.Module,
        dense: nn.Sequential,
        tokenizer: Tokenizer,
        policy: Mapping[str, Any],
        config: Mapping[str, Any],
    ) -> None:
        super().__init__(network, tokenizer, policy, config)
        self.dense = dense
        self.temperature = _COSINE_TEMPERATURE if policy["similarity"] == "cosine" else 1.0
        texts = TextIds(self._tokenizer, policy["max_length"])
        self._read = TextReader(texts, text_layout(self._tokenizer), policy["max_length"])

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of a bundle, weights apart."""
        tokenizer, config = read_assets(assets)
        return cls(
            network_of(config, "AutoModel"), dense_layers(policy["dense"]), tokenizer, policy, config=config
        )

    def encode(self, pairs: Sequence[Pair]) -> DualBatch:
        """Turn the text of n pairs into ids."""
        places: dict[str, int] = {}
        which = [places.setdefault(pair.query.text, len(places)) for pair in pairs]
        passages = self.encode_passages([pair.passage.text for pair in pairs])
        return DualBatch(self.encode_queries(list(places)), torch.tensor(which, dtype=torch.int64), passages)

    def encode_queries(self, texts: Sequence[str]) -> Packed:
        """Turn n queries into ids, prompt before them."""
        return self._read(self.policy["query_prompt"] + text for text in texts)

    def encode_passages(self, texts: Sequence[str]) -> Packed:
        """Turn n passages into ids, prompt before them."""
        return self._read(self.policy["passage_prompt"] + text for text in texts)

    def vectors(self, batch: Packed) -> Tensor:
        """Return vectors (n, d), with gradients where they are on."""
        return self._finish(by_rows(self.network, batch, self._pooled))

    def forward(self, batch: DualBatch) -> Tensor:
        """Score a batch: (n,), higher is better, with gradients where they are on."""
        queries, passages = self.vectors(batch.queries), self.vectors(batch.passages)
        return compare(queries[batch.which.to(queries.device)], passages, self.policy["similarity"])

    def loss(self, batch: DualBatch, labels: Tensor) -> Tensor:
        """Negative log likelihood of each group's first passage among all passages of the batch."""
        groups, size = labels.shape
        which = batch.which.view(groups, size)[:, 0]
        queries, passages = self.vectors(batch.queries), self.vectors(batch.passages)
        which = which.to(queries.device)
        scores = compare_all(queries[which], passages, self.policy["similarity"]) / self.temperature
        own = torch.arange(groups, device=scores.device) * size
        right = _also_right(batch, own.cpu(), which.cpu()).to(scores.device)
        return in_batch_loss(scores.masked_fill(right, -torch.inf), own)

    def vector_scorer(self, compute: Compute) -> VectorScorer:
        """Return the quickest way from ids to vectors (n, d)."""
        first = self.policy["pooling"] == "cls"
        encoder = encoder_of(self.network, compute, first_only=first)
        dense = packed_linears(
            deepcopy(self.dense).to(compute.device).eval(), compute._replace(precision="fp32")
        )
        return VectorScorer(encoder, Finish(dense, self.policy["normalised"]), first, compute.device)

    def scorer(self, compute: Compute) -> Callable[[DualBatch], Tensor]:
        """Return the quickest way from ids to scores (n,)."""
        vectors, similarity = self.vector_scorer(compute), self.policy["similarity"]

        def score(batch: DualBatch) -> Tensor:
            queries = vectors(batch.queries)
            return compare(queries[batch.which.to(queries.device)], vectors(batch.passages), similarity)

        return score

    @property
    def text_reader(self) -> TextReader:
        """What turns texts, prompt included, into ids."""
        return self._read

    def forget(self) -> None:
        """Drop the ids of texts that were tokenised before."""
        self._read.texts.forget()

    def _pooled(self, answer: Any, mask: Tensor) -> Tensor:  # noqa: ANN401  # transformers has no common type
        states: Tensor = answer.last_hidden_state
        if self.policy["pooling"] == "cls":
            return states[:, 0]
        return (states * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]

    def _finish(self, pooled: Tensor) -> Tensor:
        return Finish(self.dense, self.policy["normalised"])(pooled)


def open_biencoder(
    path: str,
    pooling: Pooling | None = None,
    similarity: Similarity | None = None,
    max_length: int | None = None,
    prompts: tuple[str, str] | None = None,
    tokenizer: str | None = None,
    allow_pickle: bool = False,
) -> BiEncoder:
    """Open a published checkpoint: ``biencoder("sentence-transformers/all-MiniLM-L6-v2")``.

    Args:
        path: A folder or hub name; of sentence-transformers, or a bare encoder.
        pooling: "cls" or "mean"; None: what the folder says, for a bare encoder "cls". A language model
            that predicts masked words is opened only where this is said, to begin a training.
        similarity: "dot", "cosine" or "l2"; None: what the folder says, else cosine if it normalises,
            else dot.
        max_length: Most tokens of a text; None: what the folder says.
        prompts: What is put before queries and before passages; None: what the folder says.
        tokenizer: Folder of another tokenizer than the checkpoint's own.
        allow_pickle: Whether weights may be read from pytorch_model.bin.

    Raises:
        BadModel: Not an encoder, or a module that is not known, or damaged, or without tokenizer.
        WrongUse: An unknown pooling or similarity; more tokens than the network has positions.
    """
    _check("pooling", pooling, ("cls", "mean"))
    _check("similarity", similarity, SIMILARITIES)
    folder = find(path, allow_pickle)
    found = require(folder, "biencoder", () if pooling is None else ("masked", "unknown"))
    settings = read_settings(folder) or EncoderSettings(
        folder, "cls", (), False, max_length=None, similarity=None, query_prompt="", passage_prompt=""
    )
    raw = read_config(settings.transformer)
    own_tokenizer, _, meant = load_tokenizer(settings.transformer, tokenizer)
    unread = _HEADLESS if found.key == "encoder" else None
    network = load_network(settings.transformer, "AutoModel", allow_pickle, ("pooler",), unread=unread)
    shapes, weights = read_dense(settings.dense)
    layers = dense_layers(shapes)
    layers.load_state_dict(weights)
    query_prompt, passage_prompt = prompts or (settings.query_prompt, settings.passage_prompt)
    policy = {
        "max_length": length_limit(network.config, settings.max_length or meant, max_length),
        "pooling": pooling or settings.pooling,
        "normalised": settings.normalised,
        "similarity": similarity or settings.similarity or ("cosine" if settings.normalised else "dot"),
        "query_prompt": query_prompt,
        "passage_prompt": passage_prompt,
        "dense": shapes,
    }
    return BiEncoder(network, layers, own_tokenizer, policy, config=raw)


def compare(queries: Tensor, passages: Tensor, similarity: Similarity) -> Tensor:
    """Compare n queries (n, d) with a passage (n, d) each: (n,), higher is nearer.

    "dot": q · p. "cosine": of both given length 1. "l2": minus the squared distance.
    """
    if similarity == "l2":
        return -(queries - passages).square().sum(-1)
    if similarity == "cosine":
        queries, passages = F.normalize(queries, dim=-1), F.normalize(passages, dim=-1)
    return (queries * passages).sum(-1)


def compare_all(queries: Tensor, passages: Tensor, similarity: Similarity) -> Tensor:
    """Compare g queries (g, d) with every one of n passages (n, d): (g, n), as :func:`compare` does."""
    if similarity == "l2":
        squares = queries.square().sum(-1)[:, None] + passages.square().sum(-1)
        return 2 * queries @ passages.T - squares
    if similarity == "cosine":
        queries, passages = F.normalize(queries, dim=-1), F.normalize(passages, dim=-1)
    return queries @ passages.T


def in_batch_loss(scores: Tensor, own: Tensor) -> Tensor:
    """DPR's eq. 2: negative log likelihood of each query's own passage; scores (g, n), own (g,)."""
    return F.cross_entropy(scores, own)


def dense_layers(shapes: Sequence[Mapping[str, Any]]) -> nn.Sequential:
    """Make the linear layers behind the pooling, untrained."""
    layers: list[nn.Module] = []
    for shape in shapes:
        layers.append(nn.Linear(shape["in"], shape["out"], bias=shape["bias"]))
        if shape["activation"] == "tanh":
            layers.append(nn.Tanh())
    return nn.Sequential(*layers)


def _also_right(batch: DualBatch, own: Tensor, which: Tensor) -> Tensor:
    """Return which passages are a query's right answer besides its own: (g, n) bool, to be left out.

    They are the same text as its own passage or as the query itself (the query is an entry of the catalogue),
    or the right passage of the same query asked in another group.
    """
    places: dict[bytes, int] = {}
    kind, asked = _kinds(batch.passages, places), _kinds(batch.queries, places)[which]
    same_query = which[:, None] == which
    right = (same_query[:, :, None] & (kind[own][None, :, None] == kind)).any(1)
    right |= asked[:, None] == kind
    right[torch.arange(len(own)), own] = False
    return right


def _kinds(texts: Packed, places: dict[bytes, int]) -> Tensor:
    """Number n texts so that equal ones have one number, also across calls: (n,)."""
    rows = torch.split(texts.ids.values.cpu(), texts.lengths.tolist())
    return torch.tensor([places.setdefault(row.numpy().tobytes(), len(places)) for row in rows])


def _check(what: str, value: str | None, choices: Sequence[str]) -> None:
    if value is not None and value not in choices:
        raise WrongUse(f'{what}="{value}" is not known; choose from: {", ".join(choices)}')
