"""``rankhouse adapt``: documents and a teacher become a ranker, without judgements."""
