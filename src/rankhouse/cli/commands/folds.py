"""rankhouse folds: queries are dealt into folds, once, for every experiment to share."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli.console import CommandResult
from rankhouse.cli.options import OUTPUT_FILE, PATH, SEED, SOURCE, idle, verb
from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.evaluation.folds import Folds, deal, read_folds, write_folds
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels


@verb("folds", "rankhouse folds --queries q.jsonl --folds 5 --seed 1 --out folds.json")
@click.option("--queries", type=SOURCE, required=True, help="The queries to deal.")
@click.option("--qrels", type=PATH, help="Deal only queries that have judgements here.")
@click.option("--folds", "count", type=click.IntRange(2), default=5, show_default=True, help="How many.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Another one, other folds.")
@click.option("--given", type=PATH, help="Check and take the folds of this file instead of dealing.")
@click.option("--out", type=OUTPUT_FILE, required=True, help="The fold file to write (JSON).")
def command(
    queries: str, qrels: Path | None, count: int, seed: int, given: Path | None, out: Path
) -> CommandResult:
    """Deal queries into folds; the same queries and seed give the same folds on every machine.

    A fold file in which a query stands twice, or that lacks a query, is refused.
    """
    if given is not None:
        idle("the folds are those of --given", "count", "seed")
    judged = None if qrels is None else read_qrels(qrels)
    ids = [query.id for query in read_queries(queries) if judged is None or query.id in judged]
    if not ids:
        raise WrongUse(f"no query of {queries} is left to deal; do --qrels belong to these queries?")
    result = deal(ids, count, seed) if given is None else _checked(given, ids)
    write_folds(result, out)
    sizes = [len(fold) for fold in result.folds]
    told = f"{sum(sizes):,} queries in {len(sizes)} folds of {', '.join(map(str, sizes))}: {out}"
    return CommandResult({"folds": str(out), "sizes": sizes, "seed": result.seed}, told)


def _checked(path: Path, ids: list[str]) -> Folds:
    """Read someone else's folds, and make sure that they hold these queries."""
    given = read_folds(path)
    missing = sorted(set(ids) - set(given.query_ids))
    if missing:
        raise BadData(
            f"{len(missing)} queries are in no fold: {name_few(missing, 8)}; add them, or deal again", path
        )
    wanted = set(ids)
    parts = tuple(tuple(q for q in fold if q in wanted) for fold in given.folds)
    if not all(parts):
        empty = next(number for number, fold in enumerate(parts, 1) if not fold)
        raise BadData(f"fold {empty} holds none of these queries, so there is nothing to test on", path)
    return Folds(given.seed, parts)
