"""rerank: its options, its work, and its shards, of which each holds the rows of its queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np

from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadData, name_few
from rankhouse.core.nouns import Query, by_id, fingerprint_of, require_texts
from rankhouse.core.progress import CUT_SMALLER, LOST, Progress, counted, unread_tokens
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.outputs import only_writer, writing
from rankhouse.io.trec import write_run
from rankhouse.jobs.jobs import MergeOptions, OfQueries, computed_by, read_reports
from rankhouse.jobs.shards import Facts, Shard, ShardFolder
from rankhouse.page.tables import CommandResult
from rankhouse.ranking.pairwise import comparisons
from rankhouse.systems import reranking
from rankhouse.systems.rankers import ComputeOptions, is_pairwise

if TYPE_CHECKING:
    from rankhouse.models.duot5 import DuoT5Ranker
    from rankhouse.models.ranker import NeuralRanker

_ROWS: Final = "rows.run"
_COUNTS: Final = (
    "seconds", "stored", "queries", "documents", "passages", "cached", "tail", "unknown", "without_text",
    "dropped_words", *LOST,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RerankJob(OfQueries, reranking.RerankOptions, ComputeOptions):
    """The options of ``rankhouse rerank``."""

    command: ClassVar[str] = "rerank"

    run: Annotated[str, Option("The first stage's run.", "input")]
    queries: Annotated[str, Option("The texts of its queries.", "source")]
    field: Annotated[str, Option("The text field of the queries, if they have several.")] = ""
    index: Annotated[str, Option("The index that holds the documents.", "input")]
    ranker: Annotated[str, Option('A bundle folder, monot5("DIR"), crossencoder("DIR") ...', "source")]
    tag: Annotated[
        str | None,
        Option("Name of the run, in its last column.", default="the ranker's family and fingerprint"),
    ] = None

    @cached_property
    def is_pairwise(self) -> bool:
        """Whether the ranker compares documents two by two."""
        return is_pairwise(self.ranker)

    @property
    def read(self) -> str:
        """Unit that the ranker reads: passages or comparisons."""
        return "comparisons" if self.is_pairwise else "passages"

    def open(self) -> RerankWorker:
        """Load the ranker, the run and the index."""
        return RerankWorker(self)

    def merge(self, shards: Sequence[ShardFolder], out: Path, options: MergeOptions) -> CommandResult:
        """Write one run."""
        del options
        facts = _facts(read_reports(shards))
        self.require_known(facts)
        with only_writer(out), writing(out) as file:
            for shard in shards:
                with (shard.folder / _ROWS).open(encoding="utf-8", newline="\n") as rows:
                    file.writelines(rows)
        message = (
            f"{_counts(facts, self.read)} ({facts['cached']:,} from the cache) of {len(shards):,} shards, "
            f"{facts['seconds']:.2f} s of work; written to {out}"
        )
        warnings = _losses(facts, _read_of(facts, self.read))
        if missing := facts["unknown"] + facts["without_text"]:
            warnings.append(f"{missing:,} rows of the run name documents without text, or not in the index")
        return CommandResult({"run": str(out)} | facts, message, warnings=warnings)

    def require_known(self, facts: Mapping[str, Any]) -> None:
        """Raise BadData where the index has none of the run's documents: it is another collection's."""
        if facts["unknown"] and not facts["documents"] + facts["without_text"]:
            named = name_few(facts["unknown_ids"], 3, quoted=True)
            raise BadData(
                f"no document of the run {self.run} is in this index (the run has {named}), so there is "
                "nothing to rerank; give the index that the run was made on",
                self.index,
            )


class RerankWorker:
    """Reranks a job's run, or a shard's queries: ``total`` passages, or comparisons, at most."""

    ranker: NeuralRanker | DuoT5Ranker

    def __init__(self, job: RerankJob) -> None:
        self._job = job
        self._run, self._index = job.first_stage, Index.open(job.index)
        self._queries = read_queries(job.queries, field=job.field)
        require_texts([q for q in self._run if len(self._run[q].scores)], by_id(self._queries))
        self._chooser: dict[str, str] = {}
        self._opened = opened = reranking.open_reranker(job.ranker, job)
        if isinstance(opened, reranking.PairwiseSystem):
            self.ranker, self.total = opened.ranker, comparisons(self._run, job.depth)
            if (chooser := opened.plan(job).chooser) is not None:  # what is wrong is said before any work
                self._chooser = {"weights of the passages' ranker": fingerprint_of(chooser)}
        else:
            self.ranker = opened
            self.total = sum(min(job.depth, len(ranking.doc_ids)) for ranking in self._run.values())
        self._store = ""

    def _rerank(self, run: Run, asked: Sequence[Query], show: Progress) -> reranking.RerankedRun:
        return reranking.rerank_with(self._opened, run, asked, self._index, options=self._job, progress=show)

    @property
    def found(self) -> Facts:
        """The ranker, what it computes on, and what was kept for it."""
        return computed_by(self.ranker) | self._chooser | {"kept by encode": self._store}

    def whole(self, out: Path, progress: Progress) -> CommandResult:
        """Rerank the whole run, and write it."""
        job, done = self._job, self._rerank(self._run, self._queries, progress)
        seen = self.ranker.report
        facts = _facts([self._report(done)])
        job.require_known(facts)
        self._write(done, out)
        rate = done.report.passages / max(done.seconds, 1e-9)
        if job.is_pairwise:
            limit, speed, cached = f"{self.ranker.max_length} tokens", f"{rate:,.0f} a second", ""
            advice = (
                "cut passages with --split, and name the ranker that chooses one of each document: "
                'duot5("DIR", passages=RANKER)'
            )
        else:
            limit = f"{self.ranker.max_length} tokens, the most that {job.ranker} reads"
            speed, cached = f"{rate:,.0f} passages/s", f" ({facts['cached']:,} from the cache)"
            advice = CUT_SMALLER
        message = f"{_counts(facts, job.read)}{cached} in {done.seconds:.2f} s ({speed}); written to {out}"
        if times := ", ".join(f"{name} {value:.3f}" for name, value in facts["per_query"].items()):
            message += f"\nseconds a query: {times}"
        if (scorer := done.stored) is not None:
            state = scorer.store.state
            message += (
                f"\n{scorer.scored:,} of them by kept {state.kind} ({state.dtype}, split {state.split}) in "
                f"{scorer.store.folder}; --no-stored does without"
            )
        warnings = _losses(facts, f"{seen.seen:,} {job.read}", limit, advice)
        return CommandResult({"run": str(out)} | facts, message, warnings=warnings)

    def _write(self, done: reranking.RerankedRun, out: Path) -> None:
        write_run(done.run, out, self._job.tag or reranking.ranker_tag(self.ranker))

    def _report(self, done: reranking.RerankedRun, before: Sequence[int] = (0, 0, 0)) -> dict[str, Any]:
        """Return how a rerank went; ``before`` it, so much was lost already."""
        read, by_store = self.ranker.report, done.stored.scored if done.stored else 0
        facts = {"seconds": round(done.seconds, 3), "stored": by_store} | vars(done.report)
        return facts | {name: getattr(read, name) - n for name, n in zip(LOST, before, strict=True)}

    def run(self, shard: Shard, folder: Path, progress: Progress) -> CommandResult:
        """Rerank the queries of a shard."""
        mine = list(self._run)[shard.start : shard.stop]
        wanted = set(mine)
        if shard.start == 0:  # queries that are not in the run at all are reported once
            wanted |= {query.id for query in self._queries if query.id not in self._run}
        read = self.ranker.report
        before = [getattr(read, name) for name in LOST]
        asked = [query for query in self._queries if query.id in wanted]
        done = self._rerank(self._run.restrict(mine), asked, progress)
        if done.stored is not None:
            state = done.stored.store.state
            self._store = f"{state.name}, {state.documents} documents"
        self._write(done, folder / _ROWS)
        facts = self._report(done, before)
        return CommandResult(facts, warnings=_losses(facts, _read_of(facts, self._job.read)))


def _spread(times: dict[str, float]) -> dict[str, float]:
    """Sum up the seconds of all queries; nothing where they were not taken."""
    if not times:
        return {}
    *quarters, most = np.percentile([*times.values()], [25, 50, 75, 100]).tolist()
    names = ("lower quartile", "median", "upper quartile")
    return dict(zip(names, quarters, strict=True)) | {"mean": float(np.mean([*times.values()])), "most": most}


def _facts(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how a rerank went as plain values, from the report of the whole or of its shards."""
    # Earlier versions did not count all of them.
    facts: dict[str, Any] = {name: sum(report.get(name, 0) for report in reports) for name in _COUNTS}
    for name in ("unknown_ids", "without_text_ids"):
        facts[name] = list(dict.fromkeys(one for report in reports for one in report[name]))[:6]
    facts["queries_not_in_run"] = [one for report in reports for one in report["queries_not_in_run"]]
    facts["times"] = {query: took for report in reports for query, took in report["times"].items()}
    facts["per_query"] = _spread(facts["times"])
    return facts


def _counts(facts: Mapping[str, Any], read: str) -> str:
    asked, documents = counted(facts["queries"], "query", "queries"), facts["documents"]
    return f"{asked}, {counted(documents, 'document')} in {_read_of(facts, read)}"


def _read_of(facts: Mapping[str, Any], read: str) -> str:
    return f"{facts['passages']:,} {read}"


def _losses(
    facts: Mapping[str, Any], read: str, limit: str = "the ranker", advice: str = CUT_SMALLER
) -> list[str]:
    """Return what the user should know of texts that were not read."""
    warnings = []
    if facts["truncated"]:
        unread = unread_tokens(facts["tokens_lost"], facts["query_tokens_lost"], advice)
        warnings.append(f"{facts['truncated']:,} of {read} did not fit into {limit}; {unread}")
    if facts["dropped_words"]:
        warnings.append(f"{facts['dropped_words']:,} words are in no passage; --split says how many it keeps")
    return warnings
