"""rankhouse axioms: which axioms of retrieval the order of a run obeys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.commands.evaluate import name_runs
from rankhouse.cli.options import verb
from rankhouse.core.arguments import Option
from rankhouse.explanation.diagnosis import DEEPEST, DiagnosisOptions, check_target, diagnose, write
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_run
from rankhouse.page.tables import CommandResult


@verb(
    "axioms",
    "rankhouse axioms --run bm25.run --run new.run --queries q.tsv --index my.index "
    "--vectors glove.txt --out axioms.html",
)
def command(
    *,
    runs: Annotated[tuple[Path, ...], Option("A run of any system; repeat for more.", flag="--run")],
    queries: Annotated[str, Option("The texts of the runs' queries.", "source")],
    field: Annotated[str, Option("The text field of the queries, if they have several.")] = "",
    index: Annotated[Path, Option("The index that holds the documents.")],
    vectors: Annotated[
        str,
        Option(
            "Word vectors, for the axioms of meaning: a GloVe, word2vec or fastText file, or a ranker's "
            "folder."
        ),
    ] = "",
    depth: Annotated[int, Option("Documents of each ranking that are paired.", least=2, most=DEEPEST)] = 50,
    tolerance: Annotated[float, Option("Numbers that differ by at most this share count as equal.")] = 0.1,
    seed: Annotated[int, Option("Of the intervals' bootstrap.", least=0, most=2**32 - 1)] = 0,
    out: Annotated[
        Path | None, Option("Write a page (.html) or a chart (.png, .svg) here.", "output")
    ] = None,
) -> CommandResult:
    """Count how often runs order two documents as the axioms of retrieval ask.

    They ask for more query words, rarer, closer together, in shorter texts, or similar ones. Only texts and
    order are looked at, so that any system's run will do. Random order obeys 50%.
    """
    if out is not None:
        check_target(out)
    systems = {name: read_run(path) for name, path in name_runs(runs)}
    options = DiagnosisOptions(depth, tolerance, vectors, seed=seed)
    held, asked = Index.open(index), read_queries(queries, field=field)
    ranked = len({query_id for run in systems.values() for query_id in run})
    with console.progress("comparing", ranked) as show:
        diagnosis = diagnose(systems, asked, held, options=options, progress=show)
    if out is not None:
        write(diagnosis, out)
        console.say(f"written to {out}")
    return CommandResult(diagnosis.to_dict(), tables=[diagnosis.table], notes=diagnosis.notes)
