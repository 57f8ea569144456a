"""Impacts -> CIFF file (``io/ciff.py``), quantised: what engines of other people search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from rankhouse import __version__
from rankhouse.core.errors import WrongUse
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.impacts.impacts import Impacts, QueryWeigher
from rankhouse.index.impacts.lists import Span, spans_of
from rankhouse.index.lexical.ciff import joined, laid_aside
from rankhouse.index.lexical.kernel import Forward, scatter
from rankhouse.io.ciff import CiffHeader, write_ciff
from rankhouse.io.outputs import writing_failures

_MOST_COUNT: Final = 2**31 - 1
"""That a CIFF file holds."""


def write_impacts(
    impacts: Impacts, encoder: QueryWeigher, path: Path, scale: float, progress: Progress = ignore
) -> None:
    """Write impacts into a CIFF file: each weight times ``scale``, rounded, in place of a count.

    Weights that round to 0 are left out; a document's length is the sum of its counts. Memory is that of a
    part.

    Args:
        encoder: That of the impacts, which knows the words.
        progress: Progress callback, in words.

    Raises:
        BadIndex: The impacts are of another encoder, or damaged.
        WrongUse: A scaled weight is beyond what the format holds.
        OutputFailed: No permission, disk full.
    """
    names = [encoder.word(number) for number in range(impacts.require_encoder(encoder).state.vocabulary)]
    lengths, held = np.zeros(len(impacts), np.int64), np.zeros(len(names), bool)
    with TemporaryDirectory(prefix="rankhouse.") as folder, writing_failures(Path(folder)):
        parts = list[Iterator[Any]]()
        for span in spans_of(impacts.ends.whole()):
            bags = _quantised(impacts, span, scale)
            sums = np.concatenate([[0], np.cumsum(bags.tfs, dtype=np.int64)])
            lengths[span.first : span.end] = np.diff(sums[bags.ends])
            held[bags.terms] = True
            parts.append(laid_aside(scatter(bags, len(names)), names, span.first, Path(folder)))
        words, with_words, tokens = int(held.sum()), int(np.count_nonzero(lengths)), int(lengths.sum())
        header = CiffHeader(
            *(words, len(impacts), words, len(impacts), tokens),
            mean_length=tokens / max(1, with_words),
            description=f"rankhouse {__version__}, impacts of {encoder.fingerprint}, times {scale:g}",
        )
        ids = impacts.ids.take(np.arange(len(impacts)))
        write_ciff(path, header, joined(parts, words, progress), zip(ids, lengths.tolist(), strict=True))


def _quantised(impacts: Impacts, span: Span, scale: float) -> Forward:
    """Return the rounded weights of some documents as counts of words."""
    ends = impacts.ends[span.first : span.end + 1]
    entries = slice(int(ends[0]), int(ends[-1]))
    counts = np.rint(impacts.weights[entries].astype(np.float64) * scale)
    if len(counts) and counts.max() > _MOST_COUNT:
        raise WrongUse(
            f"--scale {scale:g}: the largest weight becomes {counts.max():g}; {_MOST_COUNT:,} is the most"
        )
    kept = counts > 0
    before = np.concatenate([[0], np.cumsum(kept)])
    words = impacts.words[entries][kept].astype(np.int32)
    return Forward(before[ends - ends[0]], words, counts[kept].astype(np.uint32))
