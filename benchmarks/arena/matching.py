"""Unions and intersections over an index of ours, by the compiled kernel."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Protocol

from rankhouse.index.index import Index
from rankhouse.index.lexical.search import IndexSource, LexicalOptions, Retriever


class Words(Protocol):
    """A query."""

    words: list[str]
    all_of: bool


class Matcher:
    """An open index."""

    def __init__(self, path: Path) -> None:
        source = IndexSource(Index.open(path))
        self._retriever = Retriever(source, LexicalOptions())
        self._scorer = source.scorer(self._retriever.model)

    def answer(self, query: Words, k: int, *, counted: bool) -> int:
        """Find the best k documents, none for 0; return how many match, or 1 where that is not asked for."""
        counts = Counter(query.words)
        terms = self._retriever.weighted(counts)
        if query.all_of and len(terms) < len(counts):
            return 0 if counted else 1  # a word that occurs nowhere
        if counted:
            return self._scorer.counted(terms, k, every=query.all_of)[1]
        self._scorer.hits([terms], k, every=query.all_of)
        return 1
