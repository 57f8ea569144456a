"""Documents -> impacts on disk, chunk after chunk; a killed encoding resumes (``append_log.py``)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rankhouse.core.errors import BadModel, warn
from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress
from rankhouse.index.append_log import (
    AppendLog,
    DocumentChunk,
    DocumentSource,
    append_documents,
    begin,
    finish,
)
from rankhouse.index.dense.vectors import EncodeOptions
from rankhouse.index.impacts.impacts import (
    IMPACTS,
    STRUCTURES,
    Impacts,
    ImpactsState,
    Weigher,
    build_lists,
    read_query_files,
)
from rankhouse.io.outputs import only_writer, replacing

if TYPE_CHECKING:
    import scipy.sparse


def encode_impacts(
    encoder: Weigher,
    documents: Iterable[Document],
    folder: Path | str,
    job: EncodeOptions,
    source: str = "",
    progress: Progress | None = None,
) -> Impacts:
    """Weigh the words of a collection, or of what is not encoded of it yet, and pack the postings.

    Args:
        documents: All documents of the collection, in index order, streamed once.
        job: Count and split; weights are float32 always.
        source: What names the encoder wherever it lies, for searches without it.

    Raises WrongUse: the folder holds impacts of another encoder or split, or is being written; BadIndex: the
    documents encoded earlier are not those that come now, or files are damaged; BadModel: the encoder gave
    something that is no (n, v) matrix of finite weights, 0 or more; OutputFailed: no permission, disk full;
    what was done stays and is gone on from.
    """
    folder = Path(folder)
    query = encoder.query_files()
    fresh = ImpactsState(encoder=encoder.fingerprint, policy=job.way, vocabulary=encoder.vocabulary)
    with only_writer(folder):
        state = begin(folder, fresh, IMPACTS, overwrite=job.overwrite)
        if (state.documents, state.collection) != (job.documents, job.collection):
            sums = {name: zlib.crc32(content) for name, content in query.items()}
            state = msgspec.structs.replace(state, source=source, query=sums)
            with AppendLog(folder, state, zeros=IMPACTS.zeros) as files:
                for name, content in query.items():
                    with replacing(folder / STRUCTURES / "query" / name) as temporary:
                        temporary.write_bytes(content)
                origin = DocumentSource(job.documents, job.collection, job.split, job.chunk)
                final = append_documents(
                    files,
                    documents,
                    origin,
                    lambda chunk, _: _add(files, chunk, _weighed(encoder, chunk)),
                    progress=progress,
                )
            finish(folder, final)
            if final.without_text:
                warn(
                    f"{final.without_text:,} of {final.documents:,} documents have no text, so they have no "
                    "impacts and are never found by them"
                )
        impacts = Impacts.open(folder)
        build_lists(impacts)
    return impacts


def complete(folder: Path, shard: Path) -> Impacts:
    """Pack the postings of shards that were merged, and take what weighs queries from one of them."""
    impacts = Impacts.open(folder)
    for name, content in read_query_files(shard, impacts.state.query).items():
        with replacing(folder / STRUCTURES / "query" / name) as temporary:
            temporary.write_bytes(content)
    build_lists(impacts)
    return impacts


def _weighed(encoder: Weigher, chunk: DocumentChunk) -> scipy.sparse.csr_array:
    """Weigh the words of a chunk's documents, (documents, v): the largest weight in any passage of each."""
    import scipy.sparse  # noqa: PLC0415 - slow to import, and most commands need none

    weights = scipy.sparse.csr_array((0, encoder.vocabulary), dtype=np.float32)
    if chunk.texts:
        weights = scipy.sparse.csr_array(encoder.passage_weights(chunk.texts))
    wanted = len(chunk.texts), encoder.vocabulary
    if tuple(weights.shape) != wanted or weights.dtype != np.float32:
        raise BadModel(
            f"the encoder gave {weights.dtype} weights of shape {weights.shape} for {wanted[0]} passages; "
            f"float32 of shape {wanted} are needed"
        )
    owners = np.repeat(np.arange(len(chunk.ids)), chunk.rows)
    entries = weights.tocoo()
    row, word = owners[entries.row].astype(np.int64), entries.col.astype(np.int64)
    if len(bad := np.flatnonzero(~np.isfinite(entries.data) | (entries.data < 0))):
        raise BadModel(
            f'a weight of document "{chunk.ids[row[bad[0]]]}" is {entries.data[bad[0]]}; weights are finite '
            "and 0 or more: the encoder is damaged or overflows in this precision"
        )
    keys = row * encoder.vocabulary + word
    order = np.argsort(keys, kind="stable")
    keys, data = keys[order], entries.data[order]
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    largest = np.maximum.reduceat(data, firsts) if len(firsts) else data
    places = keys[firsts][largest > 0], largest[largest > 0]
    ends = np.searchsorted(places[0], np.arange(len(chunk.ids) + 1) * encoder.vocabulary)
    shape = len(chunk.ids), encoder.vocabulary
    return scipy.sparse.csr_array((places[1], places[0] % encoder.vocabulary, ends), shape=shape)


def _add(files: AppendLog[ImpactsState], chunk: DocumentChunk, weights: scipy.sparse.csr_array) -> None:
    """Append a chunk's documents and the weights of their words (documents, v)."""
    before = files.state
    raw = [doc_id.encode() for doc_id in chunk.ids]
    files.append(
        {
            "words.bin": weights.indices.astype("<u4").tobytes(),
            "weights.bin": weights.data.astype("<f4").tobytes(),
            "ends.bin": (before.entries + weights.indptr[1:].astype("<i8")).tobytes(),
            "ids.bin": b"".join(raw),
            "ids_at.bin": (before.id_bytes + np.cumsum([len(r) for r in raw], dtype="<i8")).tobytes(),
        },
        {
            "documents": before.documents + len(raw),
            "entries": before.entries + weights.nnz,
            "id_bytes": before.id_bytes + sum(map(len, raw)),
            "without_text": before.without_text + chunk.rows.count(0),
        },
    )
