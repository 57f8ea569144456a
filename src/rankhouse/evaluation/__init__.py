"""Run, Qrels -> numbers, and how sure one can be of them."""
