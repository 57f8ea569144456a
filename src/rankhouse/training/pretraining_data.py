"""Data of T5's pre-training: a collection as one long row of tokens, and spans cut out of its rows.

Documents lie end to end, each closed by the end token, and rows are cut out of that whatever documents they
touch; only the rows of a batch are in memory. Of each row pieces are cut out, and the model says what they
were: Raffel et al., "Exploring the Limits of Transfer Learning", JMLR 2020, section 3.1.4, figure 2: 15 % of
the tokens go, in spans of 3 on average; in the input a span leaves a sentinel, in the target each sentinel is
followed by what stood there. As in the authors' code all rows of one length have the same number of tokens
cut and of spans, a row begins with kept tokens and ends with a span, and the target has no last sentinel.
Shapes: n rows, t tokens of a row before anything is cut, s spans, i input tokens, o target tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from rankhouse.core.errors import BadData, MissingInput, WrongUse
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.sampling import generator
from rankhouse.io.corpora import corpus_files, read_documents
from rankhouse.io.outputs import replacing

IntArray = NDArray[np.int64]

_LONGEST = 65_536


class SpanBatch(NamedTuple):
    """Inputs (n, i) and targets (n, o) of a batch, both with the end token last."""

    inputs: IntArray
    targets: IntArray


class Specials(NamedTuple):
    """Ids of the tokens that stand for no text: the end, and the sentinels in their order."""

    end: int
    sentinels: IntArray


@dataclass(frozen=True)
class Corruption:
    """Share and length of the spans cut out of a row.

    Raises WrongUse: numbers with which nothing would be cut, or nothing kept.
    """

    length: int = 512  # most tokens of the input, i, its end token among them
    density: float = 0.15  # share of the tokens that are cut
    span: float = 3.0  # tokens of a span on average

    def __post_init__(self) -> None:
        if not 0 < self.density < 1 or self.span < 1:
            raise WrongUse(
                f"density={self.density}, span={self.span}: give a share between 0 and 1 and a mean span "
                "of 1 token or more; T5 was trained with density=0.15, span=3"
            )
        if not 8 <= self.length <= _LONGEST:
            raise WrongUse(
                f"length={self.length}: an input has from 8 to {_LONGEST:,} tokens; T5 was trained with 512"
            )

    def _of(self, tokens: int) -> tuple[int, int]:
        """Tokens cut and spans of a row of so many tokens."""
        noise = min(max(round(tokens * self.density), 1), tokens - 1)
        spans = min(max(round(noise / self.span), 1), noise, tokens - noise)
        return noise, spans

    @cached_property
    def tokens(self) -> int:
        """t: the longest row whose input is no longer than ``length``."""
        tokens = 2
        while True:
            noise, spans = self._of(tokens + 1)
            if tokens + 1 - noise + spans + 1 > self.length:
                return tokens
            tokens += 1

    @property
    def spans(self) -> int:
        """s: spans of a row."""
        return self._of(self.tokens)[1]

    @property
    def targets(self) -> int:
        """o: tokens of a target."""
        return sum(self._of(self.tokens)) + 1

    def masks(self, rows: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw which tokens are cut: (n, t), every way of cutting s spans as likely as any other."""
        noise, spans = self._of(self.tokens)
        intact = _parts(rows, self.tokens - noise, spans, rng)
        cut = _parts(rows, noise, spans, rng)
        lengths = np.stack([intact, cut], axis=2).reshape(-1)  # kept, cut, kept, cut ... row after row
        is_cut = np.tile(np.array([False, True]), rows * spans)
        return np.repeat(is_cut, lengths).reshape(rows, self.tokens)

    def apply(self, tokens: IntArray, specials: Specials, rng: np.random.Generator) -> SpanBatch:
        """Cut spans out of rows (n, t)."""
        cut = self.masks(len(tokens), rng)
        end = np.full((len(tokens), 1), specials.end)
        inputs = _replace(tokens, cut, specials.sentinels)
        targets = _replace(tokens, ~cut, specials.sentinels)
        return SpanBatch(np.concatenate([inputs, end], 1), np.concatenate([targets, end], 1))


def _parts(rows: int, total: int, parts: int, rng: np.random.Generator) -> IntArray:
    """Split a number into positive parts at random: (n, parts)."""
    places = np.argsort(rng.random((rows, total - 1)), axis=1)[:, : parts - 1] + 1
    edges = np.concatenate(
        [np.zeros((rows, 1), np.int64), np.sort(places, 1), np.full((rows, 1), total)], axis=1
    )
    return np.diff(edges)


def _replace(tokens: IntArray, gone: NDArray[np.bool_], sentinels: IntArray) -> IntArray:
    """Put one sentinel in the place of each stretch that is gone; all rows lose equally many tokens."""
    before = np.concatenate([np.zeros((len(gone), 1), bool), gone[:, :-1]], axis=1)
    begins = gone & ~before
    number = np.maximum(np.cumsum(begins, axis=1) - 1, 0)
    marked = np.where(begins, sentinels[number], tokens)
    left: IntArray = marked[~gone | begins].reshape(len(tokens), -1)
    return left


def collection_name(sources: Iterable[Path | str]) -> str:
    """Name a collection by its content; an ``ir_datasets:`` collection by its own name."""
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
    sources: Sequence[Path | str], tokenizer: Tokenizer, end: int, path: Path, progress: Progress = ignore
) -> None:
    """Tokenise a collection into a file of uint16 or, for large vocabularies, uint32; whole or absent.

    Sources are those of ``io.corpora.read_documents``.

    Raises BadData: a malformed document.
    """
    kind, done = _kind(tokenizer), 0
    texts = (d.full_text for d in read_documents(sources) if d.full_text.strip())
    with replacing(path) as temporary, temporary.open("wb") as file:
        while some := list(islice(texts, 256)):
            for spelled in tokenizer.encode_batch_fast(some, add_special_tokens=False):
                file.write(np.array([*spelled.ids, end], kind).tobytes())
            done += len(some)
            progress(done)


def _kind(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u2" if tokenizer.get_vocab_size() <= 1 << 16 else "<u4")


@dataclass(frozen=True)
class Stream:
    """Rows of a file of tokens, the same for the same seed and number.

    An epoch is every row once, in an order that needs no list of rows: with c rows, the k-th one read is row
    (a k + b) mod c for a step a that shares no divisor with c. Each epoch draws a, b and where the first row
    begins. The last rows of the file are held out.
    """

    ids: NDArray[np.unsignedinteger]  # all tokens of the file
    tokens: int  # t
    seed: int

    @classmethod
    def open(cls, path: Path, tokenizer: Tokenizer, tokens: int, seed: int) -> Stream:
        """Map a file of :func:`write_tokens` into memory; BadData if it has fewer than four rows of text."""
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
        """Number of rows kept for measuring."""
        return min(64, max(1, len(self.ids) // self.tokens // 50))

    @property
    def rows(self) -> int:
        """c: rows of an epoch."""
        return (len(self.ids) - self.held_out_rows * self.tokens - self.tokens + 1) // self.tokens

    def batch(self, number: int, size: int) -> NDArray[np.int64]:
        """Read the batch of this number, from 0: (n, t)."""
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
