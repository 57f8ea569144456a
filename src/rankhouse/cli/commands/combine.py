"""rankhouse combine: runs, queries or judgements of different queries become one file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from rankhouse.cli.console import CommandResult
from rankhouse.cli.options import OUTPUT_FILE, PATH, idle, verb
from rankhouse.core.errors import BadData
from rankhouse.core.qrels import judgements
from rankhouse.core.results import Ranking
from rankhouse.core.run import Run
from rankhouse.io.corpora import read_queries, write_queries
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run

T = TypeVar("T")


@verb("combine", "rankhouse combine fold1.run fold2.run fold3.run --out all.run")
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option(
    "--kind",
    type=click.Choice(["run", "queries", "qrels"]),
    default="run",
    show_default=True,
    help="What RUNS are.",
)
@click.option("--tag", default="rankhouse", show_default=True, help="Name of a run, in its last column.")
@click.option("--out", type=OUTPUT_FILE, required=True, help="The file to write, of the same kind.")
def command(
    runs: tuple[Path, ...], kind: Literal["run", "queries", "qrels"], tag: str, out: Path
) -> CommandResult:
    """Join RUNS of different queries, as folds or years have, or queries, or judgements.

    A query in two of them is refused.
    To join rankings of the same queries, use  rankhouse fuse.
    """
    if kind != "run":
        idle("only runs have a tag", "tag")
    if kind == "queries":
        queries: dict[str, Any] = _joined((path, {q.id: q for q in read_queries(path)}) for path in runs)
        write_queries(queries.values(), out)
        rows = len(queries)
    elif kind == "qrels":
        qrels = _joined((path, read_qrels(path)) for path in runs)
        write_qrels(qrels, out)
        queries, rows = dict(qrels), judgements(qrels)
    else:
        rankings = _joined((path, _rankings(path)) for path in runs)
        whole = Run.from_rankings(rankings)
        write_run(whole, out, tag)
        queries, rows = dict(rankings), whole.rows
    facts = {kind: str(out), "queries": len(queries), "rows": rows}
    return CommandResult(facts, f"{len(queries):,} queries, {rows:,} rows written to {out}")


def _rankings(path: Path) -> dict[str, Ranking]:
    run = read_run(path)
    return {query_id: run[query_id] for query_id in run}


def _joined(parts: Iterable[tuple[Path, Mapping[str, T]]]) -> dict[str, T]:
    """Put what files hold by query together."""
    joined: dict[str, T] = {}
    origin: dict[str, Path] = {}
    for path, by_query in parts:
        for query_id, one in by_query.items():
            if query_id in joined:
                raise BadData(
                    f'query "{query_id}" is also in {origin[query_id]}; folds share no query '
                    "(to join rankings of the same queries, use  rankhouse fuse)",
                    path,
                )
            joined[query_id], origin[query_id] = one, path
    return joined
