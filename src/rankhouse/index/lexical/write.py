"""Segments are written: terms counted, postings and documents' terms packed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.index.lexical import packing
from rankhouse.index.lexical.kernel import (
    Bytes,
    Counts,
    Forward,
    Int32s,
    Int64s,
    Postings,
    counts_up_to,
    invert,
    scatter,
    tally,
)
from rankhouse.index.lexical.manifest import BLOBS
from rankhouse.index.lexical.segment import codes_of
from rankhouse.index.lexical.store import Strings
from rankhouse.io.checksums import FileSum, file_sum


class Titles(NamedTuple):
    """Titles as a part of the documents: counts in them, an entry of the forward index each, and lengths."""

    counts: Counts
    lengths: Int32s


def write_arrays(folder: Path, ids: list[str], terms: Sequence[str], tokens: Int32s, lengths: Int32s) -> None:
    """Write everything of a segment but its store.

    Args:
        tokens: Term numbers of all documents, one after the other; overwritten.
        lengths: Tokens of each document, (rows, 1), or of its title and then its text, (rows, 2).
    """
    every, title = lengths.sum(1, dtype=np.int32), lengths[:, 0].copy()
    if lengths.shape[1] == 1:
        write_counted(folder, ids, terms, invert(tokens, every, len(terms)), lengths=every)
        return
    first, before = np.cumsum(every) - every, np.cumsum(title) - title
    own = tokens[np.repeat(first - before, title) + np.arange(int(title.sum()))]
    titles, forward = invert(own, title, len(terms)), invert(tokens, every, len(terms))
    # A document's terms stand in the order of their first occurrence: those of the title come first.
    counts, distinct = np.zeros(len(forward.terms), titles.tfs.dtype), np.diff(titles.ends)
    places = np.repeat(forward.ends[:-1] - titles.ends[:-1], distinct) + np.arange(len(titles.tfs))
    counts[places] = titles.tfs
    write_counted(folder, ids, terms, forward, lengths=every, titles=Titles(counts, title))


def write_counted(
    folder: Path,
    ids: list[str],
    terms: Sequence[str],
    forward: Forward,
    lengths: Int32s,
    titles: Titles | None = None,
) -> None:
    """Write what :func:`write_arrays` writes, where the terms of all documents are counted already."""
    terms, forward = _by_frequency(terms, forward)
    if titles is not None:
        counts = scatter(forward._replace(tfs=titles.counts), len(terms)).payload
        save_arrays(folder, title_tfs=counts, title_lengths=titles.lengths)
    packed, at = packing.pack_forward(forward)
    save_arrays(folder, forward=packed, forward_at=at)
    save_arrays(folder, occurrences=_small(tally(forward.terms, len(terms), forward.tfs)))
    codes = codes_of(lengths)
    write_lists(folder, scatter(forward, len(terms)), codes, len(lengths))
    write_terms(folder, terms)
    _write_strings(folder, "ids", ids)
    write_id_order(folder, ids)
    save_arrays(folder, lengths=lengths, codes=codes)


def write_id_order(folder: Path, ids: Sequence[str]) -> None:
    """Write the order of ids, and the place of each in it, where they are not sorted."""
    if any(one >= other for one, other in pairwise(ids)):
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int32)
        rank = np.empty(len(ids), np.int32)
        rank[order] = np.arange(len(ids), dtype=np.int32)
        save_arrays(folder, id_order=order, id_rank=rank)


def _by_frequency(terms: Sequence[str], forward: Forward) -> tuple[list[str], Forward]:
    """Number terms by how many documents hold them, the most frequent first; equals by name."""
    frequencies = tally(forward.terms, len(terms))
    by_name = np.array(sorted(range(len(terms)), key=terms.__getitem__), np.int64)
    order = by_name[np.argsort(-frequencies[by_name], kind="stable")]
    number = np.empty(len(terms), np.int32)
    number[order] = np.arange(len(terms), dtype=np.int32)
    numbers = forward.terms
    for start in range(0, len(numbers), 1 << 20):
        # In blocks, since numpy looks up by copies of the numbers in 8 bytes each.
        numbers[start : start + (1 << 20)] = number[numbers[start : start + (1 << 20)]]
    return [terms[i] for i in order.tolist()], forward


def write_lists(folder: Path, postings: Postings, codes: Bytes, documents: int) -> None:
    """Write packed postings, of terms by falling frequency."""
    starts, payload = postings.starts, postings.payload
    packed = packing.pack(postings, codes, documents)
    save_arrays(folder, lists=packed.lists, lists_at=packed.lists_at, areas=packed.areas)
    highest = np.maximum.reduceat(payload, starts[:-1]) if len(starts) > 1 else np.empty(0, payload.dtype)
    save_arrays(folder, frequencies=np.diff(starts).astype(np.int32), highest_tf=highest)


def write_terms(folder: Path, terms: Sequence[str]) -> None:
    """Write the names of terms, and their numbers as the names are sorted."""
    order = np.array(sorted(range(len(terms)), key=terms.__getitem__), np.int32)
    _write_strings(folder, "terms", terms)
    save_arrays(folder, terms_order=order)


def _write_strings(folder: Path, name: str, strings: Iterable[str]) -> None:
    # Strings sort by code point, which is the order of their UTF-8 bytes too.
    blob, offsets = Strings.pack(strings)
    arrays: dict[str, NDArray[Any]] = {name: blob, f"{name}_at": offsets}
    save_arrays(folder, **arrays)


def _small(numbers: Int64s) -> NDArray[Any]:
    """Return numbers in the smallest type for counts."""
    return numbers.astype(counts_up_to(int(numbers.max(initial=0))))


def save_arrays(folder: Path, **arrays: NDArray[Any]) -> None:
    """Write arrays of a segment into files of their names."""
    for name, array in arrays.items():
        if name in BLOBS:
            array.tofile(folder / f"{name}.bin")
        else:
            offsets = name.endswith("_at") and array[-1] < 1 << 32
            np.save(folder / f"{name}.npy", array.astype("<u4") if offsets else array, allow_pickle=False)


def sums_of(folder: Path) -> dict[str, FileSum]:
    """Measure every file of a segment, reading each once."""
    return {path.name: file_sum(path) for path in sorted(folder.iterdir())}
