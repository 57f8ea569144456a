"""The protocol of model families.

A family is a plain ``torch.nn.Module`` with the attributes of :class:`Model`; nothing is inherited from here.
What only some families can do stands in protocols of its own; callers ask with ``isinstance``.
Text becomes tensors in exactly one place, ``encode``. Training calls ``encode`` and ``loss``; ranking calls
``encode`` and what ``scorer`` returned. Shapes: n pairs, g groups of s pairs each, n = g * s, row-major.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeVar, runtime_checkable

import torch
from torch import Tensor

from rankhouse.core.nouns import FloatArray, Pair, PassageRows, Storage
from rankhouse.models.pair_encoding import PairReader
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Compute

Objective = Literal["points", "contrasts", "positives"]
"""Training signal of a family. "points": pairs with a grade, s = 1, labels 0 or 1. "contrasts": groups with
the relevant pair first. "positives": relevant pairs; the other passages of the batch are the contrast."""


class Batch(Protocol):
    """n encoded items, still ragged: ``nn.ragged.Packed``, or ``TwoSided`` where sides stay apart."""

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Put the items of several batches of one model into one, in this order."""
        ...

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> Tensor:
        """(n,) int64: tokens each row costs; batches are cut by it."""
        ...

    @property
    def lost(self) -> Tensor:
        """(n,) int64: tokens of the text that did not fit; 0 where nothing was cut."""
        ...

    @property
    def query_lost(self) -> Tensor | None:
        """(n,) int64: the query's among them; None where that is not known, or there is none."""
        ...

    def take(self, rows: Tensor) -> Self:
        """Return these rows, (m,) int64, in this order."""
        ...

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        ...


B = TypeVar("B", bound=Batch)


class Model(Protocol[B]):
    """The contract of a model family; besides this it is a ``torch.nn.Module``.

    Attributes:
        family: Its name in the table of families.
        objective: What it learns from.
        policy: Everything besides weights and vocabulary that changes a score, as JSON values: lengths,
            prompt, target words, scale, sizes. Has "max_length". ``rebuild`` makes the same model from it.
        batch_tokens: Tokens that a processor scores best at once; 0 leaves it to the engine. Where a token
            costs little, calls cost most, and large batches save them.
    """

    family: str
    objective: Objective
    batch_tokens: int
    policy: Mapping[str, Any]

    @property
    def scale(self) -> str:
        """Scale of the scores: "logit", "probability", "logprob", "similarity"; "score": none."""
        ...

    def encode(self, pairs: Sequence[Pair]) -> B:
        """Turn the text of n pairs into ids: the only place where this model meets text. Safe in a thread."""
        ...

    def forward(self, batch: B) -> Tensor:
        """Score a batch: (n,), higher is better, with gradients where they are on."""
        ...

    def loss(self, batch: B, labels: Tensor) -> Tensor:
        """Return the family's loss, (), of a batch of n = g * s pairs with labels (g, s)."""
        ...

    def scorer(self, compute: Compute) -> Callable[[B], Tensor]:
        """Return the quickest form of ``forward`` on this device; else :func:`plain_scorer`.

        It may hold its own copy of the weights: ask again after training.
        """
        ...

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of this policy and these files; its weights are put in afterwards."""
        ...

    def assets(self) -> Mapping[str, bytes]:
        """Return the files besides weights and policy that scoring needs: name -> content (tokenizer ...)."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights by name (torch.nn.Module has it)."""
        ...


@runtime_checkable
class TemperedModel(Protocol):
    """A model whose loss divides scores by a temperature before it compares them (bi-encoders)."""

    temperature: float


Tower = Literal["both", "query"]
"""Encoders of a model of two that learn."""


@runtime_checkable
class TowerModel(Protocol):
    """A model with an encoder of queries that may learn apart from that of passages (bi-encoders)."""

    def learn(self, tower: Tower) -> None:
        """Let both encoders learn, or only that of queries; given again, nothing changes.

        Raises:
            WrongUse: That of queries cannot learn alone.
        """
        ...


@runtime_checkable
class OddsModel(Protocol):
    """A model whose scores are functions of log-odds, which it can give without the detour of a probability.

    Scores themselves will not do for learning: losses on differences leave the odds' level free, and where it
    has drifted to log P = -1e-6, no digit of a difference is left.
    """

    def log_odds(self, batch: Any) -> Tensor:  # noqa: ANN401  # the model's own kind of batch
        """Return n pairs' log P(relevant) / P(not relevant), (n,), with gradients where they are on."""
        ...


@runtime_checkable
class HeadedModel(Protocol):
    """A model with a head over an encoder, begun by drawing the head's weights (cross-encoder, CEDR).

    Attributes:
        encoder_ranker: Notation of the ranker that the encoder is without the drawn head; "" where the head
            was trained, or where the checkpoint does not say how its vectors are made and compared.
    """

    encoder_ranker: str


@runtime_checkable
class TokenModel(Model[Packed], Protocol):
    """A model that reads query and passage in one sequence, so that token ids can be stored."""

    @property
    def pair_reader(self) -> PairReader:
        """Reader that turns pairs into ids."""
        ...


@runtime_checkable
class ReadingModel(Protocol):
    """A model that says how it reads a passage.

    Attributes:
        reads_words: Whether it knows words by number, each apart; transformers do not.
    """

    reads_words: bool

    def characters_read(self, pair: Pair) -> int | None:
        """Return how many characters of the passage, from its beginning, are read; None: nothing cuts it."""
        ...


@runtime_checkable
class PrecomputingModel(Model[Any], Protocol):
    """A model that encodes passages once, to match them with any query later: TK, KNRM, late interaction."""

    @property
    def id_format(self) -> str:
        """Number format of the ids that are stored; "": vectors are stored, in any of ``Storage``."""
        ...

    def store_passages(self, texts: Sequence[str], storage: Storage = "float16") -> PassageRows:
        """Put n passages into context, always in fp32, and round them for the store."""
        ...

    def score_stored(self, query: str, rows: PassageRows) -> FloatArray:
        """Score n stored passages for a query: (n,) float32."""
        ...


def plain_scorer(model: torch.nn.Module, compute: Compute) -> Callable[[Any], Tensor]:
    """Return ``forward`` itself, in eval mode on the chosen device, always in fp32: for small models."""
    model = model.eval().to(compute.device)

    def score(batch: Batch) -> Tensor:
        return model(batch.to(compute.device))  # type: ignore[no-any-return]

    return score
