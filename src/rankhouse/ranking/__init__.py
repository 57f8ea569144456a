"""Run -> Run: rerank, pool, fuse, cache. No torch."""
