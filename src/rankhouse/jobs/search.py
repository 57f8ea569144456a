"""search: its options; those of what ranks are :class:`~rankhouse.systems.short_forms.SearchOptions`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rankhouse.core.arguments import Option
from rankhouse.io.files import SkipBad
from rankhouse.systems.short_forms import SearchOptions


@dataclass(frozen=True, kw_only=True)
class SearchJob(SearchOptions):
    """The options of ``rankhouse search``."""

    index: Annotated[
        tuple[Path, ...],
        Option("The index folder; several, or a folder of shards, are searched as one.", "input"),
    ] = ()
    cluster: Annotated[
        str,
        Option(
            "Search on Ray, one worker per shard: ray (started here), or a cluster's address.",
            metavar="ray|ADDRESS",
            neutral=True,
        ),
    ] = ""
    partial: Annotated[
        bool, Option("On a cluster: do without the shards that do not answer.", beside="cluster")
    ] = False
    queries: Annotated[
        str | None, Option("Queries: .jsonl, .tsv, TREC topics, or ir_datasets:NAME.", "source")
    ] = None
    query: Annotated[str | None, Option("One query, answered on the screen.")] = None
    field: Annotated[str, Option('Which text of the queries: "title", "desc", a JSON key ...')] = ""
    own: Annotated[
        str,
        Option(
            'If queries are documents too: "id" leaves out the document with the query\'s id, "same" only if '
            "its text is the query's as well."
        ),
    ] = "keep"
    tag: Annotated[str, Option("Name of the run, in its last column.")] = "rankhouse"
    skip_bad: SkipBad = 0
