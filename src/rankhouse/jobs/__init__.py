"""The work of each command, whole or in shards."""
