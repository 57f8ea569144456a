"""A model at work: the ranker that stands on what a family promises, and the engine that scores for it.

Items are encoded window after window, computed batch by batch, each by one thread. While one window is
computed, the next is encoded. Batches hold rows of like length up to a budget of tokens. On a processor every
thread computes batches of its own: threads that share one product would wait for each other at each of its
ends, on a busy machine most of the time. Memory depends on window and budget only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankhouse.core.arguments import checked
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import (
    Document,
    FloatArray,
    Hit,
    Pair,
    Passage,
    Query,
    Ranking,
    SearchResult,
    StoredPair,
)
from rankhouse.core.progress import share
from rankhouse.core.scores import numbers_only
from rankhouse.io.files import wrong_kind
from rankhouse.io.inputs import as_documents
from rankhouse.models import bundle
from rankhouse.models.contract import Batch, Model
from rankhouse.nn.layers.ragged import within_budget
from rankhouse.nn.machine import Compute, workers

T = TypeVar("T")

_CPU_BUDGET, _CUDA_BUDGET = 2_048, 65_536
_LEAST_BUDGET = 256
_WINDOW = 512


B = TypeVar("B", bound=Batch)


@dataclass
class EngineReport:
    """Counts of an engine's work."""

    seen: int = 0  # items computed
    truncated: int = 0  # how many of them were shortened to fit the model
    tokens_lost: int = 0  # how many tokens that cost
    query_tokens_lost: int = 0  # how many of these were of queries

    def add(self, lost: Tensor, query_lost: Tensor | None) -> None:
        """Count a window, lost (n,), and those of the queries among them."""
        self.seen += len(lost)
        self.truncated += int((lost > 0).sum())
        self.tokens_lost += int(lost.sum())
        self.query_tokens_lost += 0 if query_lost is None else int(query_lost.sum())


class Engine:
    """Runs one function over many items.

    Args:
        budget: Tokens of one batch; 0: what suits the device. Halved when memory does not suffice.
        window: Items encoded at once; rows of like length are looked for within one.

    Attributes:
        report: What was seen so far.
    """

    def __init__(self, compute: Compute, budget: int = 0, window: int = _WINDOW) -> None:
        on_cuda = compute.device.type == "cuda"
        self.compute, self.window = compute, window if not on_cuda else 8 * window
        self.budget = budget or (_CUDA_BUDGET if on_cuda else _CPU_BUDGET)
        self.report = EngineReport()

    def run(
        self,
        items: Sequence[T],
        encode: Callable[[Sequence[T]], B],
        each: Callable[[B], Tensor],
        out: FloatArray,
    ) -> None:
        """Fill ``out`` (n, ...) with what ``each`` gives for the encoded items, in their order.

        Args:
            encode: Turns a window of items into a batch; called in a thread of its own.
        """
        waiting, done = deque[tuple[int, Future[None]]](), 0

        def settle(most: int) -> None:
            """Wait until at most so many batches are not computed, and tell how far the work is."""
            nonlocal done
            while waiting and (len(waiting) > most or waiting[0][1].done()):
                waiting[0][1].result()
                done += waiting.popleft()[0]
                share(done / len(items))

        with self._workers() as submit:
            try:
                for start, batch in self._encoded(items, encode):
                    self.report.add(batch.lost, batch.query_lost)
                    batches = list(within_budget(batch.lengths, self._share(batch.lengths)))
                    part = out[start : start + len(batch)]
                    for rows in batches:
                        waiting.append((len(rows), submit(self._fill, part, batch, rows, each)))
                        settle(len(waiting))
                    settle(len(batches))  # at most this window is still to be computed
                settle(0)
            finally:
                for _, future in waiting:
                    future.cancel()

    def run_encoded(self, batch: B, each: Callable[[B], Tensor], out: FloatArray) -> None:
        """Fill ``out`` (n, ...) with what ``each`` gives for n items that are encoded already."""
        self.report.add(batch.lost, batch.query_lost)
        with self._workers() as submit:
            rows = within_budget(batch.lengths, self._share(batch.lengths))
            waiting = [submit(self._fill, out, batch, some, each) for some in rows]
            for future in waiting:
                future.result()

    def _encoded(self, items: Sequence[T], encode: Callable[[Sequence[T]], B]) -> Iterator[tuple[int, B]]:
        """Encode window after window, one ahead of the computing, in a thread of its own."""
        starts = range(0, len(items), self.window)
        with ThreadPoolExecutor(1, thread_name_prefix="encode") as ahead:
            windows = [items[s : s + self.window] for s in starts[:1]]
            waiting = [ahead.submit(encode, window) for window in windows]
            for start in starts:
                batch = waiting.pop().result()
                following = start + self.window
                if following < len(items):
                    waiting.append(ahead.submit(encode, items[following : following + self.window]))
                yield start, batch

    def _share(self, lengths: Tensor) -> int:
        """Return a budget that leaves every worker several batches of a small window."""
        parts = 3 * self._threads if self._threads > 1 else 1
        return max(min(self.budget, int(lengths.sum()) // parts), min(self.budget, _LEAST_BUDGET))

    def _fill(self, out: FloatArray, batch: B, rows: Tensor, each: Callable[[B], Tensor]) -> None:
        with torch.inference_mode():
            out[rows.numpy()] = self._values(batch, rows, each)

    def _values(self, batch: B, rows: Tensor, each: Callable[[B], Tensor]) -> NDArray[Any]:
        """Compute these rows; where memory does not suffice in two halves, and all that follow in less."""
        try:
            return each(batch.take(rows)).float().cpu().numpy()
        except torch.OutOfMemoryError:
            if len(rows) == 1:
                raise
            self.budget = max(self.budget // 2, 1)
            half = len(rows) // 2
            return np.concatenate([self._values(batch, part, each) for part in (rows[:half], rows[half:])])

    @property
    def _threads(self) -> int:
        if self.compute.device.type != "cpu":
            return 1
        return self.compute.threads or torch.get_num_threads()

    @contextmanager
    def _workers(self) -> Iterator[Callable[..., Future[None]]]:
        """Return what takes work: threads that compute alone, or this very thread if one is enough."""
        with self.compute.active() if self._threads == 1 else nullcontext(), workers(self._threads) as submit:
            yield submit


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
        """Scale of the scores; pools and rules convert by it.

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
        self,
        query: str,
        texts: Sequence[str | Document | Passage] | Mapping[str, str],
        k: int | None = None,
    ) -> SearchResult:
        """Order texts by how well they answer a query.

        Args:
            query: The question.
            texts: Texts, documents or passages, each read whole; a bare text's id is its place, from "0".
                Or texts by their ids, or records or a table with "id" and "text".
            k: How many of the best are kept; None keeps all.

        Raises:
            BadModel: A score is not a number.
            WrongUse: One text in place of several, or what is no text.
        """
        if isinstance(texts, str):
            raise WrongUse(f"rank() orders several texts; give a list: [{texts[:60]!r}]")
        if not isinstance(texts, Iterable):
            raise wrong_kind("texts", texts, "a list of texts, or texts by their ids")
        passages = _as_passages(texts)
        scores = self.score([Pair(Query("query", query), passage) for passage in passages])
        order = np.argsort(-scores, kind="stable")[:k]
        ranking = Ranking(tuple(passages[i].doc_id for i in order), scores[order])
        return SearchResult(ranking, [("", passages[i].text, ()) for i in order])

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs: (n,) float32, higher is better, in the order given.

        Args:
            pairs: Each a query and a passage; two texts will do.

        Raises:
            BadModel: A score is not a number; names the pair.
            WrongUse: What is no pair.
        """
        return self.score_with(as_pairs(pairs), self.model.encode)

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


_PAIRS = 'a list of pairs: [("a question", "a text"), ...]'


def as_pairs(given: Any) -> Sequence[Pair]:  # noqa: ANN401 - what Python hands in
    """Return pairs of what a person has: pairs, or two texts each; WrongUse for anything else."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise wrong_kind("pairs", given, _PAIRS)
    if all(type(pair) is Pair for pair in given):
        return given
    return [_as_pair(pair, place) for place, pair in enumerate(given)]


def _as_pair(given: Any, place: int) -> Pair:  # noqa: ANN401 - as above
    if isinstance(given, Pair):
        return given
    if not isinstance(given, tuple | list) or len(given) != 2 or not isinstance(given[0], str | Query):
        raise wrong_kind(f"pair {place + 1}", given, _PAIRS)
    query = given[0] if isinstance(given[0], Query) else Query("query", given[0])
    return Pair(query, _as_passage(given[1], str(place)))


def _as_passages(texts: Any) -> list[Passage]:  # noqa: ANN401 - as above
    """Return the passages of texts, of texts by their ids, or of the records or the table of documents."""
    is_table = hasattr(texts, "columns")  # of pandas, of which a single column has items
    if hasattr(texts, "items") and not is_table:
        return [_as_passage(text, str(name)) for name, text in texts.items()]
    several = texts if is_table else list(texts)
    if is_table or any(isinstance(text, Mapping) for text in several):
        several = as_documents(several)
    return [_as_passage(text, str(place)) for place, text in enumerate(several)]


def _as_passage(text: str | Document | Passage, name: str) -> Passage:
    match text:
        case Passage():
            return text
        case Document():
            return Passage(text.id, 0, text.full_text)
        case str():
            return Passage(name, 0, text)
        case Hit():
            raise WrongUse(
                "the text of a hit may be an extract; give whole documents:  "
                "{hit.doc_id: index[hit.doc_id].full_text for hit in hits}"
            )
    raise wrong_kind(f"text {name}", text, "a text, Document or Passage")
