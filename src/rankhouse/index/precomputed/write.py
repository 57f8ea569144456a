"""Documents -> precomputed passages on disk, chunk after chunk; see ``read.py`` for the files.

A killed job resumes, and documents added to the index are added alike (``append_log.py``).
Memory depends on the chunk, not on the collection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Document, Passage, PassageRows
from rankhouse.core.progress import Progress
from rankhouse.index.append_log import (
    AppendLog,
    DocumentChunk,
    DocumentSource,
    append_documents,
    begin,
    finish,
)
from rankhouse.index.precomputed.read import FORMATS, STORED, Kind, PrecomputedPassages, PrecomputedState
from rankhouse.io.outputs import only_writer
from rankhouse.text.split import Split, Whole, dropped_words


class Precomputer(Protocol):
    """Encoder of passages into rows.

    Attributes:
        kind: "vectors" or "tokens".
        fingerprint: Changes whenever the rows could.
        dtype: Number format of the rows, one of ``read.FORMATS``.
    """

    @property
    def kind(self) -> Kind: ...  # noqa: D102 - said above
    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102

    def precompute(self, texts: Sequence[str]) -> PassageRows:
        """Return the rows of n passages, each independent of the others."""
        ...


@dataclass(frozen=True)
class PrecomputeOptions:
    """Representations to keep, and settings of their computation.

    Attributes:
        documents: How many there are in all.
        collection: The index's fingerprint.
        split: What cuts documents into passages; it says in notation what it does.
        pool: How passages are meant to be pooled, for those who use them.
        chunk: Passages handed to the precomputer at once.
        overwrite: Throw away what is in the folder.
    """

    documents: int
    collection: str
    split: Split = field(default_factory=Whole)
    pool: str = "max"
    chunk: int = 256
    overwrite: bool = False


def precompute(
    precomputer: Precomputer,
    documents: Iterable[Document],
    parent: Path,
    job: PrecomputeOptions,
    progress: Progress | None = None,
) -> PrecomputedPassages:
    """Keep a collection's passages, or what is not kept of it yet.

    Args:
        precomputer: What makes the rows.
        documents: All documents of the collection, in index order, streamed once.
        parent: Where the folder is or shall be, see ``read.PASSAGES``.
        job: Count, split, pool.
        progress: Progress callback; counts documents done earlier too.

    Raises:
        BadIndex: The documents kept earlier are not those that come now, or files are damaged.
        BadModel: The precomputer gave something that does not fit together.
        WrongUse: Another process is at it, or the split is a bare function without a name that lasts.
        OutputFailed: No permission, disk full; what was done stays and is gone on from.
    """
    choose(precomputer.dtype, FORMATS, "number format")
    if " at 0x" in str(job.split):
        raise WrongUse(
            f"{job.split} does not say what it does, so passages cut by it could not be told from others; "
            "use a split with a notation"
        )
    fresh = PrecomputedState(
        kind=precomputer.kind,
        maker=precomputer.fingerprint,
        split=str(job.split),
        dtype=precomputer.dtype,
        pool=job.pool,
    )
    folder = parent / fresh.name
    with only_writer(folder):
        state = begin(folder, fresh, STORED, overwrite=job.overwrite)
        if (state.documents, state.collection) == (job.documents, job.collection):
            return PrecomputedPassages.open(folder)
        counting = _Counting(job.split)
        with AppendLog(folder, state, zeros=STORED.zeros) as files:
            source = DocumentSource(job.documents, job.collection, counting, job.chunk)
            final = append_documents(
                files,
                documents,
                source,
                lambda chunk, _: _add(files, chunk, precomputer, counting),
                progress=progress,
            )
        finish(folder, final)
    return PrecomputedPassages.open(folder)


class _Counting:
    """A split that counts the words it puts into no passage."""

    def __init__(self, split: Split) -> None:
        self._split = split
        self._dropped = dropped_words(split)
        self.words = 0

    def __call__(self, document: Document) -> Sequence[Passage]:
        self.words += self._dropped(document)
        return self._split(document)

    def taken(self) -> int:
        """Return the words counted since this was last asked."""
        words, self.words = self.words, 0
        return words


def _add(
    files: AppendLog[PrecomputedState], chunk: DocumentChunk, precomputer: Precomputer, counting: _Counting
) -> None:
    """Make a chunk's rows and append them."""
    before = files.state
    rows = precomputer.precompute(chunk.texts)
    _refuse_unfit(rows, chunk, precomputer)
    passages = len(chunk.texts)
    dtype = np.dtype(FORMATS[precomputer.dtype])
    ends = before.rows + np.cumsum(rows.lengths, dtype="<i8")
    firsts = before.passages + np.cumsum(chunk.rows, dtype="<i8")
    files.append(
        {
            "rows.bin": rows.values.astype(dtype, copy=False).tobytes(),
            "scales.bin": rows.scales.astype("<f4", copy=False).tobytes(),
            "ends.bin": ends.tobytes(),
            "places.bin": np.array(chunk.numbers, "<u4").tobytes(),
            "lost.bin": rows.lost.astype("<u4").tobytes(),
            "firsts.bin": firsts.tobytes(),
        },
        {
            "dimension": rows.values.shape[1] if passages else before.dimension,
            "documents": before.documents + len(chunk.ids),
            "passages": before.passages + passages,
            "rows": before.rows + len(rows.values),
            "without_text": before.without_text + chunk.rows.count(0),
            "cut": before.cut + int((rows.lost > 0).sum()),
            "lost": before.lost + int(rows.lost.sum()),
            "dropped_words": before.dropped_words + counting.taken(),
        },
    )


def _refuse_unfit(stored: PassageRows, chunk: DocumentChunk, precomputer: Precomputer) -> None:
    n, t = len(chunk.texts), len(stored.values)
    scales = t if precomputer.dtype == "int8" else 0
    sizes = (len(stored.lengths), int(stored.lengths.sum()), len(stored.scales), len(stored.lost))
    if sizes != (n, t, scales, n):
        raise BadModel(
            f"the encoder gave {t:,} rows, {len(stored.scales):,} scales and lengths that sum to "
            f"{int(stored.lengths.sum()):,} for {n:,} passages, which do not fit together"
        )
    broken = ~np.isfinite(stored.values).all(axis=1)
    if broken.any():
        row = int(np.argmax(broken))
        passage = int(np.searchsorted(np.cumsum(stored.lengths), row, side="right"))
        doc_id = np.repeat(np.array(chunk.ids, object), chunk.rows)[passage]
        raise BadModel(
            f'a vector of document "{doc_id}" is not finite; the weights are damaged, or overflow in '
            f"{precomputer.dtype}"
        )
