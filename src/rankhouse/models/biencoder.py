"""Bi-encoder: query and passage become one vector each, by the same encoder; the score compares the vectors.

Papers: Karpukhin et al., "Dense Passage Retrieval", EMNLP 2020, eq. 1 and 2 (dot product, negative log
likelihood with in-batch passages); Reimers, Gurevych, "Sentence-BERT", EMNLP 2019 (mean pooling).
Deviations: one encoder for both sides; one similarity for training and for search (the reference trains by
dot product and searches by L2, which orders differently, see docs/bi-encoder.md); passages of the batch that
are the right answer of the query are no contrast to it.
Shapes: n pairs, g groups of s passages, t tokens together, w width of the encoder, d width of vectors.
"""

from __future__ import annotations

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
from rankhouse.models.checkpoint_kinds import require
from rankhouse.models.contract import Objective
from rankhouse.models.dual_encoder import DualBatch, DualEncoder, distinct, kinds
from rankhouse.models.sentence_transformers import (
    EncoderSettings,
    in_small_letters,
    layers_of,
    module_weights,
    read_layers,
    read_settings,
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
)
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Compute

Similarity = Literal["dot", "cosine", "l2"]
SIMILARITIES: tuple[Similarity, ...] = ("dot", "cosine", "l2")

_COSINE_TEMPERATURE = 0.05
_HEADLESS = ("position_ids", "pooler")  # tensors that a bare encoder may hold unread


class BiEncoder(DualEncoder):
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

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of a bundle, weights apart."""
        tokenizer, config = read_assets(assets)
        if config["model_type"] == STATIC:
            network: nn.Module = StaticEncoder(config["vocab_size"], config["hidden_size"])
        else:
            network = network_of(config, encoder_class(config))
        return cls(network, layers_of(policy["dense"]), tokenizer, policy, config=config)

    def vectors(self, batch: Packed) -> Tensor:
        """Return vectors (n, d), with gradients where they are on."""
        return self._finish(by_rows(self.network, batch, self._pooled))

    def query_vectors(self, batch: Packed) -> Tensor:
        """Return vectors of queries (n, d), with gradients where they are on."""
        return self.vectors(batch)

    def forward(self, batch: DualBatch) -> Tensor:
        """Score a batch: (n,), higher is better, with gradients where they are on."""
        queries, (read, of) = self.query_vectors(batch.queries), distinct(batch.passages)
        passages = self.vectors(read)[of.to(queries.device)]
        return compare(queries[batch.which.to(queries.device)], passages, self.policy["similarity"])

    def loss(self, batch: DualBatch, labels: Tensor) -> Tensor:
        """Negative log likelihood of each group's first passage among all passages of the batch."""
        groups, size = labels.shape
        which = batch.which.view(groups, size)[:, 0]
        queries, passages = self.query_vectors(batch.queries), self.vectors(batch.passages)
        which = which.to(queries.device)
        scores = compare_all(queries[which], passages, self.policy["similarity"]) / self.temperature
        own = torch.arange(groups, device=scores.device) * size
        right = _also_right(batch, own.cpu(), which.cpu()).to(scores.device)
        return in_batch_loss(scores.masked_fill(right, -torch.inf), own)

    def vector_scorer(self, compute: Compute) -> VectorScorer:
        """Return the quickest way from ids to vectors (n, d)."""
        finish = Finish(self.dense, self.policy["normalised"], compute)
        return VectorScorer(self.network, self.policy["pooling"], finish, compute)

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
        """Return the quickest way from ids to vectors of queries (n, d): that of passages."""
        del compute
        return passages

    def _pooled(self, answer: Any, mask: Tensor) -> Tensor:  # noqa: ANN401  # transformers has no common type
        states: Tensor = answer.last_hidden_state
        if self.policy["pooling"] == "cls":
            return states[:, 0]
        if self.policy["pooling"] == "mean":
            return (states * mask[:, :, None]).sum(1) / mask.sum(1).clamp(min=1)[:, None]
        return pool(states[mask], mask.sum(1), self.policy["pooling"])

    def _finish(self, pooled: Tensor) -> Tensor:
        return Finish(self.dense, self.policy["normalised"])(pooled)


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
    place = settings.transformer
    if settings.static:
        network, own_tokenizer, raw, length = _static(place, tokenizer, allow_pickle)
        length = max_length or length
    else:
        raw = read_config(place)
        own_tokenizer, _, meant = load_tokenizer(place, tokenizer)
        unread = _HEADLESS if found.key == "encoder" else None
        network = load_network(place, encoder_class(raw), allow_pickle, ("pooler",), unread=unread)
        length = length_limit(network.config, settings.max_length or meant, max_length)
    if settings.lowercase:
        own_tokenizer = in_small_letters(own_tokenizer)
    shapes, layers = read_layers(settings.layers, allow_pickle=allow_pickle)
    net = cast(Any, network)
    own_width = net.get_input_embeddings().embedding_dim if settings.static else net.config.hidden_size
    width = int(own_width) * ((pooling or settings.pooling).count("+") + 1)
    if shapes and (reads := shapes[0].get("in", shapes[0].get("norm", width))) != width:
        raise BadModel(
            f'"{settings.layers[0][1]}" reads vectors of width {reads}, and the modules before it give '
            f"{width}; fetch the folder again"
        )
    own_prompts = (settings.query_prompt, settings.passage_prompt)
    query_prompt, passage_prompt = (settings.prompts.get(one, one) for one in prompts or own_prompts)
    policy = {
        "max_length": length,
        "pooling": pooling or settings.pooling,
        "normalised": settings.normalised,
        "similarity": similarity or settings.similarity or _unsaid(folder, settings),
        "query_prompt": query_prompt,
        "passage_prompt": passage_prompt,
        "dense": shapes,
    }
    return BiEncoder(network, layers, own_tokenizer, policy, config=raw)


def _bare(folder: Path) -> EncoderSettings:
    """Return how a bare encoder pools: as its architecture's makers do, else its first token."""
    name = next(iter(read_config(folder).get("architectures") or ()), "")
    return EncoderSettings(folder, "mean" if name == "Contriever" or name.endswith("EncoderModel") else "cls")


def _unsaid(folder: Path, settings: EncoderSettings) -> Similarity:
    """Return the similarity of a folder that names none.

    sentence-transformers compares by cosine then; those whose name says so, and bare encoders, were trained
    for dot products.
    """
    own = folder.absolute()
    name = own.parents[1].name if own.parent.name == "snapshots" else own.name  # as the hub's store has it
    is_dot = re.search(r"-dot\b|-tas-b\b", name) is not None
    chained = (folder / "modules.json").is_file()
    return "cosine" if settings.normalised or (chained and not is_dot) else "dot"


def _static(
    place: Path, tokenizer: str | None, allow_pickle: bool
) -> tuple[nn.Module, Tokenizer, dict[str, Any], int]:
    """Open word vectors as sentence-transformers or model2vec write them.

    Returns:
        The encoder; its tokenizer; what stands for a config.json; most tokens of a text.

    Raises:
        BadModel: No tokenizer.json or model.safetensors, or the two do not fit.
    """
    try:
        own = Tokenizer.from_file(str(Path(tokenizer or place) / "tokenizer.json"))
        tensors = module_weights(place, allow_pickle)
        table = tensors["embedding.weight"] if "embedding.weight" in tensors else tensors["embeddings"]
        table = (table[tensors["mapping"].long()] if "mapping" in tensors else table).float()
        if "weights" in tensors:  # of single tokens, in model2vec's vocabularies that share rows
            table = table * tensors["weights"].float()[:, None]
        if len(table) <= max(own.get_vocab(with_added_tokens=True).values()):
            raise ValueError(f"{len(table)} vectors for {own.get_vocab_size()} tokens")
    except Exception as error:  # tokenizers raises a bare Exception
        raise BadModel(
            f'"{place}" holds no word vectors that can be read ({error}); it needs tokenizer.json and '
            "model.safetensors of one StaticEmbedding; fetch the folder again"
        ) from error
    network = StaticEncoder(*table.shape)
    network.load_state_dict({"embeddings.weight": table})
    raw = {"model_type": STATIC, "vocab_size": table.shape[0], "hidden_size": table.shape[1]}
    return network, own, raw, (own.truncation or {}).get("max_length", 1_000_000)


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


def _also_right(batch: DualBatch, own: Tensor, which: Tensor) -> Tensor:
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


def _check(what: str, value: str | None, choices: Sequence[str]) -> None:
    if value is not None and value not in choices:
        raise WrongUse(f'{what}="{value}" is not known; choose from: {", ".join(choices)}')
