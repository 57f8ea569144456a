"""rankhouse axioms: which axioms of retrieval the order of a run obeys."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.commands.evaluate import name_runs
from rankhouse.cli.console import CommandResult
from rankhouse.cli.options import FINITE, OUTPUT_FILE, PATH, SEED, SOURCE, verb
from rankhouse.explanation.diagnosis import DEEPEST, DiagnosisOptions, check_target, diagnose, write
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_run


@verb(
    "axioms",
    "rankhouse axioms --run bm25.run --run new.run --queries q.tsv --index my.index "
    "--vectors glove.txt --out axioms.html",
)
@click.option(
    "--run", "runs", type=PATH, required=True, multiple=True, help="A run of any system; again for more."
)
@click.option("--queries", type=SOURCE, required=True, help="The texts of the runs' queries.")
@click.option("--field", default="", help="Which text of the queries, where they have several.")
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option("--vectors", default="", help="Word vectors, for the axioms of meaning: a GloVe, word2vec or "
              "fastText file, or a ranker's folder.")  # fmt: skip
@click.option("--depth", type=click.IntRange(2, DEEPEST), default=50, show_default=True,
              help="Documents of each ranking that are paired.")  # fmt: skip
@click.option("--tolerance", type=FINITE, default=0.1, show_default=True,
              help="Numbers that differ by this share are about equal.")  # fmt: skip
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the intervals' bootstrap.")
@click.option("--out", type=OUTPUT_FILE, help="Write a page (.html) or a chart (.png, .svg) here.")
def command(
    runs: tuple[Path, ...],
    queries: str,
    field: str,
    index_path: Path,
    vectors: str,
    depth: int,
    tolerance: float,
    seed: int,
    out: Path | None,
) -> CommandResult:
    """Count how often runs order two documents as the axioms of retrieval ask.

    They ask for more query words, rarer, closer together, in shorter texts, or similar ones. Only texts and
    order are looked at, so that any system's run will do. Random order obeys 50%.
    """
    if out is not None:
        check_target(out)
    systems = {name: read_run(path) for name, path in name_runs(runs)}
    options = DiagnosisOptions(depth, tolerance, vectors, seed=seed)
    index, asked = Index.open(index_path), read_queries(queries, field=field)
    ranked = len({query_id for run in systems.values() for query_id in run})
    with console.progress("comparing", ranked) as show:
        diagnosis = diagnose(systems, asked, index, options=options, progress=show)
    if out is not None:
        write(diagnosis, out)
        console.say(f"written to {out}")
    return CommandResult(diagnosis.to_dict(), tables=[diagnosis.table], notes=diagnosis.notes)
