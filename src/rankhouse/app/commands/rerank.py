"""rankhouse rerank: a ranker reads the first stage's documents and orders them anew."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import numpy as np

from rankhouse.app import console
from rankhouse.app.options import FROM_ZERO, OUTPUT_FILE, PATH, as_json, computing
from rankhouse.app.precomputed import stored_for
from rankhouse.app.rankers import ComputeOptions, open_ranker
from rankhouse.core import notation
from rankhouse.core.corpora import read_queries
from rankhouse.core.nouns import Ranker
from rankhouse.core.trec import read_run, write_run
from rankhouse.index.index import Index
from rankhouse.ranking.cache import CachedRanker
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank import Documents, Plan, Report, rerank
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker


@click.command(
    "rerank",
    epilog="Example:  rankhouse rerank --run bm25.run --queries q.tsv --index my.index "
    "--ranker 'monot5(\"DIR\")' --depth 100 --out new.run",
)
@click.option("--run", "run_path", type=PATH, required=True, help="The first stage's run.")
@click.option("--queries", required=True, help="The texts of its queries.")
@click.option("--field", default="", help="Which text of the queries, where they have several.")
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option("--ranker", required=True, help='A bundle folder, monot5("DIR"), crossencoder("DIR") ...')
@click.option("--depth", type=FROM_ZERO, default=1000, show_default=True, help="Documents read a query.")
@click.option(
    "--split", help='"sentences(10, 5)", "words(100)" ...  [default: whole; as kept, where encode kept it]'
)
@click.option("--pool", help='first, max, sum, mean, "top(3)" ...  [default: max; as kept]')
@click.option("--stored/--no-stored", default=None,
              help="Insist on, or refuse, what encode kept.  [default: used if there]")  # fmt: skip
@click.option("--tail", type=click.Choice(["keep", "drop"]), default="keep", show_default=True,
              help="What becomes of documents below the depth.")  # fmt: skip
@click.option("--alone", is_flag=True, help="Queries one by one, as people ask them, and the time of each.")
@click.option("--cache", type=PATH, help="Keep scores in this folder, and go on from there after a kill.")
@click.option("--tag", default="rankhouse", show_default=True, help="Name of the run, in its last column.")
@click.option("--out", type=OUTPUT_FILE, required=True, help="The run file to write.")
@computing
@as_json
def command(
    run_path: Path,
    queries: str,
    field: str,
    index_path: Path,
    ranker: str,
    depth: int,
    split: str | None,
    pool: str | None,
    stored: bool | None,
    tail: Literal["keep", "drop"],
    alone: bool,
    cache: Path | None,
    tag: str,
    out: Path,
    precision: str,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Rerank a run with a neural ranker; long documents in passages, nothing lost.

    What  rankhouse encode  kept for this very ranker (TK's words in context, token ids) is used at once.
    """
    first, asked, index = read_run(run_path), read_queries(queries, field=field), Index.open(index_path)
    neural = open_ranker(ranker, ComputeOptions(precision, device, threads))
    cut = str(notation.make(split, SPLITTERS, "splitter")) if split else ""
    kept = None if stored is False else stored_for(index, neural, cut, insist=bool(stored))
    held = kept.kept.state if kept else None
    plan = Plan(
        split=notation.make(split or (held.split if held else "whole"), SPLITTERS, "splitter"),
        pool=notation.make(pool or (held.pool if held else "max"), POOLS, "pool"),
        depth=depth,
        tail=tail,
        alone=alone,
    )
    report = Report()
    total = sum(min(depth, len(ranking.doc_ids)) for ranking in first.values())
    started = time.perf_counter()
    with ExitStack() as stack:
        scorer: Ranker = kept.ranker if kept else neural
        documents: Documents = index.documents
        if cache is not None:  # it knows passages by their texts
            scorer = stack.enter_context(closing(CachedRanker(scorer, cache)))
        elif kept is not None:
            plan, documents = replace(plan, split=kept.split), kept.documents
        show = stack.enter_context(console.progress("reranking", total))
        done = rerank(scorer, first, asked, documents, plan, report=report, progress=show)
    seconds = time.perf_counter() - started
    write_run(done, out, tag)
    _warn_of_unread(neural, report)
    read = kept.reads.read if kept else 0
    if as_json:
        said = {"run": str(out), "seconds": round(seconds, 3), "stored": read} | vars(report)
        console.emit_json(said | _unread(neural) | {"per_query": _spread(report.times)})
        return
    _tell(report, seconds, out)
    if kept is not None:
        console.say(
            f"{read:,} of them by kept {kept.kept.state.kind} ({kept.kept.state.dtype}, split "
            f"{kept.kept.state.split}) in {kept.kept.folder}; --no-stored does without"
        )


def _tell(report: Report, seconds: float, out: Path) -> None:
    rate = report.passages / max(seconds, 1e-9)
    console.say(
        f"{report.queries:,} queries, {report.documents:,} documents in {report.passages:,} passages "
        f"({report.cached:,} from the cache) in {seconds:.2f} s ({rate:,.0f} passages/s); written to {out}"
    )
    if report.times:
        spread = ", ".join(f"{name} {value:.3f}" for name, value in _spread(report.times).items())
        console.say(f"seconds a query: {spread}")


def _spread(times: dict[str, float]) -> dict[str, float]:
    """Sum up the seconds of all queries; nothing where they were not taken."""
    if not times:
        return {}
    *quarters, most = np.percentile([*times.values()], [25, 50, 75, 100]).tolist()
    names = ("lower quartile", "median", "upper quartile")
    return dict(zip(names, quarters, strict=True)) | {"mean": float(np.mean([*times.values()])), "most": most}


def _unread(neural: NeuralRanker) -> dict[str, int]:
    return {"truncated": neural.report.truncated, "tokens_lost": neural.report.tokens_lost}


def _warn_of_unread(neural: NeuralRanker, report: Report) -> None:
    """Say what the ranker did not read."""
    if read := neural.report.truncated:
        console.warn(
            f"{read:,} of {neural.report.seen:,} passages did not fit into {neural.max_length} "
            f"tokens; {neural.report.tokens_lost:,} tokens were not read (cut smaller passages with --split)"
        )
    if report.dropped_words:
        console.warn(f"{report.dropped_words:,} words are in no passage; --split says how many it keeps")
