"""Judgements: an append-only log, and the qrels file made from it, which every tool reads.

FILE                  the qrels: one grade a pair, merged over the judges
FILE.log.jsonl        every word of every judge, in order (``log.py``)
FILE.queries.jsonl    the texts of the judged queries, so that FILE can be used without the service

What the qrels hold of a pair is the lower median of its judges' grades: at least half of them find the
document that good. What stood in FILE before anybody judged, or was written into it since, counts where no
judge has spoken.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from rankhouse.core.errors import OutputFailed, WrongUse, warn
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.sameness import normalised
from rankhouse.io.corpora import write_queries
from rankhouse.io.outputs import only_writer
from rankhouse.io.scratch import tidy_beside
from rankhouse.io.trec import read_qrels, write_qrels
from rankhouse.serve.errors import Outdated
from rankhouse.serve.judging.log import IMPORTED, JudgementEntry, JudgementLog

SCALE: Final[Mapping[int, str]] = MappingProxyType(
    {0: "does not help", 1: "helps", 2: "answers the question"}
)
"""The grades that judges give, and what they are called, where nothing else is said."""
LONGEST_NAME: Final = 64
MOST_SYSTEMS: Final = 20
LONGEST_SYSTEM: Final = 200
LONGEST_COMMENT: Final = 2_000

Pair = tuple[str, str]
"""(query id, document id)."""


class JudgementStore:
    """Judgements of all judges. Safe to use from many threads; only one process may have a file open.

    WrongUse: another process has it open. BadData: the qrels file or the log is damaged. OutputFailed:
    nothing can be written there.
    """

    def __init__(self, path: Path, queries: Iterable[Query] = (), scale: Mapping[int, str] = SCALE) -> None:
        self.path, self.scale = path, dict(scale)
        self.log_path = path.with_name(f"{path.name}.log.jsonl")
        self.queries_path = path.with_name(f"{path.name}.queries.jsonl")
        self._lock = threading.RLock()
        self._grades: dict[Pair, dict[str, int]] = {}  # in the order of the first word about a pair
        self._comments: dict[Pair, dict[str, str]] = {}
        self._merged: dict[str, dict[str, int]] = {}  # what the qrels hold
        self._entries: list[JudgementEntry] = []
        self._published: list[Query] | None = None
        self._left: object = None  # how the qrels file was left
        self._texts: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        for query in queries:
            self._texts.setdefault(query.id, query.text)
            self._ids.setdefault(_words(query.text), query.id)
        self._held = ExitStack()
        self._held.enter_context(only_writer(path))
        try:
            self._log = JudgementLog(self.log_path)
            self._held.callback(self._log.close)
            self._load()
        except BaseException:
            self._held.close()
            raise

    # --- saying something ---------------------------------------------------------------------------------

    def judge(
        self,
        judge: str,
        query: str,
        doc_id: str,
        grade: int | None,
        systems: Sequence[str] = (),
        version: int | None = None,
    ) -> JudgementEntry:
        """Write down what a judge says of a document; when this returns, it is on disk.

        Args:
            grade: One of the scale's; None takes the judge's earlier word on it back.
            version: The :attr:`version` that the judge saw; None: whatever was said since.

        Raises WrongUse: a name, query, document or grade that cannot be written down; BadData, OutputFailed:
        the qrels file cannot be read, or nothing can be written; Outdated: the judge said something else of
        the document since that version.
        """
        self._check(judge, query, doc_id, grade)
        if len(systems) > MOST_SYSTEMS or any(len(name) > LONGEST_SYSTEM for name in systems):
            raise WrongUse(
                f"systems: give at most {MOST_SYSTEMS} names of at most {LONGEST_SYSTEM} characters"
            )
        with self._lock:
            self._take_in()
            pair = self.query_id(query), doc_id
            if version is not None:
                self._refuse_outdated(judge, pair, grade, version)
            entry = self._entry(judge, pair, grade, query)
            return self._write(replace(entry, systems=tuple(systems)))

    def comment(self, judge: str, query: str, doc_id: str, text: str) -> JudgementEntry:
        """Write down a judge's comment on a document, beside the grade if there is one; "" removes it."""
        text = text.strip()
        self._check(judge, query, doc_id, None)
        if len(text) > LONGEST_COMMENT:
            raise WrongUse(f"the comment has {len(text):,} characters; at most {LONGEST_COMMENT:,} are kept")
        with self._lock:
            self._take_in()
            pair = self.query_id(query), doc_id
            entry = self._entry(judge, pair, self._grades.get(pair, {}).get(judge), query)
            return self._write(replace(entry, comment=text))

    def _refuse_outdated(self, judge: str, pair: Pair, grade: int | None, version: int) -> None:
        later = (e for e in self._entries[max(0, version) :] if e.judge == judge)
        if not any((entry.query_id, entry.doc_id) == pair for entry in later):
            return
        now = self._grades.get(pair, {}).get(judge)
        if now != grade:
            said = "took your grade back" if now is None else f"graded it {now}"
            raise Outdated(
                f'since this page was opened you {said} in another window (document "{pair[1][:80]}"); '
                "reload the page to see it"
            )

    def undo(self, judge: str) -> JudgementEntry | None:
        """Take back the last word of a judge that still stands; called again, the one before.

        Returns the line that was written, with the grade that counts again; None where nothing was left.
        """
        with self._lock:
            self._take_in()
            mine = [entry for entry in self._entries if entry.judge == judge != IMPORTED]
            taken_back = {entry.undoes for entry in mine}
            last = next((e for e in reversed(mine) if not e.undoes and e.number not in taken_back), None)
            if last is None:
                return None
            grade, comment, pair = None, "", (last.query_id, last.doc_id)
            for entry in mine:  # before it
                if entry.number < last.number and (entry.query_id, entry.doc_id) == pair:
                    grade = entry.grade
                    comment = comment if entry.comment is None else entry.comment
            undone = self._entry(judge, pair, grade, last.query)
            said = None if last.comment is None else comment
            return self._write(replace(undone, undoes=last.number, comment=said))

    def _check(self, judge: str, query: str, doc_id: str, grade: int | None) -> None:
        if not judge.strip() or not judge.isprintable() or len(judge) > LONGEST_NAME or judge == IMPORTED:
            raise WrongUse(
                f"judge {judge[:LONGEST_NAME]!r}: give a name of 1 to {LONGEST_NAME} printable characters"
            )
        if not query.strip():
            raise WrongUse("the query is empty; judge documents for a question")
        if doc_id.split() != [doc_id]:
            raise WrongUse(f"document {doc_id[:80]!r}: an id is not empty and has no white space")
        if grade is not None and grade not in self.scale:
            said = ", ".join(f"{number} ({name})" for number, name in self.scale.items())
            raise WrongUse(f"grade {grade}: the scale has {said}; null takes a judgement back")

    def _entry(
        self, judge: str, pair: Pair, grade: int | None, query: str, *, place: int = 1
    ) -> JudgementEntry:
        """Return a new line of the log, of several that are written at once the one at a place."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        return JudgementEntry(len(self._entries) + place, now, judge, *pair, grade=grade, query=query)

    def _write(self, entry: JudgementEntry) -> JudgementEntry:
        self._log.append(entry)
        self._apply(entry)
        try:
            self._publish()
        except OutputFailed as error:  # the log has it; the next judgement or start writes the file again
            warn(f"{error}; the judgement stands in {self.log_path.name}", 3)
        return entry

    # --- what was said --------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Number of lines of the log so far."""
        with self._lock:
            return len(self._entries)

    @property
    def entries(self) -> tuple[JudgementEntry, ...]:
        """Every word of every judge, in order."""
        with self._lock:
            return tuple(self._entries)

    @property
    def judges(self) -> tuple[str, ...]:
        """Those who have judged, in the order of their first word; not what stood in the file before."""
        return tuple(dict.fromkeys(entry.judge for entry in self.entries if entry.judge != IMPORTED))

    @property
    def qrels(self) -> Qrels:
        """The judges' grades, merged."""
        with self._lock:
            return {query_id: dict(grades) for query_id, grades in self._merged.items()}

    def merged_grades(self, query_id: str) -> dict[str, int]:
        """Return the judges' grades of one query, merged."""
        with self._lock:
            return dict(self._merged.get(query_id, {}))

    def qrels_of(self, judge: str) -> Qrels:
        """Return what one judge says."""
        with self._lock:
            table: dict[str, dict[str, int]] = {}
            for (query_id, doc_id), said in self._grades.items():
                if judge in said:
                    table.setdefault(query_id, {})[doc_id] = said[judge]
            return table

    @property
    def comments(self) -> list[tuple[Pair, str, str]]:
        """Every comment that stands: of which pair, whose, and its text."""
        with self._lock:
            return [
                (pair, judge, text) for pair, said in self._comments.items() for judge, text in said.items()
            ]

    def comments_of(self, judge: str, query_id: str) -> dict[str, str]:
        """Return one judge's comments on the documents of a query."""
        return {doc: text for (asked, doc), who, text in self.comments if (who, asked) == (judge, query_id)}

    def grades(self, query: str) -> dict[str, dict[str, int]]:
        """Return of every judged document of a query what each judge says."""
        with self._lock:
            wanted = self.query_id(query)
            return {d: dict(said) for (q, d), said in self._grades.items() if q == wanted and said}

    @property
    def queries(self) -> list[Query]:
        """The queries that have judgements, with their texts."""
        with self._lock:
            return [Query(query_id, self._texts.get(query_id, "")) for query_id in self._merged]

    def query_id(self, text: str) -> str:
        """Return the id of a query: the one it has, or one made of its words."""
        words = _words(text)
        with self._lock:
            return self._ids.get(words) or f"q-{blake2b(words.encode(), digest_size=6).hexdigest()}"

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        self._held.close()

    # --- from and to the disk -------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read the log, and from the qrels file what no log knows of."""
        for path in (self.path, self.queries_path):
            tidy_beside(path)
        for entry in self._log.entries:
            self._apply(entry)
        self._take_in(spared=1)

    def _take_in(self, spared: int = 0) -> None:
        """Take from the qrels file, where it is not as it was left, what the log does not know of."""
        if (now := _state_of(self.path)) == self._left is not None:
            return
        before = read_qrels(self.path) if now is not None and self.path.stat().st_size else {}
        known = {(e.query_id, e.doc_id) for e in self._entries if e.comment is None or e.grade is not None}
        fresh = [(q, d, g) for q, judged in before.items() for d, g in judged.items() if (q, d) not in known]
        imported = [
            self._entry(IMPORTED, (query_id, doc_id), grade, self._texts.get(query_id, ""), place=place)
            for place, (query_id, doc_id, grade) in enumerate(fresh, 1)
        ]
        if imported:
            self._log.append(*imported)
            for entry in imported:
                self._apply(entry)
        if before != self._merged:
            rows = ((q, d, g) for q, said in before.items() for d, g in said.items())
            wrong = [d for q, d, g in rows if self._merged.get(q, {}).get(d) != g]
            if len(wrong) > spared:
                warn(
                    f"{self.path}: {len(wrong):,} grades are not those of {self.log_path.name}, which count; "
                    "the file is written again. To judge by the file alone, move the log away",
                    4,
                )
            self._publish()
        self._left = _state_of(self.path)

    def _apply(self, entry: JudgementEntry) -> None:
        self._entries.append(entry)
        said = self._grades.setdefault((entry.query_id, entry.doc_id), {})
        if entry.grade is None:
            said.pop(entry.judge, None)
        else:
            said[entry.judge] = entry.grade
        if entry.comment is not None:
            comments = self._comments.setdefault((entry.query_id, entry.doc_id), {})
            comments.pop(entry.judge, None)
            if entry.comment:
                comments[entry.judge] = entry.comment
        if said:
            self._merged.setdefault(entry.query_id, {})[entry.doc_id] = merged(said)
        elif entry.query_id in self._merged:
            self._merged[entry.query_id].pop(entry.doc_id, None)
            if not self._merged[entry.query_id]:
                del self._merged[entry.query_id]
        if entry.query:
            self._texts.setdefault(entry.query_id, entry.query)
            self._ids.setdefault(_words(entry.query), entry.query_id)

    def _publish(self) -> None:
        """Write the qrels and, where they changed, the texts of their queries; each whole or not at all."""
        write_qrels(self._merged, self.path)
        self._left = _state_of(self.path)
        queries = [query for query in self.queries if query.text]
        if queries != self._published:
            write_queries(queries, self.queries_path)
            self._published = queries


def merged(grades: Mapping[str, int]) -> int:
    """Return the one grade of a pair: the lower median of its judges'."""
    people = sorted(grade for judge, grade in grades.items() if judge != IMPORTED)
    return people[(len(people) - 1) // 2] if people else grades[IMPORTED]


def _state_of(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file; None where there is none."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def _words(text: str) -> str:
    """Return what tells a query from others: its words, or, where it has none, its signs."""
    return normalised(text) or text.strip()
