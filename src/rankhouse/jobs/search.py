"""search: its options, and the system that they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rankhouse.core.nouns import Query
from rankhouse.core.options import Option
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.systems.execution import Execution
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.short_forms import short_form
from rankhouse.systems.system import FOUND, System


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ComputeOptions):
    """What ranks, and how many documents it finds."""

    system: Annotated[
        str | None,
        Option("\"bm25 % 100 >> crossencoder('DIR')\": what ranks, as one expression.", kind="source"),
    ] = None
    models: Annotated[
        tuple[str, ...],
        Option(
            "Short for a --system: bm25, ql, jm, dense(RANKER); several are fused.",
            kind="source",
            flag="--model",
        ),
    ] = ("bm25",)
    feedback: Annotated[str, Option('Of the --model: "rm3(terms=10, docs=10, weight=0.5)".')] = ""
    fusion: Annotated[str, Option("How several models are fused: rrf, linear ...")] = "rrf"
    k: Annotated[
        int | None, Option("Documents a query.", flag="-k", least=1, default="1000; 10 with --query")
    ] = None

    def best(self, k: int | None = None) -> System:
        """Return the system that finds the best k documents a query, or as many as it says itself."""
        if self.system is None:
            return short_form(self.models, self.feedback, self.fusion, k=k or FOUND)
        from rankhouse.systems.notation import system  # knows everything that ranks

        return system(self.system) if k is None else system(self.system) % k

    def work(self, index: AnyIndex, queries: Sequence[Query], progress: Progress = ignore) -> Execution:
        """Return what runs systems for these queries, computing as the options say."""
        compute = ComputeOptions(self.precision, self.device, self.threads)
        return Execution(index, queries, compute, progress)


@dataclass(frozen=True, kw_only=True)
class SearchJob(SearchOptions):
    """The options of ``rankhouse search``."""

    index: Annotated[
        tuple[Path, ...],
        Option("The index folder; several, or a folder of shards, are searched as one.", kind="input"),
    ] = ()
    cluster: Annotated[
        str,
        Option(
            "Search on Ray, a worker a shard: ray (started here), or a cluster's address.",
            metavar="ray|ADDRESS",
        ),
    ] = ""
    partial: Annotated[bool, Option("On a cluster: do without the shards that do not answer.")] = False
    queries: Annotated[
        str | None, Option("Queries: .jsonl, .tsv, TREC topics, or ir_datasets:NAME.", kind="source")
    ] = None
    query: Annotated[str | None, Option("One query, answered on the screen.")] = None
    field: Annotated[str, Option('Which text of the queries: "title", "desc", a JSON key ...')] = ""
    own: Annotated[
        str,
        Option(
            'Where queries are documents too: "id" leaves out the one of the query\'s id, "same" if its text '
            "is the query's as well."
        ),
    ] = "keep"
    tag: Annotated[str, Option("Name of the run, in its last column.")] = "rankhouse"
    skip_bad: Annotated[
        int, Option("Pass over up to N malformed records and report them.", least=0, metavar="N")
    ] = 0
