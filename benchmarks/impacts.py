"""Impacts of a sparse encoder: queries a second through the compiled kernel, pruned beside exhaustive.

Synthetic weights of SPLADE-like lengths: 30,522 words whose frequencies fall as rank^-0.6, documents of
about 130 words (lognormal), queries of about 25 words (SPLADE) or 6 (a table, which expands nothing);
weights log(1 + x), x exponential, higher for a quarter of the words. Random weights of random words are the
worst case for pruning. One thread, processor seconds of the search alone, rounds alternate and the medians
are printed; all ways give the same bits, which is checked.

    python benchmarks/impacts.py                       # 100,000 documents
    python benchmarks/impacts.py --documents 20000 --queries 100 --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse

from rankhouse.core.nouns import Document, Query
from rankhouse.index.dense.vectors import EncodeOptions
from rankhouse.index.impacts.encode import encode_impacts
from rankhouse.index.impacts.impacts import PackedImpacts
from rankhouse.index.impacts.search import ImpactSearcher, weigh_queries
from rankhouse.index.lexical import scorer

WORDS = 30_522
WAYS = {"exhaustive": 0, "as chosen": 1, "pruned": 2}


class Synthetic:
    """An encoder of texts that are names of seeds: draws weights of words."""

    fingerprint, vocabulary, query_words = "synthetic", WORDS, 25

    def __init__(self) -> None:
        share = np.arange(1, WORDS + 1) ** -0.6
        self._edges = np.cumsum(share / share.sum())

    def word(self, number: int) -> str:
        """Name a word."""
        return f"w{number}"

    def query_files(self) -> dict[str, bytes]:
        """Return no table."""
        return {}

    def passage_weights(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """Weigh documents."""
        return self._drawn(texts, 130)

    def query_weights(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """Weigh queries."""
        return self._drawn(texts, self.query_words)

    def _drawn(self, texts: Sequence[str], size: int) -> scipy.sparse.csr_array:
        rows = []
        for text in texts:
            rng = np.random.default_rng(zlib.crc32(text.encode()))
            n = int(np.clip(rng.lognormal(np.log(size), 0.3), 5, 4 * size))
            words = np.unique(np.searchsorted(self._edges, rng.random(n)).clip(max=WORDS - 1))
            own = rng.random(len(words)) < 0.25
            weights = np.log1p(rng.exponential(np.where(own, 3.0, 0.5))).astype(np.float32)
            rows.append((words, weights))
        ends = np.cumsum([0, *(len(words) for words, _ in rows)])
        columns = np.concatenate([np.empty(0, np.int64), *(words for words, _ in rows)])
        data = np.concatenate([np.empty(0, np.float32), *(weights for _, weights in rows)])
        return scipy.sparse.csr_array((data, columns, ends), shape=(len(texts), WORDS))


def main() -> None:
    """Build, search in all ways, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    encoder = Synthetic()
    with tempfile.TemporaryDirectory() as folder:
        documents = (Document(f"d{i:08}", f"d{i}") for i in range(options.documents))
        started = time.process_time()
        job = EncodeOptions(options.documents, "synthetic")
        impacts = encode_impacts(encoder, documents, Path(folder) / "impacts", job)
        size = sum(path.stat().st_size for path in (Path(folder) / "impacts").rglob("*") if path.is_file())
        print(
            f"{impacts.state.entries:,} impacts of {len(impacts):,} documents, {size / 1e6:,.0f} MB, "
            f"{time.process_time() - started:.0f} s to draw, write and pack"
        )
        searcher = ImpactSearcher(PackedImpacts(impacts))
        print(f"{'words':>5} {'k':>5}  {'way':<11} {'q/s':>8} {'postings read':>14}")
        for encoder.query_words in (6, 25):
            queries = [Query(str(i), f"q{i}") for i in range(options.queries)]
            weights = weigh_queries(encoder, queries)
            for k in (10, 1000):
                for line in measured(searcher, weights, k, options.rounds):
                    print(f"{encoder.query_words:>5} {k:>5}  {line}", flush=True)


def measured(searcher: ImpactSearcher, weights: scipy.sparse.csr_array, k: int, rounds: int) -> Iterator[str]:
    """Search in all ways, alternating; yield a line for each."""
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    read, answers = dict.fromkeys(WAYS, 0.0), {}
    for _ in range(rounds):
        for way, scorer.PRUNING in WAYS.items():
            before, started = searcher.postings.copy(), time.process_time()
            hits = searcher.best(weights, k)
            seconds[way].append(time.process_time() - started)
            all_of_them, unpacked = searcher.postings - before
            read[way] = unpacked / all_of_them
            answers[way] = [(h.rows.tobytes(), h.scores.tobytes()) for h in hits]
    assert answers["exhaustive"] == answers["pruned"] == answers["as chosen"]
    for way, times in seconds.items():
        yield f"{way:<11} {weights.shape[0] / statistics.median(times):>8,.0f} {read[way]:>14.0%}"


if __name__ == "__main__":
    main()
