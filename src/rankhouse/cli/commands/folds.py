"""rankhouse folds: queries are dealt into folds, once, for every experiment to share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.evaluation.folds import Folds, deal, read_folds, write_folds
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels
from rankhouse.page.tables import CommandResult


@verb("folds", "rankhouse folds --queries q.jsonl --folds 5 --seed 1 --out folds.json")
def command(
    *,
    queries: Annotated[str, Option("The queries to deal.", "source")],
    qrels: Annotated[Path | None, Option("Deal only queries that have judgements here.")] = None,
    folds: Annotated[int, Option("How many.", least=2)] = 5,
    seed: Annotated[int, Option("Another seed gives other folds.", least=0, most=2**32 - 1)] = 0,
    given: Annotated[Path | None, Option("Check and take the folds of this file instead of dealing.")] = None,
    out: Annotated[Path, Option("The fold file to write (JSON).", "output")],
) -> CommandResult:
    """Deal queries into folds; the same queries and seed give the same folds on every machine.

    A fold file in which a query stands twice, or that lacks a query, is refused.
    """
    if given is not None:
        idle("the folds are those of --given", "folds", "seed")
    judged = None if qrels is None else read_qrels(qrels)
    ids = [query.id for query in read_queries(queries) if judged is None or query.id in judged]
    if not ids:
        raise WrongUse(f"no query of {queries} is left to deal; do --qrels belong to these queries?")
    result = deal(ids, folds, seed) if given is None else _checked(given, ids)
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
