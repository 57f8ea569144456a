"""Hits as a page shows them: the passages that were found, each a link to its place in the document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Document
from rankhouse.core.progress import counted
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.page.extract import SHOWN, Block, extract, place_of
from rankhouse.serve.page.render import address
from rankhouse.serve.search.passages import FoundPassages, PassageFinder, words_nowhere
from rankhouse.serve.search.shapes import SearchResponse

_BRIEF = 110
"""Characters of a document's further passages."""
_NOTHING = "nothing was found"


class ShownPassage(NamedTuple):
    """A passage of a hit: the address of its place in the document, and what is shown of it."""

    address: str
    blocks: Sequence[Block]

    @property
    def text(self) -> str:
        """Return it in one line."""
        return " ".join(" ".join(block.text for block in self.blocks).split())


class ShownAnswer(NamedTuple):
    """An answer without what is no answer to the question.

    Attributes:
        passages: Document id -> its passages, the best first.
        summary: How many documents are shown, of how many.
        before: A sentence that stands before the hits; "" for none.
        places: Document id -> where it is in its file, for documents that are parts of one.
    """

    answer: SearchResponse
    passages: Mapping[str, Sequence[ShownPassage]]
    summary: str
    before: str = ""
    places: Mapping[str, str] = MappingProxyType({})


def shown(service: ServedCollection, answer: SearchResponse, deadline: Deadline) -> ShownAnswer:
    """Find the passages of an answer, and leave out what has nothing to do with the question."""
    view = service.catalogue.view(answer.index)
    try:
        documents = view.index.documents.fetch([hit.doc_id for hit in answer.hits])
        nowhere = words_nowhere(view.index, answer.query)
        spec = service.catalogue.system(answer.system, view.name)
        finder = PassageFinder(service.catalogue, view, spec, answer.query, deadline=deadline)
    except RankhouseError:  # a part of the index went away meanwhile: the ranking is there all the same
        return ShownAnswer(answer, {}, _count(len(answer.hits), answer.found))
    found = dict(zip((one.id for one in documents), finder.find(documents), strict=True))
    hits = tuple(hit for hit in answer.hits if not finder.is_far(found[hit.doc_id]))
    kept = {hit.doc_id for hit in hits}
    own = {"index": view.name, "query": answer.query, "system": answer.system}
    passages = {one.id: passages_of(one, found[one.id], finder, own) for one in documents if one.id in kept}
    trimmed = len(hits) < len(answer.hits)
    return ShownAnswer(
        msgspec.structs.replace(
            answer,
            hits=hits,
            warnings=tuple(one for one in answer.warnings if not (nowhere and one.startswith(_NOTHING))),
        ),
        passages,
        _count(len(hits), len(hits) if trimmed else answer.found, by_meaning=finder.by_meaning),
        _nowhere(nowhere, by_meaning=finder.by_meaning, is_empty=not hits),
        places={one.id: place for one in documents if (place := place_of(one))},
    )


def passages_of(
    document: Document, found: FoundPassages, finder: PassageFinder, own: Mapping[str, str]
) -> list[ShownPassage]:
    """Return what is shown of a document's passages: much of the first, a line of the others."""
    passages = []
    for number, (start, end) in enumerate(found.spans or [(0, 0)]):
        most = _BRIEF if number else SHOWN
        blocks = extract(document, (start, end or 2 * SHOWN), finder.weights, finder.analyzer, most=most)
        target = address("/document", **own, doc=document.id, start=start if end else "", end=end or "")
        if blocks:
            passages.append(ShownPassage(target + "#here" * bool(end), blocks))
    return passages


def _count(shown: int, found: int, *, by_meaning: bool = False) -> str:
    """Say how many documents are shown; by meaning every document is found, which says nothing."""
    if shown >= found or not shown:
        return counted(shown, "document") if shown else ""
    return f"top {shown:,}" if by_meaning else f"{shown:,} of {found:,} documents"


def _nowhere(words: Sequence[str], *, by_meaning: bool, is_empty: bool) -> str:
    """Say that no document has a word of the question."""
    if not words:
        return ""
    *others, last = (f"\N{LEFT DOUBLE QUOTATION MARK}{one}\N{RIGHT DOUBLE QUOTATION MARK}" for one in words)
    named = f"{', '.join(others)} or {last}" if others else last
    if by_meaning:
        near = ", and none is near it in meaning." if is_empty else "; nearest in meaning:"
        return f"No document contains {named}{near}"
    return f"No document contains {named}."
