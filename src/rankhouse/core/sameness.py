"""When two texts are the same: if their words are, whatever case, width, accents' form or punctuation.

One idea for all that keeps training and test apart: what may be labelled, learned from, and measured on.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

from rankhouse.core.nouns import Query


def normalised(text: str) -> str:
    """Return the words of a text: compatibility forms unified, no case, no punctuation, single spaces.

    Signs that tell things apart stay: C, C# and C++ are three words.
    """
    unified = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(" " if _separates(c) else c for c in unified).split())


@cache
def _separates(character: str) -> bool:
    return character not in "#%&@" and unicodedata.category(character)[0] in "PZC"


class Texts:
    """Texts by their words, to find the same ones again; a text without words is the same as none."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self._names: dict[str, list[str]] = {}
        for name, text in texts:
            if words := normalised(text):
                self._names.setdefault(words, []).append(name)

    def __contains__(self, text: str) -> bool:
        return normalised(text) in self._names

    def named(self, text: str) -> list[str]:
        """Return the names of the texts that are the same as this one."""
        return self._names.get(normalised(text), [])


def same_queries(some: Iterable[Query], others: Iterable[Query]) -> Iterator[tuple[str, str]]:
    """Stream (id, other id) of queries that ask the same question, whatever their ids."""
    known = Texts((query.id, query.text) for query in others)
    for query in some:
        for other in known.named(query.text):
            yield query.id, other
