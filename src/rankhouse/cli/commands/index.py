"""rankhouse index: a corpus becomes an index."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb, was_given
from rankhouse.cli.shards import ClusterChoice, ShardChoice, run_clustered, run_shard
from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.index.index import Index
from rankhouse.index.lexical import build, manifest
from rankhouse.index.lexical.build import BuildOptions
from rankhouse.io.corpora import corpus_files, read_sources
from rankhouse.io.duplicate_ids import Repeats
from rankhouse.io.files import Meter, Skips
from rankhouse.jobs.index import IndexJob, index_facts, index_warnings
from rankhouse.jobs.jobs import MergeOptions
from rankhouse.page.tables import CommandResult


@verb("index", "rankhouse index corpus.jsonl.gz --out my.index")
def command(
    *,
    job: IndexJob,
    out: Annotated[Path, Option("The folder to make.", "folder")],
    append: Annotated[bool, Option("Add the documents to the index that is there.")] = False,
    overwrite: Annotated[bool, Option("Replace the index that is there.")] = False,
    shard: ShardChoice = None,
    cluster: ClusterChoice,
) -> CommandResult:
    """Build an index from CORPUS files, folders of them, or ir_datasets:NAME collections.

    Files are .jsonl, .tsv or TREC .sgml, each also with .gz or .zst.
    """
    where = cluster.options
    if shard is not None or where is not None:
        idle("shards make a new index: merge them, then add to the whole", "append")
        if where is not None:
            build.refuse_occupied(out, BuildOptions(overwrite=overwrite))  # before the work, not after it
            return run_clustered(job, out, where, options=MergeOptions(overwrite))
        if shard is not None:
            return run_shard(job, shard, out, overwrite=overwrite)
    if append and overwrite:
        raise WrongUse("--append and --overwrite exclude each other")
    if append:
        _refuse_another_analyzer(out, job.analyzer)
    sources, settings = job.sources, replace(job.options, overwrite=overwrite)
    skips, meter = Skips(job.skip_bad), Meter()
    repeats = None
    if job.duplicates != "refuse":
        repeats = Repeats(job.duplicates, Index.open(out).documents if append else None)
    documents = read_sources(sources, skips, repeats, meter)
    started = time.perf_counter()
    with console.progress("indexing", _bytes_of([source.path for source in sources]), "bytes") as show:
        work = build.append if append else build.build
        report = work(documents, out, settings, lambda *_: show(meter.bytes))
    seconds = time.perf_counter() - started
    console.report_skips(skips)
    passed = 0 if repeats is None else repeats.passed
    facts = index_facts(report, [str(fault) for fault in skips.seen], out, seconds) | {"repeated": passed}
    skipped = f"{passed:,} documents whose id was given before were skipped\n" if passed else ""
    what = "added to" if append else "indexed in"
    return CommandResult(
        facts,
        f"{skipped}{report.documents:,} documents, {report.tokens:,} terms {what} {out} "
        f"in {seconds:.1f} s ({report.documents / max(seconds, 1e-9):,.0f} documents/s)",
        warnings=index_warnings(report),
    )


def _refuse_another_analyzer(out: Path, analyzer: str) -> None:
    """Refuse an analyzer that was asked for and is not the index's."""
    held = manifest.load(out).analyzer
    if was_given("analyzer") and str(notation.parse(analyzer)) != str(notation.parse(held)):
        raise WrongUse(
            f"--analyzer {analyzer}: {out} was built with {held}, which --append keeps; leave it out, "
            "or build another index"
        )


def _bytes_of(corpus: Sequence[str]) -> int | None:
    """Add up the corpus files' sizes; None where one has none, or is missing (reading will say so)."""
    total = 0
    for source in corpus:
        if source.startswith("ir_datasets:") or not Path(source).exists():
            return None
        total += sum(path.stat().st_size for path in corpus_files(Path(source)))
    return total
