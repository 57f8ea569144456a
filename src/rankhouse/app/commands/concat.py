"""rankhouse concat: runs of different queries become one."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.app import console
from rankhouse.app.options import PATH, as_json
from rankhouse.core.errors import BadData
from rankhouse.core.run import Ranking, Run
from rankhouse.core.trec import read_run, write_run


@click.command(
    "concat",
    epilog="Example:  rankhouse concat fold1.run fold2.run fold3.run --out all.run",
)
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--tag", default="rankhouse", show_default=True, help="Name of the run, in its last column.")
@click.option("--out", type=PATH, required=True, help="The run file to write.")
@as_json
def command(runs: tuple[Path, ...], tag: str, out: Path, as_json: bool) -> None:
    """Join RUNS that rank different queries, as the tests of folds do; a query in two of them is refused.

    To join rankings of the same queries, use  rankhouse fuse.
    """
    joined: dict[str, Ranking] = {}
    origin: dict[str, Path] = {}
    for path in runs:
        found = read_run(path)
        for query_id in found:
            if query_id in joined:
                raise BadData(
                    f'query "{query_id}" is also in {origin[query_id]}; folds share no query '
                    "(to join rankings of the same queries, use  rankhouse fuse)",
                    path,
                )
            joined[query_id], origin[query_id] = found[query_id], path
    ids = list(joined)
    whole = Run.from_columns(ids, [joined[q].doc_ids for q in ids], [joined[q].scores for q in ids])
    write_run(whole, out, tag)
    if as_json:
        console.emit_json({"run": str(out), "queries": len(whole), "rows": whole.rows})
    else:
        console.say(f"{len(whole):,} queries, {whole.rows:,} rows written to {out}")
