"""Floor 2: Run -> Run: rerank, pool, fuse, cache. No torch."""
