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
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import RankhouseError, RankhouseWarning
from rankhouse.index.lexical.term_ids import Numbers
from rankhouse.text.analyze import ANALYZERS, Analyzer


class AnalysedTexts(NamedTuple):
    """Texts as numbers.

    Attributes:
        first: Number of the first term in ``terms``; lower numbers were given with earlier chunks.
        terms: The distinct terms from there on, in order of their first occurrence.
        tokens: Numbers of terms, text after text, (tokens,) int32.
        lengths: Tokens of each text, (texts,) int32.
    """

    first: int
    terms: list[str]
    tokens: NDArray[np.int32]
    lengths: NDArray[np.int32]


def analyse(texts: Sequence[str], analyzer: Analyzer, numbers: Numbers) -> AnalysedTexts:
    """Turn texts into term numbers, going on from those given already."""
    first = len(numbers.terms)
    words, ends = list[str](), [0]
    for text in texts:
        words += analyzer.words(text)
        ends.append(len(words))
    tokens = numbers.of(words)
    known = tokens >= 0
    lengths = np.diff(np.concatenate([[0], np.cumsum(known)])[ends])
    fresh = list(islice(numbers.terms, first, None))
    return AnalysedTexts(first, fresh, tokens[known], lengths.astype(np.int32))


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
        warnings.warn(
            f"workers={workers}: this machine has {os.cpu_count()} processors, so {most} processes analyse",
            RankhouseWarning,
            stacklevel=3,
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked is told, and ends this process
    _serve(sys.stdin.buffer, sys.stdout.buffer, notation.make(sys.argv[1], ANALYZERS, "analyzer"))
