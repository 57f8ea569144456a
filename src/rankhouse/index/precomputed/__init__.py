"""Passage representations stored beside an index."""
