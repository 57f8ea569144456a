"""Precomputed passages: what makes them for a ranker, and what scores by them instead of by texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Passage, Ranker, StoredPair, StoredPassage, fingerprint_of
from rankhouse.core.scores import scale_of
from rankhouse.index.index import Index
from rankhouse.index.precomputed.read import Kind, PrecomputedPassages, find, open_all, precomputed_folder
from rankhouse.index.precomputed.write import PassageRows
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex

if TYPE_CHECKING:
    from rankhouse.models.contract import PrecomputingModel
    from rankhouse.models.pair_encoding import PairReader
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.nn.layers.ragged import Packed

Numbers = NDArray[np.int64]
Storage = Literal["float32", "float16", "int8"]

_BLOCK_ROWS = 32_768  # rows gathered at once: some 20 MB of float16 vectors
_REMEMBERED = 65_536


class VectorPrecomputer:
    """Puts passages into context, word by word, with a TK.

    Args:
        dtype: float32, float16 or int8.

    Raises:
        WrongUse: The ranker has no vectors to store.
    """

    kind: Kind = "vectors"
    chunk = 256

    def __init__(self, ranker: NeuralRanker, dtype: Storage) -> None:
        self._ranker, self.dtype = ranker, dtype
        self._model = word_matcher_of(ranker)
        self.fingerprint = weights_of(ranker)

    def precompute(self, texts: Sequence[str]) -> PassageRows:
        """Return the vectors of n passages."""
        with self._ranker.compute.active():
            stored = self._model.encode_passages(texts, self.dtype)
        return PassageRows(stored.vectors, stored.scales, np.diff(stored.offsets), stored.lost)


class TokenPrecomputer:
    """Cuts passages into the token ids that a cross-encoder or monoT5 reads; none is left out.

    Raises:
        WrongUse: It reads no tokens that could be stored.
    """

    kind: Kind = "tokens"
    chunk = 1_024

    def __init__(self, ranker: NeuralRanker) -> None:
        self._texts = reader_of(ranker).texts
        self.fingerprint = self._texts.fingerprint
        self.dtype = "uint16" if self._texts.largest < 2**16 else "uint32"

    def precompute(self, texts: Sequence[str]) -> PassageRows:
        """Return the ids of n passages, one a row."""
        ids = self._texts.whole(texts)
        lengths = np.array([len(own) for own in ids], np.int64)
        flat = np.fromiter(chain.from_iterable(ids), self.dtype, int(lengths.sum()))
        return PassageRows(flat[:, None], np.empty(0, np.float32), lengths, np.zeros(len(ids), np.int64))


def reader_of(ranker: NeuralRanker) -> PairReader:
    """Return what turns a ranker's pairs into ids.

    Raises:
        WrongUse: The ranker does not read query and passage in one sequence, or its tokenizer cuts a passage
            otherwise next to a query than alone.
    """
    from rankhouse.models.contract import TokenModel

    model = ranker.model
    if not isinstance(model, TokenModel):
        raise WrongUse(f"{model.family}: reads no kept token ids; crossencoder and monot5 do")
    if not model.pair_reader.joins:
        raise WrongUse(
            f"{model.family}: this tokenizer cuts a passage otherwise next to a query than alone, so its "
            "token ids cannot be kept"
        )
    return model.pair_reader


def word_matcher_of(ranker: NeuralRanker) -> PrecomputingModel:
    """Return the model of a ranker that scores by word vectors.

    Raises:
        WrongUse: Its scores are no sums over single words, so there is nothing to store.
    """
    from rankhouse.models.contract import PrecomputingModel

    model = ranker.model
    if not isinstance(model, PrecomputingModel):
        raise WrongUse(f"{model.family}: keeps no word vectors; TK does")
    if not model.precomputes:
        raise WrongUse("tk(windows=...): keeps no word vectors, as it counts in windows; TK without does")
    return model


def weights_of(ranker: NeuralRanker) -> str:
    """Return a ranker's fingerprint without its precision: word vectors are always computed in fp32."""
    return ranker.fingerprint.removesuffix(f"-{ranker.compute.precision}")


class PrecomputedScorer:
    """Scores passages of an index by what is stored of them; a ``StoredScorer`` for ``rerank``.

    Attributes:
        scored: Passages scored so far.

    Raises:
        BadIndex: The store is of other documents.
    """

    def __init__(
        self,
        index: Index,
        store: PrecomputedPassages,
        score: Callable[[Sequence[StoredPair]], FloatArray],
    ) -> None:
        self.store, self.scored = store, 0
        self._index, self._score = index, score
        self._covered = store.covered(index.manifest)
        starts = index.starts[:-1].tolist()
        self._starts = {id(part): start for part, start in zip(index.segments, starts, strict=True)}
        self._numbers: dict[str, int] = {}

    def passages(self, doc_id: str) -> list[StoredPassage] | None:
        """Return a document's passages; None for one that was added since.

        Raises:
            KeyError: The index has no such document.
        """
        number = self._number(doc_id)
        if number >= self._covered:
            return None
        place = self.store.place
        return [StoredPassage(doc_id, place(row), row) for row in self.store.passages_of(number)]

    def find(self, passage: Passage) -> StoredPassage | None:
        """Return what is stored of a passage; None where nothing is.

        Raises:
            KeyError: The index has no such document.
        """
        number = self._number(passage.doc_id)
        if number >= self._covered:
            return None
        rows, place = self.store.passages_of(number), self.store.place
        row = rows.start + passage.index  # where no passage before it is blank
        if row not in rows or place(row) != passage.index:
            row = next((row for row in rows if place(row) == passage.index), -1)
        return StoredPassage(passage.doc_id, passage.index, row) if row >= 0 else None

    def score(self, pairs: Sequence[StoredPair]) -> FloatArray:
        """Score n pairs: (n,) float32, higher is better, in the order given."""
        scores = self._score(pairs) if pairs else np.empty(0, np.float32)
        self.scored += len(pairs)
        return scores

    def _number(self, doc_id: str) -> int:
        known = self._numbers.get(doc_id)
        if known is None:
            part, row = self._index.documents.find(doc_id)
            known = self._starts[id(part)] + row
            if len(self._numbers) >= _REMEMBERED:
                self._numbers.clear()
            self._numbers[doc_id] = known
        return known


class PrecomputedRanker:
    """A ranker of texts that scores by what is stored of them where it can: for score caches.

    A cache knows passages by their texts; what it does not know yet is scored by the store.
    """

    def __init__(self, ranker: Ranker, scorer: PrecomputedScorer) -> None:
        self._ranker, self._scorer = ranker, scorer
        self.scale = scale_of(ranker)

    @property
    def fingerprint(self) -> str:
        """Name of everything that changes a score; token ids change none, rounded vectors do."""
        state, own = self._scorer.store.state, fingerprint_of(self._ranker)
        return own if state.kind == "tokens" else f"{own}-kept-{state.dtype}"

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs: (n,) float32, higher is better, in the order given."""
        stored = [self._scorer.find(pair.passage) for pair in pairs]
        texts = [i for i, passage in enumerate(stored) if passage is None]
        known = [StoredPair(pairs[i].query, p) for i, p in enumerate(stored) if p is not None]
        scores = np.empty(len(pairs), np.float32)
        is_text = np.zeros(len(pairs), bool)
        is_text[texts] = True
        if texts:
            scores[is_text] = self._ranker.score([pairs[i] for i in texts])
        scores[~is_text] = self._scorer.score(known)
        return scores


class _VectorScores:
    """Scores by stored word vectors, with a TK."""

    def __init__(self, ranker: NeuralRanker, store: PrecomputedPassages) -> None:
        self._ranker, self._model, self._store = ranker, word_matcher_of(ranker), store

    def __call__(self, pairs: Sequence[StoredPair]) -> FloatArray:
        scores = np.empty(len(pairs), np.float32)
        rows = np.array([pair.passage.row for pair in pairs], np.int64)
        for text, places in groupby(range(len(pairs)), lambda i: pairs[i].query.text):
            for block in self._blocks(np.fromiter(places, np.int64), rows):
                scores[block] = self._score(text, rows[block])
        return scores

    def _blocks(self, places: Numbers, rows: Numbers) -> Iterator[Numbers]:
        """Cut passages of one query so that their vectors fit into little memory."""
        lengths = self._store.lengths(rows[places])
        cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // _BLOCK_ROWS)) + 1
        yield from np.split(places, cuts)

    def _score(self, query: str, rows: Numbers) -> FloatArray:
        from rankhouse.models.contract import StoredPassages

        with self._ranker.compute.active():
            scores = self._model.score_stored(query, StoredPassages(*self._store.gather(rows)))
        lost, report = self._store.lost[rows], self._ranker.report
        report.seen += len(rows)
        report.truncated += int((lost > 0).sum())
        report.tokens_lost += int(lost.sum())
        return scores


class _TokenScores:
    """Scores by stored token ids, with a cross-encoder or monoT5."""

    def __init__(self, ranker: NeuralRanker, store: PrecomputedPassages) -> None:
        self._ranker, self._reader, self._store = ranker, reader_of(ranker), store

    def __call__(self, pairs: Sequence[StoredPair]) -> FloatArray:
        return self._ranker.score_with(pairs, self._encode)

    def _encode(self, pairs: Sequence[StoredPair]) -> Packed:
        """Put stored ids of passages beside those of their queries; safe in a thread."""
        from rankhouse.models.pair_encoding import Ids

        rows = np.array([pair.passage.row for pair in pairs], np.int64)
        totals = self._store.lengths(rows).tolist()
        values, _, offsets = self._store.gather(rows, self._reader.max_length)
        ids = np.split(values.reshape(-1).astype(np.int32), offsets[1:-1])
        passages = [Ids(own, total) for own, total in zip(ids, totals, strict=True)]
        return self._reader.join([pair.query.text for pair in pairs], passages)


def open_precomputed(
    index: AnyIndex, ranker: Ranker, split: str = "", *, required: bool = False
) -> PrecomputedScorer | None:
    """Find what an index stores for a ranker; neither of them is changed.

    Args:
        ranker: A TK, or a model that reads token ids; for any other ranker nothing can be stored.
        split: How documents are to be cut, in notation; "" takes what there is.

    Returns:
        None where nothing is stored for it.

    Raises:
        WrongUse: Nothing is stored, and it is required.
        BadIndex: What is stored is of other documents, or damaged.
    """
    if isinstance(index, ShardedIndex):
        if required:
            raise WrongUse(f"{index.path}: what parts store for rankers is not read; leave out --stored")
        return None
    if not required and not precomputed_folder(index.path).exists():
        return None
    try:
        neural = _neural(ranker)
        kind, maker = _kind_of(neural)
    except WrongUse:
        if required:
            raise
        return None
    stores = open_all(index.path)
    store = find(stores, kind, maker, split)
    if store is None:
        if required:
            raise WrongUse(_nothing_stored(index, stores, split))
        return None
    scores = _TokenScores(neural, store) if kind == "tokens" else _VectorScores(neural, store)
    return PrecomputedScorer(index, store, scores)


def _neural(ranker: Ranker) -> NeuralRanker:
    try:
        from rankhouse.models.ranker import NeuralRanker
    except ImportError as error:  # without torch nobody has one
        raise WrongUse(f"{type(ranker).__name__}: nothing is stored for such a ranker") from error
    if not isinstance(ranker, NeuralRanker):
        raise WrongUse(f"{type(ranker).__name__}: nothing is stored for such a ranker; TK, crossencoder and "
                       "monot5 have something")  # fmt: skip
    return ranker


def _kind_of(ranker: NeuralRanker) -> tuple[Kind, str]:
    """Return what is stored for a ranker, and the fingerprint of what makes it."""
    from rankhouse.models.contract import TokenModel

    if isinstance(ranker.model, TokenModel):
        return "tokens", reader_of(ranker).texts.fingerprint
    word_matcher_of(ranker)
    return "vectors", weights_of(ranker)


def _nothing_stored(index: Index, stores: Sequence[PrecomputedPassages], split: str) -> str:
    there = ", ".join(f"{s.state.kind} ({s.state.dtype}, split {s.state.split})" for s in stores)
    wanted = f" with the split {split}" if split else ""
    return (
        f"{index.path}: keeps nothing that this ranker can use{wanted}; it keeps {there or 'nothing at all'} "
        "(of other weights or tokenizers). Make it with  rankhouse encode --ranker ..."
    )
