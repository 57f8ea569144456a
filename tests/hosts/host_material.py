"""Shared material of the tests of all hosts: a few documents, questions, judgements, systems and rankers."""

import numpy as np

TEXTS = {
    "d1": "A lock lifts ships between two levels of water.",
    "d2": "Pilots board ships and steer them into the harbour.",
    "d3": "Ships carried grain; prices rose when the harvest was poor.",
    "d4": "A lock lifts ships between two levels of water.",
    "d5": "The harbour master counts ships at noon.",
    "d6": "Locks of hair were kept in lockets.",
    "d7": "Grain prices fell; ships stayed in the harbour.",
    "d8": "Water flows from the higher level to the lower.",
}
TITLES = {"d2": "Pilots", "d5": "The harbour"}
QUERIES = {"q1": "who steers ships into a harbour", "q2": "what lifts ships", "q3": "price of grain"}
QRELS = {"q1": {"d2": 2, "d5": 1}, "q2": {"d1": 1, "d4": 1}, "q3": {"d3": 1, "d7": 1}}
EXPRESSIONS = (
    "bm25",
    "ql(mu=500) % 3",
    "bm25(k1=0.9, b=0.4, feedback=rm3) + 0.5 * ql",
    'bm25 % 5 >> "ranker"',
    'rrf(bm25, bm25 % 4 >> "ranker") % 4',
)


class Overlap:
    """A ranker of a person's own: shared words, so that scores tie."""

    fingerprint, scale = "overlap", "score"

    def score(self, pairs):
        def words(text):
            return set(text.lower().split())

        shared = [len(words(p.query.text) & words(p.passage.text)) for p in pairs]
        return np.array(shared, np.float32)


class Broken:
    """A ranker whose scores are not numbers."""

    fingerprint, scale = "broken", "score"

    def score(self, pairs):
        return np.full(len(pairs), np.nan, np.float32)
