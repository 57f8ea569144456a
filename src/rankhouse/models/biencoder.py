"""Bi-encoder: query and passage become one vector each; the score compares the vectors.

Papers: Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020, eq. 1 and 2 (dot product, negative log
likelihood with in-batch passages); Reimers, Gurevych, "Sentence-BERT", EMNLP 2019 (mean pooling).
Deviations: one encoder for both sides, unless a checkpoint has two (Router); one similarity for training and
for search (the reference trains by dot product and searches by L2, which orders differently, see
docs/bi-encoder.md); passages of the batch that are the right answer of the query are no contrast to it.
Shapes: n pairs, g groups of s passages, t tokens together, w width of the encoder, d width of vectors.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.models.checkpoint import (
    encoder_class,
    find,
    load_network,
    load_tokenizer,
    network_of,
    read_assets,
    read_config,
)
from rankhouse.models.checkpoint_kinds import is_chain, require
from rankhouse.models.contract import Objective, Tower
from rankhouse.models.dual_encoder import DualBatch, DualEncoder, OnceScorer, also_right, distinct
from rankhouse.models.sentence_transformers import (
    EncoderSettings,
    layers_of,
    read_layers,
    read_settings,
    static_encoder,
)
from rankhouse.models.transformer_encoders import (
    STATIC,
    Finish,
    PoolingMode,
    StaticEncoder,
    VectorScorer,
    by_rows,
    length_limit,
    pool,
    require_states,
)
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Compute

Similarity = Literal["dot", "cosine", "l2"]
SIMILARITIES: tuple[Similarity, ...] = ("dot", "cosine", "l2")

_NAMES: dict[str, Similarity] = {"dot": "dot", "cosine": "cosine", "euclidean": "l2"}
"""As sentence-transformers names them."""

_COSINE_TEMPERATURE = 0.05
_QUERY = "query-"  # begins the names of a bundle's files for the encoder of queries
_HEADLESS = ("position_ids", "pooler")  # tensors that a bare encoder may hold unread


class BiEncoder(DualEncoder):
    """An encoder that ranks by vectors.

    Args:
        asked: What encodes queries, where that is not what encodes passages. It may share the network.

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
        asked: BiEncoder | None = None,
    ) -> None:
        if asked is not None:
            shared = asked.network is network
            policy = {**policy, "query": {**asked.policy, "shared": shared}}
        super().__init__(network, tokenizer, policy, config)
        self.dense, self.asked = dense, asked
        self.temperature = _COSINE_TEMPERATURE if policy["similarity"] == "cosine" else 1.0
        self._fixed: dict[Compute, OnceScorer] | None = None  # of passages, where their encoder stays

    @classmethod
    def rebuild(
        cls, policy: Mapping[str, Any], assets: Mapping[str, bytes], network: nn.Module | None = None
    ) -> Self:
        """Make the model of a bundle, weights apart, its network if it is not there."""
        tokenizer, config = read_assets(assets)
        network = network or cls.network_of(config)
        asked = None
        if query := policy.get("query"):
            own = {n.removeprefix(_QUERY): asset for n, asset in assets.items() if n.startswith(_QUERY)}
            asked = cls.rebuild(query, own or assets, network if query["shared"] else None)
        return cls(network, layers_of(policy["dense"]), tokenizer, policy, config=config, asked=asked)

    @staticmethod
    def network_of(config: Mapping[str, Any]) -> nn.Module:
        """Make the network of a bundle, weights apart."""
        if config["model_type"] == STATIC:
            return StaticEncoder(config["vocab_size"], config["hidden_size"])
        return network_of(config, encoder_class(config))

    def assets(self) -> dict[str, bytes]:
        """Return tokenizer.json and config.json, and those of the encoder of queries if it is another."""
        own = super().assets()
        theirs = self.asked.assets() if self.asked is not None and not self.policy["query"]["shared"] else {}
        return own | {_QUERY + name: content for name, content in theirs.items()}

    def encode_queries(self, texts: Sequence[str]) -> Packed:
        """Turn n queries into ids, prompt before them."""
        return super().encode_queries(texts) if self.asked is None else self.asked.encode_queries(texts)

    def forget(self) -> None:
        """Drop the ids of texts that were tokenised before."""
        super().forget()
        if self.asked is not None:
            self.asked.forget()

    def side(self, name: str) -> BiEncoder:
        """Return what encodes texts of a side, "query" or "passage"."""
        return self.asked if name == "query" and self.asked is not None else self

    def learn(self, tower: Tower) -> None:
        """Let both sides learn, or only the encoder of queries: its own, or a copy of that of passages."""
        alone, own = tower == "query", self.asked or self
        if alone and own.network is self.network:
            network, dense = copy.deepcopy((own.network, own.dense))
            self.asked = BiEncoder(network, dense, self._tokenizer, own.policy, config=self._config)
            self.policy = {**self.policy, "query": {**own.policy, "shared": False}}
        if alone or self._fixed is not None:
            nn.ModuleList([self.network, self.dense]).requires_grad_(not alone)
        self._fixed = {} if alone else None

    def without_queries(self) -> BiEncoder:
        """Return what encodes passages, for queries too; itself where that is so already."""
        if self.asked is None:
            return self
        policy = {name: given for name, given in self.policy.items() if name != "query"}
        return BiEncoder(self.network, self.dense, self._tokenizer, policy, config=self._config)

    def passage_vectors(self, batch: Packed) -> Tensor:
        """Return vectors of passages (n, d), with gradients where they are on and their encoder learns."""
        if self._fixed is None:
            return self.vectors(batch)
        device = next(self.network.parameters()).device
        bf16 = torch.is_autocast_enabled(device.type)  # as validation computes them: once for both
        return self.vector_scorer(Compute("bf16" if bf16 else "fp32", device))(batch)

    def vectors(self, batch: Packed) -> Tensor:
        """Return vectors (n, d), with gradients where they are on."""
        return Finish(self.dense, self.policy["normalised"])(by_rows(self.network, batch, self._pooled))

    def query_vectors(self, batch: Packed) -> Tensor:
        """Return vectors of queries (n, d), with gradients where they are on."""
        return self.side("query").vectors(batch)

    def forward(self, batch: DualBatch) -> Tensor:
        """Score a batch: (n,), higher is better, with gradients where they are on."""
        queries, (read, of) = self.query_vectors(batch.queries), distinct(batch.passages)
        passages = self.passage_vectors(read)[of.to(queries.device)]
        return compare(queries[batch.which.to(queries.device)], passages, self.policy["similarity"])

    def loss(self, batch: DualBatch, labels: Tensor) -> Tensor:
        """Negative log likelihood of each group's first passage among all passages of the batch."""
        which = batch.which.view(labels.shape)[:, 0]
        queries, passages = self.query_vectors(batch.queries), self.passage_vectors(batch.passages)
        which = which.to(queries.device)
        scores = compare_all(queries[which], passages, self.policy["similarity"]) / self.temperature
        own = torch.arange(0, labels.numel(), labels.shape[1], device=scores.device)
        right = also_right(batch, own.cpu(), which.cpu()).to(scores.device)
        return in_batch_loss(scores.masked_fill(right, -torch.inf), own)

    def vector_scorer(self, compute: Compute) -> VectorScorer:
        """Return the quickest way from ids to vectors (n, d)."""
        finish = Finish(self.dense, self.policy["normalised"], compute)
        if self._fixed is None:
            return VectorScorer(self.network, self.policy["pooling"], finish, compute)
        if (same := compute._replace(device=torch.device(compute.device.type))) not in self._fixed:
            self._fixed[same] = OnceScorer(self.network, self.policy["pooling"], finish, compute)
        return self._fixed[same]  # one for "cuda" and "cuda:0"

    def scorer(self, compute: Compute) -> Callable[[DualBatch], Tensor]:
        """Return the quickest way from ids to scores (n,)."""
        passages, similarity = self.vector_scorer(compute), self.policy["similarity"]
        asked = self.query_scorer(compute, passages)

        def score(batch: DualBatch) -> Tensor:
            queries = asked(batch.queries)
            return compare(queries[batch.which.to(queries.device)], passages(batch.passages), similarity)

        return score

    def query_scorer(
        self, compute: Compute, passages: Callable[[Packed], Tensor]
    ) -> Callable[[Packed], Tensor]:
        """Return the quickest way from ids to vectors of queries (n, d): that of passages, or of its own."""
        if (asked := self.asked) is None:
            return passages
        alike = asked.network is self.network and asked.policy["pooling"] == self.policy["pooling"]
        if alike and isinstance(passages, VectorScorer):
            return passages.finished_by(Finish(asked.dense, asked.policy["normalised"], compute))
        return asked.vector_scorer(compute)

    def _pooled(self, answer: Any, mask: Tensor) -> Tensor:  # noqa: ANN401  # transformers has no common type
        states: Tensor = answer.last_hidden_state
        if self.policy["pooling"] == "cls":
            return states[:, 0]
        if self.policy["pooling"] == "mean":
            return (states * mask[:, :, None]).sum(1) / mask.sum(1).clamp(min=1)[:, None]
        return pool(states[mask], mask.sum(1), self.policy["pooling"])


def open_biencoder(
    path: str,
    pooling: str | None = None,
    similarity: Similarity | None = None,
    max_length: int | None = None,
    prompts: tuple[str, str] | None = None,
    tokenizer: str | None = None,
    allow_pickle: bool = False,
) -> BiEncoder:
    """Open a published checkpoint: ``biencoder("sentence-transformers/all-MiniLM-L6-v2")``.

    Args:
        path: A folder or hub name; of sentence-transformers, or a bare encoder.
        pooling: "cls", "mean", "max", "lasttoken", "weightedmean" or "mean_sqrt_len_tokens", also several:
            "cls+mean"; None: what the folder says, for a bare encoder "cls", for Contriever and T5 "mean". A
            language model that predicts masked words is opened only where this is said, to begin a training.
        similarity: "dot", "cosine" or "l2"; None: what the folder says; else cosine, as
            sentence-transformers has it, but dot for bare encoders and names like "...-dot-v1".
        max_length: Most tokens of a text; None: what the folder says.
        prompts: What is put before queries and before passages, or the names of two prompts of the folder;
            None: what the folder says.
        tokenizer: Folder of another tokenizer than the checkpoint's own.
        allow_pickle: Whether weights may be read from pytorch_model.bin.

    Raises:
        BadModel: Not an encoder, or a module that is not known, or damaged, or without tokenizer.
        WrongUse: An unknown pooling or similarity; more tokens than the network has positions.
    """
    for mode in (pooling or "cls").split("+"):
        _check("pooling", mode, get_args(PoolingMode))
    _check("similarity", similarity, SIMILARITIES)
    folder = find(path, allow_pickle)
    found = require(folder, "biencoder", () if pooling is None else ("masked", "headless", "unknown"))
    settings = read_settings(folder) or _bare(folder)
    own_prompts = (settings.query_prompt, settings.passage_prompt)
    query_prompt, passage_prompt = (settings.prompts.get(one, one) for one in prompts or own_prompts)
    policy = {
        "max_length": max_length,
        "pooling": pooling,
        "similarity": similarity or _said(folder, settings),
        "query_prompt": query_prompt,
        "passage_prompt": passage_prompt,
    }
    unread = _HEADLESS if found.key == "encoder" else None
    own = _open_side(settings, policy, tokenizer, allow_pickle, unread=unread)
    if settings.query is None:
        return BiEncoder(*own)
    shared = settings.query.transformer == settings.transformer
    if tokenizer is not None and not shared:
        raise WrongUse(
            f'tokenizer="{tokenizer}": "{folder}" reads queries and passages by two vocabularies; leave it '
            "out, and each side takes its own"
        )
    asked = _open_side(settings.query, policy, tokenizer, allow_pickle, network=own[0] if shared else None)
    model = BiEncoder(*own, BiEncoder(*asked))
    if len(widths := {_width(model.side(side)) for side in ("query", "passage")}) > 1:
        raise BadModel(
            f'"{folder}" makes vectors of {" and ".join(map(str, sorted(widths)))} numbers of the '
            "two sides, which cannot be compared; fetch the folder again"
        )
    return model


def _open_side(
    settings: EncoderSettings,
    policy: Mapping[str, Any],
    tokenizer: str | None,
    allow_pickle: bool,
    *,
    unread: tuple[str, ...] | None = None,
    network: nn.Module | None = None,
) -> tuple[nn.Module, nn.Sequential, Tokenizer, dict[str, Any], Mapping[str, Any]]:
    """Open what encodes queries, or passages, or both.

    Args:
        policy: What is the same for both; lengths and poolings that are None are what the folder says.
        network: Of the encoder of passages, where queries share it.

    Returns:
        What a :class:`BiEncoder` is made of.
    """
    place = settings.transformer
    if settings.static:
        network, own_tokenizer, raw, length = static_encoder(place, tokenizer, allow_pickle)
        length = policy["max_length"] or length
    else:
        raw = read_config(place)
        own_tokenizer, _, meant = load_tokenizer(place, tokenizer, settings.own)
        network = network or load_network(place, encoder_class(raw), allow_pickle, ("pooler",), unread=unread)
        require_states(network, place)
        length = length_limit(cast(Any, network).config, settings.max_length or meant, policy["max_length"])
    shapes, layers = read_layers(settings.layers, allow_pickle=allow_pickle)
    net, pooling = cast(Any, network), policy["pooling"] or settings.pooling
    own_width = net.get_input_embeddings().embedding_dim if settings.static else net.config.hidden_size
    width = int(own_width) * (pooling.count("+") + 1)
    if shapes and (reads := shapes[0].get("in", shapes[0].get("norm", width))) != width:
        raise BadModel(
            f'"{settings.layers[0][1]}" reads vectors of width {reads}, and the modules before it give '
            f"{width}; fetch the folder again"
        )
    normalised = settings.normalised
    if settings.truncated:
        unit: list[dict[str, Any]] = [{"normalise": True}] if normalised else []
        more = [*unit, {"first": settings.truncated}]
        shapes, layers = [*shapes, *more], nn.Sequential(*layers, *layers_of(more))
        normalised = False
    own = {"max_length": length, "pooling": pooling, "normalised": normalised, "dense": shapes}
    return network, layers, own_tokenizer, {**policy, **own}, raw


def _width(model: BiEncoder) -> int:
    """Return the width of a model's vectors."""
    with torch.inference_mode():
        return model.vectors(model.encode_passages(["a"])).shape[1]


def _bare(folder: Path) -> EncoderSettings:
    """Return how a bare encoder pools: as its architecture's makers do, else its first token."""
    name = next(iter(read_config(folder).get("architectures") or ()), "")
    return EncoderSettings(folder, "mean" if name == "Contriever" or name.endswith("EncoderModel") else "cls")


def _said(folder: Path, settings: EncoderSettings) -> Similarity:
    """Return the similarity that a folder names, or that of a folder that names none.

    sentence-transformers compares by cosine then; those whose name says so, and bare encoders, were trained
    for dot products.
    """
    if settings.similarity:
        if settings.similarity not in _NAMES:
            raise BadModel(
                f'"{folder}" compares vectors by {settings.similarity!r}; read here are {", ".join(_NAMES)}. '
                'To compare them otherwise than it was trained, say how:  similarity="l2"'
            )
        return _NAMES[settings.similarity]
    own = folder.absolute()
    name = own.parents[1].name if own.parent.name == "snapshots" else own.name  # as the hub's store has it
    is_dot = re.search(r"-dot\b|-tas-b\b", name) is not None
    return "cosine" if settings.normalised or (is_chain(folder) and not is_dot) else "dot"


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


def _check(what: str, value: str | None, choices: Sequence[str]) -> None:
    if value is not None and value not in choices:
        raise WrongUse(f'{what}="{value}" is not known; choose from: {", ".join(choices)}')
