"""Passages in context or token ids, which rankers would compute again for every query: stored, and scored by.

    INDEX/kept/NAME/
        manifest.json    maker, split, number format, counts, sums: the last complete state
        progress.json    the same for work under way; gone when it is done
        rows.bin         (t, d) float32, float16, int8, uint16 or uint32: all passages' rows, end to end
        scales.bin       (t,) float32: the factor of each int8 row; nothing for other formats
        ends.bin         (n + 1,) int64: where each passage's rows begin, and where the last ones end
        places.bin       (n,) uint32: each passage's place in its document, from 0
        lost.bin         (n,) uint32: tokens of each passage that its maker cut off
        firsts.bin       (documents + 1,) int64: where each document's passages begin

TK stores a vector a word, Conv-KNRM one an n-gram, KNRM words' numbers; models that read query and passage
in one sequence store the passage's token ids (d = 1). Documents stand in the order of the index; they are
found by their number there. The folder knows which index it was made for: see
:meth:`PrecomputedPassages.covered`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, Self

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex, MissingInput, WrongUse
from rankhouse.core.nouns import (
    FloatArray,
    Pair,
    Passage,
    PassageRows,
    Ranker,
    StoredPair,
    StoredPassage,
    fingerprint_of,
)
from rankhouse.core.progress import part
from rankhouse.core.scores import scale_of
from rankhouse.index.append_state import AGAIN, MANIFEST, DataFolder, LogKind, LogState, OffsetColumn
from rankhouse.index.index import Index
from rankhouse.index.lexical.manifest import IndexManifest
from rankhouse.io.checksums import CheckedArray

PASSAGES: Final = "kept"
"""The folder of an index in which precomputed passages are stored."""
FORMAT: Final = "rankhouse-kept"
VERSION: Final = 2  # 1 had no checksums of blocks; its files are read whole when first touched
Kind = Literal["vectors", "tokens"]
FORMATS: Final = {"float32": "<f4", "float16": "<f2", "int8": "i1", "uint16": "<u2", "uint32": "<u4"}
"""Number format of the rows -> numpy's name of it. The first three are for vectors, the others for ids."""


class PrecomputedState(LogState, frozen=True, kw_only=True):
    """Valid part of the files, and how they were made; documents are those with and without text.

    Attributes:
        kind: "vectors" or "tokens".
        maker: Fingerprint of what made the rows: a model's weights, or a tokenizer.
        split: How documents were cut, in notation.
        dtype: Number format of the rows.
        dimension: d; 0 as long as there are no rows.
        pool: How the documents' passages are meant to be pooled.
        passages: n, the passages that have text.
        rows: t, all rows.
        without_text: Documents that have no passage.
        cut: Passages that were cut off.
        lost: Tokens that were cut off.
        dropped_words: Words that the split put into no passage.
    """

    kind: Kind
    maker: str
    split: str
    dtype: str
    dimension: int = 0
    pool: str = "max"
    passages: int = 0
    rows: int = 0
    without_text: int = 0
    cut: int = 0
    lost: int = 0
    dropped_words: int = 0
    format: str = FORMAT
    version: int = VERSION

    def sizes(self) -> dict[str, int]:
        """Bytes of each file that count."""
        return {
            "rows.bin": self.rows * self.dimension * np.dtype(FORMATS[self.dtype]).itemsize,
            "scales.bin": self.rows * 4 if self.dtype == "int8" else 0,
            "ends.bin": (self.passages + 1) * 8,
            "places.bin": self.passages * 4,
            "lost.bin": self.passages * 4,
            "firsts.bin": (self.documents + 1) * 8,
        }

    @property
    def name(self) -> str:
        """The folder's name: other maker, split or number format, other folder."""
        digest = blake2b(f"{self.maker}\n{self.split}".encode(), digest_size=8).hexdigest()
        return f"{self.kind}-{self.dtype}-{digest}"


STORED: Final = LogKind(
    PrecomputedState,
    named={"dtype": FORMATS},
    same=("maker", "split", "dtype"),
    columns={
        "ends.bin": OffsetColumn("<i8", "rows", zero=True),
        "firsts.bin": OffsetColumn("<i8", "passages", zero=True),
    },
    sums=("documents", "passages", "rows", "without_text", "cut", "lost", "dropped_words"),
    most=("dimension",),
)


class PrecomputedPassages(DataFolder[PrecomputedState]):
    """Precomputed passages of an index, memory-mapped; see :meth:`open` and :func:`find`.

    Attributes:
        lost: (n,) uint32 on disk: tokens of each passage that were cut off.
    """

    def __init__(self, folder: Path, state: PrecomputedState) -> None:
        super().__init__(folder, state)
        whole = state.rows if state.dtype == "int8" else 0
        shape = (state.rows, state.dimension)
        self._rows = self.mapped("rows.bin", FORMATS[state.dtype], shape)
        self._scales: CheckedArray[np.float32] = self.mapped("scales.bin", "<f4", (whole,))
        self._ends: CheckedArray[np.int64] = self.mapped("ends.bin", "<i8", (state.passages + 1,))
        self._places: CheckedArray[np.uint32] = self.mapped("places.bin", "<u4", (state.passages,))
        self.lost: CheckedArray[np.uint32] = self.mapped("lost.bin", "<u4", (state.passages,))
        self._firsts: CheckedArray[np.int64] = self.mapped("firsts.bin", "<i8", (state.documents + 1,))

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a folder; nothing is read but the manifest.

        Raises:
            MissingInput: There is no such folder.
            BadIndex: The work was never finished, or the folder is damaged.
        """
        folder = Path(folder)
        if (state := STORED.complete(folder)) is not None:
            return cls(folder, state)
        raise MissingInput(f"{folder}: nothing is kept there; make it with  rankhouse encode")

    def __len__(self) -> int:
        return self.state.passages

    def __repr__(self) -> str:
        s = self.state
        counts = f"{s.kind} of {s.passages:,} passages, {s.documents:,} documents"
        return f"<PrecomputedPassages {self.folder}: {counts}>"

    @property
    def nbytes(self) -> int:
        """Bytes on disk that count."""
        return sum(self.state.sizes().values())

    def covered(self, index: IndexManifest) -> int:
        """Return how many documents of an index, from its first, these passages are of.

        Documents added to the index since stand behind those.

        Raises:
            BadIndex: The index is another one, or was rebuilt.
        """
        if index.began_as(self.state.collection):
            return self.state.documents
        raise BadIndex(
            f"{self.folder}: was made from other documents than the index holds now; {AGAIN}: what is still "
            "right is kept, or say --overwrite"
        )

    def passages_of(self, document: int) -> range:
        """Return the numbers of a document's passages; none if it has no text."""
        return range(*self._firsts.part(document, document + 2))

    def place(self, passage: int) -> int:
        """Return a passage's place in its document."""
        return int(self._places.item(passage))

    def lengths(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many rows passages have, (n,)."""
        return self._ends[passages + 1] - self._ends[passages]

    def gather(self, at: NDArray[np.int64], most: int = 0) -> PassageRows:
        """Read the rows of n passages, given by their numbers, in the order asked for.

        Args:
            at: (n,) numbers of passages.
            most: Rows of a passage that can be of use, from its first; 0: all.
        """
        starts, lengths = self._ends[at], self.lengths(at)
        if most:
            lengths = np.minimum(lengths, most)
        offsets = np.zeros(len(at) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        self._rows.check_many(starts, starts + lengths)
        if len(self._scales):
            self._scales.check_many(starts, starts + lengths)
        all_rows, all_scales = self._rows.unchecked, self._scales.unchecked
        spans = list(zip(starts.tolist(), (starts + lengths).tolist(), strict=True))
        values = [all_rows[start:end] for start, end in spans]
        scales = [all_scales[start:end] for start, end in spans] if len(all_scales) else []
        joined, factors = np.concatenate([all_rows[:0], *values]), np.concatenate([all_scales[:0], *scales])
        return PassageRows(joined, factors, offsets, self.lost[at])


def open_all(index: Path | str) -> list[PrecomputedPassages]:
    """Open all that an index stores, in order of name; unfinished work is left out.

    Raises:
        BadIndex: One of the folders is damaged.
    """
    folders = sorted(path.parent for path in (Path(index) / PASSAGES).glob(f"*/{MANIFEST}"))
    return [PrecomputedPassages.open(folder) for folder in folders]


def find(
    stored: Iterable[PrecomputedPassages], kind: Kind, maker: str, split: str = ""
) -> PrecomputedPassages | None:
    """Choose what serves a ranker: of this maker and split; of several number formats the most exact.

    Args:
        stored: What there is.
        kind: "vectors" or "tokens".
        maker: Fingerprint of the weights, or of the tokenizer.
        split: How documents are to be cut, in notation; "" takes what there is, unsplit documents first.

    Raises:
        WrongUse: Only a split can tell which is meant.
    """
    fit = [
        k for k in stored if (k.state.kind, k.state.maker) == (kind, maker) and split in ("", k.state.split)
    ]
    splits = sorted({k.state.split for k in fit})
    if len(splits) > 1 and "whole" not in splits:
        raise WrongUse(
            f"{fit[0].folder.parent}: holds passages cut by {' and by '.join(splits)}; say which with --split"
        )
    wanted = "whole" if len(splits) > 1 else "".join(splits)
    order = list(FORMATS)
    fit = sorted((k for k in fit if k.state.split == wanted), key=lambda k: order.index(k.state.dtype))
    return fit[0] if fit else None


_REMEMBERED: Final = 65_536


class PrecomputedScorer:
    """Scores passages of an index by what is stored of them; a ``StoredScorer`` for ``rerank``.

    Raises:
        BadIndex: The store is of other documents.
    """

    def __init__(
        self, index: Index, store: PrecomputedPassages, score: Callable[[Sequence[StoredPair]], FloatArray]
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
        """Return what is stored of a passage, or None; KeyError if the index has no such document."""
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
        share = len(texts) / max(1, len(pairs))
        if texts:
            with part(0, share):
                scores[is_text] = self._ranker.score([pairs[i] for i in texts])
        with part(share, 1):
            scores[~is_text] = self._scorer.score(known)
        return scores
