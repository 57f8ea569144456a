"""PAIRS: labelled pairs with their texts, one JSON object a line, and triples as others write them."""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec
import numpy as np

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.progress import counted
from rankhouse.core.qrels import MOST_GRADE
from rankhouse.io.decoding import each_record, from_json
from rankhouse.io.duplicate_ids import digest_of
from rankhouse.io.files import Skips, as_text, is_packed, most_bytes, too_long
from rankhouse.io.outputs import write_lines
from rankhouse.io.readers import tables
from rankhouse.io.readers.tables import ASKED_KEYS, PASSAGE_KEYS

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

    query_id: str | int
    query: str
    doc_id: str | int
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
    known = (str(held.query_id), held.query, str(held.doc_id), held.passage, held.text)
    return LabelledPair(*known, int(held.label), held.score, held.scale)


class _Text(msgspec.Struct):
    """A passage of a record of a query's passages."""

    text: str
    title: str | None = ""
    docid: str | int = ""


_PASSAGES: Final = (
    (1, re.compile(r"positives?(_\d+)?|pos|positive_passages|answer|response").fullmatch),
    (0, re.compile(r"negatives?(_\d+)?|neg|negative_passages").fullmatch),
)
"""Labels, and the keys of a query's passages that have them."""
_is_about_passages = re.compile(r"(pos|neg)(?!.*_ids?$)(?!.*_scores$)").match
_is_number = re.compile(r"\s*[+-]?\d*\.?\d+\s*", re.ASCII).fullmatch
_is_id = re.compile(r"[\w.:-]*\d[\w.:-]*", re.ASCII).fullmatch
_record = msgspec.json.Decoder(dict[str, Any])


def pairs_of(raw: bytes, path: Path, line: int) -> list[LabelledPair]:
    """Read the pairs of one line: that of a PAIRS file, or those of a query with relevant and other passages.

    The latter are MS MARCO's triples of texts, with tabs between them, and the JSON of sentence-transformers
    (anchor, positive, negative; sentence1, sentence2, label or score), FlagEmbedding (query, pos, neg,
    pos_scores, neg_scores) and Tevatron (positive_passages, negative_passages). Without ids, a query goes by
    its text and a passage by a digest.

    Raises BadData where it is neither, or a triple of ids, or has an empty text.
    """
    if not raw.lstrip().startswith(b"{") and b"\t" in raw:
        return _triple(as_text(raw, path, line).split("\t"), path, line)
    try:
        return [decode_pair(raw, path, line)]
    except BadData:
        record = from_json(_record, raw, _WANTED, path, line=line)
        if not record.keys() >= {"query", "doc_id", "text"} and (pairs := _of_query(record, path, line)):
            return pairs
        raise


def _of_query(given: dict[str, Any], path: Path, line: int) -> list[LabelledPair]:
    """Read the pairs of a record of a query with its passages; none of another record."""
    record = {key.lower(): value for key, value in given.items() if value is not None}
    text = next((record[key] for key in ASKED_KEYS if key in record), "")
    own_id = record.get("query_id") or text
    if not isinstance(text, str) or not isinstance(own_id, str | int):
        return []
    query, key = Query(str(own_id), text), next((key for key in PASSAGE_KEYS if key in record), "")
    if key and record.keys() <= {*ASKED_KEYS, key, "query_id", "doc_id", "id"}:
        record["label"] = 1  # a question and its answer, of which nothing else is said
    judged = [name for name in ("label", "score") if name in record]
    if judged and key:
        pairs = [_judged(query, record, key, path, line=line)]
    elif unknown := [key for key in record if _is_about_passages(key) and not _label_of(key)]:
        raise BadData(
            f'the key "{unknown[0]}" is not known; passages are positive or pos, negative or neg, and their '
            "scores pos_scores and neg_scores",
            path,
            line,
        )
    else:
        pairs = _of_passages(query, record, path, line)
        if pairs and judged:
            raise BadData(
                f'the "{judged[0]}" of a record with several passages says nothing of one of them; '
                "give pos_scores and neg_scores, or a record for each passage",
                path,
                line,
            )
    if pairs and not (text.strip() and all(pair.text for pair in pairs)):
        raise BadData("the query or one of its passages is empty", path, line)
    return pairs


def _label_of(key: str) -> tuple[int, ...]:
    """Return the label of the passages below a key; empty where it names no passages."""
    return tuple(label for label, is_key in _PASSAGES if is_key(key))


def _of_passages(query: Query, record: dict[str, Any], path: Path, line: int) -> list[LabelledPair]:
    pairs = []
    for key, held in record.items():
        for label in _label_of(key):
            several = held if isinstance(held, list) else [held]
            scores = record.get(f"{key}_scores", [None] * len(several))
            if not isinstance(scores, list) or len(scores) != len(several):
                reason = f'the "{key}_scores" are not as many as the {len(several)} passages of "{key}"'
                raise BadData(reason, path, line)
            try:
                texts = msgspec.convert(several, list[str | _Text])
                known = msgspec.convert(scores, list[float | None])
            except msgspec.ValidationError:
                return []
            pairs += [_labelled(query, *one, label) for one in zip(texts, known, strict=True)]
    given = [key for key in ("pos", "neg") if key in record]
    if len({f"{key}_scores" in record for key in given}) > 1:
        raise BadData('there are "pos_scores" or "neg_scores" only; give both or neither', path, line)
    return pairs


def _judged(query: Query, record: dict[str, Any], key: str, path: Path, *, line: int) -> LabelledPair:
    """Read a query and one passage with a label or a score, or both."""
    try:
        text = msgspec.convert(record[key], str)
        label = msgspec.convert(record.get("label", UNDECIDED), int | float | bool, strict=False)
        score = msgspec.convert(record.get("score"), float | None, strict=False)
    except msgspec.ValidationError as error:
        said = ", ".join(f"{name} {record[name]!r:.40}" for name in ("label", "score") if name in record)
        reason = f"the text or the {said} cannot be read; a label is 1 (relevant) or 0, a score a number"
        raise BadData(reason, path, line) from error
    if isinstance(label, float) and not label.is_integer():
        reason = f'the label {label} is no whole number; call it "score" if it is what a teacher said'
        raise BadData(reason, path, line)
    doc_id = str(record.get("doc_id", ""))
    pair = _labelled(query, _Text(text, docid=doc_id), score, int(label))
    return decode_pair(msgspec.json.encode(pair), path, line)  # its checks of the numbers


def _triple(texts: Sequence[str], path: Path, line: int) -> list[LabelledPair]:
    if len(texts) != 3 or not all(map(str.strip, texts)):
        raise BadData(
            "neither a labelled pair nor a triple, which is a query, a relevant passage and another one with "
            f"tabs between them; the line has {counted(len(texts), 'column')}, none of which may be empty",
            path,
            line,
        )
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
    asked = Query(query, query)
    return [_labelled(asked, text, None, label) for text, label in ((relevant, 1), (other, 0))]


def _labelled(query: Query, given: str | _Text, score: float | None, label: int) -> LabelledPair:
    one = _Text(given) if isinstance(given, str) else given
    text = f"{one.title or ''} {one.text}".strip()
    doc_id = str(one.docid) or digest_of(text).hex()
    return LabelledPair(query.id, query.text, doc_id, 0, text=text, label=label, score=score)


def numbered_pairs(path: Path | str, skips: Skips | int | None = None) -> Iterator[tuple[int, LabelledPair]]:
    """Stream (line, pair) of a file, plain or compressed; by default no faulty line is skipped.

    Raises BadData for a line that is no labelled pair, and MissingInput.
    """
    path, skips = Path(path), Skips.of(skips)
    for line, pairs in each_record(tables.pair_lines(path, skips), path, pairs_of, skips):
        for pair in pairs:
            yield line, pair


def read_pairs(path: Path | str, skips: Skips | int | None = None) -> Iterator[LabelledPair]:
    """Stream the pairs of a file, see :func:`numbered_pairs`."""
    return (pair for _, pair in numbered_pairs(path, skips))


class PairFiles:
    """Pairs of files that are scanned once and then read again by number; open as long as this is in use.

    The files must stay as they are; several, a pipe, a compressed one and what has no record a line are
    copied into a temporary one.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._numbers = array("q")  # of the lines copied
        if len(paths) == 1 and paths[0].is_file() and not is_packed(paths[0]) and tables.are_lines(paths[0]):
            self._file, self._ends = cast(BinaryIO, paths[0].open("rb")), [-1]
        else:
            self._file, self._ends = _joined(paths, self._numbers)
        self._starts, self._sizes = array("q"), array("q")
        self._places = array("i")  # of the pair in its line
        self._last: tuple[int, list[LabelledPair]] = (-1, [])
        weakref.finalize(self, self._file.close)

    def scan(self) -> Iterator[tuple[Path, int, LabelledPair]]:
        """Stream (file, line, pair); the pairs are numbered from 0 in this order.

        Raises:
            BadData: A line that is no labelled pair, or too long.
        """
        start, most, numbers = 0, most_bytes(), iter(self._numbers)
        for path, end in zip(self._paths, self._ends, strict=True):
            number = 0
            while start != end and (raw := self._file.readline(most + 1)):
                number = next(numbers, number + 1)
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
        start, pairs = self._last  # a record of many passages is asked for each of them
        try:
            if start != self._starts[number]:
                pairs = pairs_of(self._read(number), self._paths[0], number + 1)
                self._last = self._starts[number], pairs
            return pairs[self._places[number]]
        except (BadData, IndexError) as error:
            raise BadData(
                f"pair {number + 1} cannot be read again ({error}); the file was changed while it was in use",
                self._paths[0],
            ) from error

    def _read(self, number: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), self._sizes[number], self._starts[number])
        self._file.seek(self._starts[number])  # Windows
        return self._file.read(self._sizes[number])

    def __call__(self, numbers: Sequence[int]) -> list[Passage]:
        """Read the passages of pairs, by their numbers."""
        return [self[int(number)].pair.passage for number in numbers]


def _joined(paths: Sequence[Path], numbers: array[int]) -> tuple[BinaryIO, list[int]]:
    """Write the lines of files behind each other into a temporary one; return it and where each of them ends.

    ``numbers`` takes for each what its line was in its file.
    """
    with ExitStack() as stack:
        joined, ends = stack.enter_context(tempfile.TemporaryFile()), []
        for path in paths:
            for number, raw in tables.pair_lines(path, Skips()):
                numbers.append(number)
                joined.write(raw.replace(b"\n", b" ") + b"\n")
            ends.append(joined.tell())
        joined.seek(0)
        stack.pop_all()  # it lives as long as PairFiles
    return joined, ends


def write_pairs(pairs: Iterable[LabelledPair], path: Path | str) -> int:
    """Write pairs, whole or not at all, compressed by suffix; gives how many there were.

    Args:
        pairs: The pairs.
        path: The file.

    Raises:
        OutputFailed: The file cannot be written; whatever stood there before still does.
    """
    return write_lines(Path(path), pairs)
