"""Impacts of an index: written once, gone on with after a kill, searched exactly whatever the parts."""

import numpy as np
import pytest
import scipy.sparse

from rankhouse.core.nouns import Document, Query
from rankhouse.index.dense.encode import EncodeOptions
from rankhouse.index.impacts import lists
from rankhouse.index.impacts.encode import encode_impacts
from rankhouse.index.impacts.lists import PackedImpacts
from rankhouse.index.impacts.search import ImpactSearcher, weigh_queries
from rankhouse.index.lexical import scorer

V = 300


class Weights:
    """A small sparse encoder: words are numbers, and weigh more the oftener they occur, in few steps."""

    fingerprint, vocabulary = "weights-1", V

    def __init__(self, table=False):
        self.table, self.passages = table, []

    def word(self, number):
        return str(number)

    def query_files(self):
        return {"table.bin": b"1234"} if self.table else {}

    def query_weights(self, texts):
        return self._weights(texts, 0.3)

    def passage_weights(self, texts):
        self.passages += texts
        return self._weights(texts, 0.7)

    def _weights(self, texts, unit):
        out = np.zeros((len(texts), V), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                out[row, int(word)] += unit
        return scipy.sparse.csr_array(np.log1p(out))


def texts(n, seed=0, most=40):
    rng = np.random.default_rng(seed)
    words = np.minimum(rng.exponential(40, (n, most)).astype(int), V - 1)
    sizes = rng.integers(0 if n > 20 else 1, most, n)
    return [" ".join(map(str, row[:size])) for row, size in zip(words, sizes, strict=True)]


def documents(n, seed=0):
    rng = np.random.default_rng(seed)
    names = rng.permutation(n)
    return [Document(f"d{names[i]:05}", text) for i, text in enumerate(texts(n, seed))]


def encoded(some, folder, encoder=None, **options):
    job = EncodeOptions(len(some), f"collection of {len(some)}", **options)
    return encode_impacts(encoder or Weights(), some, folder, job)


def exact(some, queries, k):
    """Dense dot products by numpy; ties by document id."""
    model = Weights()
    every = model.passage_weights([one.text for one in some]).toarray().astype(np.float64)
    asked = model.query_weights([query.text for query in queries]).toarray().astype(np.float64)
    ids = np.array([one.id for one in some])
    found = []
    for row in asked:
        scores = (every * row).sum(1).astype(np.float32)
        order = [i for i in np.lexsort((ids, -scores)) if scores[i] > 0][:k]
        found.append((ids[order].tolist(), scores[order]))
    return found


def as_found(searcher, encoder, queries, k, threads=1):
    """Ids and scores before those of ties are lowered."""
    weights = weigh_queries(encoder, queries)
    del threads
    hits = searcher.best(weights, k)
    return [(searcher.impacts.ids.take(one.rows), one.scores) for one in hits]


@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")
@pytest.mark.parametrize("entries", [1 << 26, 5_000])
@pytest.mark.parametrize("pruning", [0, 1, 2])
def test_rankings_are_the_dense_dot_product(entries, pruning, tmp_path, monkeypatch):
    monkeypatch.setattr(lists, "MOST_ENTRIES", entries)
    monkeypatch.setattr(scorer, "PRUNING", pruning)
    some, queries = documents(1_500), [Query(f"q{i}", text) for i, text in enumerate(texts(25, 7, 12))]
    searcher = ImpactSearcher(PackedImpacts(encoded(some, tmp_path / "i")))
    assert (len(searcher.packed.parts) > 3) == (entries == 5_000)
    for k in (10, 1_000):
        for (ids, scores), (wanted, wanted_scores) in zip(
            as_found(searcher, Weights(), queries, k), exact(some, queries, k), strict=True
        ):
            np.testing.assert_allclose(scores, wanted_scores, rtol=1e-6)
            assert ids == wanted
