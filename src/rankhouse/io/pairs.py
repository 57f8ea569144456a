"""PAIRS: labelled pairs with their texts, one JSON object a line, and triples as others write them."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np

from rankhouse.core.errors import BadData, warn
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.progress import counted
from rankhouse.core.qrels import MOST_GRADE
from rankhouse.io.decoding import from_json
from rankhouse.io.duplicate_ids import digest_of
from rankhouse.io.files import (
    Skips,
    as_text,
    each_record,
    is_packed,
    most_bytes,
    numbered_lines,
    open_bytes,
    too_long,
)
from rankhouse.io.outputs import write_lines

_HIGHEST: Final = float(np.finfo(np.float32).max)
UNDECIDED: Final = -1
"""The label of a pair that nobody called relevant or not: a teacher's score is all there is."""


class LabelledPair(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a PAIRS file.

    Attributes:
        query_id: The query.
        query: Its text.
        doc_id: The document.
        passage: Number of the passage in it.
        text: The passage's text.
        label: 1 relevant, 0 not; higher ones are grades, where somebody gave them. -1: nobody decided, so
            that only its score can be learned from.
        score: What the teacher gave it, on the teacher's scale; absent where it was not asked.
        scale: The scale of the score (:mod:`rankhouse.core.scores`); "" where it was not written down.
    """

    query_id: str
    query: str
    doc_id: str
    passage: int
    text: str
    label: int
    score: float | None = None
    scale: str = ""

    @classmethod
    def of(cls, pair: Pair, label: int, score: float | None = None, scale: str = "") -> LabelledPair:
        """Label a pair.

        Args:
            pair: With its texts.
            label: 1 relevant, 0 not, a grade, or -1 where nobody decided.
            score: What the teacher gave it.
            scale: On which scale.
        """
        query, passage = pair
        return cls(
            query.id,
            query.text,
            passage.doc_id,
            passage.index,
            text=passage.text,
            label=label,
            score=score,
            scale=scale,
        )

    @property
    def pair(self) -> Pair:
        """The pair without its label."""
        return Pair(Query(self.query_id, self.query), Passage(self.doc_id, self.passage, self.text))


class _Loose(msgspec.Struct):
    """A pair as other programs write it: whole passages without a number, labels as 1.0 or true."""

    query_id: str
    query: str
    doc_id: str
    text: str
    label: int | float | bool
    passage: int = 0
    score: float | None = None
    scale: str = ""


_WANTED = (
    'not a labelled pair; a line is {"query_id", "query", "doc_id", "passage", "text", "label"} '
    'and perhaps "score"'
)
_decoder, _loose = msgspec.json.Decoder(LabelledPair), msgspec.json.Decoder(_Loose)


def decode_pair(raw: bytes, path: Path, line: int) -> LabelledPair:
    """Read one line of a PAIRS file; lines count from 1.

    Raises BadData: it is no such object; the label is no whole number from 0; the passage is below 0.
    """
    try:
        pair = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pair = _tolerant(raw, path, line)
    undecided = pair.label == UNDECIDED and pair.score is not None
    if not undecided and not 0 <= pair.label <= MOST_GRADE:
        raise BadData(
            f"the label {pair.label} is neither 1 (relevant), 0 (not relevant) nor a grade; -1 "
            "(nobody decided) stands beside a score",
            path,
            line,
        )
    if pair.score is not None and not abs(pair.score) <= _HIGHEST:
        raise BadData(f"the score {pair.score} is no finite number of 32 bits", path, line)
    if not 0 <= pair.passage <= MOST_GRADE:
        raise BadData(f"the passage {pair.passage} is no place in a document; the first is 0", path, line)
    return pair


def _tolerant(raw: bytes, path: Path, line: int) -> LabelledPair:
    try:
        held = _loose.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return from_json(_decoder, raw, _WANTED, path, line=line)
    if isinstance(held.label, float) and not held.label.is_integer():
        raise BadData(f"the label {held.label} is no whole number (0: not relevant)", path, line)
    known = (held.query_id, held.query, held.doc_id, held.passage, held.text)
    return LabelledPair(*known, int(held.label), held.score, held.scale)


class _Text(msgspec.Struct):
    """A passage of a record of a query's passages."""

    text: str
    title: str | None = ""
    docid: str | int = ""


_PASSAGES: Final = (
    (1, re.compile(r"positives?(_\d+)?|pos|positive_passages").fullmatch),
    (0, re.compile(r"negatives?(_\d+)?|neg|negative_passages").fullmatch),
)
"""Labels, and the keys of a query's passages that have them."""
_HEADS: Final = {"query", "anchor", "positive", "negative", "passage", "pos", "neg"}
_is_number = re.compile(r"\s*[+-]?\d*\.?\d+\s*", re.ASCII).fullmatch
_is_id = re.compile(r"[\w.:-]*\d[\w.:-]*", re.ASCII).fullmatch
_record = msgspec.json.Decoder(dict[str, Any])


def pairs_of(raw: bytes, path: Path, line: int) -> list[LabelledPair]:
    """Read the pairs of one line: that of a PAIRS file, or those of a query with relevant and other passages.

    The latter are MS MARCO's triples of texts, with tabs between them, and the JSON of sentence-transformers
    (anchor, positive, negative), FlagEmbedding (query, pos, neg) and Tevatron (positive_passages,
    negative_passages). Without ids, a query goes by its text and a passage by a digest.

    Raises BadData where it is neither, or a triple of ids, or has an empty text.
    """
    if not raw.lstrip().startswith(b"{") and b"\t" in raw:
        return _triple(as_text(raw, path, line).split("\t"), path, line)
    try:
        return [decode_pair(raw, path, line)]
    except BadData:
        if pairs := _of_query(raw, path, line):
            return pairs
        raise


def _of_query(raw: bytes, path: Path, line: int) -> list[LabelledPair]:
    """Read the pairs of a record of a query with its passages; none of another record."""
    try:
        record = from_json(_record, raw, _WANTED, path, line=line)
        text = msgspec.convert(record.get("query") or record.get("anchor") or "", str)
        query = Query(str(msgspec.convert(record.get("query_id") or text, str | int)), text)
        passages = [
            (label, msgspec.convert(one, str | _Text))
            for label, is_key in _PASSAGES
            for key, given in record.items()
            if is_key(key) and given is not None
            for one in (given if isinstance(given, list) else [given])
        ]
    except msgspec.MsgspecError:
        return []
    pairs = [_labelled(query, one, label) for label, one in passages]
    if pairs and not (text.strip() and all(pair.text for pair in pairs)):
        raise BadData("the query or one of its passages is empty", path, line)
    return pairs


def _triple(texts: Sequence[str], path: Path, line: int) -> list[LabelledPair]:
    if len(texts) != 3 or not all(map(str.strip, texts)):
        raise BadData(
            "neither a labelled pair nor a triple, which is a query, a relevant passage and another one with "
            f"tabs between them; the line has {counted(len(texts), 'column')}, none of which may be empty",
            path,
            line,
        )
    if line == 1 and _HEADS.issuperset(map(str.lower, map(str.strip, texts))):
        return []
    if all(map(_is_id, map(str.strip, texts))):
        raise BadData(
            "a triple of ids has no texts; give triples of texts, or --queries, --index, --qrels and --run",
            path,
            line,
        )
    if _is_number(texts[2]):
        raise BadData(
            f'the third text is the number "{texts[2].strip()}", not a passage; of labelled pairs, '
            + _WANTED.partition("; ")[2],
            path,
            line,
        )
    query, relevant, other = (" ".join(text.split()) for text in texts)
    return [_labelled(Query(query, query), text, label) for text, label in ((relevant, 1), (other, 0))]


def _labelled(query: Query, given: str | _Text, label: int) -> LabelledPair:
    one = _Text(given) if isinstance(given, str) else given
    text = f"{one.title or ''} {one.text}".strip()
    doc_id = str(one.docid) or digest_of(text).hex()
    return LabelledPair(query.id, query.text, doc_id, 0, text=text, label=label)


def numbered_pairs(path: Path | str, skips: Skips | None = None) -> Iterator[tuple[int, LabelledPair]]:
    """Stream (line, pair) of a file, plain or compressed; by default no faulty line is skipped.

    Raises BadData for a line that is no labelled pair, and MissingInput.
    """
    path, skips = Path(path), Skips() if skips is None else skips
    for line, pairs in each_record(numbered_lines(path), path, pairs_of, skips):
        for pair in pairs:
            yield line, pair


def read_pairs(path: Path | str, skips: Skips | None = None) -> Iterator[LabelledPair]:
    """Stream the pairs of a file, see :func:`numbered_pairs`."""
    return (pair for _, pair in numbered_pairs(path, skips))


def distinct(
    pairs: Iterable[LabelledPair], value: Callable[[LabelledPair], object], name: str
) -> Iterator[LabelledPair]:
    """Stream pairs of query and passage, each once.

    Args:
        value: What must be the same wherever a pair stands.
        name: What that is called, for the message.

    Raises:
        BadData: A pair has two values.

    Warns:
        RankhouseWarning: Pairs stand more than once; given at the end.
    """
    values: dict[bytes, object] = {}
    repeated, first = 0, ""
    for pair in pairs:
        key, own = digest_of(pair.query_id, pair.doc_id, str(pair.passage)), value(pair)
        if key not in values:
            values[key] = own
            yield pair
            continue
        called = f'query "{pair.query_id}" with passage {pair.passage} of "{pair.doc_id}"'
        if values[key] != own:
            raise BadData(
                f"{called} is given twice, with the {name} {values[key]} and {own}; give one of them"
            )
        repeated, first = repeated + 1, first or called
    if repeated:
        warn(f"{repeated:,} pairs are given more than once and count once: {first}", 3)


class PairFiles:
    """Pairs of files that are scanned once and then read again by number; open as long as this is in use.

    The files must stay as they are; several, a pipe or a compressed one are copied into a temporary one.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        is_plain = len(paths) == 1 and paths[0].is_file() and not is_packed(paths[0])
        self._file, self._ends = (paths[0].open("rb"), [-1]) if is_plain else _joined(paths)
        self._starts, self._sizes = array("q"), array("q")
        self._places = array("i")  # of the pair in its line
        weakref.finalize(self, self._file.close)

    def scan(self) -> Iterator[tuple[Path, int, LabelledPair]]:
        """Stream (file, line, pair); the pairs are numbered from 0 in this order.

        Raises:
            BadData: A line that is no labelled pair, or too long.
        """
        start, most = 0, most_bytes()
        for path, end in zip(self._paths, self._ends, strict=True):
            number = 0
            while start != end and (raw := self._file.readline(most + 1)):
                number += 1
                if len(raw) > most:
                    raise too_long("the line", path, number)
                line = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
                if line.strip():
                    for place, pair in enumerate(pairs_of(line, path, number)):
                        self._starts.append(start + len(raw) - len(line))
                        self._sizes.append(len(line))
                        self._places.append(place)
                        yield path, number, pair
                start += len(raw)

    def __getitem__(self, number: int) -> LabelledPair:
        if hasattr(os, "pread"):
            raw = os.pread(self._file.fileno(), self._sizes[number], self._starts[number])
        else:  # Windows
            self._file.seek(self._starts[number])
            raw = self._file.read(self._sizes[number])
        try:
            return pairs_of(raw, self._paths[0], number + 1)[self._places[number]]
        except (BadData, IndexError) as error:
            raise BadData(
                f"pair {number + 1} cannot be read again ({error}); the file was changed while it was in use",
                self._paths[0],
            ) from error

    def __call__(self, numbers: Sequence[int]) -> list[Passage]:
        """Read the passages of pairs, by their numbers."""
        return [self[int(number)].pair.passage for number in numbers]


def _joined(paths: Sequence[Path]) -> tuple[BinaryIO, list[int]]:
    """Unpack files behind each other into a temporary one; return it and where each of them ends."""
    with ExitStack() as stack:
        joined, ends = stack.enter_context(tempfile.TemporaryFile()), []
        for path in paths:
            with open_bytes(path) as stream:
                shutil.copyfileobj(stream, joined, 1 << 20)
            joined.write(b"\n")  # in case the last line has none; blank lines are skipped
            ends.append(joined.tell())
        joined.seek(0)
        stack.pop_all()  # it lives as long as PairFiles
    return joined, ends


class Contradictions:
    """Finds pairs that are labelled both relevant and not, in 16 bytes a pair."""

    def __init__(self) -> None:
        self._keys, self._places = array("q"), array("q")

    def add(self, pair: LabelledPair, place: int, relevant_from: int = 1) -> None:
        """Note a pair.

        Args:
            pair: The pair.
            place: What names it when it contradicts another, for example its line.
            relevant_from: The lowest label that means relevant.
        """
        if pair.label == UNDECIDED:
            return
        key = hash((pair.query_id, pair.doc_id, pair.passage))
        self._keys.append(key & ~1 | (pair.label >= relevant_from))
        self._places.append(place)

    def found(self) -> list[tuple[int, int]]:
        """Return the places of every two pairs that contradict each other, the first of each kind."""
        keys, places = np.array(self._keys, np.int64), np.array(self._places, np.int64)
        distinct, first = np.unique(keys, return_index=True)  # the lowest bit is the label: both are together
        both = np.flatnonzero(distinct[1:] == distinct[:-1] | 1)
        both = both[(distinct[both] & 1) == 0]
        at = sorted(sorted((int(first[i]), int(first[i + 1]))) for i in both)
        return [(int(places[a]), int(places[b])) for a, b in at]


def write_pairs(pairs: Iterable[LabelledPair], path: Path | str) -> int:
    """Write pairs, whole or not at all, compressed by suffix; gives how many there were.

    Args:
        pairs: The pairs.
        path: The file.

    Raises:
        OutputFailed: The file cannot be written; whatever stood there before still does.
    """
    return write_lines(Path(path), pairs)
