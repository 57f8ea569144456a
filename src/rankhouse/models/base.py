"""What every model family promises, and the ranker that stands on the promise.

A family is a plain ``torch.nn.Module`` with the attributes of :class:`Model`; nothing is inherited from here.
Text becomes tensors in exactly one place, ``encode``. Training calls ``encode`` and ``loss``; ranking calls
``encode`` and whatever ``scorer`` gave. Shapes: n pairs, g groups of s pairs each, n = g * s, row-major.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, Protocol, Self, TypeVar

import msgspec
import numpy as np
import torch
from torch import Tensor

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import Document, FloatArray, Pair, Passage, Query
from rankhouse.core.results import SearchResult
from rankhouse.core.run import Ranking
from rankhouse.models.engine import Batch, Engine
from rankhouse.nn.compute import Compute

Lesson = Literal["points", "contrasts", "positives"]
"""What a family learns from. "points": pairs with their grade, s = 1, labels 0 or 1. "contrasts": groups with
the relevant pair first. "positives": relevant pairs; the other passages of the batch are the contrast."""


B = TypeVar("B", bound=Batch)


class Model(Protocol[B]):
    """The contract of a model family; besides this it is a ``torch.nn.Module``.

    Attributes:
        family: Its name in the table of families.
        lesson: What it learns from.
        policy: Everything besides weights and vocabulary that changes a score, as JSON values: lengths,
            prompt, target words, scale, sizes. Has "max_length". ``rebuild`` makes the same model from it.
    """

    family: str
    lesson: Lesson
    policy: Mapping[str, Any]

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


def plain_scorer(model: torch.nn.Module, compute: Compute) -> Callable[[Any], Tensor]:
    """Return ``forward`` itself, in eval mode on the chosen device, always in fp32: for small models."""
    model = model.eval().to(compute.device)

    def score(batch: Batch) -> Tensor:
        return model(batch.to(compute.device))  # type: ignore[no-any-return]

    return score


class NeuralRanker:
    """A model at work.

    The fp32 score of a pair does not depend on the pairs around it.

    Args:
        model: The family's model; a :class:`Model` and a ``torch.nn.Module``.
        compute: Device, precision and threads, from :func:`rankhouse.nn.compute.choose`.
        budget: Tokens computed at once by each thread; 0 leaves it to the engine.

    Attributes:
        report: What was seen so far, and what of it was shortened.
    """

    def __init__(self, model: Model[Any], compute: Compute, budget: int = 0) -> None:
        self.model, self.compute = model, compute
        self.engine = Engine(compute, budget)
        self.report = self.engine.report

    @property
    def max_length(self) -> int:
        """Most tokens a pair may have before its passage is shortened."""
        return int(self.model.policy["max_length"])

    @property
    def scale(self) -> str:
        """Say what kind of number a score is: "logit", "probability", "logprob", or "score", none of them.

        A model says so by an attribute ``scale``; pools and rules convert by it.
        """
        return str(getattr(self.model, "scale", "score"))

    @cached_property
    def fingerprint(self) -> str:
        """Name of everything that changes a score: weights, vocabulary, policy and precision."""
        return f"{fingerprint(self.model)}-{self.compute.precision}"

    @cached_property
    def _scorer(self) -> Callable[[Any], Tensor]:
        return self.model.scorer(self.compute)

    def rank(
        self, query: str, texts: Sequence[str | Document | Passage], k: int | None = None
    ) -> SearchResult:
        """Order texts by how well they answer a query.

        Args:
            query: The question.
            texts: Texts, documents or passages, each read whole; a bare text's id is its place, from "0".
            k: How many of the best are kept; None keeps all.

        Raises:
            BadModel: A score is not a number.
        """
        passages = [_as_passage(text, place) for place, text in enumerate(texts)]
        scores = self.score([Pair(Query("query", query), passage) for passage in passages])
        order = np.argsort(-scores, kind="stable")[:k]
        ranking = Ranking(tuple(passages[i].doc_id for i in order), scores[order])
        return SearchResult(ranking, [("", passages[i].text, ()) for i in order])

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs: (n,) float32, higher is better, in the order given.

        Raises:
            BadModel: A score is not a number; names the pair.
        """
        scores = np.empty(len(pairs), np.float32)
        with self.compute.active():
            scorer = self._scorer
        self.engine.run(pairs, self.model.encode, scorer, scores)
        if (bad := np.flatnonzero(np.isnan(scores))).size:
            raise BadModel(_not_a_number(pairs[bad[0]], bad.size, len(pairs), self.compute.precision))
        return scores


def _as_passage(text: str | Document | Passage, place: int) -> Passage:
    match text:
        case Passage():
            return text
        case Document():
            return Passage(text.id, 0, text.full_text)
        case _:
            return Passage(str(place), 0, text)


def fingerprint(model: Model[Any]) -> str:
    """Hash family, policy, vocabulary and weights to 32 hexadecimal digits."""
    digest = sha256(f"{model.family}\n".encode())
    digest.update(msgspec.json.encode(model.policy, order="deterministic"))
    for name, content in sorted(model.assets().items()):
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def _not_a_number(pair: Pair, bad: int, total: int, precision: str) -> str:
    query, passage = pair
    hint = 'try precision="fp32"; if it stays, ' if precision == "bf16" else ""
    return (
        f'the score of passage {passage.index} of document "{passage.doc_id}" for query "{query.id}" is not '
        f"a number ({bad:,} of {total:,} pairs): the weights are damaged or overflow; "
        f"{hint}use another copy of the checkpoint"
    )
