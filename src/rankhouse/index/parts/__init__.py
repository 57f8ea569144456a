"""Several indexes, the parts of one collection, searched as one."""
