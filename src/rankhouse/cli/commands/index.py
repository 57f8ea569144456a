"""rankhouse index, encode: a corpus becomes an index; vectors, impacts, or token ids are written into it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb, was_given
from rankhouse.cli.shards import ClusterChoice, ShardChoice, run_clustered, run_shard
from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.core.progress import counted
from rankhouse.index.dense import faiss
from rankhouse.index.dense.faiss import STRUCTURES
from rankhouse.index.index import Index
from rankhouse.index.lexical import build, manifest
from rankhouse.index.lexical.build import BuildOptions
from rankhouse.index.lexical.ciff import build_from_ciff
from rankhouse.index.lexical.merge import upgrade as upgrade_index
from rankhouse.io.corpora import corpus_files, read_sources
from rankhouse.io.duplicate_ids import Repeats
from rankhouse.io.files import Meter, Skips, as_text, numbered_lines
from rankhouse.jobs.encode import EncodeJob, EncodeWorker
from rankhouse.jobs.index import IndexJob, index_facts, index_warnings
from rankhouse.jobs.jobs import MergeOptions
from rankhouse.page.tables import CommandResult


@verb("index", "rankhouse index corpus.jsonl.gz --out my.index")
def command(
    *,
    job: IndexJob,
    out: Annotated[Path, Option("The folder to make.", "folder")],
    append: Annotated[bool, Option("Add the documents to the index that is there.")] = False,
    update: Annotated[bool, Option("As --append; documents whose id is there are replaced.")] = False,
    delete: Annotated[
        Path | None, Option("Take out of the index the documents whose ids are in this file, one a line.")
    ] = None,
    upgrade: Annotated[bool, Option("Rewrite an index of an earlier version in its place.")] = False,
    ciff: Annotated[
        Path | None, Option("Instead of CORPUS: postings that an engine exported; name their --analyzer.")
    ] = None,
    overwrite: Annotated[bool, Option("Replace the index that is there.")] = False,
    shard: ShardChoice = None,
    cluster: ClusterChoice,
) -> CommandResult:
    """Build an index from CORPUS files, folders of them, or ir_datasets:NAME collections.

    Files are .jsonl, .csv, .tsv or TREC .sgml, each also with .gz or .zst, .parquet, .arrow or
    .sqlite. An index of a CIFF
    file (--ciff) is searched as any other, and has no texts.
    """
    ways = [name for name in ("append", "update", "overwrite", "delete", "upgrade") if was_given(name)]
    if len(ways) > 1:
        raise WrongUse(" and ".join(f"--{name}" for name in ways) + " exclude each other")
    if ciff is not None:
        return _imported(job, ciff, out, overwrite=overwrite)
    if delete is not None or upgrade:
        if job.corpus:
            raise WrongUse(f"--{ways[0]} reads no corpus: {', '.join(job.corpus)} would not be indexed")
        idle(f"--{ways[0]} changes an index in its place, in one process", "shard", "cluster")
        return _deleted(delete, out) if delete is not None else _upgraded(out)
    append = append or update
    if shard is not None or cluster.cluster is not None:
        idle("shards make a new index: merge them, then add to the whole", "append", "update")
        if cluster.cluster is not None:
            build.refuse_occupied(out, BuildOptions(overwrite=overwrite))  # before the work, not after it
            return run_clustered(job, out, cluster.options, options=MergeOptions(overwrite))
        if shard is not None:
            return run_shard(job, shard, out, overwrite=overwrite)
    if append:
        _refuse_another_analysis(out, job)
    sources, settings = job.sources, replace(job.options, overwrite=overwrite)
    skips, meter = Skips(job.skip_bad), Meter()
    repeats = None
    if job.duplicates != "refuse":
        held = Index.open(out).documents if append and not update else None
        repeats = Repeats(job.duplicates, held)
    documents = job.of_field(read_sources(sources, skips, repeats, meter))
    started = time.perf_counter()
    with console.progress("indexing", _bytes_of([source.path for source in sources]), "bytes") as show:
        work = partial(build.append, update=update) if append else build.build
        report = work(documents, out, settings, lambda *_: show(meter.bytes))
    seconds = time.perf_counter() - started
    console.report_skips(skips)
    passed = 0 if repeats is None else repeats.passed
    facts = index_facts(report, [str(fault) for fault in skips.seen], out, seconds) | {"repeated": passed}
    skipped = f"skipped: {counted(passed, 'document')} whose id was given before\n" if passed else ""
    what = ("updated in" if update else "added to") if append else "indexed in"
    return CommandResult(
        facts,
        f"{skipped}{counted(report.documents, 'document')}, {counted(report.tokens, 'term')} {what} {out} "
        f"in {seconds:.1f} s ({report.documents / max(seconds, 1e-9):,.0f} documents/s)",
        warnings=index_warnings(report),
    )


def _imported(job: IndexJob, ciff: Path, out: Path, *, overwrite: bool) -> CommandResult:
    """Build an index of what a CIFF file holds."""
    if job.corpus:
        raise WrongUse(f"--ciff reads no corpus: {', '.join(job.corpus)} would not be indexed")
    idle("a CIFF file holds terms of one collection", "append", "update", "delete", "upgrade", "shard")
    idle("a CIFF file holds terms, not texts", "duplicates", "prefix_ids", "workers", "skip_bad", "cluster")
    idle("a CIFF file does not say what stood in which field", "field")
    if not was_given("analyzer"):
        raise WrongUse(
            f"--ciff {ciff}: the file does not say how its terms were made; say what is to make those of "
            "queries: --analyzer english (Anserini's and Lucene's Porter stems), tweet, or whitespace for "
            "queries that are terms already"
        )
    started, options = time.perf_counter(), replace(job.options, overwrite=overwrite)
    size = ciff.stat().st_size if ciff.is_file() else None
    with console.progress("reading", size, "bytes") as show:
        report = build_from_ciff(ciff, out, options, show)
    seconds = time.perf_counter() - started
    text = f"{counted(report.documents, 'document')}, {counted(report.tokens, 'term')} of {ciff} in {out}"
    warnings = index_warnings(report)
    return CommandResult(index_facts(report, [], out, seconds), f"{text}; it has no texts", warnings=warnings)


def _deleted(ids: Path, out: Path) -> CommandResult:
    """Delete documents by their ids."""
    doc_ids = dict.fromkeys(as_text(line, ids, number) for number, line in numbered_lines(ids) if line)
    left = build.delete(doc_ids, out)
    facts = {"index": str(out), "deleted": len(doc_ids), "documents": left}
    return CommandResult(facts, f"{counted(len(doc_ids), 'document')} deleted from {out}; it has {left:,}")


def _upgraded(out: Path) -> CommandResult:
    """Rewrite an index of an earlier version."""
    with console.progress("rewriting", None, "documents") as show:
        documents = upgrade_index(out, show)
    message = f"{counted(documents, 'document')} rewritten" if documents else "is of this version already"
    return CommandResult({"index": str(out), "rewritten": documents}, f"{out}: {message}")


def _refuse_another_analysis(out: Path, job: IndexJob) -> None:
    """Refuse an analyzer, or fields, that were asked for and are not the index's."""
    held = manifest.load(out)
    if was_given("analyzer") and str(notation.parse(job.analyzer)) != str(notation.parse(held.analyzer)):
        raise WrongUse(
            f"--analyzer {job.analyzer}: {out} was built with {held.analyzer}, which --append keeps; leave "
            "it out, or build another index"
        )
    if job.options.fields and not held.with_fields:
        raise WrongUse(
            f"--field {job.field}: {out} does not count titles apart, and --append keeps that; leave it out, "
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


@verb(
    "encode",
    "rankhouse encode --index my.index --ranker 'biencoder(\"DIR\")' && "
    "rankhouse search --index my.index --query TEXT --model 'dense(\"DIR\")'",
)
def encode_command(
    *,
    job: EncodeJob,
    vectors: Annotated[
        str, Option('Also build a FAISS structure: flat, sq8, "hnsw(m=32)", "ivf(lists=100)".')
    ] = "",
    overwrite: Annotated[bool, Option("Replace vectors of this name that another encoder made.")] = False,
    out: Annotated[Path | None, Option("With --shard: the folder to write.", "growing")] = None,
    shard: ShardChoice = None,
    cluster: ClusterChoice,
) -> CommandResult:
    """Encode an index's documents; after a kill, or after adding documents, it resumes.

    A bi-encoder gives each passage a vector, for  search --model 'dense(...)'; a sparse encoder gives each
    document weights of words, for  search --system 'sparse(...)'. A TK gives each word of a
    passage a vector, and  rerank  uses them at once. With --tokens, the token ids of a cross-encoder or
    monoT5 are kept for  rerank.
    """
    Index.open(job.index)
    if vectors:
        notation.make(vectors, STRUCTURES, "vector structure")
    if shard is not None:
        idle("a --shard is one process's share of the work", "cluster")
        return run_shard(job, shard, _shard_folder(out, vectors))
    idle("without --shard, what is encoded goes into the index", "out")
    if cluster.cluster is not None:
        options = MergeOptions(overwrite)
        encoded = run_clustered(job, Path(job.index), cluster.options, device=job.device, options=options)
        if not vectors:
            return encoded
        # a structure is built here, over what is encoded now
    worker = EncodeWorker(job, overwrite=overwrite)
    _refuse_idle(job, vectors, worker)
    started = time.perf_counter()
    with console.progress("encoding", None, "bytes") as show:
        done = worker.encode(show)
    if vectors and worker.vectors is not None:
        with console.progress("building", len(worker.vectors)) as show:
            faiss.build(worker.vectors, vectors, progress=show)
    seconds = time.perf_counter() - started
    facts, message = done.facts | {"seconds": round(seconds, 3)}, f"{done.shown}, {seconds:.1f} s"
    return done._replace(facts=facts, shown=message)


def _refuse_idle(job: EncodeJob, vectors: str, worker: EncodeWorker) -> None:
    """Refuse what would change nothing for this ranker."""
    if vectors and not worker.is_dense:
        raise WrongUse(f"--vectors {vectors}: a structure is built over a bi-encoder's vectors, not these")
    if worker.is_dense:
        idle("a bi-encoder's document has the score of its best passage", "pool")
    elif worker.is_sparse:
        idle("a document has the largest weight of each word in any passage", "pool")
    else:
        idle("only vectors of a bi-encoder and impacts of a sparse encoder have a name", "name")
    if job.tokens:
        idle("token ids are whole numbers", "dtype", "precision")


def _shard_folder(out: Path | None, vectors: str) -> Path:
    """Return where a shard goes; a structure is nothing that a shard could hold."""
    idle("a shard of another job is replaced in any case; --overwrite is for  rankhouse merge", "overwrite")
    if vectors:
        raise WrongUse(
            f"--vectors {vectors}: a structure is built over all vectors: merge the shards, then give the "
            "same command without --shard; it finds everything encoded and builds the structure"
        )
    if out is None:
        raise WrongUse("--shard writes a folder: say where it goes, like  --out shards/1")
    return out
