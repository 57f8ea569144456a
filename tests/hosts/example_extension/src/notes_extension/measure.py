"""A measure: 1 where the first document is relevant."""


def first_hit(ranked, judged):
    """Return the value of one query: its document ids, best first, and its judgements, id -> grade."""
    return float(any(judged.get(doc_id, 0) > 0 for doc_id in ranked[:1]))
