"""A text collection as one long row of token ids on disk, and where in it each batch is read.

Documents lie end to end, each closed by the end token, and rows are cut out of that whatever documents they
touch. Only the rows of a batch are in memory. Shapes: n rows, t tokens of a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from rankhouse.core.errors import BadData, MissingInput
from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress
from rankhouse.core.sampling import generator
from rankhouse.io.corpora import corpus_files, read_documents
from rankhouse.io.outputs import replacing

_AT_ONCE = 256
_MOST_HELD_OUT = 64
_HELD_OUT_SHARE = 50


def collection_name(sources: Iterable[Path | str]) -> str:
    """Name a collection by its content; an ``ir_datasets:`` collection by its own name.

    Raises:
        MissingInput: No such file.
    """
    digest = sha256()
    for source in sources:
        if str(source).startswith("ir_datasets:"):
            digest.update(str(source).encode())
            continue
        for path in corpus_files(Path(source)):
            if not path.is_file():
                raise MissingInput(f"{path}: there is no such file")
            with path.open("rb") as file:
                digest.update(file_digest(file, "sha256").digest())
    return digest.hexdigest()


def write_tokens(
    sources: Sequence[Path | str],
    tokenizer: Tokenizer,
    end: int,
    path: Path,
    progress: Progress | None = None,
) -> None:
    """Tokenise a collection into a file of uint16 or, for large vocabularies, uint32; whole or absent.

    Args:
        sources: As ``io.corpora.read_documents`` takes them.

    Raises:
        BadData: A malformed document.
        OutputFailed: Disk full or the like.
    """
    kind = _kind(tokenizer)
    documents = (document for document in read_documents(sources) if document.full_text.strip())
    done = 0
    with replacing(path) as temporary, temporary.open("wb") as file:
        for some in _batches(documents):
            texts = [document.full_text for document in some]
            for spelled in tokenizer.encode_batch_fast(texts, add_special_tokens=False):
                file.write(np.array([*spelled.ids, end], kind).tobytes())
            done += len(some)
            if progress:
                progress(done)


def _kind(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u2" if tokenizer.get_vocab_size() <= 1 << 16 else "<u4")


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    while some := list(islice(documents, _AT_ONCE)):
        yield some


@dataclass(frozen=True)
class Stream:
    """Rows of a file of tokens, the same for the same seed and number.

    An epoch is every row once, in an order that needs no list of rows: with c rows, the k-th one read is row
    (a k + b) mod c for a step a that shares no divisor with c. Each epoch draws a, b and where the first row
    begins. The last rows of the file are held out.

    Attributes:
        ids: All tokens of the file.
        tokens: t.
        seed: Of the order.
    """

    ids: NDArray[np.unsignedinteger]
    tokens: int
    seed: int

    @classmethod
    def open(cls, path: Path, tokenizer: Tokenizer, tokens: int, seed: int) -> Stream:
        """Map a file of :func:`write_tokens` into memory.

        Raises:
            BadData: Fewer than four rows of text.
        """
        kind = _kind(tokenizer)
        length = path.stat().st_size // kind.itemsize
        if length < 4 * tokens:
            raise BadData(
                f"the collection has {length:,} tokens, and four rows of {tokens} are the least to learn "
                "from; give more text, or a smaller length"
            )
        return cls(np.memmap(path, kind, "r"), tokens, seed)

    @property
    def held_out_rows(self) -> int:
        """How many rows are kept for measuring."""
        return min(_MOST_HELD_OUT, max(1, len(self.ids) // self.tokens // _HELD_OUT_SHARE))

    @property
    def rows(self) -> int:
        """c: rows of an epoch."""
        return (len(self.ids) - self.held_out_rows * self.tokens - self.tokens + 1) // self.tokens

    def batch(self, number: int, size: int) -> NDArray[np.int64]:
        """Read the batch of this number: (n, t).

        Args:
            number: Which batch, from 0.
        """
        starts = [self._start(at) for at in range(number * size, (number + 1) * size)]
        return self._read(np.array(starts))

    def held_out(self) -> NDArray[np.int64]:
        """Read what is kept for measuring: (n, t)."""
        first = len(self.ids) - self.held_out_rows * self.tokens
        return self._read(first + self.tokens * np.arange(self.held_out_rows))

    def _start(self, at: int) -> int:
        epoch, place = divmod(at, self.rows)
        step, shift, first = _order(self.seed, epoch, self.rows, self.tokens)
        return first + (step * place + shift) % self.rows * self.tokens

    def _read(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        rows: NDArray[np.int64] = self.ids[starts[:, None] + np.arange(self.tokens)].astype(np.int64)
        return rows


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, rows: int, tokens: int) -> tuple[int, int, int]:
    """Draw an epoch's step, shift and first token."""
    rng = generator(seed, epoch)
    step = int(rng.integers(1, rows + 1))
    while math.gcd(step, rows) != 1:
        step = int(rng.integers(1, rows + 1))
    return step, int(rng.integers(rows)), int(rng.integers(tokens))
