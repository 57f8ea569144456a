"""``rankhouse adapt``: documents and a teacher become a ranker of one's own, without judgements."""
