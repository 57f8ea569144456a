"""The work itself: a run's pairs, a rule and a sampling of negatives become a PAIRS file.

Pass 1 streams the pairs chunk by chunk, asks the rule, and keeps 5 bytes a pair in a journal on disk. Pass 2
chooses the negatives from the journal and fetches once more only the documents whose pairs are written. So
memory does not grow with the number of pairs, a killed labelling goes on where it was, and neither the size
of the chunks nor a kill changes a byte of the result.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rankhouse.core.errors import BadData, RankhouseWarning, WrongUse
from rankhouse.core.locks import only_writer
from rankhouse.core.nouns import Document, Pair, Query
from rankhouse.core.pairs import LabelledPair, write_pairs
from rankhouse.core.progress import Progress
from rankhouse.core.qrels import relevant
from rankhouse.core.run import Run
from rankhouse.labels.agreement import Agreement, summarise
from rankhouse.labels.candidates import Candidates, Documents, Split, candidates, named
from rankhouse.labels.journal import Columns, Journal
from rankhouse.labels.negative_sampling import Negatives, random
from rankhouse.labels.pair_table import Choice, Layout
from rankhouse.labels.rules import Rule, judges
from rankhouse.labels.votes import YES, Parties, mark, parties
from rankhouse.text.split import Whole


@dataclass(frozen=True)
class Plan:
    """How to label.

    Attributes:
        split: What cuts documents into passages.
        negatives: Which non-relevant pairs are written.
        depth: How many documents a query are looked at.
        pool: Which pairs may be negatives; see :func:`~rankhouse.labels.rules.non_relevant` for the default.
        truth: Known relevance of passages, to measure by.
        ask_all: Have the teacher read every pair, for a whole comparison with the judge.
        chunk: Pairs asked about and kept at once: the most that a kill can lose.
        collection: Names the documents (an index's fingerprint): another one starts afresh.
        shown: How many removed, and how many added pairs the comparison shows.
    """

    split: Split = field(default_factory=Whole)
    negatives: Negatives = field(default_factory=random)
    depth: int = 1000
    pool: Rule | None = None
    truth: Rule | None = None
    ask_all: bool = False
    chunk: int = 4096
    collection: str = ""
    shown: int = 25

    def __post_init__(self) -> None:
        if self.depth < 1 or self.chunk < 1:
            raise WrongUse(f"depth={self.depth}, chunk={self.chunk}: both are whole numbers from 1 up")


class Labelling(NamedTuple):
    """What was done.

    Attributes:
        out: The PAIRS file.
        rule: In its notation.
        negatives: Likewise.
        queries: Queries of the run.
        pairs: Pairs looked at.
        asked: Pairs the teacher read, now or before a kill.
        relevant: Pairs written with label 1.
        non_relevant: Pairs written with label 0.
        pool: Pairs that could have been negatives.
        short: Negatives that were wanted and not there.
        unknown: Rows of the run whose document is not in the collection.
        without_text: Rows whose document has no text.
        missed: Relevant documents of the run's queries, by the rule's judges, that are not in the run.
        resumed: Pairs that a labelling killed before had already answered.
        agreement: Judge against teacher, and what the rule changes.
    """

    out: Path
    rule: str
    negatives: str
    queries: int
    pairs: int
    asked: int
    relevant: int
    non_relevant: int
    pool: int
    short: int
    unknown: int
    without_text: int
    missed: int
    resumed: int
    agreement: Agreement


def label(
    rule: Rule,
    run: Run,
    queries: Iterable[Query],
    documents: Documents | Mapping[str, Document],
    out: Path | str,
    plan: Plan | None = None,
    progress: Progress | None = None,
) -> Labelling:
    """Label the pairs of a run and write the relevant ones and some negatives as a PAIRS file.

    Pairs are written query by query, best document first. Nothing stands at ``out`` until all is done; if the
    work is killed, the same call goes on from the last whole chunk.

    Args:
        rule: What is relevant.
        run: The candidates.
        queries: Texts of the run's queries; more than those do no harm.
        documents: The documents by id.
        out: The file; ``.gz`` and ``.zst`` compress.
        plan: Split, negatives, depth and the rest.
        progress: Told how far the work is.

    Raises:
        BadData: An empty run, a query without text, or judgements of none of the run's queries.
        BadModel: A teacher gave something that is no score.
        OutputFailed: The file cannot be written.
    """
    with only_writer(Path(out)):
        return _label(rule, run, queries, documents, Path(out), plan or Plan(), progress)


def _label(
    rule: Rule,
    run: Run,
    queries: Iterable[Query],
    documents: Documents | Mapping[str, Document],
    out: Path,
    plan: Plan,
    progress: Progress | None,
) -> Labelling:
    """Do what :func:`label` says, with the file and its journal to oneself."""
    who = parties(rule, pool=plan.pool, truth=plan.truth, ask_all=plan.ask_all)
    found = candidates(run, queries, documents, plan.split, plan.depth)
    _refuse_foreign_judgements(rule, found)
    said = who.said() | found.said() | {"collection": plan.collection}
    journal = Journal(out.parent / f".{out.name}.labelling", said)
    resumed = journal.pairs
    _answer(who, found, journal, plan.chunk, progress)
    columns = journal.columns()
    layout = Layout(found, columns)
    choice = Choice(layout, plan.negatives)
    write_pairs(_written(layout, columns, choice), out)
    positives = {part.query_id: part.positives for part in layout}
    agreement = summarise(
        who,
        (columns.marks, columns.scores),
        positives,
        lambda places: list(map(layout.pair, places)),
        plan.shown,
    )
    journal.remove()
    done = Labelling(
        out,
        str(rule),
        str(plan.negatives),
        len(found.run),
        len(columns.marks),
        agreement.asked,
        agreement.relevant,
        choice.count,
        choice.pool,
        choice.short,
        int((columns.rows < 0).sum()),
        int((columns.rows == 0).sum()),
        _missed(rule, found.run),
        resumed,
        agreement,
    )
    _warn(done)
    return done


def _answer(who: Parties, found: Candidates, journal: Journal, chunk: int, progress: Progress | None) -> None:
    """Pass 1: ask about all rows that the journal does not have yet."""
    rows: list[int] = []
    pairs: list[Pair] = []
    waiting = found.run.rows - journal.rows
    for row in found.rows(journal.rows):
        try:
            cut = found.pairs(row)
        except KeyError:
            rows.append(-1)
        else:
            rows.append(len(cut))
            pairs += cut
        waiting -= 1
        # A chunk ends with a document, so that it can be found again by its row.
        if len(pairs) >= chunk or len(rows) >= 10 * chunk or not waiting:
            journal.commit(rows, *mark(who, pairs))
            rows, pairs = [], []
            if progress is not None:
                progress(journal.rows, found.run.rows)


def _written(layout: Layout, columns: Columns, choice: Choice) -> Iterator[LabelledPair]:
    """Pass 2: fetch the documents of the chosen pairs once more."""
    for part in layout:
        labels = dict.fromkeys(np.flatnonzero(part.marks & YES).tolist(), 1)
        labels |= dict.fromkeys(choice.places(part), 0)
        places = np.array(sorted(labels), np.int64)
        numbered = zip(part.documents(places), places.tolist(), strict=True)
        for document, some in itertools.groupby(numbered, lambda one: one[0]):
            pairs = layout.pairs(part, document)
            for _, place in some:
                query, passage = pairs[place - int(part.starts[document])]
                said = columns.scores[part.begin + place]
                score = None if np.isnan(said) else float(str(said))  # the fewest digits that read back
                yield LabelledPair(
                    query.id, query.text, passage.doc_id, passage.index, passage.text, labels[place], score
                )


def _refuse_foreign_judgements(rule: Rule, found: Candidates) -> None:
    for judge in judges(rule):
        if not any(query_id in judge.qrels for query_id in found.run):
            raise BadData(
                f"{judge} judges none of the run's {len(found.run):,} queries: the run has "
                f"{named(list(found.run))}, the judgements {named(list(judge.qrels)) or 'none'}; give those "
                "that belong to the run"
            )


def _missed(rule: Rule, run: Run) -> int:
    missed: set[tuple[str, str]] = set()
    for judge in judges(rule):
        for query_id in run if judge.by == "document" else ():
            wanted = relevant(judge.qrels, query_id, judge.at_least)
            missed |= {(query_id, doc_id) for doc_id in wanted.difference(run[query_id].doc_ids)}
    return len(missed)


def _warn(done: Labelling) -> None:
    found = done.agreement
    if found.asked and not found.accepted and found.histogram is not None:
        _say(
            f"the teacher says yes to none of the {found.asked:,} pairs it read: its highest "
            f"{found.histogram.scale} is {found.histogram.highest:.4g}, the threshold "
            f"{found.histogram.threshold:g}; lower the threshold, or check the teacher and its scale"
        )
    elif not done.relevant:
        _say(f"the rule  {done.rule}  says yes to none of {done.pairs:,} pairs, so nothing can be learned")
    if found.judge and not found.judged:
        _say(
            f"{found.judge} calls none of the run's {done.pairs:,} pairs relevant: do its document ids "
            "belong to this collection, and is the run deep enough?"
        )
    if done.unknown:
        hint = "" if done.pairs else "; is this the index the run was made on?"
        _say(f"{done.unknown:,} rows of the run name documents that are not in the collection{hint}")
    if done.without_text:
        _say(f"{done.without_text:,} rows of the run name documents without text")
    if done.short:
        _say(f"{done.short:,} negatives fewer than wanted were found; look deeper, or take other depths")


def _say(text: str) -> None:
    warnings.warn(text, RankhouseWarning, stacklevel=4)
