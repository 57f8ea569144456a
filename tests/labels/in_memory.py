"""Votes of a panel on pairs that are all in memory."""

import numpy as np

from rankhouse.labels.agreement import summarise
from rankhouse.labels.votes import YES, Votes, vote


def agree(panel, pairs, *, most=25, chunk=4096):
    """Ask a panel about pairs, and compare what they say."""
    parts = [vote(panel, pairs[start : start + chunk]) for start in range(0, len(pairs), chunk)]
    marks = np.concatenate([np.empty(0, np.uint8), *(part.marks for part in parts)])
    scores = np.concatenate([np.empty(0, np.float32), *(part.scores for part in parts)])
    positives = {}
    for pair, one in zip(pairs, marks.tolist(), strict=True):
        positives[pair.query.id] = positives.get(pair.query.id, 0) + (one & YES)
    votes = Votes(marks, scores)
    return summarise(panel, votes, positives, lambda places: [pairs[i] for i in places], most=most)
