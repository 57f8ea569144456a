"""encode: its options, its work, and its shards, of which each holds vectors or stored passages."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import msgspec

from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadIndex, WrongUse
from rankhouse.core.nouns import Document, Encoder, Storage, TextEncoder, TwoTowers
from rankhouse.core.progress import Progress, say
from rankhouse.index.append_log import merge_logs
from rankhouse.index.append_state import MANIFEST, save_state
from rankhouse.index.dense.vectors import VECTORS, EncodeOptions, Vectors, encode, vectors_folder
from rankhouse.index.impacts.encode import complete, encode_impacts
from rankhouse.index.impacts.impacts import IMPACTS, Impacts, Weigher, impacts_folder
from rankhouse.index.index import Index
from rankhouse.index.precomputed.read import PASSAGES, STORED, PrecomputedPassages
from rankhouse.index.precomputed.write import PrecomputeOptions, precompute
from rankhouse.io.outputs import only_writer, replacing_folder
from rankhouse.jobs.jobs import MergeOptions, Survey, computed_by, identity_of
from rankhouse.jobs.shards import Facts, Shard, ShardFolder
from rankhouse.page.tables import CommandResult
from rankhouse.ranking.pool import POOLS
from rankhouse.systems.rankers import ComputeOptions, as_encoder, as_weigher, open_ranker, source_of
from rankhouse.text.split import SPLITTERS

_VECTORS: Final = "vectors"
_IMPACTS: Final = "impacts"
_TEXTS: Final = 256
"""Documents whose weights are computed at once, and lost by a kill at most."""


@dataclass(frozen=True, kw_only=True)
class EncodeJob(ComputeOptions):
    """The options of ``rankhouse encode``."""

    command: ClassVar[str] = "encode"
    unit: ClassVar[str] = "documents"

    index: Annotated[str, Option("The index folder.", "index")]
    ranker: Annotated[str, Option('A bundle folder, biencoder("DIR"), sparse("DIR").', "source")]
    tokens: Annotated[bool, Option("Keep the token ids that a cross-encoder or monoT5 reads.")] = False
    split: Annotated[str, Option("The splitter of documents into passages.")] = "whole"
    pool: Annotated[str, Option("Stored passages: how rerank is to pool them.")] = "max"
    dtype: Annotated[
        Storage | None,
        Option(
            "Number format of vectors; int8 for those of words only.", default="float32; of words: float16"
        ),
    ] = None
    name: Annotated[str, Option("Name of these vectors or impacts; it tells several encoders apart.")] = (
        "default"
    )

    def __post_init__(self) -> None:
        notation.make(self.split, SPLITTERS, "splitter")
        notation.make(self.pool, POOLS, "pool")

    def survey(self) -> Survey:
        """Count the documents, and hash the ranker."""
        index = Index.open(self.index)
        return Survey(len(index), identity_of(self, index=index.fingerprint))

    def unit_name(self, unit: int) -> str:
        """Return a document's id."""
        return next(iter(Index.open(self.index).documents.stream(unit, unit + 1))).id

    def open(self) -> EncodeWorker:
        """Load the ranker and the index."""
        worker = EncodeWorker(self)
        if not (worker.is_dense or worker.is_sparse) and self.name != "default":
            raise WrongUse(
                f"--name {self.name} would change nothing here: only vectors of a bi-encoder and impacts of "
                "a sparse encoder have a name"
            )
        return worker

    def merge(self, shards: Sequence[ShardFolder], out: Path, options: MergeOptions) -> CommandResult:
        """Put what was encoded into an index."""
        index = Index.open(out)
        join = partial(merge_logs, index=index, overwrite=options.overwrite, progress=options.progress)
        if all((shard.folder / _VECTORS).exists() for shard in shards):
            folder = vectors_folder(out, self.name)
            join([shard.folder / _VECTORS for shard in shards], folder, VECTORS)
            vectors = Vectors.open(folder)
            facts, sentence = vectors_facts(vectors)
            none = vectors.state.without_text
            warnings = (
                [f"{none:,} of {len(index):,} documents have no text, so they have no vector"] if none else []
            )
            return CommandResult(facts, sentence, warnings=warnings)
        if all((shard.folder / _IMPACTS).exists() for shard in shards):
            sources, folder = [shard.folder / _IMPACTS for shard in shards], impacts_folder(out, self.name)
            join(sources, folder, IMPACTS)
            return CommandResult(*impacts_facts(complete(folder, sources[0])))
        sources = [next((shard.folder / PASSAGES).iterdir()) for shard in shards]
        state = STORED.load(sources[0] / MANIFEST)
        folder = out / PASSAGES / state.name
        join(sources, folder, STORED)
        kept = PrecomputedPassages.open(folder)
        facts, sentence = passages_facts(kept)
        return CommandResult(facts, sentence, warnings=losses(kept))


class EncodeWorker:
    """Encodes documents of a job's index; ``overwrite`` replaces vectors that another encoder made.

    Attributes:
        is_dense: Whether each passage gets one vector.
        is_sparse: Whether each document gets weights of words; else something is stored of each word of a
            passage.
        vectors: The vectors encoded last, if dense.
        impacts: The impacts encoded last, if sparse.
    """

    vectors: Vectors | None = None
    impacts: Impacts | None = None

    def __init__(
        self,
        job: EncodeJob,
        index: Index | None = None,
        ranker: Any = None,  # noqa: ANN401 - an encoder of people's own has less than ours
        *,
        overwrite: bool = False,
    ) -> None:
        self._job, self._overwrite = job, overwrite
        self._index = Index.open(job.index) if index is None else index
        self._ranker = open_ranker(job.ranker, job) if ranker is None else ranker
        self.is_dense = isinstance(self._ranker, TextEncoder) and not job.tokens
        self.is_sparse = isinstance(self._ranker, Weigher) and not job.tokens

    @property
    def found(self) -> Facts:
        """The ranker, and what it computes on."""
        return computed_by(self._ranker)

    def encode(self, progress: Progress) -> CommandResult:
        """Encode all documents into the index."""
        index, name = self._index, self._job.name
        folders = vectors_folder(index.path, name), impacts_folder(index.path, name), index.path / PASSAGES
        work, folder = self._kind(folders)
        return work(index.documents.stream(), len(index), folder, index.by_text(progress))

    def run(self, shard: Shard, folder: Path, progress: Progress) -> CommandResult:
        """Encode the documents of a shard."""
        work, place = self._kind((folder / _VECTORS, folder / _IMPACTS, folder / PASSAGES))
        done = work(self._index.documents.stream(shard.start, shard.stop), len(shard), place, progress)
        done.facts.pop("kept", None)  # a folder that the shard is not in when it is done
        return done

    def _kind(self, folders: tuple[Path, Path, Path]) -> tuple[Callable[..., CommandResult], Path]:
        """Return what encodes, and where to: the folder of vectors, of impacts or of stored passages."""
        if self.is_dense:
            return self._vectors, folders[0]
        return (self._impacts, folders[1]) if self.is_sparse else (self._passages, folders[2])

    def _vectors(
        self, documents: Iterable[Document], count: int, folder: Path, progress: Progress
    ) -> CommandResult:
        job = self._job
        if job.dtype == "int8":
            raise WrongUse(
                '--dtype int8: a bi-encoder\'s vectors are float32 or float16; see --vectors "sq8"'
            )
        splitter = notation.make(job.split, SPLITTERS, "splitter")
        options = EncodeOptions(
            count, self._index.fingerprint, splitter, dtype=job.dtype or "float32", overwrite=self._overwrite
        )
        encoder, stored = as_encoder(self._ranker, job.ranker), None
        if folder.parent.parent == self._index.path:  # a shard's folder has no vectors beside it
            stored = copy_of_alike(encoder, folder, options)
        if stored is None:
            stored = encode(encoder, documents, folder, job=options, progress=progress)
        self.vectors = stored
        return CommandResult(*vectors_facts(stored))

    def _impacts(
        self, documents: Iterable[Document], count: int, folder: Path, progress: Progress
    ) -> CommandResult:
        job = self._job
        if job.dtype not in (None, "float32"):
            raise WrongUse(f"--dtype {job.dtype}: impacts are float32, exactly as they are computed")
        splitter = notation.make(job.split, SPLITTERS, "splitter")
        options = EncodeOptions(
            count, self._index.fingerprint, splitter, chunk=_TEXTS, overwrite=self._overwrite
        )
        encoder, source = as_weigher(self._ranker, job.ranker), source_of(job.ranker)
        stored = encode_impacts(encoder, documents, folder, options, source=source, progress=progress)
        self.impacts = stored
        return CommandResult(*impacts_facts(stored))

    def _passages(
        self, documents: Iterable[Document], count: int, parent: Path, progress: Progress
    ) -> CommandResult:
        from rankhouse.models.precomputing import TokenPrecomputer, VectorPrecomputer

        job, ranker = self._job, self._ranker
        maker = TokenPrecomputer(ranker) if job.tokens else VectorPrecomputer(ranker, job.dtype or "float16")
        if job.dtype not in (None, maker.dtype):
            raise WrongUse(f"--dtype {job.dtype}: {ranker.family} stores ids, as {maker.dtype}; leave it out")
        splitter = notation.make(job.split, SPLITTERS, "splitter")
        options = PrecomputeOptions(
            count, self._index.fingerprint, splitter, job.pool, chunk=maker.chunk, overwrite=self._overwrite
        )
        stored = precompute(maker, documents, parent, job=options, progress=progress)
        return CommandResult(*passages_facts(stored), warnings=losses(stored, ranker.max_length))


def copy_of_alike(encoder: Encoder, folder: Path, job: EncodeOptions) -> Vectors | None:
    """Copy the vectors beside a folder that this encoder would give the documents: nothing is encoded.

    So an encoder of which only the queries' side was trained has its vectors at once.

    Returns:
        None where the folder holds something already, or nothing alike and whole is beside it.
    """
    if not isinstance(encoder, TwoTowers):
        return None
    wanted = encoder.passage_fingerprint, encoder.similarity, job.dtype, job.way, job.collection
    with only_writer(folder):
        if folder.exists() and any(folder.iterdir()):
            return None
        for manifest in sorted(folder.parent.glob(f"[!.]*/{MANIFEST}")):
            with suppress(BadIndex):  # damaged, newer, or written to just now: no neighbour to copy
                state = VECTORS.load(manifest)
                made = state.encoder, state.similarity, state.dtype, state.policy, state.collection
                if made == wanted:
                    _copy(Vectors.open(manifest.parent), encoder.fingerprint, folder)
                    return Vectors.open(folder)
    return None


def _copy(vectors: Vectors, encoder: str, folder: Path) -> None:
    """Copy vectors into a folder as those of another encoder; BadIndex where they are damaged."""
    state = msgspec.structs.replace(vectors.state, encoder=encoder)
    with replacing_folder(folder, lambda _: ()) as temporary:
        temporary.mkdir()
        try:
            for name in state.sizes():
                shutil.copyfile(vectors.folder / name, temporary / name)
        except FileNotFoundError:
            raise BadIndex(f"{vectors.folder}: is written to by another process") from None
        Vectors(temporary, state).verify()
        save_state(state, temporary / MANIFEST)
    say(f"vectors of documents copied from {vectors.folder}: only queries are encoded otherwise")


def vectors_facts(stored: Vectors) -> tuple[dict[str, Any], str]:
    """Return what can be said of vectors, for machines and for people."""
    facts = {"vectors": len(stored), "dimension": stored.dimension}
    return facts, f"{len(stored):,} vectors of {stored.dimension} numbers in {stored.folder}"


def impacts_facts(stored: Impacts) -> tuple[dict[str, Any], str]:
    """Return what can be said of impacts, for machines and for people."""
    state = stored.state
    each = state.entries / max(1, state.documents)
    facts = {"impacts": state.entries, "documents": state.documents, "without_text": state.without_text}
    return facts, f"{state.entries:,} impacts in {stored.folder}: {each:,.1f} words a document"


def passages_facts(stored: PrecomputedPassages) -> tuple[dict[str, Any], str]:
    """Return what can be said of kept passages, for machines and for people."""
    state = stored.state
    each = stored.nbytes / max(1, state.documents)
    facts: dict[str, Any] = {
        "kept": str(stored.folder), "kind": state.kind, "dtype": state.dtype, "documents": state.documents,
        "passages": state.passages, "rows": state.rows, "bytes": stored.nbytes,
        "bytes_a_document": round(each, 1), "truncated": state.cut, "tokens_lost": state.lost,
        "without_text": state.without_text,
    }  # fmt: skip
    what = "token ids" if state.kind == "tokens" else f"words in context ({state.dtype} vectors)"
    return facts, (
        f"{state.rows:,} {what} of {state.passages:,} passages in {stored.folder}: "
        f"{stored.nbytes / 1e6:,.1f} MB, {each:,.0f} bytes a document"
    )


def losses(stored: PrecomputedPassages, most_tokens: int | None = None) -> list[str]:
    """Return what the user should know of passages that were not stored whole.

    ``most_tokens`` is the most that the ranker reads; None where it is not at hand.
    """
    state, said = stored.state, []
    if state.cut:
        limit = f"{most_tokens} tokens" if most_tokens is not None else "the ranker"
        said.append(
            f"{state.cut:,} of {state.passages:,} passages did not fit into {limit}; "
            f"{state.lost:,} tokens are not kept (cut smaller passages with --split)"
        )
    if state.dropped_words:
        said.append(f"{state.dropped_words:,} words are in no passage; --split says how many")
    return said
