"""A small world to label: documents about ports, and a teacher that reads words."""

import numpy as np
import pytest

from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.text.split import Windows

SENTENCES = (
    "Pilots board ships and steer them into the harbour.",
    "The moon pulls the sea twice a day.",
    "A lock lifts ships between two levels of water.",
    "Cranes unload coal and grain at night.",
    "High water helps deep ships over the bar.",
    "Nobody swims in the harbour in winter.",
)


class Overlap:
    """Share of the query's words that the passage has, as a probability. Remembers what it was asked."""

    scale = "probability"

    def __init__(self, fingerprint="overlap"):
        self.fingerprint, self.asked = fingerprint, []

    def score(self, pairs):
        self.asked += [(q.id, p.doc_id, p.index) for q, p in pairs]
        return np.array([share(q.text, p.text) for q, p in pairs], np.float32)


def share(query, text):
    words = set(query.lower().split())
    return len(words & set(text.lower().replace(".", "").split())) / max(1, len(words))


class World:
    """Twelve documents of one to six sentences, four queries, a run of all documents, judgements."""

    def __init__(self):
        self.documents = {
            f"d{n}": Document(f"d{n}", " ".join(SENTENCES[(n + i) % 6] for i in range(1 + n % 6)))
            for n in range(12)
        }
        self.queries = [
            Query("q1", "pilots steer ships"),
            Query("q2", "high water ships"),
            Query("q3", "coal cranes at night"),
            Query("q4", "glaciers"),
        ]
        self.run = Run.of(
            (query.id, doc_id, float((7 * n + 3 * k) % 13))
            for k, query in enumerate(self.queries)
            for n, doc_id in enumerate(self.documents)
        )
        self.qrels = {
            "q1": {"d0": 1, "d5": 2, "d7": 0, "d11": 1},
            "q2": {"d4": 1, "d3": 1, "d10": 2},
            "q3": {"d3": 1, "d9": 1},
            "q4": {"d1": 1},
        }
        self.split = Windows(8, 8, None)

    @property
    def pairs(self):
        from rankhouse.core.nouns import Pair

        return [
            Pair(query, passage)
            for query in self.queries
            for doc_id in self.run[query.id].doc_ids
            for passage in self.split(self.documents[doc_id])
        ]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def teacher():
    return Overlap()
