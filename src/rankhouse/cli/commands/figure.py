"""rankhouse figure: pictures of what is inside a ranker.

Pictures of numbers stay with the command that computes them, where people of the field look for them:
per-query differences and gain by difficulty are ``evaluate --chart``, shares of axioms ``axioms --out``, why
a document scores what it scores ``explain``. What is here needs the model itself and explains no score.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rankhouse.cli.console import CommandResult
from rankhouse.cli.options import OUTPUT_FILE, PATH, SEED, SOURCE, idle, options_of, relevant_from, verb
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.qrels import from_grade, relevant
from rankhouse.index.index import Index
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.page.charts import chart_kind
from rankhouse.systems.names import find_query, unknown
from rankhouse.systems.rankers import ComputeOptions, open_ranker


@verb(
    "figure",
    "rankhouse figure vectors --ranker bicnn --ranker patt --run ql.run --qrels qrels.txt "
    "--queries q.tsv --query MB111 --index my.index --out map.png",
)
@click.argument("kind", type=click.Choice(["vectors", "attention"]))
@click.option(
    "--ranker",
    "rankers",
    type=SOURCE,
    required=True,
    multiple=True,
    help="A ranker; for vectors, again for more.",
)
@click.option("--queries", type=SOURCE, required=True, help="A file with the query's text.")
@click.option("--field", default="", help="Which text of the queries, where they have several.")
@click.option("--query", "query_id", required=True, help="The id of one query.")
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option("--doc", "docs", multiple=True, help="For attention: a document's id; again for more.")
@click.option("--run", "run_path", type=PATH, help="For vectors: the run whose documents are drawn.")
@click.option("--qrels", type=PATH, help="For vectors: which of them are relevant.")
@relevant_from
@click.option("--depth", type=click.IntRange(5, 10_000), default=1000, show_default=True,
              help="For vectors: how many of them.")  # fmt: skip
@click.option("--seed", type=SEED, default=0, show_default=True, help="For vectors: of the t-SNE.")
@click.option("--out", type=OUTPUT_FILE, required=True, help="The picture (.png or .svg).")
@options_of(ComputeOptions)
def command(
    compute: ComputeOptions,
    kind: str,
    rankers: tuple[str, ...],
    queries: str,
    field: str,
    query_id: str,
    index_path: Path,
    docs: tuple[str, ...],
    run_path: Path | None,
    qrels: Path | None,
    relevant_from: int,
    depth: int,
    seed: int,
    out: Path,
) -> CommandResult:
    """Draw what rankers see of one query: KIND is vectors or attention.

    vectors: a t-SNE of a run's documents as rankers see them (samCNN, bi-encoders), the relevant ones marked.
    attention: the weights that samCNN lays on the words of documents. Neither explains a score.
    """
    chart_kind(out)
    query = find_query(query_id, queries, field)
    index = Index.open(index_path)
    shown: list[dict[str, Any]]
    if kind == "attention":
        idle("it belongs to the kind vectors", "run_path", "qrels", "depth", "seed", "relevant_from")
        if not docs or len(rankers) > 1:
            raise WrongUse("figure attention draws one --ranker and one --doc ID or more")
        if absent := [doc_id for doc_id in docs if doc_id not in index.documents]:
            raise unknown("document", absent[0], index.documents, "the index")
        shown = _draw_attention(rankers[0], compute, _pairs(query, index, docs), out)
    else:
        idle("it belongs to the kind attention", "docs")
        if run_path is None or qrels is None:
            raise WrongUse("figure vectors needs --run RUN, whose documents it draws, and --qrels QRELS")
        run = read_run(run_path)
        if query.id not in run:
            raise unknown("query", query.id, run, str(run_path))
        ranked = run[query.id].doc_ids[:depth]
        index.require(ranked)
        pairs = _pairs(query, index, ranked)
        good = relevant(from_grade(read_qrels(qrels), relevant_from), query.id)
        marks = [pair.passage.doc_id in good for pair in pairs]
        shown = _draw_vectors(rankers, compute, pairs, marks=marks, seed=seed, out=out)
    return CommandResult(shown)


def _pairs(query: Query, index: Index, doc_ids: Sequence[str]) -> list[Pair]:
    documents = index.documents.fetch(doc_ids)
    return [Pair(query, Passage(document.id, 0, document.full_text)) for document in documents]


def _draw_vectors(
    rankers: Sequence[str],
    compute: ComputeOptions,
    pairs: list[Pair],
    marks: list[bool],
    seed: int,
    out: Path,
) -> list[dict[str, Any]]:
    with needs("neural", "a picture of vectors"):
        from rankhouse.explanation.pictures import map_pairs, write_maps
    names = [Path(spec).name if Path(spec).is_dir() else spec for spec in rankers]
    maps = [
        map_pairs(name, open_ranker(spec, compute), pairs, relevant=marks, seed=seed)
        for name, spec in zip(names, rankers, strict=True)
    ]
    query = pairs[0].query
    write_maps(maps, f"{query.id}: {query.text}", out)
    return [one.to_dict() for one in maps]


def _draw_attention(
    ranker: str, compute: ComputeOptions, pairs: list[Pair], out: Path
) -> list[dict[str, Any]]:
    with needs("neural", "a picture of attention"):
        from rankhouse.explanation.pictures import attention_over, write_attention
    opened = open_ranker(ranker, compute)
    answers = [attention_over(opened, pair) for pair in pairs]
    query = pairs[0].query
    write_attention(answers, f"{query.id}: {query.text}", out)
    return [answer.to_dict() for answer in answers]
