"""Labelled pairs as columns of numbers; their texts stay on disk until a batch needs them.

Two sources: a PAIRS file, JSON lines of {"query_id", "query", "doc_id", "passage", "text", "label"} as
``rankhouse label`` writes it; or queries, judgements and a run over the documents of a collection.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, WrongUse, name_few, warn
from rankhouse.core.nouns import Document, FloatArray, Pair, Passage, Query, Ranker, fingerprint_of
from rankhouse.core.progress import counted
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.scores import RAW
from rankhouse.io.duplicate_ids import digest_of
from rankhouse.io.pairs import UNDECIDED, PairFiles
from rankhouse.labels.label_noise import Contradictions

IntArray = NDArray[np.int64]
Mask = NDArray[np.bool_]

RELEVANT, NOT_RELEVANT, UNJUDGED = 1, 0, -1
"""Labels of an example."""
NOT_IN_RUN = -1
"""The rank of an example that no run brought."""


@dataclass(frozen=True)
class NegativeRule:
    """A rule; make one by notation from :data:`NEGATIVES`.

    Attributes:
        judged: Those judged not relevant to the query may be taken.
        start: First rank of the run, from 0, whose documents may be taken unless relevant.
        stop: First rank that may no longer be taken; equal to ``start``: none from the run.
        anywhere: Any passage at all may be taken that is of no document relevant to the query.
    """

    judged: bool = False
    start: int = 0
    stop: int = 0
    anywhere: bool = False

    def __post_init__(self) -> None:
        if self.start < 0 or self.stop < self.start:
            raise WrongUse(
                f"run(start={self.start}, stop={self.stop}): ranks count from 0 and stop is above start"
            )

    def among(self, label: IntArray, rank: IntArray) -> Mask:
        """Return which of n examples may be drawn for their query: (n,) bool."""
        in_range = (rank >= self.start) & (rank < self.stop)
        mask: Mask = (label != RELEVANT) & ((self.judged & (label == NOT_RELEVANT)) | in_range)
        return mask


_DEEPEST = 2**31


def _run(start: int = 0, stop: int = 100) -> NegativeRule:
    if stop == start:
        raise WrongUse(f"run(start={start}, stop={stop}): holds no rank; stop is above start")
    return NegativeRule(start=start, stop=stop)


NEGATIVES: dict[str, Callable[..., NegativeRule]] = {
    "given": lambda: NegativeRule(judged=True),
    "run": _run,
    "any": lambda: NegativeRule(judged=True, stop=_DEEPEST),
    "random": lambda: NegativeRule(anywhere=True),
}
"""Name -> rule: judged so, found by the run in a range of ranks, either of the two, or drawn from all."""


Fetch = Callable[[Sequence[int]], list[Passage]]
"""Item numbers -> their passages, read when asked for; called from one thread at a time."""


@dataclass(frozen=True)
class Examples:
    """n labelled pairs of m items (passages), sorted by query.

    Attributes:
        queries: Every query, those without relevant passages too.
        query: (n,) row into ``queries``, never falling.
        item: (n,) number of the passage.
        label: (n,) 1 relevant, 0 judged not relevant, -1 not judged.
        rank: (n,) place in the run, from 0; -1 if the run does not have it.
        document: (m,) for every item a number of its document.
        score: (n,) float32, what a teacher gave each pair, NaN where it was not asked; None where none was.
        scale: The scale of the scores.
        teacher: The teacher that scores, during the training, the pairs without a score.
        two_scales: Where the scores turned out to be on two scales; "": they are on one.
    """

    queries: tuple[Query, ...]
    query: IntArray
    item: IntArray
    label: IntArray
    rank: IntArray
    document: IntArray
    fetch: Fetch
    score: FloatArray | None = None
    scale: str = ""
    teacher: Ranker | None = None
    two_scales: str = ""

    def __len__(self) -> int:
        return len(self.query)

    def restrict(self, query_ids: Iterable[str]) -> Examples:
        """Keep the examples of these queries (a fold's, say); numbers of items stay."""
        wanted = set(query_ids)
        chosen = [row for row, query in enumerate(self.queries) if query.id in wanted]
        place = np.full(len(self.queries), -1, np.int64)
        place[chosen] = np.arange(len(chosen))
        left = self.take(np.flatnonzero(place[self.query] >= 0))
        return replace(left, queries=tuple(self.queries[row] for row in chosen), query=place[left.query])

    def take(self, rows: IntArray) -> Examples:
        """Keep these rows, (k,) of n; numbers of queries and items stay."""
        columns = {name: getattr(self, name)[rows] for name in ("query", "item", "label", "rank")}
        return replace(self, **columns, score=None if self.score is None else self.score[rows])

    def pairs(self, rows: IntArray) -> list[Pair]:
        """Read the pairs of these rows."""
        queries, passages = self.query[rows].tolist(), self.fetch(self.item[rows].tolist())
        return [Pair(self.queries[query], each) for query, each in zip(queries, passages, strict=True)]

    def texts(self) -> Iterator[str]:
        """Stream the texts of the passages, each of a document's once, as they are read."""
        seen: set[tuple[int, bytes]] = set()
        for item, document in enumerate(self.document.tolist()):
            (passage,) = self.fetch([item])
            if (key := (document, digest_of(passage.text))) not in seen:  # numbers are often left out
                seen.add(key)
                yield passage.text

    def check_scale(self) -> None:
        """Make sure that the scores can be learned from together; labels can be, whatever the scores.

        Raises:
            BadData: They are on two scales.
        """
        if self.two_scales:
            raise BadData(
                f"{self.two_scales}: they cannot be learned from together; label all pairs with the same "
                "teachers"
            )

    @cached_property
    def fingerprint(self) -> str:
        """Name of queries, labels and ranks, 16 hexadecimal digits: a resumed training must have the same."""
        digest = sha256(msgspec.json.encode(self.queries))
        for column in (self.query, self.item, self.label, self.rank, self.document):
            digest.update(column.tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def score_fingerprint(self) -> str:
        """Name of the scores and of the teacher, 16 hexadecimal digits."""
        teacher = "" if self.teacher is None else fingerprint_of(self.teacher)
        digest = sha256(f"{self.scale} {teacher}".encode())
        if self.score is not None:
            digest.update(self.score.tobytes())
        return digest.hexdigest()[:16]


# --- from a PAIRS file ----------------------------------------------------------------------------------


def from_pairs(path: Path | str, *more: Path | str, relevant_from: int = 1) -> Examples:
    """Read the labels of PAIRS files, which must stay as they are: texts are read again when needed.

    Args:
        path: The file; a compressed one is unpacked into a temporary file first.
        more: Further ones, unpacked into the same temporary file; a query is the same in all of them if its
            id is.

    Raises:
        BadData: A malformed line, a label that is no whole number, a query with two texts, or no pair.
        MissingInput: No such file.
    """
    files = PairFiles([Path(path), *map(Path, more)])
    queries: dict[str, Query] = {}
    numbers: dict[str, int] = {}
    documents: dict[str, int] = {}
    columns, scores = [array("q") for _ in range(3)], array("f")
    scale: str | None = None
    both_ways, highest, two_scales = Contradictions(), 0, ""
    for place, line, record in files.scan():
        both_ways.add(record, len(columns[0]), relevant_from)
        highest = max(highest, record.label)
        query = queries.setdefault(record.query_id, Query(record.query_id, record.query))
        if query.text != record.query:
            raise BadData(
                f'query "{query.id}" has another text than before: {record.query!r}, before: {query.text!r}',
                place,
                line,
            )
        label = RELEVANT if record.label >= relevant_from else NOT_RELEVANT
        row = (
            numbers.setdefault(query.id, len(numbers)),
            documents.setdefault(record.doc_id, len(documents)),
            UNJUDGED if record.label == UNDECIDED else label,
        )
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        scores.append(math.nan if record.score is None else record.score)
        if record.score is not None:
            scale = record.scale if scale is None else scale
            if record.scale != scale and not two_scales:
                two_scales = (
                    f'{place}, line {line}: the score is on the scale "{record.scale}", those before on '
                    f'"{scale}"'
                )
    if not queries:
        raise BadData("there is not one labelled pair in the file", Path(path))
    if highest > 1 and relevant_from == 1:
        warn(f"{path}: there are labels up to {highest}; all from 1 up count as relevant")
    query_rows, document, labels = (np.array(column, np.int64) for column in columns)
    _warn_of(both_ways, files)
    order = np.argsort(query_rows, kind="stable")
    return Examples(
        tuple(queries.values()),
        query_rows[order],
        order.astype(np.int64),
        labels[order],
        rank=np.full(len(order), NOT_IN_RUN, np.int64),
        document=document,
        fetch=files,
        score=None if scale is None else np.array(scores, np.float32)[order],
        scale=scale or RAW[0],
        two_scales=two_scales,
    )


def _warn_of(both_ways: Contradictions, files: PairFiles) -> None:
    if pairs := both_ways.found():
        one = files[pairs[0][0]]
        warn(
            f"{counted(len(pairs), 'pair')} labelled both relevant and not relevant, both are learned: "
            f'query "{one.query_id}" with passage {one.passage} of "{one.doc_id}"'
            + (" and others; " if len(pairs) > 1 else "; ")
            + "rankhouse doctor names the lines of a file"
        )


# --- from judgements and a run --------------------------------------------------------------------------


def from_judgements(
    queries: Iterable[Query],
    qrels: Qrels,
    documents: Mapping[str, Document],
    run: Run | None = None,
    *,
    depth: int = 1000,
    relevant_from: int = 1,
    unjudged: bool = False,
) -> Examples:
    """Lay out queries, judgements and a run as examples; every document is one passage, title first.

    Args:
        queries: Those to learn from; judgements of others are left out.
        documents: The texts by id; judged documents that it lacks are left out, and counted in a warning.
        run: A first stage's run, for negatives.
        depth: How many documents a query of the run are looked at.
        unjudged: Whether the run alone will do, for a teacher to score.

    Raises:
        BadData: No query has a judged document that has a text.
    """
    texts = tuple({query.id: query for query in queries}.values())
    codes: dict[str, int] = {}
    columns = [array("q") for _ in range(4)]
    absent: set[str] = set()
    judged = missed = 0
    for row, query in enumerate(texts):
        for doc_id, label, rank in _rows(query.id, qrels, run, depth, relevant_from=relevant_from):
            if doc_id not in codes and (doc_id in absent or doc_id not in documents):
                absent.add(doc_id)
                missed += label == RELEVANT
                continue
            judged += label != UNJUDGED
            values = (row, codes.setdefault(doc_id, len(codes)), label, rank)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
    if not judged and not (unjudged and codes):
        raise BadData(
            f"not one of the {len(texts):,} queries has a judged document in the collection of "
            f"{len(documents):,}; do queries, judgements and collection name things alike?"
        )
    if absent:
        warn(
            f"{len(absent):,} judged or retrieved documents are not in the collection and are left out, "
            f"{missed:,} of them relevant to a query: "
            f"{name_few(sorted(absent))}"
        )
    query_rows, item, label_column, ranks = (np.array(column, np.int64) for column in columns)
    return Examples(
        texts,
        query_rows,
        item,
        label_column,
        rank=ranks,
        document=np.arange(len(codes), dtype=np.int64),
        fetch=_Whole(tuple(codes), documents),
    )


def _rows(
    query_id: str, qrels: Qrels, run: Run | None, depth: int, relevant_from: int
) -> Iterator[tuple[str, int, int]]:
    """Return (document id, label, rank) of a query: what was judged, then what only the run has."""
    judged = {d: grade for d, grade in qrels.get(query_id, {}).items() if grade >= 0}  # below 0: not judged
    doc_ids = run[query_id].doc_ids[:depth] if run is not None and query_id in run else ()
    ranks = {doc_id: rank for rank, doc_id in enumerate(doc_ids)}
    for doc_id, grade in judged.items():
        label = RELEVANT if grade >= relevant_from else NOT_RELEVANT
        yield doc_id, label, ranks.get(doc_id, NOT_IN_RUN)
    for doc_id, rank in ranks.items():
        if doc_id not in judged:
            yield doc_id, UNJUDGED, rank


class _Whole:
    """Reads documents as passages of one."""

    def __init__(self, doc_ids: tuple[str, ...], documents: Mapping[str, Document]) -> None:
        self._doc_ids, self._documents = doc_ids, documents

    def __call__(self, items: Sequence[int]) -> list[Passage]:
        chosen = [self._doc_ids[item] for item in items]
        return [Passage(doc_id, 0, self._documents[doc_id].full_text) for doc_id in chosen]
