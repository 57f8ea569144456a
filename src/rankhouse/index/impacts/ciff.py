"""Impacts -> CIFF file (``io/ciff.py``), queries -> terms, quantised: for engines of other people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from rankhouse import __version__
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.impacts.impacts import Impacts, QueryWeigher, Span, spans_of
from rankhouse.index.impacts.search import weigh_queries
from rankhouse.index.lexical.ciff import joined, laid_aside
from rankhouse.index.lexical.kernel import Forward, Int64s, scatter
from rankhouse.io.ciff import CiffHeader, write_ciff
from rankhouse.io.outputs import writing_failures

_MOST_COUNT: Final = 2**31 - 1
_MOST: Final = f"a CIFF file holds {_MOST_COUNT:,} at most"
_AT_ONCE: Final = 10_000
_MOST_TERMS: Final = 1_000_000


def write_impacts(
    impacts: Impacts, encoder: QueryWeigher, path: Path, scale: float, progress: Progress = ignore
) -> int:
    """Write impacts into a CIFF file: each weight times ``scale``, rounded, in place of a count.

    Weights that round to 0 are left out; a document's length is the sum of its counts. Memory is that of a
    part.

    Args:
        encoder: That of the impacts, in any precision: it knows the words.
        progress: Progress callback, in words.

    Returns:
        How many weights were written.

    Raises BadIndex: the impacts are damaged; WrongUse: a count, or a document's sum, is beyond what the
    format holds; or no weight is left; OutputFailed: no permission, disk full.
    """
    names = [encoder.word(number) for number in range(impacts.state.vocabulary)]
    written = 0
    lengths, held = np.zeros(len(impacts), np.int64), np.zeros(len(names), bool)
    with TemporaryDirectory(prefix="rankhouse.") as folder, writing_failures(Path(folder)):
        parts = list[Iterator[Any]]()
        for span in spans_of(impacts.ends.whole()):
            bags = _quantised(impacts, span, scale)
            sums = np.concatenate([[0], np.cumsum(bags.tfs, dtype=np.int64)])
            lengths[span.first : span.end] = np.diff(sums[bags.ends])
            held[bags.terms] = True
            written += len(bags.terms)
            parts.append(laid_aside(scatter(bags, len(names)), names, span.first, Path(folder)))
        if not written:
            raise WrongUse(f"--scale {scale:g}: every weight rounds to 0; give a larger one")
        if (longest := int(lengths.max())) > _MOST_COUNT:
            raise WrongUse(f"--scale {scale:g}: a document's weights add up to {longest:,}; {_MOST}")
        words, with_words, tokens = int(held.sum()), int(np.count_nonzero(lengths)), int(lengths.sum())
        header = CiffHeader(
            *(words, len(impacts), words, len(impacts), tokens),
            mean_length=tokens / max(1, with_words),
            description=f"rankhouse {__version__}, impacts of {encoder.fingerprint}, times {scale:g}",
        )
        write_ciff(path, header, joined(parts, words, progress), _documents(impacts, lengths))
        parts.clear()  # Windows removes no file that is mapped
    return written


def _documents(impacts: Impacts, lengths: Int64s) -> Iterator[tuple[str, int]]:
    """Yield the id and the length of every document."""
    for start in range(0, len(lengths), _AT_ONCE):
        some = lengths[start : start + _AT_ONCE].tolist()
        yield from zip(impacts.ids.take(np.arange(start, start + len(some))), some, strict=True)


def _quantised(impacts: Impacts, span: Span, scale: float) -> Forward:
    """Return the rounded weights of some documents as counts of words."""
    ends = impacts.ends[span.first : span.end + 1]
    entries = slice(int(ends[0]), int(ends[-1]))
    counts = np.rint(impacts.weights[entries].astype(np.float64) * scale)
    if len(counts) and counts.max() > _MOST_COUNT:
        raise WrongUse(f"--scale {scale:g}: the largest weight becomes {counts.max():g}; {_MOST}")
    kept = counts > 0
    before = np.concatenate([[0], np.cumsum(kept)])
    words = impacts.words[entries][kept].astype(np.int32)
    return Forward(before[ends - ends[0]], words, counts[kept].astype(np.uint32))


def query_terms(encoder: QueryWeigher, queries: Sequence[Query], scale: float) -> Iterator[Query]:
    """Yield queries as terms, each repeated as often as its weight times ``scale``, rounded, is.

    So do Anserini's pre-encoded topics give weights. One whose every weight rounds to 0 has no text.

    Raises WrongUse: a query has too many terms, or a word that white space would divide.
    """
    for start in range(0, len(queries), _AT_ONCE):
        some = queries[start : start + _AT_ONCE]
        weights = weigh_queries(encoder, some)
        counts = np.rint(weights.data.astype(np.float64) * scale)
        for query, first, end in zip(some, weights.indptr, weights.indptr[1:], strict=False):
            own = counts[first:end]
            if (terms := own.sum()) > _MOST_TERMS:
                raise WrongUse(
                    f'--scale {scale:g}: query "{query.id}" becomes {terms:,.0f} terms, more than '
                    f"{_MOST_TERMS:,}; give a smaller one"
                )
            words = [encoder.word(number) for number in weights.indices[first:end][own > 0].tolist()]
            if divided := [word for word in words if word.split() != [word]]:
                raise WrongUse(
                    f"the word {divided[0]!r} of the encoder has white space, which separates terms"
                )
            often = map(repeat, words, own[own > 0].astype(int).tolist())
            yield Query(query.id, " ".join(chain.from_iterable(often)))
