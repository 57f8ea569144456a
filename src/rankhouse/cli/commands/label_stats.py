"""rankhouse label-stats: what PAIRS files hold."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.given import idle
from rankhouse.cli.options import PATH, FileCommand, as_json, relevant_from
from rankhouse.core.qrels import from_grade
from rankhouse.io.pairs import read_pairs
from rankhouse.io.trec import read_qrels
from rankhouse.labels.thresholds import PairsSummary, summarise_pairs
from rankhouse.page.tables import Table


@click.command(
    "label-stats",
    cls=FileCommand,
    epilog="Example:  rankhouse label-stats human.pairs.jsonl.gz both.pairs.jsonl.gz --truth qrels.txt",
)
@click.argument("files", nargs=-1, required=True, type=PATH)
@click.option(
    "--truth", type=PATH, help="Judgements of the queries that were annotated: how many pairs are right?"
)
@relevant_from
@as_json
def command(files: tuple[Path, ...], truth: Path | None, relevant_from: int, as_json: bool) -> None:
    """Count the pairs and queries of FILES, as rankhouse label writes them; with --truth, the right ones."""
    if truth is None:
        idle("it is a grade of --truth", "relevant_from")
    known = from_grade(read_qrels(truth), relevant_from) if truth else None
    summaries = {str(path): summarise_pairs(read_pairs(path), known) for path in files}
    if as_json:
        records = {name: one._asdict() | _shares(one) for name, one in summaries.items()}
        console.emit_json(next(iter(records.values())) if len(records) == 1 else records)
        return
    columns = ("file", "pairs", "relevant", "queries", "with a relevant", "precision", "recall")
    console.print_table(Table(columns, tuple(_row(name, one) for name, one in summaries.items())))


def _shares(one: PairsSummary) -> dict[str, float | None]:
    return {"precision": one.precision, "recall": one.recall}


def _row(name: str, one: PairsSummary) -> tuple[str, ...]:
    counts = (one.pairs, one.relevant, one.queries, one.queries_relevant)
    shares = ("–" if share is None else f"{share:.4f}" for share in (one.precision, one.recall))
    return (name, *(f"{count:,}" for count in counts), *shares)
