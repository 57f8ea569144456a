"""A model at work: the ranker that stands on what a family promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from rankhouse.core.arguments import checked
from rankhouse.core.nouns import Document, FloatArray, Pair, Passage, Query, Ranking, SearchResult, StoredPair
from rankhouse.core.scores import numbers_only
from rankhouse.models import bundle
from rankhouse.models.contract import Model
from rankhouse.models.engine import Batch, Engine
from rankhouse.nn.machine import Compute

AnyPair = TypeVar("AnyPair", Pair, StoredPair)


class NeuralRanker:
    """A model at work.

    The score of a pair does not depend on the pairs around it: to the bit on processors with AVX-512.

    Args:
        model: The family's model; a :class:`Model` and a ``torch.nn.Module``.
        compute: Device, precision and threads, from :func:`rankhouse.nn.machine.choose`.
        budget: Tokens computed at once by each thread; 0: what suits model and device.
        calibration: The fitted scale of its scores, in notation; None: the model's own scale.

    Attributes:
        report: What was seen so far, and what of it was shortened.
    """

    def __init__(
        self, model: Model[Any], compute: Compute, budget: int = 0, calibration: str | None = None
    ) -> None:
        self.model, self.compute, self.calibration = model, compute, calibration
        usual = model.batch_tokens if compute.device.type == "cpu" else 0
        self.engine = Engine(compute, budget or usual)
        self.report = self.engine.report

    def __repr__(self) -> str:
        compute = f"{self.compute.precision} on {self.compute.device}"
        return f"<{self.model.family} ranker, {compute}, fingerprint {self.fingerprint[:8]}>"

    @property
    def family(self) -> str:
        """Name in the table of families."""
        return self.model.family

    @property
    def max_length(self) -> int:
        """Most tokens a pair may have before its passage is shortened."""
        return int(self.model.policy["max_length"])

    @property
    def scale(self) -> str:
        """What kind of number a score is; pools and rules convert by it.

        As the model declares it, unless it was calibrated: the scores then stay what they are, and stand for
        the probabilities that were fitted.
        """
        return self.calibration or self.model.scale

    @cached_property
    def fingerprint(self) -> str:
        """Name of everything that changes a score: weights, vocabulary, policy and precision."""
        return f"{bundle.fingerprint(self.model)}-{self.compute.precision}"

    @cached_property
    def _scorer(self) -> Callable[[Any], Tensor]:
        return self.model.scorer(self.compute)

    @checked
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
        return self.score_with(pairs, self.model.encode)

    def score_with(
        self, pairs: Sequence[AnyPair], encode: Callable[[Sequence[AnyPair]], Batch]
    ) -> FloatArray:
        """Score n pairs that are turned into ids otherwise than by ``model.encode``: (n,) float32.

        Raises:
            BadModel: A score is not a number; names the pair.
        """
        scores = np.empty(len(pairs), np.float32)
        self.engine.run(pairs, encode, self._warm_scorer(), scores)
        fp32 = 'try precision="fp32"; if it stays, ' if self.compute.precision == "bf16" else ""
        return numbers_only(scores, pairs, f"{fp32}use another copy of the checkpoint")

    def score_encoded(self, batch: Batch) -> FloatArray:
        """Score n pairs that ``model.encode`` turned into ids: (n,) float32, NaN where it is not a number."""
        scores = np.empty(len(batch), np.float32)
        self.engine.run_encoded(batch, self._warm_scorer(), scores)
        return scores

    def _warm_scorer(self) -> Callable[[Any], Tensor]:
        with self.compute.active():
            return self._scorer

    def save(self, folder: Path | str, use: Mapping[str, str] | None = None) -> Path:
        """Write the model as a bundle, whole or not at all; a bundle of that name is replaced.

        Args:
            folder: Where to; ``rh.open_ranker`` opens it.
            use: How documents are meant to be passed to it: {"split": "sentences(10, 5)", "pool": "max"}.

        Raises:
            WrongUse: Something else stands there already.
            OutputFailed: It could not be written; what stood there still does.
        """
        return bundle.save(self.model, folder, use, self.calibration)


def _as_passage(text: str | Document | Passage, place: int) -> Passage:
    match text:
        case Passage():
            return text
        case Document():
            return Passage(text.id, 0, text.full_text)
        case _:
            return Passage(str(place), 0, text)
