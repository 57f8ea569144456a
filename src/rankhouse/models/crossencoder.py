"""Cross-encoder: an encoder reads query and passage together and answers with one or two numbers.

Papers: Nogueira, Cho, "Passage Re-ranking with BERT", 2019 (two classes, P(relevant)); MacAvaney et al.,
CEDR, 2019 (one number); Yilmaz et al., Birch, 2019 (the next-sentence head); for long documents Dai, Callan,
SIGIR 2019. Input: ``[CLS] q [SEP] p [SEP]``, segments 0 and 1 where the model has them.
Deviations: only the passage is shortened, the query only where it would leave it less than a quarter; the
scale of the score is always said (docs/cross-encoder.md), since sums and means over passages change with it.
Shapes: n pairs, c classes, w width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Self

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.models.checkpoint import (
    PairModel,
    encoder_class,
    find,
    load_network,
    load_tokenizer,
    network_of,
    read_assets,
    read_config,
)
from rankhouse.models.checkpoint_kinds import default_prompt, is_chain, modules_of, require
from rankhouse.models.contract import Objective
from rankhouse.models.pair_encoding import PairReader, pair_layout
from rankhouse.models.sentence_transformers import (
    HeadedEncoder,
    ScoredEncoder,
    layers_of,
    own_ranker,
    read_layers,
    read_settings,
    read_transformer,
    transformer_of,
)
from rankhouse.models.text_ids import TextIds
from rankhouse.models.transformer_encoders import (
    Finish,
    VectorScorer,
    by_length,
    by_rows,
    encoder_of,
    frozen,
    is_packable,
    length_limit,
    pool,
    reads_segments,
)
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Compute

Scale = Literal["logit", "probability", "logprob", "log-odds"]
SCALES: tuple[Scale, ...] = ("logit", "probability", "logprob", "log-odds")

_NEXT_SENTENCE = "AutoModelForNextSentencePrediction"
_CLASSES = "AutoModelForSequenceClassification"
CHAIN = "modules"
"""The head that is a chain of sentence-transformers' modules."""
SIMILARITY = "similarity"
"""The head that compares the mean states of query and passage, and needs no training to rank."""
_BEGIN = '; to begin a training with it, say  --ranker \'crossencoder("{path}", new_head="similarity")\''
_BEGINNINGS = ("encoder", "masked", "unknown")  # kinds that lack a head, if nothing else
_ENCODERS = ("sentences", "colbert", "sparse", "other")  # kinds whose encoder can begin a training
_UNREAD = ("position_ids", "pooler", "cls.", "lm_head", "predictions")  # what a classifier may keep unread
_HEADS = ("classifier", "pooler", "pre_classifier", "score.", "head.")  # in the names of heads' tensors


class CrossEncoder(PairModel):
    """A classifier that ranks.

    Args:
        network: transformers' ...ForSequenceClassification or ...ForNextSentencePrediction.
        tokenizer: The checkpoint's.
        policy: max_length, scale, head, classes, segments, query_prompt where there is one: all JSON values.
        config: The checkpoint's config.json as read.

    Attributes:
        encoder_ranker: As :class:`~rankhouse.models.contract.HeadedModel` has it.
    """

    family = "crossencoder"
    objective: Objective = "points"
    encoder_ranker = ""

    def __init__(
        self, network: nn.Module, tokenizer: Tokenizer, policy: Mapping[str, Any], config: Mapping[str, Any]
    ) -> None:
        super().__init__(network, tokenizer, policy, config)
        layout = pair_layout(self._tokenizer, policy["segments"])
        if policy["head"] == SIMILARITY:
            layout = replace(layout, segments=_SIDES)
        most = policy["max_length"]
        self.pair_reader = PairReader(
            TextIds(self._tokenizer, most), layout, most, prompt=policy.get("query_prompt", "")
        )

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of a bundle, weights apart."""
        tokenizer, config = read_assets(assets)
        if policy["head"] == CHAIN:
            base, layers = network_of(config, encoder_class(config)), layers_of(policy["dense"])
            network: nn.Module = ScoredEncoder(base, policy["pooling"], layers)
        elif policy["head"] == SIMILARITY:
            network = ComparedEncoder(network_of(config, encoder_class(config)))
        else:
            network = network_of(config, policy["head"])
        return cls(network, tokenizer, policy, config)

    @property
    def scale(self) -> str:
        """Scale of the scores; the raw number of one of two classes is no logit of a probability: "score"."""
        own = str(self.policy["scale"])
        if own == "logit" and self.policy["classes"] == 2:
            return "score"
        return "logit" if own == "log-odds" else own

    def logits(self, batch: Packed) -> Tensor:
        """Return the head's numbers (n, c), with gradients where they are on."""
        return by_rows(self.network, batch, lambda answer, _: answer.logits)

    def forward(self, batch: Packed) -> Tensor:
        """Score a batch: (n,), higher is better, with gradients where they are on."""
        return scaled(self.logits(batch), self.policy["scale"])

    def log_odds(self, batch: Packed) -> Tensor:
        """Return log P(relevant) / P(not), (n,); the bare last number where that is the score."""
        logits = self.logits(batch)
        return logits[:, -1] if self.policy["scale"] == "logit" else log_odds(logits)

    def loss(self, batch: Packed, labels: Tensor) -> Tensor:
        """Cross-entropy of relevant against not; binary cross-entropy for one number.

        Args:
            batch: n pairs.
            labels: (n, 1), above 0.5 for relevant; with one number, any value from 0 to 1.
        """
        logits = self.logits(batch).float()
        labels = labels.reshape(-1).to(logits.device)
        if self.policy["classes"] == 1:
            return F.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
        return F.cross_entropy(logits, (labels > 0.5).long())

    def scorer(self, compute: Compute) -> Callable[[Packed], Tensor]:
        """Return the packed forward pass for BERT's kin; else the network by rows of equal length."""
        classify = _packed(self.network, compute) or _by_length(self.network, compute)
        scale = self.policy["scale"]

        def score(batch: Packed) -> Tensor:
            return scaled(classify(batch.to(compute.device)).float(), scale)

        return score


def scaled(logits: Tensor, scale: Scale) -> Tensor:
    """Make scores of a head's numbers: (n, 1) or (n, 2) -> (n,).

    "logit": the last class's raw number. "probability", "logprob", "log-odds": of the last class, by softmax
    over two classes, by sigmoid for one.
    """
    if scale == "logit":
        return logits[:, -1]
    odds = log_odds(logits)
    return odds.sigmoid() if scale == "probability" else odds if scale == "log-odds" else F.logsigmoid(odds)


def log_odds(logits: Tensor) -> Tensor:
    """Return log P(last class) / P(the other), (n,) float32.

    log softmax is logsigmoid of it; by way of the odds, probabilities near 1 keep their digits.
    """
    logits = logits.float()
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def open_crossencoder(
    path: str,
    scale: Scale | None = None,
    max_length: int | None = None,
    tokenizer: str | None = None,
    allow_pickle: bool = False,
    new_head: int | Literal["similarity"] | None = None,
) -> CrossEncoder:
    """Open a published checkpoint: ``crossencoder("cross-encoder/ms-marco-MiniLM-L6-v2")``.

    Args:
        path: A folder or hub name.
        scale: "logit", "probability", "logprob" or "log-odds"; None: "logprob" for two classes, "log-odds"
            where their head is drawn, "logit" for one number and for the next-sentence head.
        max_length: Most tokens of a pair; None: what tokenizer and network were made for.
        tokenizer: Folder of another tokenizer than the checkpoint's own.
        allow_pickle: Whether weights may be read from pytorch_model.bin.
        new_head: To begin a training from an encoder that has no head: the seed its two classes' weights are
            drawn with, or "similarity": the cosine of the mean states of query and passage, read together
            (:class:`ComparedEncoder`). None: a checkpoint without a trained head is refused.

    Raises:
        BadModel: Not a classifier of one or two classes, or damaged, or without tokenizer.
        WrongUse: An unknown scale; more tokens than the network has positions.
    """
    if scale is not None and scale not in SCALES:
        raise WrongUse(f'scale="{scale}" is not known; choose from: {", ".join(SCALES)}')
    if isinstance(new_head, str) and new_head != SIMILARITY:
        raise WrongUse(f'new_head="{new_head}" is not known; give a seed, or "{SIMILARITY}"')
    folder = find(path, allow_pickle)
    found = require(folder, "crossencoder", _BEGINNINGS if new_head is None else (*_BEGINNINGS, *_ENCODERS))
    if new_head == SIMILARITY:
        return _open_compared(folder, scale, max_length, tokenizer=tokenizer, allow_pickle=allow_pickle)
    if found.key == "chain":
        return _open_chain(folder, scale, max_length, tokenizer=tokenizer, allow_pickle=allow_pickle)
    alone = is_chain(folder) and [module.kind for module in modules_of(folder)] == ["Transformer"]
    place, own = (folder, {}) if new_head is None else transformer_of(folder)
    own = read_transformer(folder, "sequence-classification") if alone else own
    raw = read_config(place)
    kind = _head_kind(raw)
    own_tokenizer, asks_segments, meant = load_tokenizer(place, tokenizer, own)
    needless = () if new_head is None else _HEADS
    unread = _UNREAD if found.key == "classifier" else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(new_head or 0)
        network = load_network(
            place, kind, allow_pickle, needless, hint=_BEGIN.format(path=path), unread=unread
        )
    config: Any = network.config
    classes = 2 if kind == _NEXT_SENTENCE else int(config.num_labels)
    if classes not in {1, 2}:
        raise BadModel(f'"{folder}" tells {classes} classes apart; a ranker has one number or two classes')
    named = " ".join(raw.get("architectures") or ())
    drawn = new_head is not None and "SequenceClassification" not in named
    two = "log-odds" if drawn else "logprob"  # the level of what a drawn head learns may be free
    policy = {
        "max_length": length_limit(config, meant, max_length),
        "scale": scale or (two if classes == 2 and kind == _CLASSES else "logit"),
        "head": kind,
        "classes": classes,
        "segments": reads_segments(config, asks_segments),
        **_query_prompt(folder),
    }
    model = CrossEncoder(network, own_tokenizer, policy, raw)
    if new_head is not None:
        model.encoder_ranker = own_ranker(folder, allow_pickle)
    return model


def _open_chain(
    folder: Path, scale: Scale | None, max_length: int | None, *, tokenizer: str | None, allow_pickle: bool
) -> CrossEncoder:
    """Open modules of sentence-transformers that end in a number for a pair."""
    settings = read_settings(folder)
    assert settings is not None
    if settings.static or settings.query is not None:
        what = "word vectors" if settings.static else "texts by a Router"
        raise BadModel(f'"{folder}" scores {what}; a cross-encoder here begins with a Transformer')
    place, shapes, layers = settings.transformer, *read_layers(settings.layers, allow_pickle=allow_pickle)
    classes = next((shape["out"] for shape in reversed(shapes) if "out" in shape), 0)
    if classes not in {1, 2} or settings.normalised:
        raise BadModel(f'"{folder}" ends in {classes} numbers; a ranker has one number or two classes')
    raw = read_config(place)
    own_tokenizer, asks_segments, meant = load_tokenizer(place, tokenizer, settings.own)
    base: Any = load_network(place, encoder_class(raw), allow_pickle, ("pooler",))
    policy = {
        "max_length": length_limit(base.config, settings.max_length or meant, max_length),
        "scale": scale or ("logprob" if classes == 2 else "logit"),
        "head": CHAIN,
        "classes": classes,
        "segments": reads_segments(base.config, asks_segments),
        "pooling": settings.pooling,
        "dense": shapes,
        **_query_prompt(folder),
    }
    return CrossEncoder(ScoredEncoder(base, settings.pooling, layers), own_tokenizer, policy, raw)


def _open_compared(
    folder: Path, scale: Scale | None, max_length: int | None, *, tokenizer: str | None, allow_pickle: bool
) -> CrossEncoder:
    """Open an encoder whose states are compared."""
    place, own = transformer_of(folder)
    raw = read_config(place)
    own_tokenizer, _, meant = load_tokenizer(place, tokenizer, own)
    base: Any = load_network(place, encoder_class(raw), allow_pickle, _HEADS)
    policy: dict[str, Any] = {
        "max_length": length_limit(base.config, meant, max_length),
        "scale": scale or "log-odds",
        "head": SIMILARITY,
        "classes": 1,
        "segments": False,
        **_query_prompt(folder),
    }
    model = CrossEncoder(ComparedEncoder(base), own_tokenizer, policy, raw)
    model.encoder_ranker = own_ranker(folder, allow_pickle)
    return model


def _query_prompt(folder: Path) -> dict[str, str]:
    prompt = default_prompt(folder)
    return {"query_prompt": prompt} if prompt else {}


_SIDES = (0, 0, 0, 1, 1)
"""The side of each of a row's five parts, 0 for the query's and 1 for the passage's, in place of segments."""
_SPREAD, _MIDDLE = 20.0, 0.65  # a cosine of .65 scores 0 at first; candidates' differ by a tenth or two


class SimilarityHead(nn.Module):
    """exp(a) cos(q, p) + b + w f: mean states of query and passage, the first state; w begins as 0."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(_SPREAD).log())
        self.bias = nn.Parameter(torch.tensor(-_SPREAD * _MIDDLE))
        self.first = nn.Parameter(torch.zeros(width))

    def forward(self, states: Tensor, sides: Tensor, lengths: Tensor) -> Tensor:
        """Score rows end to end: states (t, w), sides (t,) 0 and 1, and lengths (n,) -> (n, 1)."""
        ends = lengths.cumsum(0)
        passages = sides.cumsum(0)[ends - 1].diff(prepend=sides.new_zeros(1))
        parts = torch.stack([lengths - passages, passages], 1).flatten()
        query, passage = pool(states, parts, "mean").view(len(lengths), 2, -1).unbind(1)
        whole = (states[ends - lengths] * self.first).sum(1)
        return (self.scale.exp() * F.cosine_similarity(query, passage) + self.bias + whole)[:, None]


class ComparedEncoder(HeadedEncoder):
    """An encoder that reads query and passage together, and the comparison of their states."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__(encoder)
        self.classifier = SimilarityHead(self.config.hidden_size)

    def forward(self, attention_mask: Tensor, token_type_ids: Tensor, **given: Tensor) -> SimpleNamespace:
        """Score rows, with each token's side in place of its segment: ``logits`` (rows, 1)."""
        states, lengths = self.states(attention_mask, given)
        sides = token_type_ids[attention_mask.bool()]
        return SimpleNamespace(logits=self.classifier(states.float(), sides, lengths))


def _head_kind(raw: Mapping[str, Any]) -> str:
    """Return by its configuration which head a checkpoint has."""
    names = " ".join(raw.get("architectures") or ())
    return _NEXT_SENTENCE if "NextSentencePrediction" in names or "ForPreTraining" in names else _CLASSES


def _packed(network: nn.Module, compute: Compute) -> Callable[[Packed], Tensor] | None:
    """Return the packed encoder with the network's own head behind it, (n, c); None where there is none."""
    net: Any = network
    if isinstance(net, ComparedEncoder):
        encoder = encoder_of(net.encoder, compute, first_only=False)
        head = deepcopy(net.classifier).to(compute.device).eval()
        return lambda batch: head(
            encoder.hidden(replace(batch, segments=None)), batch.segments, batch.lengths.to(compute.device)
        )
    if isinstance(net, ScoredEncoder):
        return VectorScorer(net.encoder, net.pooling, Finish(net.layers, False, compute), compute)
    if not is_packable(net.config):
        return None
    pooling = getattr(net.config, "classifier_pooling", "cls")
    return VectorScorer(net.base_model, pooling, Finish(_head(net), False, compute), compute)


def _head(net: Any) -> nn.Module:  # noqa: ANN401  # transformers has no type for "a classifier"
    """Return the part of a classifier that reads first tokens' or pooled states: (n, w) -> (n, c)."""
    match net.config.model_type:
        case "bert":
            last = net.classifier if hasattr(net, "classifier") else net.cls
            return nn.Sequential(_AsFirst(), net.bert.pooler, last)
        case "distilbert":
            return nn.Sequential(net.pre_classifier, nn.ReLU(), net.classifier)
        case "modernbert":
            return nn.Sequential(net.head, net.classifier)
    return nn.Sequential(_AsFirst(), net.classifier)


class _AsFirst(nn.Module):
    """States (n, w) in the shape (n, 1, w) of rows of one token."""

    def forward(self, states: Tensor) -> Tensor:
        return states[:, None]


def _by_length(network: nn.Module, compute: Compute) -> Callable[[Packed], Tensor]:
    """Return the whole network called with rows of one length only, (n, c)."""
    net = frozen(network, compute)
    return lambda batch: torch.cat([net(**given).logits for given in by_length(batch)])
