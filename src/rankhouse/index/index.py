"""An index opened for reading: its segments, its statistics and its documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import BadData, BadIndex, NoSuchDocument, WrongUse
from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress
from rankhouse.index.lexical import kernel, manifest
from rankhouse.index.lexical.manifest import IndexManifest, check_files
from rankhouse.index.lexical.segment import Segment
from rankhouse.index.lexical.store import find_terms
from rankhouse.index.lexical.weighting import Collection, TermCounts

if kernel.COMPILED:
    from rankhouse.index.lexical import _kernel

if TYPE_CHECKING:
    from rankhouse.text.analyze import Analyzer


KNOWN_TERMS: Final = 65_536
"""Terms that stay looked up; then all are forgotten."""
_MANY: Final = 300
"""Part of all ids; once more were asked for, their files are compared whole instead of block by block."""
_OPENINGS: Final = 10
"""Times that an index is opened whose manifest has changed each time before its files were open."""


class IndexDocuments(Mapping[str, Document]):
    """The documents of an index by id, read from disk when asked for; iteration is in index order."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments

    def find(self, doc_id: str) -> tuple[Segment, int]:
        """Find the segment and row of a document.

        Raises:
            KeyError: The index has no such document.
        """
        number, row = self._place(doc_id)
        return self._segments[number], row

    def _place(self, doc_id: str) -> tuple[int, int]:
        for number, segment in enumerate(self._segments if isinstance(doc_id, str) else ()):
            if (row := segment.find_document(doc_id)) >= 0:
                return number, row
        raise NoSuchDocument(doc_id, self)

    def __getitem__(self, doc_id: str) -> Document:
        segment, row = self.find(doc_id)
        return segment.document(row)

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and any(
            segment.find_document(doc_id) >= 0 for segment in self._segments
        )

    def __iter__(self) -> Iterator[str]:
        for segment in self._segments:
            yield from segment.ids

    def __len__(self) -> int:
        return sum(segment.documents for segment in self._segments)

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Document]:
        """Read documents in index order, each block once.

        Args:
            start: The first one, by its row in the whole index.
            stop: Behind the last one; None reads to the end.
        """
        first = 0
        for segment in self._segments:
            end = segment.documents if stop is None else min(segment.documents, stop - first)
            yield from segment.stream(max(0, start - first), end)
            first += segment.documents

    def fetch(self, doc_ids: Iterable[str]) -> list[Document]:
        """Read several documents, in the order asked for but each block once where they share one.

        Raises:
            KeyError: The index has no such document.
        """
        places = self._places(list(doc_ids))
        fetched = {place: self._segments[place[0]].document(place[1]) for place in sorted(set(places))}
        return [fetched[place] for place in places]

    def _places(self, wanted: list[str]) -> list[tuple[int, int]]:
        """Find the segments and rows of documents: all at once, where that takes no further look at files."""
        if not all(segment.ids_are_checked for segment in self._segments):
            return [self._place(doc_id) for doc_id in wanted]
        places = []
        found = find_terms([segment.id_table for segment in self._segments], wanted)
        for doc_id, (*_, numbers) in zip(wanted, found, strict=True):
            for number, row in enumerate(memoryview(numbers).cast("i")):
                if row >= 0 and (living := self._segments[number].living_row(row)) >= 0:
                    places.append((number, living))
                    break
            else:
                raise NoSuchDocument(doc_id, self)
        return places


class Term(NamedTuple):
    """Statistics of a term in an index.

    Attributes:
        counts: In the whole index.
        highest: Largest count in one document, deleted ones included; 1 at least.
        packed: Its number in every segment, -1 where it does not occur: int32, as the kernel takes them.
    """

    counts: TermCounts
    highest: int
    packed: bytes

    @property
    def numbers(self) -> Sequence[int]:
        """Its number in every segment."""
        return memoryview(self.packed).cast("i")


def _segments(path: Path, state: IndexManifest) -> list[Segment]:
    return [Segment(path / "segments" / entry.folder, entry.files) for entry in state.segments]


class Index:
    """A collection that can be searched. Open one with :meth:`open`; make one with ``build.build``.

    Attributes:
        path: Its folder.
        segments: In order of their documents.
        starts: Row of each segment's first document in the whole index, and the number of all documents.
        collection: Statistics of all documents.
        documents: The documents by id.
        source: What searches it, once it was searched; see ``lexical.search``.
    """

    def __init__(self, path: Path, manifest: IndexManifest, segments: list[Segment]) -> None:
        self.path, self.manifest, self.segments = path, manifest, segments
        self.documents = IndexDocuments(segments)
        self.collection = Collection(
            sum(entry.documents for entry in manifest.segments),
            sum(entry.with_text for entry in manifest.segments),
            sum(entry.with_terms for entry in manifest.segments),
            sum(entry.tokens for entry in manifest.segments),
            with_fields=manifest.with_fields,
            title_tokens=sum(entry.title_tokens or 0 for entry in manifest.segments),
        )
        self.starts: NDArray[np.int64] = np.cumsum([0, *(segment.documents for segment in segments)])
        self._terms: dict[str, Term] = {}
        self._asked, self._ids_checked, self._is_checked = 0, False, False
        self.source: object = None

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open an index folder; arrays are memory-mapped, so this is quick whatever its size.

        One that another process replaces meanwhile is opened again, as it is then.

        Raises:
            MissingInput: There is no such folder.
            BadIndex: It is no index, damaged, or of another version.
        """
        path = Path(path)
        state = manifest.load(path)
        for _ in range(_OPENINGS - 1):
            try:
                return cls(path, state, _segments(path, state))
            except BadIndex:
                before, state = state, manifest.load(path)
                if state == before:
                    raise
        return cls(path, state, _segments(path, state))

    @cached_property
    def analyzer(self) -> Analyzer:
        """The analyzer of its texts and of queries."""
        from rankhouse.text.analyze import ANALYZERS  # noqa: PLC0415 - who only fetches texts needs none

        return notation.make(self.manifest.analyzer, ANALYZERS, "analyzer")

    def __len__(self) -> int:
        return self.collection.documents

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as a path: there the index is opened, as it is then."""
        return type(self).open, (self.path.resolve(),)

    def __repr__(self) -> str:
        return f"<Index {self.path}: {len(self):,} documents, {self.manifest.analyzer}>"

    @property
    def fingerprint(self) -> str:
        """Hash of the content; changes with every document added."""
        return self.manifest.fingerprint

    def by_text(self, progress: Progress) -> Progress:
        """Turn progress in documents into progress in text: a long document may be most of the work.

        Args:
            progress: Progress callback, in words; a document counts as its words and one more.
        """
        ends = np.cumsum(
            np.concatenate([[0], *(segment.lengths + 1 for segment in self.segments)]), dtype=np.int64
        )

        def tell(done: float, total: int | None = None) -> None:
            del total
            at, after = ends[int(done)], ends[min(int(done) + 1, len(self))]
            progress(int(at + done % 1 * (after - at)), int(ends[-1]))

        return tell

    @cached_property
    def opened(self) -> object:
        """The index as the compiled kernel keeps it open."""
        if len(self.segments) > 1 and not self.in_id_order:
            self._check_ids()  # the kernel compares ids of equal scores across segments
        # Lengths of documents are read here and there: in one array numpy has them in large pages of memory.
        lengths = np.concatenate([segment.length_codes_among_all for segment in self.segments])
        ends = np.cumsum([segment.rows for segment in self.segments])[:-1]
        both = zip(self.segments, np.split(lengths, ends), strict=True)
        return _kernel.open_segments([segment.opened_with(codes) for segment, codes in both])

    @cached_property
    def _dead(self) -> NDArray[np.int64]:
        """The rows of deleted documents among all, ascending."""
        firsts = np.cumsum([0, *(segment.rows for segment in self.segments)])
        return np.concatenate([s.dead + first for s, first in zip(self.segments, firsts, strict=False)])

    def among_alive(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return rows of the whole index, given with those of deleted documents counted in."""
        return rows - np.searchsorted(self._dead, rows) if len(self._dead) else rows

    def among_all(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return rows of the whole index with those of deleted documents counted in."""
        if not len(self._dead):
            return rows
        before = self._dead - np.arange(len(self._dead))  # documents alive before each deleted one
        return rows + np.searchsorted(before, rows, side="right")

    @property
    def is_checked(self) -> bool:
        """Whether all lists were compared with their checksums, so that each may be read."""
        self._is_checked = self._is_checked or all(segment.is_checked for segment in self.segments)
        return self._is_checked

    def look_up(self, terms: Iterable[str]) -> Mapping[str, Term]:
        """Return a table that has terms, found now where they were not before."""
        table, asked = self._terms, dict.fromkeys(terms)
        if fresh := [term for term in asked if term not in table]:
            if len(table) > KNOWN_TERMS:  # a new one: a search in another thread goes on with what it has
                fresh, table = list(asked), {}
            found = find_terms([segment.vocabulary for segment in self.segments], fresh)
            if not self.is_checked:
                packed = np.frombuffer(b"".join(numbers for *_, numbers in found), np.int32)
                for segment, own in zip(self.segments, packed.reshape(len(fresh), -1).T, strict=True):
                    segment.check_lists(own)
            for term, (documents, occurrences, highest, numbers) in zip(fresh, found, strict=True):
                table[term] = Term(TermCounts(documents, occurrences), highest, numbers)
            self._terms = table
        return table

    def counts(self, term: str) -> TermCounts:
        """Count the documents that hold a term, and its occurrences."""
        known = self._terms.get(term)
        return (known or self.look_up((term,))[term]).counts

    def row_of(self, doc_id: str) -> int:
        """Return the row of a document in the whole index.

        Raises:
            WrongUse: The index has no such document.
        """
        try:
            segment, there = self.documents.find(doc_id)
        except KeyError:
            raise WrongUse(
                f'"{doc_id}": the index {self.path} has no such document; ids match exactly'
            ) from None
        return int(self.starts[self.segments.index(segment)]) + there

    def require(self, doc_ids: Iterable[str]) -> None:
        """Refuse a run of another collection.

        Raises:
            BadData: The index does not have one of them.
        """
        missing = next((doc_id for doc_id in doc_ids if doc_id not in self.documents), None)
        if missing is not None:
            raise BadData(
                f'the index {self.path} has no document "{missing}", which a run ranks; give the index that '
                "the runs were made from"
            )

    def place(self, row: int) -> tuple[Segment, int]:
        """Return the segment of a row of the whole index, and the row there."""
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.segments[number], row - int(self.starts[number])

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the document ids of rows of the whole index."""
        if kernel.COMPILED and self.has_ids_at_hand(len(rows)):
            return _kernel.ids(self.opened, self.among_all(rows))
        if len(self.segments) == 1:
            return self.segments[0].ids.take(rows)
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        names = np.empty(len(rows), object)
        for number in np.unique(owner):
            mine = np.flatnonzero(owner == number)
            names[mine] = self.segments[number].ids.take(rows[mine] - self.starts[number])
        return names.tolist()

    def has_ids_at_hand(self, more: int) -> bool:
        """Tell whether the compiled kernel may read ids, of which so many more are asked for."""
        if not self._ids_checked:
            self._asked += more
            if self._asked > len(self) // _MANY:
                self._check_ids()
        return self._ids_checked

    def _check_ids(self) -> None:
        """See to it that all ids are as they were written: once, where many are read."""
        if not self._ids_checked:
            for segment in self.segments:
                segment.check_ids()
            self._ids_checked = True

    @cached_property
    def in_id_order(self) -> bool:
        """Whether every segment's ids come after all of the segments before it, as in a sorted collection."""
        edges = [segment.edges() for segment in self.segments]
        return all(before[1] < after[0] for before, after in pairwise(edges))

    def by_id(self, rows: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sort rows of the whole index by group, then by document id: positions, (rows,)."""
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        heads = np.empty((len(rows), 2), np.uint64)
        for number, segment in enumerate(self.segments):
            mine = np.flatnonzero(owner == number)
            heads[mine] = segment.ids.heads(rows[mine] - self.starts[number])
        order = np.lexsort((heads[:, 1], heads[:, 0], group))
        ordered, grouped = heads[order], group[order]
        if ((ordered[1:] == ordered[:-1]).all(axis=1) & (grouped[1:] == grouped[:-1])).any():
            # Ids that are the same for 16 bytes: look at all of them.
            ids, groups = self.ids(rows), group.tolist()
            order = np.array(sorted(range(len(rows)), key=lambda i: (groups[i], ids[i])), np.int64)
        return order

    def distinct_terms(self) -> int:
        """Count the distinct terms; merges the segments' sorted lists when there are several."""
        if len(self.segments) == 1:
            return len(self.segments[0].names())
        return len(set().union(*(segment.names() for segment in self.segments)))

    def verify(self) -> None:
        """Read every file whole and compare it with the manifest.

        Raises:
            BadIndex: One differs, or another process replaced the index.
            WrongUse: An analyzer that is not known here made the index.
        """
        str(self.analyzer)
        try:
            for segment, entry in zip(self.segments, self.manifest.segments, strict=True):
                check_files(segment.folder, entry.files, whole=True)
        except BadIndex:
            if manifest.load(self.path) != self.manifest:
                raise BadIndex(
                    f"{self.path}: was changed while its files were read; check it again"
                ) from None
            raise
