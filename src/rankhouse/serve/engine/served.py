"""A ranker that is served: opened once, touched by its worker only, asked by every request.

Scores are those of :meth:`rankhouse.models.ranker.NeuralRanker.score`, to the bit.
Shapes: n pairs or texts, d width of vectors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

import numpy as np
import torch

from rankhouse.core import notation
from rankhouse.core.nouns import FloatArray, Pair, Passage, Query
from rankhouse.core.scores import base_of
from rankhouse.index.impacts.impacts import Weigher
from rankhouse.models.biencoder import BiEncoder, compare
from rankhouse.models.contract import TokenModel
from rankhouse.models.dual_encoder import DualEncoder
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.text_ids import TextIds
from rankhouse.ranking.pool import POOLS, Pool
from rankhouse.serve.engine.jobs import ModelWork, Numbers, WorkResult
from rankhouse.serve.engine.waiting import ENDLESS, Deadline, Recent, then, waited
from rankhouse.serve.engine.worker import ModelWorker
from rankhouse.serve.errors import NotThisModel
from rankhouse.systems.rankers import ComputeOptions, as_weigher, open_ranker, use_of
from rankhouse.text.split import SPLITTERS, Splitter

if TYPE_CHECKING:
    from scipy.sparse import csr_array

T = TypeVar("T")
Side = Literal["query", "passage"]

_CHARACTERS = 4  # of a token, about
_REMEMBERED = 16 * 2**20  # bytes of texts and their ids
_ASKED: Final = 256  # queries whose vectors are kept: a search asks for passages after documents
_LONGEST = 32  # of a token with the white space before it, nearly always
_LOWEST: Final = {"probability": 0.0}


class PairScores(NamedTuple):
    """A ranker's scores of n pairs (n,) float32, NaN where it cannot read one, and tokens."""

    scores: FloatArray
    tokens: Numbers
    lost: Numbers


class ServedRanker:
    """A ranker that is served; nobody else may use it from now on."""

    def __init__(
        self, name: str, spec: str, ranker: NeuralRanker, worker: ModelWorker, *, split: Splitter, pool: Pool
    ) -> None:
        self.name, self.spec, self.ranker, self.worker = name, spec, ranker, worker
        self.split, self.pool = split, pool
        self.scale = pool.check(ranker)
        self._pairs = ModelWork(ranker.model.encode, ranker.score_encoded, "pairs")
        self._texts: dict[Side, ModelWork] = {}
        if self.is_encoder:
            texts = self._work_of("passage", "texts")
            asked = (
                texts if cast(BiEncoder, ranker.model).asked is None else self._work_of("query", "queries")
            )
            self._texts = {"query": asked, "passage": texts}
        self.works: Final = {work.name: work for work in (self._pairs, *self._texts.values())}
        self.asked: Recent[str, FloatArray] = Recent(_ASKED)
        if self.text_ids is not None:
            self.text_ids.room = _REMEMBERED

    def __repr__(self) -> str:
        return f"<served {self.name}: {self.ranker!r}, {self.split}, {self.pool}>"

    @property
    def is_encoder(self) -> bool:
        """Whether it gives vectors of texts."""
        return isinstance(self.ranker, DenseRanker)

    @property
    def fingerprint(self) -> str:
        """Text that changes whenever its scores could."""
        return self.ranker.fingerprint

    def read(self, pairs: Sequence[Pair], deadline: Deadline = ENDLESS) -> Future[PairScores]:
        """Score n pairs, together with those of other requests; call it from a thread, since it tokenises."""
        if self.is_encoder and self._texts["query"] is self._texts["passage"]:
            return self._read_by_vectors(pairs, deadline)
        sizes = [self._size(pair.query.text, pair.passage.text) for pair in pairs]
        outcome = self.worker.submit(self._pairs, pairs, np.array(sizes, np.int64), deadline)
        return then(outcome, lambda result: PairScores(result.values, result.tokens, result.lost))

    def submit(self, pairs: Sequence[Pair], deadline: Deadline = ENDLESS) -> Future[FloatArray]:
        """Score n pairs: (n,) float32, NaN where the ranker cannot read one."""
        return then(self.read(pairs, deadline), lambda reading: reading.scores)

    def encode(self, texts: Sequence[str], side: Side, deadline: Deadline = ENDLESS) -> Future[WorkResult]:
        """Encode n texts of a side: values (n, d) float32, NaN where the encoder cannot read one."""
        self.require_encoder()
        sizes = np.array([self._size(text) for text in texts], np.int64)
        return self.worker.submit(self._texts[side], [(side, text) for text in texts], sizes, deadline)

    def call(self, run: Callable[[], T], deadline: Deadline = ENDLESS) -> Future[T]:
        """Have a function called that touches the model: explaining, stored passages."""
        return self.worker.call(run, deadline)

    def blocking(self, deadline: Deadline = ENDLESS) -> BlockingRanker:
        """Return a ranker (and encoder) for the verbs of ``ranking`` and ``index``, for use in a thread.

        After the deadline it raises :class:`DeadlinePassed`.
        """
        return BlockingRanker(self, deadline)

    def require_encoder(self) -> DenseRanker:
        """Return the ranker as an encoder."""
        if not isinstance(self.ranker, DenseRanker):
            raise NotThisModel(
                f'the model "{self.name}" scores pairs and gives no vectors; ask a bi-encoder', "model"
            )
        return self.ranker

    @property
    def text_ids(self) -> TextIds | None:
        """Tokenizer of its texts; None for models of words."""
        match self.ranker.model:
            case TokenModel() as model:
                return model.pair_reader.texts
            case DualEncoder() as encoder:
                return encoder.text_reader.texts
            case _:
                return None

    def end_of_tokens(self, text: str, most: int) -> int:
        """Return where a text's first so many tokens (or words) end; its length if it has no more."""
        beginning = text[: most * _LONGEST]
        spans = self._token_spans(beginning)
        if len(spans) <= most and len(beginning) < len(text):
            spans = self._token_spans(text)
        return spans[most - 1][1] if len(spans) > most else len(text)

    def warm(self) -> None:
        """Compute something, so that the first request finds everything in place."""
        passages = [Passage(str(i), 0, "a text to begin with " * (i + 1)) for i in range(32)]
        self.call(lambda: self.ranker.score([Pair(Query("", "warm up"), p) for p in passages])).result()
        self.read([Pair(Query("", "warm up"), p) for p in passages]).result()

    def close(self) -> None:
        """Refuse new work and end the thread."""
        self.worker.close()

    # --- inside --------------------------------------------------------------------------------------

    def _token_spans(self, text: str) -> list[tuple[int, int]]:
        if self.text_ids is not None:
            return self.text_ids.spans(text)
        return [(match.start(), match.end()) for match in re.finditer(r"\S+", text)]

    def _size(self, *texts: str) -> int:
        return min(3 + sum(map(len, texts)) // _CHARACTERS, self.ranker.max_length)

    def _work_of(self, side: Side, name: str) -> ModelWork:
        """Return the work of making vectors by the encoder of a side; it reads either side's prompts."""
        encoder, model = self.require_encoder(), self.require_encoder().model.side(side)
        prompts = {"query": model.policy["query_prompt"], "passage": model.policy["passage_prompt"]}

        def encode(texts: Sequence[tuple[Side, str]]) -> Any:  # noqa: ANN401 - Packed, a Batch
            return model.text_reader(prompts[side] + text for side, text in texts)

        return ModelWork(encode, lambda batch: encoder.vectors_of(batch, side), name)

    def _read_by_vectors(self, pairs: Sequence[Pair], deadline: Deadline) -> Future[PairScores]:
        """Encode each distinct text of either side once, and compare."""
        places: dict[tuple[Side, str], int] = {}
        left = [places.setdefault(("query", pair.query.text), len(places)) for pair in pairs]
        right = [places.setdefault(("passage", pair.passage.text), len(places)) for pair in pairs]
        sizes = np.array([self._size(text) for _, text in places], np.int64)
        outcome = self.worker.submit(self._texts["passage"], list(places), sizes, deadline)
        similarity = self.require_encoder().similarity

        def reading(result: WorkResult) -> PairScores:
            if not pairs:
                return PairScores(result.values, result.tokens, result.lost)
            vectors = torch.from_numpy(result.values)
            scores: FloatArray = compare(vectors[left], vectors[right], similarity).numpy()
            return PairScores(scores, result.tokens[right], result.lost[left] + result.lost[right])

        return then(outcome, reading)


class BlockingRanker:
    """A ranker whose scores are waited for: what ``ranking.rerank`` and the like are handed in a thread."""

    def __init__(self, served: ServedRanker, deadline: Deadline = ENDLESS) -> None:
        self._served, self._deadline = served, deadline
        self.scale = served.scale

    @property
    def fingerprint(self) -> str:
        """Text that changes whenever a score could."""
        return self._served.fingerprint

    @property
    def similarity(self) -> str:
        """Similarity of its vectors."""
        return self._served.require_encoder().similarity

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs: (n,) float32; what the ranker cannot read gets the lowest score there is."""
        scores = waited(self._served.submit(pairs, self._deadline), self._deadline)
        return np.nan_to_num(scores, nan=_LOWEST.get(base_of(self.scale), float(np.finfo(np.float32).min)))

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Encode n queries: (n, d) float32; zeros for what the encoder cannot read."""
        if len(texts) != 1:
            return self._encode(texts, "query")
        if (known := self._served.asked.get(texts[0])) is None:
            known = self._encode(texts, "query")
            self._served.asked.put(texts[0], known)
        return known.copy()

    def encode_passages(self, texts: Sequence[str]) -> FloatArray:
        """Encode n passages: (n, d) float32; zeros for what the encoder cannot read."""
        return self._encode(texts, "passage")

    @property
    def vocabulary(self) -> int:
        """Number of words that a sparse encoder weighs."""
        return self._weigher.vocabulary

    def word(self, number: int) -> str:
        """Return a word of a sparse encoder's vocabulary."""
        return self._weigher.word(number)

    def query_weights(self, texts: Sequence[str]) -> csr_array:
        """Weigh the vocabulary of a sparse encoder for n queries: (n, v) float32."""
        weigher = self._weigher
        outcome = self._served.call(lambda: weigher.query_weights(texts), self._deadline)
        return waited(outcome, self._deadline)

    @property
    def _weigher(self) -> Weigher:
        return as_weigher(self._served.ranker, self._served.name)

    def _encode(self, texts: Sequence[str], side: Side) -> FloatArray:
        outcome = waited(self._served.encode(texts, side, self._deadline), self._deadline)
        return np.nan_to_num(outcome.values)


LONG_SPLIT: Final = "sentences(10, 5)"
"""Default split of long documents for a model with a limit of tokens."""


def open_served(
    name: str,
    spec: str,
    compute: ComputeOptions,
    *,
    split: str = "",
    pool: str = "",
    capacity: int = 0,
    spread: Callable[[NeuralRanker, str], ModelWorker] | None = None,
) -> ServedRanker:
    """Open a ranker to be served; RankhouseError where it cannot be, or the split or pool is not known.

    Args:
        split: How documents are cut, in notation; "" as its bundle says, else windows of sentences for models
            with a limit of tokens, whole for models of words.
        pool: How passages' scores become a document's; "" as its bundle says, else max.
        spread: Makes, of the ranker and its name, the worker that spreads work over replicas.
    """
    threads = compute.threads or torch.get_num_threads()
    ranker = open_ranker(spec, ComputeOptions(compute.precision, compute.device, threads))
    use = use_of(spec)
    by_tokens = isinstance(ranker.model, TokenModel | DualEncoder)
    cut = split or use.get("split") or (LONG_SPLIT if by_tokens else "whole")
    return ServedRanker(
        name,
        spec,
        ranker,
        spread(ranker, name) if spread else ModelWorker(name, capacity),
        split=notation.make(cut, SPLITTERS, "splitter"),
        pool=notation.make(pool or use.get("pool") or "max", POOLS, "pool"),
    )
