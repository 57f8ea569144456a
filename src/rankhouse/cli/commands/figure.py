"""rankhouse figure: pictures of what is inside a ranker.

Pictures of numbers stay with the command that computes them, where people of the field look for them:
per-query differences and gain by difficulty are ``evaluate --chart``, shares of axioms ``axioms --out``, why
a document scores what it scores ``explain``. What is here needs the model itself and explains no score.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.qrels import RelevantFrom, from_grade, relevant
from rankhouse.index.index import Index
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.page.charts import chart_kind
from rankhouse.page.tables import CommandResult
from rankhouse.systems.names import find_query, unknown
from rankhouse.systems.rankers import ComputeOptions, open_ranker


@verb(
    "figure",
    "rankhouse figure vectors --ranker bicnn --ranker patt --run ql.run --qrels qrels.txt "
    "--queries q.tsv --query MB111 --index my.index --out map.png",
)
def command(
    *,
    kind: Annotated[str, Option(choices=("vectors", "attention"), positional=True)],
    rankers: Annotated[
        tuple[str, ...], Option("A ranker; for vectors, repeat for more.", "source", flag="--ranker")
    ],
    queries: Annotated[str, Option("A file with the query's text.", "source")],
    field: Annotated[str, Option("Which text of the queries, if they have several.")] = "",
    query: Annotated[str, Option("The id of one query.")],
    index: Annotated[Path, Option("The index that holds the documents.")],
    docs: Annotated[
        tuple[str, ...], Option("For attention: a document's id; repeat for more.", flag="--doc")
    ] = (),
    run: Annotated[Path | None, Option("For vectors: the run whose documents are drawn.")] = None,
    qrels: Annotated[Path | None, Option("For vectors: which of them are relevant.")] = None,
    relevant_from: RelevantFrom = 1,
    depth: Annotated[int, Option("For vectors: how many of them.", least=5, most=10_000)] = 1000,
    seed: Annotated[int, Option("For vectors: seed of the t-SNE.", least=0, most=2**32 - 1)] = 0,
    out: Annotated[Path, Option("The picture (.png or .svg).", "output")],
    compute: ComputeOptions,
) -> CommandResult:
    """Draw what rankers see of one query: KIND is vectors or attention.

    vectors: a t-SNE of a run's documents as rankers see them (samCNN, bi-encoders), the relevant ones marked.
    attention: the weights that samCNN lays on the words of documents. Neither explains a score.
    """
    chart_kind(out)
    asked, held = find_query(query, queries, field), Index.open(index)
    shown: list[dict[str, Any]]
    if kind == "attention":
        idle("it belongs to the kind vectors", "run", "qrels", "depth", "seed", "relevant_from")
        if not docs or len(rankers) > 1:
            raise WrongUse("figure attention draws one --ranker and one --doc ID or more")
        if absent := [doc_id for doc_id in docs if doc_id not in held.documents]:
            raise unknown("document", absent[0], held.documents, "the index")
        shown = _draw_attention(rankers[0], compute, _pairs(asked, held, docs), out)
    else:
        idle("it belongs to the kind attention", "docs")
        if run is None or qrels is None:
            raise WrongUse("figure vectors needs --run RUN, whose documents it draws, and --qrels QRELS")
        first = read_run(run)
        if asked.id not in first:
            raise unknown("query", asked.id, first, str(run))
        ranked = first[asked.id].doc_ids[:depth]
        held.require(ranked)
        pairs = _pairs(asked, held, ranked)
        good = relevant(from_grade(read_qrels(qrels), relevant_from), asked.id)
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
