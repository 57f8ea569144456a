"""Encoding an index's documents: what a ranker makes of them, and where it is put; whole or in slices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, TextEncoder
from rankhouse.core.progress import Progress
from rankhouse.index.dense.encode import EncodeOptions, encode
from rankhouse.index.dense.vectors import Vectors
from rankhouse.index.precomputed.read import PrecomputedPassages
from rankhouse.index.precomputed.write import PrecomputeOptions, precompute
from rankhouse.systems.precomputed import Storage, TokenPrecomputer, VectorPrecomputer
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker


class Encoding(NamedTuple):
    """How documents are encoded.

    Attributes:
        ranker: What encodes.
        split: How documents are cut, in notation.
        pool: How their passages are meant to be pooled.
        dtype: Number format; None takes the usual one.
        tokens: Token ids are kept, nothing is computed.
        overwrite: Throw away what another encoder made.
    """

    ranker: NeuralRanker
    split: str
    pool: str
    dtype: Storage | None
    tokens: bool
    overwrite: bool = False

    @property
    def is_dense(self) -> bool:
        """Whether each passage gets one vector; else something is kept of each of its words."""
        return isinstance(self.ranker, TextEncoder) and not self.tokens


@dataclass(frozen=True)
class Source:
    """The documents to encode, in order.

    Attributes:
        documents: Streamed once.
        count: How many there are.
        fingerprint: Of the index they are from.
    """

    documents: Iterable[Document]
    count: int
    fingerprint: str


def encode_vectors(encoding: Encoding, source: Source, folder: Path, progress: Progress) -> Vectors:
    """Encode every passage as a vector.

    Raises:
        WrongUse: A number format that vectors do not have.
    """
    if encoding.dtype == "int8":
        raise WrongUse('--dtype int8: a bi-encoder\'s vectors are float32 or float16; see --vectors "sq8"')
    splitter = notation.make(encoding.split, SPLITTERS, "splitter")
    dtype = encoding.dtype or "float32"
    job = EncodeOptions(source.count, source.fingerprint, splitter, dtype=dtype, overwrite=encoding.overwrite)
    encoder: Any = encoding.ranker
    return encode(encoder, source.documents, folder, job, progress)


def keep_passages(
    encoding: Encoding, source: Source, parent: Path, progress: Progress
) -> PrecomputedPassages:
    """Store what the ranker makes of every passage: its words in context, or its token ids.

    Raises:
        WrongUse: The ranker has nothing that could be kept.
    """
    ranker = encoding.ranker
    maker = (
        TokenPrecomputer(ranker)
        if encoding.tokens
        else VectorPrecomputer(ranker, encoding.dtype or "float16")
    )
    splitter = notation.make(encoding.split, SPLITTERS, "splitter")
    job = PrecomputeOptions(
        source.count, source.fingerprint, splitter, encoding.pool, maker.chunk, overwrite=encoding.overwrite
    )
    return precompute(maker, source.documents, parent, job, progress)


def vectors_facts(stored: Vectors) -> tuple[dict[str, Any], str]:
    """Return what can be said of vectors, for machines and for people."""
    facts = {"vectors": len(stored), "dimension": stored.dimension}
    return facts, f"{len(stored):,} vectors of {stored.dimension} numbers in {stored.folder}"


def passages_facts(stored: PrecomputedPassages) -> tuple[dict[str, Any], str]:
    """Return what can be said of kept passages, for machines and for people."""
    state = stored.state
    each = stored.nbytes / max(1, state.documents)
    facts: dict[str, Any] = {
        "kept": str(stored.folder), "kind": state.kind, "dtype": state.dtype, "documents": state.documents,
        "passages": state.passages, "rows": state.rows, "bytes": stored.nbytes,
        "bytes_a_document": round(each, 1), "truncated": state.cut, "tokens_lost": state.lost,
        "without_text": state.without_text,
    }  # fmt: skip
    what = "token ids" if state.kind == "tokens" else f"words in context ({state.dtype} vectors)"
    return facts, (
        f"{state.rows:,} {what} of {state.passages:,} passages in {stored.folder}: "
        f"{stored.nbytes / 1e6:,.1f} MB, {each:,.0f} bytes a document"
    )


def losses(stored: PrecomputedPassages, most_tokens: int | None = None) -> list[str]:
    """Return what the user should know of passages that were not kept whole.

    Args:
        most_tokens: The most that the ranker reads; None where it is not at hand.
    """
    state, said = stored.state, []
    if state.cut:
        limit = f"{most_tokens} tokens" if most_tokens is not None else "the ranker"
        said.append(
            f"{state.cut:,} of {state.passages:,} passages did not fit into {limit}; "
            f"{state.lost:,} tokens are not kept (cut smaller passages with --split)"
        )
    if state.dropped_words:
        said.append(f"{state.dropped_words:,} words are in no passage; --split says how many")
    return said
