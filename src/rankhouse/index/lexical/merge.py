"""Indexes of slices of a collection become the index that one build of the whole collection makes.

Where segments end depends on all documents before, so segments are not copied: their documents go through
the build once more, in the same chunks. Their texts are not analysed again, since each segment's forward
index holds the terms of its documents with their counts, in the order of their first occurrence, which is all
that a build keeps of the order. Memory is that of a build.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import numpy as np

from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress
from rankhouse.index.index import Index
from rankhouse.index.lexical.analysis import AnalysedTexts
from rankhouse.index.lexical.build import BuildOptions, BuildReport, chunks, new_index, write_analysed
from rankhouse.index.lexical.segment import Segment

_Item = tuple[Document, Segment, int]  # a document, and where it stands


class IdRule(Protocol):
    """What becomes of documents whose id was given before."""

    def takes(self, document: Document, index: Index) -> bool:
        """Return whether a document is taken, or raise.

        Args:
            document: The document.
            index: Where it is from.
        """
        ...

    def check(self) -> None:
        """Raise if anything is wrong that was left open."""
        ...


def merge(
    indexes: Sequence[Index],
    out: Path,
    options: BuildOptions,
    rule: IdRule,
    progress: Progress | None = None,
) -> BuildReport:
    """Build an index of the documents of others, which were analysed alike.

    Args:
        indexes: In the order of their documents.
        out: The folder to make.
        options: As for the build of the whole collection.
        rule: What becomes of ids that come again.
        progress: Told how many documents are done, and of how many.

    Raises:
        WrongUse: The folder exists.
        BadData: There are no documents.
        BadIndex: One of the indexes is damaged.
        OutputFailed: No permission, disk full.
    """
    count = sum(map(len, indexes))

    def tell(done: float, total: int | None = None) -> None:
        del total  # the build does not know of how many
        if progress is not None:
            progress(done, count)

    pieces = chunks(_documents(indexes, rule), itemgetter(0))
    analysed = (([item[0] for item in chunk], _terms(chunk)) for chunk in pieces)
    return new_index(
        out, options, lambda scratch: write_analysed(analysed, scratch, options.segment_tokens, tell)
    )


def _documents(indexes: Iterable[Index], rule: IdRule) -> Iterator[_Item]:
    for index in indexes:
        for segment in index.segments:
            for row, document in enumerate(segment.store.stream(0, segment.documents)):
                if rule.takes(document, index):
                    yield document, segment, row
    rule.check()


def _terms(chunk: Sequence[_Item]) -> AnalysedTexts:
    """Return the terms of a chunk's documents, numbered from 0."""
    numbers: dict[str, int] = {}
    tokens, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for segment, first, end in _stretches(chunk):
        terms, counts = segment.bags(first, end)
        occurs = np.zeros(len(segment.terms), bool)
        occurs[terms] = True
        distinct = np.flatnonzero(occurs)
        number_of = np.empty(len(occurs), np.int32)
        names = segment.terms.take(distinct)
        number_of[distinct] = [numbers.setdefault(name, len(numbers)) for name in names]
        tokens.append(np.repeat(number_of[terms], counts))
        lengths.append(segment.lengths[first:end])
    return AnalysedTexts(0, list(numbers), np.concatenate(tokens), np.concatenate(lengths))


def _stretches(chunk: Sequence[_Item]) -> Iterator[tuple[Segment, int, int]]:
    """Return (segment, first row, end) of documents that stand next to each other."""
    numbered = ((id(segment), row - place, segment, row) for place, (_, segment, row) in enumerate(chunk))
    for _, group in groupby(numbered, itemgetter(0, 1)):
        rows = list(group)
        yield rows[0][2], rows[0][3], rows[-1][3] + 1
