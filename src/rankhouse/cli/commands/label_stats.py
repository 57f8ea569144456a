"""rankhouse label-stats: what PAIRS files hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.qrels import RelevantFrom, from_grade
from rankhouse.io.pairs import read_pairs
from rankhouse.io.trec import read_qrels
from rankhouse.labels.thresholds import PairsSummary, summarise_pairs
from rankhouse.page.tables import CommandResult, Table


@verb("label-stats", "rankhouse label-stats human.pairs.jsonl.gz both.pairs.jsonl.gz --truth qrels.txt")
def command(
    *,
    files: Annotated[tuple[Path, ...], Option(positional=True)],
    truth: Annotated[
        Path | None, Option("Judgements of the queries that were annotated: how many pairs are right?")
    ] = None,
    relevant_from: RelevantFrom = 1,
) -> CommandResult:
    """Count the pairs and queries of FILES, as rankhouse label writes them; with --truth, the right ones."""
    if truth is None:
        idle("it is a grade of --truth", "relevant_from")
    known = from_grade(read_qrels(truth), relevant_from) if truth else None
    summaries = {str(path): summarise_pairs(read_pairs(path), known) for path in files}
    records = {
        name: one._asdict() | {"precision": one.precision, "recall": one.recall}
        for name, one in summaries.items()
    }
    columns = ("file", "pairs", "relevant", "queries", "with a relevant", "precision", "recall")
    table = Table(columns, tuple(_row(name, one) for name, one in summaries.items()))
    facts = next(iter(records.values())) if len(records) == 1 else records
    return CommandResult(facts, tables=[table])


def _row(name: str, one: PairsSummary) -> tuple[str, ...]:
    counts = (one.pairs, one.relevant, one.queries, one.queries_relevant)
    shares = ("–" if share is None else f"{share:.4f}" for share in (one.precision, one.recall))
    return (name, *(f"{count:,}" for count in counts), *shares)
