"""The work itself: a run's pairs, a rule and a sampling of negatives become a PAIRS file.

Pass 1 streams the pairs chunk by chunk, asks the rule, and keeps 5 bytes a pair in a journal on disk. Pass 2
chooses the negatives from the journal and fetches once more only the documents whose pairs are written. So
memory does not grow with the number of pairs, a killed labelling resumes, and neither the size
of the chunks nor a kill changes a byte of the result.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rankhouse.core.errors import BadData, WrongUse, name_few, warn
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Document, Documents, Pair, Query
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.qrels import relevant
from rankhouse.core.run import Run
from rankhouse.io.outputs import only_writer
from rankhouse.io.pairs import LabelledPair, write_pairs
from rankhouse.labels.agreement import Agreement, summarise
from rankhouse.labels.candidates import Candidates, Negatives, Split, candidates, random
from rankhouse.labels.journal import JournalColumns, LabelJournal, NegativeSample, PairTable, columns_in
from rankhouse.labels.leaf_rules import judges
from rankhouse.labels.rules import Rule
from rankhouse.labels.soft_scores import JOINS, SoftScores
from rankhouse.labels.votes import Panel, panel_of, vote
from rankhouse.text.split import Whole

_say = partial(warn, stacklevel=3)


@dataclass(frozen=True)
class LabelPlan:
    """Plan of a labelling.

    Attributes:
        negatives: The non-relevant pairs to write.
        depth: How many documents a query are looked at.
        pool: Which pairs may be negatives; see :func:`~rankhouse.labels.leaf_rules.non_relevant` for the
            default.
        truth: Known relevance of passages, to measure by.
        ask_all: Have the teacher read every pair, for a whole comparison with the judge.
        chunk: Pairs asked about and kept at once: the most that a kill can lose.
        collection: Names the documents (an index's fingerprint): another one starts afresh.
        shown: How many removed, and how many added pairs the comparison shows.
        scores: Write every pair that a teacher or run of the rule scored, with its score and scale.
        join: The way to join several sources' scores (:data:`~rankhouse.labels.soft_scores.JOINS`).
        answers: Folders in which :func:`collect` put the answers of all queries, in order; nobody is asked.
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
    scores: bool = False
    join: str = "z-score"
    answers: Sequence[Path] = ()

    def __post_init__(self) -> None:
        choose(self.join, JOINS, "way to join scores")
        if self.depth < 1 or self.chunk < 1:
            raise WrongUse(f"depth={self.depth}, chunk={self.chunk}: both are whole numbers from 1 up")


class LabelResult(NamedTuple):
    """Counts of a labelling.

    Attributes:
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
        scored: Pairs written with a score, where scores were asked for.
        undecided: Those among them that the rule calls neither relevant nor not.
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
    scored: int = 0
    undecided: int = 0
    scale: str = ""


def label(
    rule: Rule,
    run: Run,
    queries: Iterable[Query],
    documents: Documents | Mapping[str, Document],
    out: Path | str,
    plan: LabelPlan | None = None,
    progress: Progress | None = None,
) -> LabelResult:
    """Label the pairs of a run and write the relevant ones and some negatives as a PAIRS file.

    Pairs are written query by query, best document first. Nothing stands at ``out`` until all is done; if the
    work is killed, the same call goes on from the last whole chunk.

    Args:
        queries: Texts of the run's queries; more than those do no harm.
        out: The file; ``.gz`` and ``.zst`` compress.

    Raises:
        BadData: An empty run, a query without text, or judgements of none of the run's queries.
        BadModel: A teacher gave something that is no score.
        OutputFailed: The file cannot be written.
    """
    out, plan = Path(out), plan or LabelPlan()
    with only_writer(out):
        rows = candidates(run, queries, documents, plan.split, depth=plan.depth)
        _refuse_foreign_judgements(rule, rows)
        folder = out.parent / f".{out.name}.labelling"
        if plan.answers:
            shutil.rmtree(folder, ignore_errors=True)  # of a merge that was killed
        panel, journal = _begin(rule, rows, folder, plan)
        resumed = journal.pairs
        for columns in (columns_in(answers, len(panel.sources)) for answers in plan.answers):
            if len(columns.rows):
                journal.commit(columns.rows, columns.votes)
        _collect_votes(panel, rows, journal, plan.chunk, progress=progress)
        result = _write(panel, rows, journal.columns(), plan, out=out, resumed=resumed)
        journal.remove()
        _warn(result, is_whole=isinstance(plan.split, Whole))
        return result


def _begin(rule: Rule, rows: Candidates, folder: Path, plan: LabelPlan) -> tuple[Panel, LabelJournal]:
    """Settle who is asked, and find the answers that are there already."""
    panel = panel_of(rule, pool=plan.pool, truth=plan.truth, ask_all=plan.ask_all, scores=plan.scores)
    identity = panel.identity() | rows.identity() | {"collection": plan.collection}
    return panel, LabelJournal(folder, identity, len(panel.sources))


def _write(
    panel: Panel, rows: Candidates, columns: JournalColumns, plan: LabelPlan, out: Path, resumed: int
) -> LabelResult:
    """Pass 2: choose the negatives, write the pairs, and sum up."""
    table = PairTable(rows, columns)
    sample = NegativeSample(table, plan.negatives)
    soft = SoftScores(panel.sources, columns, plan.join) if panel.sources else None
    write_pairs(_labelled(table, columns, sample, soft), out)
    positives = {query.query_id: query.positives for query in table}
    agreement = summarise(
        panel, columns.votes, positives, lambda places: list(map(table.pair, places)), most=plan.shown
    )
    return LabelResult(
        out=out,
        rule=str(panel.rule),
        negatives=str(plan.negatives),
        queries=len(rows.run),
        pairs=len(columns.votes.marks),
        asked=agreement.asked,
        relevant=agreement.relevant,
        non_relevant=sample.count,
        pool=sample.pool,
        short=sample.short,
        unknown=int((columns.rows < 0).sum()),
        without_text=int((columns.rows == 0).sum()),
        missed=_missed(panel.rule, rows.run),
        resumed=resumed,
        agreement=agreement,
        scored=soft.scored if soft else 0,
        undecided=soft.undecided if soft else 0,
        scale=soft.scale if soft else "",
    )


def collect(
    rule: Rule,
    rows: Candidates,
    wanted: Iterable[str],
    folder: Path,
    plan: LabelPlan,
    progress: Progress | None = None,
) -> int:
    """Ask about the pairs of some of a run's queries and keep the answers, for :attr:`LabelPlan.answers`.

    Args:
        rows: The candidates of all queries; see :func:`rankhouse.labels.candidates.candidates`.
        plan: Pool, truth and the rest; negatives are chosen later.

    Raises:
        BadData: Judgements of none of all the run's queries.
        BadModel: A teacher gave something that is no score.
        OutputFailed: The folder cannot be written.
    """
    _refuse_foreign_judgements(rule, rows)
    some = replace(rows, run=rows.run.restrict(wanted))
    panel, journal = _begin(rule, some, folder, plan)
    _collect_votes(panel, some, journal, plan.chunk, progress=progress)
    return journal.pairs


def _collect_votes(
    panel: Panel, candidates: Candidates, journal: LabelJournal, chunk: int, progress: Progress | None
) -> None:
    """Pass 1: ask about all rows that the journal does not have yet."""
    rows: list[int] = []
    pairs: list[Pair] = []
    waiting = candidates.run.rows - journal.rows
    tell = progress or ignore
    tell(journal.rows, candidates.run.rows)
    for row in candidates.rows(journal.rows):
        try:
            passages = candidates.pairs(row)
        except KeyError:
            rows.append(-1)
        else:
            rows.append(len(passages))
            pairs += passages
        waiting -= 1
        # A chunk ends with a document, so that it can be found again by its row.
        if len(pairs) >= chunk or len(rows) >= 10 * chunk or not waiting:
            journal.commit(rows, vote(panel, pairs))
            rows, pairs = [], []
            tell(journal.rows, candidates.run.rows)


def _labelled(
    table: PairTable, columns: JournalColumns, sample: NegativeSample, soft: SoftScores | None
) -> Iterator[LabelledPair]:
    """Fetch the documents of the chosen pairs once more, and label the pairs."""
    for query in table:
        scores = columns.votes.scores[query.begin : query.begin + len(query.marks)]
        labels: dict[int, int] = {}
        if soft is not None:
            scores, labels = soft.of(query)
        labels |= dict.fromkeys(query.relevant.tolist(), 1)
        labels |= dict.fromkeys(sample.places(query), 0)
        places = np.array(sorted(labels), np.int64)
        numbered = zip(query.documents(places), places.tolist(), strict=True)
        for document, group in itertools.groupby(numbered, lambda entry: entry[0]):
            pairs = table.pairs(query, document)
            for _, place in group:
                pair = pairs[place - int(query.starts[document])]
                score = scores[place]
                # The fewest digits that read back.
                shortest = None if np.isnan(score) else float(str(score))
                scale = soft.scale if soft is not None and shortest is not None else ""
                yield LabelledPair.of(pair, labels[place], shortest, scale)


def _refuse_foreign_judgements(rule: Rule, candidates: Candidates) -> None:
    for judge in judges(rule):
        if not any(query_id in judge.qrels for query_id in candidates.run):
            raise BadData(
                f"{judge} judges none of the run's {len(candidates.run):,} queries: the run has "
                f"{name_few(candidates.run, quoted=True)}, the judgements "
                f"{name_few(judge.qrels, quoted=True) or 'none'}; give those that belong to the run"
            )


def _missed(rule: Rule, run: Run) -> int:
    by_document = [judge for judge in judges(rule) if judge.by == "document"]
    missed = 0
    for query_id in run:
        wanted = (relevant(judge.qrels, query_id, judge.at_least) for judge in by_document)
        missed += len(set[str]().union(*wanted).difference(run[query_id].doc_ids))
    return missed


def _warn(result: LabelResult, *, is_whole: bool) -> None:
    agreement = result.agreement
    if agreement.asked and not agreement.accepted and agreement.histogram is not None:
        _say(
            f"the teacher says yes to none of the {agreement.asked:,} pairs it read: its highest "
            f"{agreement.histogram.scale} is {agreement.histogram.highest:.4g}, the threshold "
            f"{agreement.histogram.threshold:g}; lower the threshold, or check the teacher and its scale"
        )
    elif not result.relevant:
        _say(
            f"the rule  {result.rule}  says yes to none of {result.pairs:,} pairs, so nothing can be learned"
        )
    if agreement.judge and not agreement.judged:
        _say(
            f"{agreement.judge} calls none of the run's {result.pairs:,} pairs relevant: do its document ids "
            "belong to this collection, and is the run deep enough?"
        )
    if result.unknown:
        hint = "" if result.pairs else "; is this the index the run was made on?"
        _say(f"{result.unknown:,} rows of the run name documents that are not in the collection{hint}")
    if result.without_text:
        _say(f"{result.without_text:,} rows of the run name documents without text")
    if result.short:
        _say(f"{result.short:,} negatives fewer than wanted were found; look deeper, or take other depths")
    if is_whole and agreement.teacher and agreement.removed > agreement.judged / 2:
        kept = agreement.judged - agreement.removed
        _say(
            f"the rule keeps {kept:,} of the {agreement.judged:,} pairs that the judgements call relevant "
            f"({kept / agreement.judged:.0%}); if the judgements are better than that, the threshold is too "
            "high:  rankhouse threshold  chooses one on judged pairs"
        )
