"""rankhouse combine: runs, queries or judgements of different queries become one file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadData
from rankhouse.core.qrels import judgements
from rankhouse.core.run import Run
from rankhouse.io.corpora import read_queries, write_queries
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run
from rankhouse.page.tables import CommandResult

T = TypeVar("T")


@verb("combine", "rankhouse combine fold1.run fold2.run fold3.run --out all.run")
def command(
    *,
    runs: Annotated[tuple[Path, ...], Option(positional=True)],
    kind: Annotated[Literal["run", "queries", "qrels"], Option("What RUNS are.")] = "run",
    tag: Annotated[str, Option("Name of a run, in its last column.")] = "rankhouse",
    out: Annotated[Path, Option("The file to write, of the same kind.", "output")],
) -> CommandResult:
    """Join RUNS of different queries, such as those of folds or years; also queries or judgements.

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
        rankings = _joined((path, read_run(path)) for path in runs)
        whole = Run.from_rankings(rankings)
        write_run(whole, out, tag)
        queries, rows = dict(rankings), whole.rows
    facts = {kind: str(out), "queries": len(queries), "rows": rows}
    return CommandResult(facts, f"{len(queries):,} queries, {rows:,} rows written to {out}")


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
