"""index: its options, its report, and its shards, which are searchable indexes themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadData, DuplicateId
from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress, counted, ignore
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, BuildReport, build
from rankhouse.index.lexical.merge import merge
from rankhouse.io.checksums import content_hash
from rankhouse.io.corpora import Source, named_sources
from rankhouse.io.corpus_shards import CorpusFile, CorpusShards
from rankhouse.io.duplicate_ids import RULES, Repeats, SeenIds
from rankhouse.io.files import SkipBad, Skips
from rankhouse.jobs.jobs import MergeOptions, Survey, digest, identity_of, read_reports
from rankhouse.jobs.shards import Facts, Shard, ShardFolder
from rankhouse.page.tables import CommandResult
from rankhouse.text.analyze import ANALYZERS

INDEX: Final = "index"
"""The index of a shard; one without documents has none."""
FIELDS: Final = "title,text"
_HASHED: Final = 256 << 20  # bytes of all corpora that are hashed, at least 1 MiB of each file


@dataclass(frozen=True, kw_only=True)
class IndexJob:
    """The options of ``rankhouse index``."""

    command: ClassVar[str] = "index"
    unit: ClassVar[str] = "bytes"

    corpus: Annotated[
        tuple[str, ...], Option("Corpora.", "source", positional=True, unless=("ciff", "delete", "upgrade"))
    ] = ()
    analyzer: Annotated[str, Option("english, tweet or whitespace.")] = "english"
    field: Annotated[
        str,
        Option(
            "Index titles or texts alone, leaving out documents without one; by default both, joined; "
            "title,text also counts each apart, for bm25f.",
            choices=("both", "title", "text", FIELDS),
        ),
    ] = "both"
    duplicates: Annotated[
        str,
        Option(
            "A repeated id: refuse it; skip it if its text is the same, too; or keep the first.",
            choices=RULES,
        ),
    ] = "refuse"
    prefix_ids: Annotated[
        bool, Option("Put each corpus's name and a colon before its ids; NAME=PATH names it.")
    ] = False
    workers: Annotated[int, Option("Analysis processes; 0 for one per core.", least=0, neutral=True)] = 0
    segment_tokens: Annotated[
        int, Option("Tokens per segment; bounds the memory used (about 15 bytes each).", least=1)
    ] = BuildOptions().segment_tokens
    skip_bad: SkipBad = 0

    @property
    def sources(self) -> list[Source]:
        """The corpora."""
        return named_sources(self.corpus) if self.prefix_ids else [Source(path) for path in self.corpus]

    @property
    def options(self) -> BuildOptions:
        """Options of building the index."""
        return BuildOptions(self.analyzer, self.segment_tokens, self.workers, fields=self.field == FIELDS)

    def of_field(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Reduce documents to the field that is indexed."""
        for document in documents:
            if self.field in ("both", FIELDS):
                yield document
            elif text := getattr(document, self.field):
                yield document._replace(title="", text=text)

    def survey(self) -> Survey:
        """Measure the corpora, and hash samples of them."""
        analyzer = notation.make(self.analyzer, ANALYZERS, "analyzer")
        line = CorpusShards(self.sources)
        return Survey(line.total, identity_of(self, corpus=_names(line.files), analyzer=str(analyzer)))

    def unit_name(self, unit: int) -> str:
        """Return the file and byte."""
        for file in CorpusShards(self.sources).files:
            if unit < file.size:
                return f"{file.path or file.source.path}, byte {unit + 1:,}"
            unit -= file.size
        return f"byte {unit + 1:,} behind the last file"

    def open(self) -> IndexWorker:
        """Find the corpora's files."""
        return IndexWorker(self)

    def merge(self, shards: Sequence[ShardFolder], out: Path, options: MergeOptions) -> CommandResult:
        """Build one index."""
        started = time.perf_counter()
        reports = read_reports(shards)
        skips = Skips(self.skip_bad)
        for fault in (fault for report in reports for fault in report["skipped"]):
            skips.take(BadData(fault))
        indexes = [Index.open(shard.folder / INDEX) for shard in shards if (shard.folder / INDEX).exists()]
        joined = _IdCheck(indexes, self.duplicates, skips)
        chosen = BuildOptions(self.analyzer, self.segment_tokens, overwrite=options.overwrite)
        report = merge(indexes, out, chosen, rule=joined, progress=options.progress or ignore)
        took = time.perf_counter() - started + sum(report["seconds"] for report in reports)
        facts = index_facts(report, [str(fault) for fault in skips.seen], out, took)
        repeated = joined.passed + sum(report["repeated"] for report in reports)
        counts = f"{counted(report.documents, 'document')}, {counted(report.tokens, 'term')}"
        message = f"{counts} of {counted(len(shards), 'shard')} indexed in {out}"
        warnings = [*index_warnings(report), *skip_warnings(facts["skipped"])]
        return CommandResult(facts | {"repeated": repeated}, message, warnings=warnings)


class IndexWorker:
    """Indexes shards of a job's corpora."""

    def __init__(self, job: IndexJob) -> None:
        self._job = job

    @property
    def found(self) -> Facts:
        """Nothing that the options do not say."""
        return {}

    def run(self, shard: Shard, folder: Path, progress: Progress) -> CommandResult:
        """Index a shard."""
        job, started = self._job, time.perf_counter()
        line, skips = CorpusShards(job.sources), Skips(job.skip_bad)
        repeats = None if job.duplicates == "refuse" else Repeats(job.duplicates)
        documents = job.of_field(line.read(shard.start, shard.stop, skips, repeats))
        first = list(islice(documents, 1))
        report = BuildReport()

        def tell(done: float, total: int | None = None) -> None:
            del done, total  # documents, where bytes are shown
            progress(line.done, len(shard))

        if first:  # an index of nothing would be refused
            report = build(chain(first, documents), folder / INDEX, job.options, tell)
        skipped = [str(fault) for fault in skips.seen]
        facts = index_facts(report, skipped, Path(INDEX), time.perf_counter() - started)
        warnings = [*index_warnings(report), *skip_warnings(skipped)]
        repeated = 0 if repeats is None else repeats.passed
        return CommandResult(facts | {"repeated": repeated}, warnings=warnings)


class _IdCheck:
    """Compares the ids of all shards as one build does; ``passed`` counts those that the rule skips."""

    def __init__(self, indexes: Sequence[Index], rule: str, skips: Skips) -> None:
        self._indexes, self._skips = indexes, skips
        self._repeats = None if rule == "refuse" else Repeats(rule)
        self._seen = SeenIds(at_once=skips.limit > 0) if self._repeats is None else self._repeats

    @property
    def passed(self) -> int:
        return 0 if self._repeats is None else self._repeats.passed

    def takes(self, document: Document, index: Index) -> bool:
        """Return whether a document is taken."""
        try:
            return self._seen.takes(document, index.path, 0)
        except DuplicateId as fault:
            self._skips.take(self._named(fault, document))
            return False

    def check(self) -> None:
        """Compare the ids that were not yet compared with all earlier ones."""
        try:
            self._seen.check()
        except DuplicateId as fault:
            raise self._named(fault) from None

    def _named(self, fault: DuplicateId, document: Document | None = None) -> DuplicateId:
        """Name the shards that hold an id; it may be found some time after it came."""
        doc_id = fault.record or (document.id if document else "")
        first, *more = (one.path.parent for one in self._indexes if doc_id in one.documents)
        again = "again" if self._repeats is None else "again, with another text,"
        second = more[0] if more else first
        return DuplicateId(
            f'the id "{doc_id}" is in the shard {first} and {again} in {second}; ids must differ: '
            "make the shards with --duplicates same or first, or with --prefix-ids"
        )


def _names(files: Sequence[CorpusFile]) -> str:
    """Hash what the corpora hold, as far as a fair sample tells."""
    most = max(1 << 20, _HASHED // max(1, len(files)))
    lines = []
    for file in files:
        content = content_hash(file.path, most) if file.path else file.source.path
        lines.append(f"{file.source.prefix}:{content} {file.size}")
    return digest("\n".join(lines))


def index_warnings(report: BuildReport) -> list[str]:
    """Return what the user should know of documents that no search finds."""
    said = []
    if report.without_text:
        first = ", ".join(report.blank)
        said.append(
            f"{counted(report.without_text, 'document')} without text, found by no search (first: {first})"
        )
    if report.without_terms:
        first = ", ".join(report.wordless)
        said.append(
            f"{counted(report.without_terms, 'document')} of nothing but stop words and punctuation, found "
            f"by no search (first: {first})"
        )
    return said


def skip_warnings(skipped: Sequence[str]) -> list[str]:
    """Return which faulty records were skipped, the first few by name."""
    if not skipped:
        return []
    rest = " ..." if len(skipped) > 3 else ""
    count = counted(len(skipped), "faulty record was skipped", "faulty records were skipped")
    return [f"{count}: {'; '.join(skipped[:3])}{rest}"]


def index_facts(report: BuildReport, skipped: Sequence[str], out: Path, seconds: float) -> dict[str, Any]:
    """Return a build as plain values."""
    return {
        "index": str(out),
        "documents": report.documents,
        "tokens": report.tokens,
        "without_text": report.without_text,
        "without_terms": report.without_terms,
        "skipped": list(skipped),
        "seconds": round(seconds, 3),
    }
