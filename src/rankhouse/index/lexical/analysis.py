"""Analysis of texts in parallel processes.

Workers are plain child processes talking over pipes: unlike a fork they are safe beside threads, and unlike
multiprocessing's spawn they never run the caller's main module again.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import RankhouseError, warn
from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.kernel import Int32s, Split, Table
from rankhouse.text.analyze import ANALYZERS, Analyzer

DROPPED = -1
_FREE = -2
_SLOTS = 1 << 16
_AT_ONCE = 32
"""Texts that are split before new words are put into the table; until then every occurrence is new."""


class _Table:
    """Hashes of words -> numbers of their terms, at most half full.

    A dict has to look at three far places of memory for every word of a large vocabulary; this table at one,
    fetched ahead. Among a million distinct words two share a hash with probability 3e-8, and would then count
    as one.
    """

    def __init__(self) -> None:
        self._filled = 0
        self.slots = self._empty(_SLOTS)

    @staticmethod
    def _empty(slots: int) -> Table:
        return Table(np.zeros(slots, np.int64), np.full(slots, _FREE, np.int32))

    def keep(self, fresh: Mapping[int, int]) -> None:
        """Put new words into the table: hash -> number."""
        self._filled += len(fresh)
        if 2 * self._filled > len(self.slots.numbers):
            before, taken = self.slots, self.slots.numbers != _FREE
            self.slots = self._empty(1 << (2 * self._filled).bit_length())
            kernel.put(before.hashes[taken], before.numbers[taken], self.slots)
        keys = np.fromiter(fresh, np.int64, len(fresh))
        kernel.put(keys, np.fromiter(fresh.values(), np.int32, len(fresh)), self.slots)


class Numbers:
    """Numbers the terms of raw words, from 0 in the order of their first occurrence; dropped ones are -1."""

    def __init__(self, normal: Callable[[str], str]) -> None:
        self._normal = normal
        self.terms: dict[str, int] = {}
        self._plain = _SelfFilling(self._number)
        self._of_strings, self._of_units = _Table(), _Table()
        self._seed = int.from_bytes(os.urandom(8), "little")

    def of_texts(self, texts: Sequence[str], analyzer: Analyzer) -> tuple[Int32s, Int32s]:
        """Return the numbers of the words of texts, (words,), and how many words each text has, (texts,)."""
        if not (kernel.COMPILED and analyzer.is_by_unicode):
            return self._split(texts, analyzer)
        done = [
            self._split_plain(texts[at : at + _AT_ONCE], analyzer) for at in range(0, len(texts), _AT_ONCE)
        ]
        numbers, counts = zip((np.empty(0, np.int32), np.empty(0, np.int32)), *done, strict=True)
        return np.concatenate(numbers), np.concatenate(counts)

    def _split_plain(self, texts: Sequence[str], analyzer: Analyzer) -> tuple[Int32s, Int32s]:
        """Do the same with some texts, by the compiled reader where they are plain."""
        units, ends = _units(texts)
        found = kernel.split(units, ends, self._of_units.slots, seed=self._seed)
        counts, fresh, numbered = found.counts, dict[int, int](), 0
        is_plain, parts = counts >= 0, list[Int32s]()
        if len(
            others := np.flatnonzero(~is_plain)
        ):  # Python reads them, at once where nothing new is between
            before = np.searchsorted(found.unknown[:, 0], np.cumsum(np.where(is_plain, counts, 0)))[others]
            for some in np.split(others, np.flatnonzero(np.diff(before)) + 1):
                end = int(before[np.searchsorted(others, some[0])])
                self._number_unknown(units, found, fresh, slice(numbered, end))
                numbers, counts[some] = self._split([texts[place] for place in some], analyzer)
                parts.append(numbers)
                numbered = end
        self._number_unknown(units, found, fresh, slice(numbered, None))
        self._of_units.keep(fresh)
        if not parts:
            return found.numbers.copy(), counts  # a view would keep the room for all words alive
        belongs = np.repeat(is_plain, counts)
        every = np.empty(len(belongs), np.int32)
        every[belongs], every[~belongs] = found.numbers, np.concatenate(parts)
        return every, counts

    def _split(self, texts: Sequence[str], analyzer: Analyzer) -> tuple[Int32s, Int32s]:
        words, ends = list[str](), [0]
        for text in texts:
            words += analyzer.words(text)
            ends.append(len(words))
        return self.of(words), np.diff(ends).astype(np.int32)

    def _number_unknown(
        self, units: NDArray[np.uint16], found: Split, fresh: dict[int, int], rows: slice
    ) -> None:
        """Number some words of a split that are not in the table; ``fresh`` has those of it so far."""
        unknown = found.unknown[rows]
        numbers = np.empty(len(unknown), np.int32)
        for row, (_, first, length, key) in enumerate(unknown.tolist()):
            if key not in fresh:
                word = units[first : first + length].tobytes().decode("utf-16-le")
                fresh[key] = self._number(word)
            numbers[row] = fresh[key]
        found.numbers[unknown[:, 0]] = numbers

    def of(self, words: list[str]) -> Int32s:
        """Return the numbers of words: (words,)."""
        if not kernel.COMPILED:
            return np.fromiter(map(self._plain.__getitem__, words), np.int32, len(words))
        ids, unknown = np.empty(len(words), np.int32), np.empty(len(words), np.int64)
        missed = unknown[: kernel.find(words, self._of_strings.slots, ids, unknown)]
        fresh: dict[str, int] = {}
        for place in missed.tolist():
            word = words[place]
            if word not in fresh:
                fresh[word] = self._number(word)
        ids[missed] = [fresh[words[place]] for place in missed.tolist()]
        self._of_strings.keep({hash(word) ^ len(word): number for word, number in fresh.items()})
        return ids

    def _number(self, word: str) -> int:
        term = self._normal(word)
        return self.terms.setdefault(term, len(self.terms)) if term else DROPPED


def _units(texts: Sequence[str]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
    """Spell texts as UTF-16 units, with white space behind each; return them and where each text ends."""
    spelled = [text.encode("utf-16-le", "surrogatepass") for text in texts]
    ends = np.cumsum(np.fromiter(map(len, spelled), np.int64, len(spelled)) // 2 + 1)
    return np.frombuffer(b"\n\0".join([*spelled, b""]), "<u2"), ends


class _SelfFilling(dict[str, int]):
    """The same as a dict that fills itself, for machines without the compiled kernel."""

    def __init__(self, number: Callable[[str], int]) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, word: str) -> int:
        number = self[word] = self._number(word)
        return number


class AnalysedTexts(NamedTuple):
    """Texts as numbers."""

    first: int  # number of the first term in ``terms``; lower numbers were given with earlier chunks
    terms: list[str]  # the distinct terms from there on, in order of their first occurrence
    tokens: NDArray[np.int32]  # numbers of terms, text after text, (tokens,) int32
    lengths: NDArray[np.int32]  # tokens of each text, (texts,) int32


def analyse(texts: Sequence[str], analyzer: Analyzer, numbers: Numbers) -> AnalysedTexts:
    """Turn texts into term numbers, going on from those given already."""
    first = len(numbers.terms)
    words, counts = numbers.of_texts(texts, analyzer)
    known = words >= 0
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    lengths = np.diff(np.concatenate([[0], np.cumsum(known)])[ends])
    fresh = list(islice(numbers.terms, first, None))
    return AnalysedTexts(first, fresh, words[known], lengths.astype(np.int32))


class Analysts:
    """A pool of processes that analyse chunks of texts; with one worker, this very process does.

    Processes number the terms of every chunk afresh. This process goes on numbering until :meth:`forget`,
    which saves looking every term of every chunk up again.
    """

    def __init__(self, analyzer: str, workers: int) -> None:
        workers = self.workers = _bounded(workers)
        self._analyzer = notation.make(analyzer, ANALYZERS, "analyzer")
        self._numbers = Numbers(self._analyzer.normal)
        self._threads = ThreadPoolExecutor(max(1, workers))
        self._free: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._all = [self._start(analyzer) for _ in range(workers if workers > 1 else 0)]

    def __enter__(self) -> Analysts:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in self._all:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):  # a question that the dead child never read
                        pipe.close()

    def _start(self, analyzer: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", __name__, analyzer]
        # A group of its own: a terminal's Ctrl-C is for this process, which ends the others.
        process = subprocess.Popen(  # noqa: S603 - ourselves
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
        self._free.put(process)
        return process

    def submit(self, texts: Sequence[str]) -> Future[AnalysedTexts]:
        """Analyse texts in the background."""
        if not self._all:
            done: Future[AnalysedTexts] = Future()
            done.set_result(analyse(texts, self._analyzer, self._numbers))
            return done
        return self._threads.submit(self._ask, texts)

    def forget(self) -> None:
        """Let go of the numbers given so far; what is analysed next is numbered from 0."""
        self._numbers = Numbers(self._analyzer.normal)

    def _ask(self, texts: Sequence[str]) -> AnalysedTexts:
        process = self._free.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(texts, process.stdin, pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            reply = pickle.load(process.stdout)  # noqa: S301 - our own child's answer
        except (OSError, EOFError) as error:
            code = process.poll()
            raise RankhouseError(
                f"an analysis process ended unexpectedly (exit code {code}); try again with one worker"
            ) from error
        finally:
            self._free.put(process)
        if isinstance(reply, Exception):
            raise reply
        return AnalysedTexts(*reply)


def _bounded(workers: int) -> int:
    """Take no more processes than help; two are always allowed."""
    most = max(2, os.cpu_count() or 1)
    if workers > most:
        warn(
            f"workers={workers}: this machine has {os.cpu_count()} processors, so {most} processes analyse", 3
        )
    return min(workers, most)


def _serve(requests: BinaryIO, replies: BinaryIO, analyzer: Analyzer) -> None:
    while True:
        try:
            texts = pickle.load(requests)  # noqa: S301 - our own parent's question
        except EOFError:
            return
        try:
            reply: tuple[object, ...] | Exception = tuple(analyse(texts, analyzer, Numbers(analyzer.normal)))
        except Exception as error:  # noqa: BLE001 - whatever it is, the parent raises it
            reply = error
        try:
            pickle.dump(reply, replies, pickle.HIGHEST_PROTOCOL)
            replies.flush()
        except BrokenPipeError:  # nobody is left to read it
            os._exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, and ends this process
    _serve(sys.stdin.buffer, sys.stdout.buffer, notation.make(sys.argv[1], ANALYZERS, "analyzer"))
