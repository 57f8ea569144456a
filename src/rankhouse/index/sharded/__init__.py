"""Several indexes, the shards of one collection, searched as one."""
