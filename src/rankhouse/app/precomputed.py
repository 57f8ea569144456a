"""Where kept passages meet rankers: what makes them, and rankers that read them instead of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, FloatArray, Pair, Passage, Ranker
from rankhouse.index.index import Index
from rankhouse.index.precomputed.read import Kind, PrecomputedPassages, find, open_all
from rankhouse.index.precomputed.write import PassageRows
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.pair_encoding import Ids, PairReader
    from rankhouse.models.ranker import NeuralRanker

Numbers = NDArray[np.int64]

UNREAD = "\N{HORIZONTAL ELLIPSIS}"
"""The text of a passage that nobody needs to read, because what a ranker makes of it is kept."""

_BLOCK_ROWS = 32_768  # rows gathered at once: some 20 MB of float16 vectors
_REMEMBERED = 65_536


class VectorPrecomputer:
    """Puts passages into context, word by word, with a TK.

    Args:
        ranker: A TK.
        dtype: float32, float16 or int8.

    Raises:
        WrongUse: The ranker has no vectors to keep.
    """

    kind: Kind = "vectors"
    chunk = 256

    def __init__(self, ranker: NeuralRanker, dtype: str) -> None:
        self._ranker, self.dtype = ranker, dtype
        self.fingerprint = vectors_of(ranker)

    def make(self, texts: Sequence[str]) -> PassageRows:
        """Make the vectors of n passages."""
        model: Any = self._ranker.model
        with self._ranker.compute.active():
            stored = model.encode_passages(texts, self.dtype)
        return PassageRows(stored.vectors, stored.scales, np.diff(stored.offsets), stored.lost)


class TokenPrecomputer:
    """Cuts passages into the token ids that a cross-encoder or monoT5 reads; none is left out.

    Args:
        ranker: The model.

    Raises:
        WrongUse: It reads no tokens that could be kept.
    """

    kind: Kind = "tokens"
    chunk = 1_024

    def __init__(self, ranker: NeuralRanker) -> None:
        self._texts = reader_of(ranker).texts
        self.fingerprint = self._texts.fingerprint
        self.dtype = "uint16" if self._texts.largest < 2**16 else "uint32"

    def make(self, texts: Sequence[str]) -> PassageRows:
        """Make the ids of n passages, one a row."""
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

    model: Any = ranker.model
    if not isinstance(model, TokenModel):
        raise WrongUse(f"{model.family}: reads no kept token ids; crossencoder and monot5 do")
    if not model.pair_reader.joins:
        raise WrongUse(
            f"{model.family}: this tokenizer cuts a passage otherwise next to a query than alone, so its "
            "token ids cannot be kept"
        )
    return model.pair_reader


def vectors_of(ranker: NeuralRanker) -> str:
    """Return the name under which a ranker's word vectors are kept: weights, vocabulary and policy.

    Raises:
        WrongUse: Its scores are no sums over words kept apart, so there is nothing to keep.
    """
    from rankhouse.models.contract import PrecomputingModel

    model: Any = ranker.model
    if not isinstance(model, PrecomputingModel):
        raise WrongUse(f"{model.family}: keeps no word vectors; TK does")
    if not model.precomputes:
        raise WrongUse("tk(windows=...): keeps no word vectors, as it counts in windows; TK without does")
    return weights_of(ranker)


def weights_of(ranker: NeuralRanker) -> str:
    """Return a ranker's fingerprint without its precision: word vectors are always computed in fp32."""
    return ranker.fingerprint.removesuffix(f"-{ranker.compute.precision}")


class KeptDocuments:
    """The documents of an index by id; those whose passages are kept come without their text.

    Args:
        index: The index.
        kept: What it keeps.
    """

    def __init__(self, index: Index, kept: PrecomputedPassages) -> None:
        self._index, self.kept = index, kept
        self.covered = kept.covered(index.manifest)
        starts = index.starts[:-1].tolist()
        self._starts = {id(part): start for part, start in zip(index.segments, starts, strict=True)}
        self._numbers: dict[str, int] = {}

    def number(self, doc_id: str) -> int:
        """Return a document's number in the index.

        Raises:
            KeyError: The index has no such document.
        """
        known = self._numbers.get(doc_id)
        if known is None:
            part, row = self._index.documents.find(doc_id)
            known = self._starts[id(part)] + row
            if len(self._numbers) >= _REMEMBERED:
                self._numbers.clear()
            self._numbers[doc_id] = known
        return known

    def __getitem__(self, doc_id: str) -> Document:
        if self.number(doc_id) < self.covered:
            return Document(doc_id, "")
        return self._index.documents[doc_id]

    def places(self, passages: Iterable[Passage]) -> Numbers:
        """Return the numbers of kept passages, (n,); -1 for those of documents added since."""
        return np.array([self._place(passage) for passage in passages], np.int64)

    def _place(self, passage: Passage) -> int:
        number = self.number(passage.doc_id)
        if number >= self.covered:
            return -1
        own = self.kept.passages_of(number)
        at = own.start + passage.index  # where no passage before it is blank
        if at in own and self.kept.place(at) == passage.index:
            return at
        return next((p for p in own if self.kept.place(p) == passage.index), -1)


class KeptSplit:
    """Cuts documents that are kept as they were cut then, and all others by the same split.

    Args:
        documents: Where the documents come from.
        split: The split that the kept ones were cut by.
    """

    def __init__(self, documents: KeptDocuments, split: Callable[[Document], Sequence[Passage]]) -> None:
        self._documents, self._split = documents, split

    def __call__(self, document: Document) -> list[Passage]:
        """Return a document's passages."""
        number = self._documents.number(document.id)
        if number >= self._documents.covered:
            return list(self._split(document))
        kept = self._documents.kept
        return [Passage(document.id, kept.place(p), UNREAD) for p in kept.passages_of(number)]

    def dropped(self, document: Document) -> int:
        """Count the words in no passage; those of kept documents were counted when they were kept."""
        if self._documents.number(document.id) < self._documents.covered:
            return 0
        counted: int = getattr(self._split, "dropped", lambda _: 0)(document)
        return counted


class KeptRanker:
    """A TK that reads kept vectors; passages of documents added since are read as texts.

    Args:
        ranker: The TK.
        documents: Where the vectors are.

    Attributes:
        read: Passages scored by kept vectors so far.
    """

    def __init__(self, ranker: NeuralRanker, documents: KeptDocuments) -> None:
        self._ranker, self._documents = ranker, documents
        self.scale = ranker.scale
        self.fingerprint = f"{ranker.fingerprint}-kept-{documents.kept.state.dtype}"
        self.read = 0

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs: (n,) float32, higher is better, in the order given."""
        scores = np.empty(len(pairs), np.float32)
        numbers = self._documents.places(pair.passage for pair in pairs)
        if (unknown := np.flatnonzero(numbers < 0)).size:
            scores[unknown] = self._ranker.score([pairs[i] for i in unknown.tolist()])
        known = np.flatnonzero(numbers >= 0).tolist()
        for text, rows in groupby(known, lambda i: pairs[i].query.text):
            for block in self._blocks(np.fromiter(rows, np.int64), numbers):
                scores[block] = self._score_kept(text, numbers[block])
        return scores

    def _blocks(self, rows: Numbers, numbers: Numbers) -> Iterator[Numbers]:
        """Cut rows of one query so that their vectors fit into little memory."""
        lengths = self._documents.kept.lengths(numbers[rows])
        cuts = np.flatnonzero(np.diff(np.cumsum(lengths) // _BLOCK_ROWS)) + 1
        yield from np.split(rows, cuts)

    def _score_kept(self, query: str, passages: Numbers) -> FloatArray:
        from rankhouse.models.contract import StoredPassages

        kept, report = self._documents.kept, self._ranker.report
        model: Any = self._ranker.model
        with self._ranker.compute.active():
            scores: FloatArray = model.score_stored(query, StoredPassages(*kept.gather(passages)))
        lost = kept.lost[passages]
        report.seen += len(passages)
        report.truncated += int((lost > 0).sum())
        report.tokens_lost += int(lost.sum())
        self.read += len(passages)
        return scores


class KeptTokens:
    """Gives the kept token ids of passages, None for those of documents added since; safe in a thread.

    Args:
        documents: Where the ids are.
        most: Ids of a passage that can be of use.

    Attributes:
        read: Passages found so far.
    """

    def __init__(self, documents: KeptDocuments, most: int) -> None:
        self._documents, self._most = documents, most
        self.read = 0

    def __call__(self, passages: Sequence[Passage]) -> list[Ids | None]:
        """Return the ids of n passages, in the order given."""
        from rankhouse.models.pair_encoding import Ids

        numbers = self._documents.places(passages)
        found: list[Ids | None] = [None] * len(passages)
        known = np.flatnonzero(numbers >= 0)
        totals = self._documents.kept.lengths(numbers[known]).tolist()
        rows = self._documents.kept.gather(numbers[known], self._most)
        flat, ends = rows.values.reshape(-1).astype(np.int32), rows.offsets.tolist()
        for i, (row, total) in enumerate(zip(known.tolist(), totals, strict=True)):
            found[row] = Ids(flat[ends[i] : ends[i + 1]], total)
        self.read += len(known)
        return found


class Stored(NamedTuple):
    """A ranker that reads what is kept, and how documents are to be passed to it.

    Attributes:
        ranker: The ranker.
        documents: By id; those that are kept come without their texts.
        split: What cuts them.
        kept: What is kept.
        reads: Counts what was read of it.
    """

    ranker: Ranker
    documents: KeptDocuments
    split: KeptSplit
    kept: PrecomputedPassages
    reads: KeptRanker | KeptTokens


def stored_for(index: Index, ranker: NeuralRanker, split: str = "", *, insist: bool = False) -> Stored | None:
    """Find what an index keeps for a ranker.

    Args:
        index: The index.
        ranker: A TK, or a model that reads token ids.
        split: How documents are to be cut, in notation; "" takes what there is.
        insist: Refuse to go on without.

    Returns:
        None where nothing is kept for it.

    Raises:
        WrongUse: Nothing is kept, and it is insisted on.
        BadIndex: What is kept is of other documents, or damaged.
    """
    from rankhouse.models.contract import TokenModel

    reads_tokens = isinstance(ranker.model, TokenModel)
    try:
        maker = reader_of(ranker).texts.fingerprint if reads_tokens else vectors_of(ranker)
    except WrongUse:
        if insist:
            raise
        return None
    there = open_all(index.path)
    kept = find(there, "tokens" if reads_tokens else "vectors", maker, split)
    if kept is None:
        if insist:
            raise WrongUse(_nothing_kept(index, there, split))
        return None
    documents = KeptDocuments(index, kept)
    cut = KeptSplit(documents, notation.make(kept.state.split, SPLITTERS, "splitter"))
    if not reads_tokens:
        by_vectors = KeptRanker(ranker, documents)
        return Stored(by_vectors, documents, cut, kept, by_vectors)
    reader = reader_of(ranker)
    reader.kept = KeptTokens(documents, reader.max_length)
    return Stored(ranker, documents, cut, kept, reader.kept)


def _nothing_kept(index: Index, there: Sequence[PrecomputedPassages], split: str) -> str:
    held = ", ".join(f"{k.state.kind} ({k.state.dtype}, split {k.state.split})" for k in there)
    wanted = f" with the split {split}" if split else ""
    return (
        f"{index.path}: keeps nothing that this ranker can use{wanted}; it keeps {held or 'nothing at all'} "
        "(of other weights or tokenizers). Make it with  rankhouse encode --ranker ..."
    )
