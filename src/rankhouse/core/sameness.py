"""Overlap of two sides: texts, by their words, and the queries and documents that two inputs name.

Texts are the same if their words are, whatever case, width, accents' form or punctuation: one idea for all
that keeps training and test apart. Ids that have nothing in common do not fail: they give a precision of 0,
or a fusion that is one run behind the other, which look like results; so it is said.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Final

from rankhouse.core.errors import name_few, warn
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


LITTLE: Final = 0.1
"""Of the smaller side's ids: fewer in common are said."""
NOTHING: Final = 0.0
"""In its place: only where not one id is in common, since few are usual."""

Named = Mapping[str, Collection[str]]
"""Query id -> ids of documents: judgements, and what :func:`ids_of` makes of others."""


def mismatch(ours: Named, name: str, theirs: Named, other: str, *, documents: float = LITTLE) -> str:
    """Return a remark where two inputs name hardly any query alike, or hardly any document of their queries.

    It is "" where all is well, or where a side is empty, which is another fault. ``name`` and ``other`` are
    what the sides are called, "the run"; ``documents`` is the least share in common, of the smaller side.
    """
    both = [query_id for query_id in ours if query_id in theirs]
    if len(both) < LITTLE * min(len(ours), len(theirs)) or not both:
        return _remark(ours, name, theirs, other, same=len(both), kind="queries")
    own = {doc_id for query_id in both for doc_id in ours[query_id]}
    known = {doc_id for query_id in both for doc_id in theirs[query_id]}
    same = sum(len(set(ours[query_id]).intersection(theirs[query_id])) for query_id in both)
    counts = [sum(len(side[query_id]) for query_id in both) for side in (ours, theirs)]
    if same and same >= documents * min(counts):
        return ""
    return _remark(sorted(own), name, sorted(known), other, same=same, kind="documents")


def _remark(
    ours: Collection[str], name: str, theirs: Collection[str], other: str, *, same: int, kind: str
) -> str:
    if not ours or not theirs:
        return ""
    few = f"hardly any of the {kind} ({same:,})" if same else f"none of the {kind}"
    hint = f"do both name {kind} alike?"
    for passages, whole, by, to in ((ours, theirs, name, other), (theirs, ours, other, name)):
        if not {one.rpartition("#")[0] for one in passages}.isdisjoint(whole):
            hint = f"{by} name passages, {to} whole documents"
    return (
        f"{few} of {name} is in {other}: in {name} there are {name_few(ours, 3, quoted=True)}, in "
        f"{other} {name_few(theirs, 3, quoted=True)}; {hint}"
    )


def warn_of_mismatch(ours: Named, name: str, theirs: Named, other: str, *, documents: float = LITTLE) -> None:
    """Warn of what :func:`mismatch` finds."""
    if remark := mismatch(ours, name, theirs, other, documents=documents):
        warn(remark, 3)
