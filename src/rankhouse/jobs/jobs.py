"""Jobs: the work of one command, cut into shards, and put together again.

A job is nothing but the command's options, so it can be sent anywhere and made again from a shard. Its worker
holds what is loaded once a process: the model, the index.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from rankhouse.core.arguments import option_fields
from rankhouse.core.errors import BadData, WrongUse, as_called
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.io.checksums import described, sealed
from rankhouse.io.decoding import read_own
from rankhouse.io.outputs import SHARD_MANIFEST, only_writer, others, real_path, replacing_folder, write_json
from rankhouse.io.scratch import tidy_beside
from rankhouse.io.staging import fetched
from rankhouse.io.trec import read_run
from rankhouse.jobs.shards import Facts, Shard, ShardFolder, ShardManifest, difference, load_shard, sum_of
from rankhouse.page.tables import CommandResult

if TYPE_CHECKING:
    from rankhouse.models.duot5 import DuoT5Ranker
    from rankhouse.models.ranker import NeuralRanker


JOBS: Final = {"index": "IndexJob", "encode": "EncodeJob", "label": "LabelJob", "rerank": "RerankJob"}
"""Command -> class of its job, in the module of the command's name; imported when needed."""

REPORT: Final = "report.json"
"""The file of a shard that says how its work went: the same facts that the command gives with ``--json``."""


class Survey(NamedTuple):
    """Facts about the inputs that are needed before the work is divided into shards."""

    total: int  # units
    identity: dict[str, str]  # what the result depends on: option -> its value, or a hash of what it names


class MergeOptions(NamedTuple):
    """Options of ``rankhouse merge`` for the whole result."""

    overwrite: bool = False  # replace an index or vectors that are there
    report: Path | None = None  # where the page of a labelling goes
    progress: Progress | None = None


class ShardResult(NamedTuple):
    """Outcome of a shard."""

    made: ShardFolder
    kept: bool  # whether it was there already, sound and of this very job and shard
    reason: str = ""  # why one that was there was made again; "" where there was none


class Worker(Protocol):
    """Does the work of shards, one after the other, with everything loaded once."""

    @property
    def found(self) -> Facts:
        """Facts that the result depends on, known only now (a ranker's fingerprint)."""
        ...

    def run(self, shard: Shard, folder: Path, progress: Progress) -> CommandResult:
        """Do the work of a shard and write its files; the same units give the same bytes in any shard."""
        ...


class Job(Protocol):
    """The work of one command; a plain dataclass of its options, which are JSON values."""

    command: ClassVar[str]
    unit: ClassVar[str]  # what is cut: queries, documents, bytes

    def survey(self) -> Survey:
        """Read of the inputs what says how many units there are, and which job this is."""
        ...

    def unit_name(self, unit: int) -> str:
        """Return what people call a unit, counted from 0: the id of a query, of a document."""
        ...

    def open(self) -> Worker:
        """Load models and index; once a process."""
        ...

    def merge(self, shards: Sequence[ShardFolder], out: Path, options: MergeOptions) -> CommandResult:
        """Write what the command would have written without shards."""
        ...


class OfQueries:
    """A job whose units are the queries of a run."""

    unit: ClassVar[str] = "queries"
    run: str
    index: str

    @cached_property
    def first_stage(self) -> Run:
        """The run, read once: it may have millions of rows."""
        return read_run(self.run)

    def survey(self) -> Survey:
        """Count the queries of the run, and hash the inputs."""
        return Survey(len(self.first_stage), identity_of(self, index=Index.open(self.index).fingerprint))

    def unit_name(self, unit: int) -> str:
        """Return a query's id."""
        return list(self.first_stage)[unit]


def pack(job: Job) -> dict[str, Any]:
    """Return a job's options as JSON values, remote files by their URLs; see :func:`unpack`."""
    return {name: _with(one, as_called) for name, one in msgspec.to_builtins(job, enc_hook=str).items()}


def _with(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - an option's value
    if isinstance(value, list | tuple):
        return [_with(one, change) for one in value]
    return change(value) if isinstance(value, str) else value


def unpack(command: str, options: Mapping[str, Any], *, fetch: bool = True) -> Job:
    """Make a job again; remote files that it names are fetched.

    Raises BadData where they are of no job that this version knows.
    """
    try:
        name = JOBS[command]
        made = getattr(importlib.import_module(f"rankhouse.jobs.{command}"), name)
        local = {option: _with(one, fetched) for option, one in options.items()} if fetch else dict(options)
        job: Job = msgspec.convert(local, made, dec_hook=lambda kind, value: kind(value))
    except (KeyError, msgspec.ValidationError) as error:
        raise BadData(
            f'"{command}": shards of this command cannot be read by this version ({error})'
        ) from error
    return job


def manifest_of(job: Job, survey: Survey, shard: Shard, number: str = "") -> ShardManifest:
    """Return what a shard says of itself before it is made; ``number`` is i/n, where ``--shard`` said it."""
    return ShardManifest(
        command=job.command, unit=job.unit, options=pack(job), identity=survey.identity, found={},
        shard=shard, number=number, files={},
    )  # fmt: skip


def make_shard(
    folder: Path,
    wanted: ShardManifest,
    open_worker: Callable[[], Worker],
    progress: Progress,
    *,
    overwrite: bool | None = None,
) -> ShardResult:
    """Do the work of a shard, unless its folder is there already; whole or not at all.

    Raises WrongUse where something else is there, or another process is writing it; OutputFailed where it
    cannot be written.

    Args:
        open_worker: Called only if there is work, as loading takes time.
        overwrite: Whether another one that is there is replaced; None: if it is damaged or of this number.
    """
    with only_writer(folder):
        reason = ""
        if (folder / SHARD_MANIFEST).exists():
            there, reason = _shard_at(folder, wanted)
            if there is not None and not reason:
                tidy_beside(real_path(folder))  # where a kill came right after the shard was put in place
                return ShardResult(there, kept=True)
            if overwrite is False:
                raise WrongUse(
                    f"{folder}: {reason}; name another folder, or replace the shard with --overwrite"
                )
            if overwrite is None and there is not None and there.manifest.number != wanted.number:
                raise WrongUse(
                    f"{folder}: holds {there.manifest}, which is done; name a folder of its own for each "
                    "shard, or remove this one"
                )
        with replacing_folder(folder, _foreign) as scratch:
            scratch.mkdir()
            worker = open_worker()
            began = time.perf_counter()
            done = worker.run(wanted.shard, scratch, progress)
            seconds = round(time.perf_counter() - began, 3)
            write_json(scratch / REPORT, {"seconds": seconds, **done.facts, "warnings": list(done.warnings)})
            written = sorted(path for path in scratch.rglob("*") if path.is_file())  # but for locks
            files = {str(p.relative_to(scratch)): sum_of(p) for p in written if not p.name.endswith(".lock")}
            manifest = msgspec.structs.replace(wanted, found=dict(worker.found), files=files)
            (scratch / SHARD_MANIFEST).write_bytes(sealed(msgspec.json.encode(manifest)))
    return ShardResult(ShardFolder(folder, manifest), kept=False, reason=reason)


def _shard_at(folder: Path, wanted: ShardManifest) -> tuple[ShardFolder | None, str]:
    """Return the shard that is there, None if it is damaged, and why it is not the one wanted."""
    try:
        there = load_shard(folder)
        there.verify()
    except BadData as error:
        return None, f"holds a damaged shard ({error.reason})"
    if other := difference(there.manifest, wanted):
        return there, f"holds a shard of another job ({other})"
    return there, "" if there.shard == wanted.shard else f"holds {there.manifest}"


def _foreign(folder: Path) -> list[str]:
    """Name what a folder that is no shard holds; a shard may be replaced, whatever it holds."""
    return others(folder, [entry.name for entry in folder.iterdir()], (SHARD_MANIFEST,))


def merge(shards: Sequence[ShardFolder], out: Path, options: MergeOptions | None = None) -> CommandResult:
    """Write the whole of shards that :func:`rankhouse.jobs.shards.read_shards` gave.

    Raises what the command itself would raise.
    """
    first = shards[0].manifest
    # Only labels read the inputs again.
    job = unpack(first.command, first.options, fetch=first.command == "label")
    result = job.merge(shards, out, options or MergeOptions())
    facts = {"command": first.command, "out": str(out), "parts": len(shards)}
    return result._replace(facts=facts | result.facts)


def read_reports(shards: Sequence[ShardFolder]) -> list[dict[str, Any]]:
    """Read how the work of all shards went, in their order."""
    advice = "remove its folder and make the shard again"
    return [read_own(shard.folder / REPORT, dict[str, Any], advice) for shard in shards]


def identity_of(options: object, **known: str) -> dict[str, str]:
    """Return what a result depends on: each option's value, or a hash of the files that it names.

    What is neutral is left out; ``known`` stands for options in place of their values.
    """
    identity = {}
    for name, _, _, option in option_fields(type(options)):
        value = getattr(options, name)
        if name in known or not option.neutral:
            names_files = option.kind in ("input", "source") and value is not None
            identity[name] = known.get(name) or (described(str(value)) if names_files else str(value))
    return identity


def computed_by(ranker: NeuralRanker | DuoT5Ranker) -> dict[str, str]:
    """Return what scores depend on that is known once a ranker is open: its weights, and what computes."""
    compute = ranker.compute
    return {
        "ranker's weights": ranker.fingerprint,
        "device in use": compute.device.type,
        "precision in use": compute.precision,
    }


def digest(text: str) -> str:
    """Return 16 digits that name a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
