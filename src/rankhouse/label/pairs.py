"""PAIRS: labelled pairs with their texts, one JSON object a line, ready to be learned from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from rankhouse.core.errors import BadData
from rankhouse.core.files import Skips, as_text, numbered_lines
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.outputs import writing


class LabelledPair(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a PAIRS file.

    Attributes:
        query_id: The query.
        query: Its text.
        doc_id: The document.
        passage: Number of the passage in it.
        text: The passage's text.
        label: 1 relevant, 0 not.
        score: What the teacher gave it, on the teacher's scale; absent where it was not asked.
    """

    query_id: str
    query: str
    doc_id: str
    passage: int
    text: str
    label: int
    score: float | None = None

    @property
    def pair(self) -> Pair:
        """The pair without its label."""
        return Pair(Query(self.query_id, self.query), Passage(self.doc_id, self.passage, self.text))


_decode = msgspec.json.Decoder(LabelledPair).decode
_encode = msgspec.json.Encoder().encode


def read_pairs(path: Path | str, skips: Skips | None = None) -> Iterator[LabelledPair]:
    """Stream the pairs of a file, plain or compressed.

    Raises:
        BadData: A line that is no such object; says which.
        MissingInput: No such file.
    """
    path, skips = Path(path), Skips() if skips is None else skips
    for line, raw in numbered_lines(path):
        if not raw.strip():
            continue
        try:
            as_text(raw, path, line)
            yield _pair(raw, path, line)
        except BadData as fault:
            skips.take(fault)


def _pair(raw: bytes, path: Path, line: int) -> LabelledPair:
    try:
        return _decode(raw)
    except msgspec.DecodeError as error:
        wanted = '{"query_id", "query", "doc_id", "passage", "text", "label"} and perhaps "score"'
        raise BadData(f"not a labelled pair ({error}); a line is {wanted}", path, line) from error


def write_pairs(pairs: Iterable[LabelledPair], path: Path | str) -> int:
    """Write pairs, whole or not at all, compressed by suffix; gives how many there were.

    Raises:
        OutputFailed: The file cannot be written; whatever stood there before still does.
    """
    count = 0
    with writing(Path(path)) as out:
        for pair in pairs:
            out.write(_encode(pair).decode() + "\n")
            count += 1
    return count
