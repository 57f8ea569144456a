"""Files: corpora, runs, judgements, pairs, whole outputs, locks, URLs."""
