"""Jobs: the work of one command, cut into slices, and put together again.

A job is nothing but the command's options, so it can be sent anywhere and made again from a part. Its worker
holds what is loaded once a process: the model, the index.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from rankhouse.core.errors import BadData, as_called
from rankhouse.core.progress import Progress
from rankhouse.io.files import read_whole
from rankhouse.io.outputs import write_json
from rankhouse.io.staging import fetched
from rankhouse.jobs.parts import Found, Part, PartManifest, PartResult, write_part
from rankhouse.jobs.slices import Slice
from rankhouse.page.tables import Table

JOBS: Final = {
    "index": ("index", "IndexJob"),
    "encode": ("encode", "EncodeJob"),
    "label": ("label", "LabelJob"),
    "rerank": ("rerank", "RerankJob"),
}
"""Command -> module under ``cluster`` and class of its job; imported when needed."""

_MERGED_ALONE: Final = frozenset({"index", "encode", "rerank"})
"""Commands of which a merge reads the parts alone, and no input again."""

REPORT: Final = "report.json"
"""The file of a part that says how its work went: the same facts that the command gives with ``--json``."""


class Survey(NamedTuple):
    """What has to be read of the inputs before anything can be cut.

    Attributes:
        total: How many units there are.
        identity: What the result depends on: option -> its value, or a hash of what it names.
    """

    total: int
    identity: dict[str, str]


class MergeOptions(NamedTuple):
    """What ``rankhouse merge`` says about the whole.

    Attributes:
        overwrite: Replace an index or vectors that are there.
        report: Where the page of a labelling goes.
        progress: Told how far the work is.
    """

    overwrite: bool = False
    report: Path | None = None
    progress: Progress | None = None


class MergeResult(NamedTuple):
    """What came of a merge.

    Attributes:
        facts: What ``--json`` says.
        sentence: The same in words.
        warnings: What the user should know.
        tables: What is printed where nothing is said for machines.
    """

    facts: dict[str, Any]
    sentence: str
    warnings: Sequence[str] = ()
    tables: Sequence[Table] = ()


class Worker(Protocol):
    """What does the work of slices, one after the other, with everything loaded once.

    Attributes:
        found: What the result depends on and is known only now (a ranker's fingerprint).
    """

    @property
    def found(self) -> Found: ...  # noqa: D102 - said above

    def run(self, part: Slice, folder: Path, progress: Progress) -> None:
        """Do the work of a slice and write its files; the same units give the same bytes in any slice."""
        ...


class Job(Protocol):
    """The work of one command; a plain dataclass of its options, which are JSON values.

    Attributes:
        command: The command.
        unit: What is cut: queries, documents, bytes.
    """

    command: ClassVar[str]
    unit: ClassVar[str]

    def survey(self) -> Survey:
        """Read of the inputs what says how many units there are, and which job this is."""
        ...

    def unit_name(self, unit: int) -> str:
        """Return what people call a unit: the id of a query, of a document.

        Args:
            unit: Its number, from 0.
        """
        ...

    def open(self) -> Worker:
        """Load models and index; once a process."""
        ...

    def merge(self, parts: Sequence[Part], out: Path, options: MergeOptions) -> MergeResult:
        """Write what the command would have written without slices."""
        ...


def pack(job: Job) -> dict[str, Any]:
    """Return a job's options as JSON values, remote files by their URLs; see :func:`unpack`."""
    return {name: _with(one, as_called) for name, one in msgspec.to_builtins(job, enc_hook=str).items()}


def _with(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - an option's value
    if isinstance(value, list | tuple):
        return [_with(one, change) for one in value]
    return change(value) if isinstance(value, str) else value


def unpack(command: str, options: Mapping[str, Any], *, fetch: bool = True) -> Job:
    """Make a job again; remote files that it names are fetched.

    Raises:
        BadData: They are of no job that this version knows.
    """
    try:
        module, name = JOBS[command]
        made = getattr(importlib.import_module(f"rankhouse.jobs.{module}"), name)
        local = {name: _with(one, fetched) for name, one in options.items()} if fetch else dict(options)
        job: Job = msgspec.convert(local, made, dec_hook=lambda kind, value: kind(value))
    except (KeyError, msgspec.ValidationError) as error:
        raise BadData(
            f'"{command}": parts of this command cannot be read by this version ({error})'
        ) from error
    return job


def part_of(job: Job, survey: Survey, part: Slice, label: str = "") -> PartManifest:
    """Return what a part says of itself before it is made.

    Args:
        label: i/n, where ``--shard`` said it.
    """
    return PartManifest(
        command=job.command, unit=job.unit, options=pack(job), identity=survey.identity, found={}, slice=part,
        shard=label, files={},
    )  # fmt: skip


def make_part(
    folder: Path,
    wanted: PartManifest,
    worker: Callable[[], Worker],
    progress: Progress,
    *,
    overwrite: bool = True,
) -> PartResult:
    """Do the work of one slice, unless its part is there already.

    Args:
        worker: Gives what does the work; asked only if there is any, as loading takes time.
    """

    def make(scratch: Path) -> Found:
        opened = worker()
        opened.run(wanted.slice, scratch, progress)
        return opened.found

    return write_part(folder, wanted, make, overwrite=overwrite)


def merge(parts: Sequence[Part], out: Path, options: MergeOptions | None = None) -> MergeResult:
    """Write the whole of parts that :func:`rankhouse.jobs.parts.read_parts` gave.

    Raises:
        RankhouseError: What the command itself would raise.
    """
    first = parts[0].manifest
    job = unpack(first.command, first.options, fetch=first.command not in _MERGED_ALONE)
    result = job.merge(parts, out, options or MergeOptions())
    return result._replace(
        facts={"command": first.command, "out": str(out), "parts": len(parts)} | result.facts
    )


def write_report(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write how the work of a slice went.

    Args:
        facts: Plain values; "warnings" are what the user should know, in sentences.
    """
    write_json(folder / REPORT, facts)


def read_reports(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Read how the work of all parts went, in their order."""
    return [msgspec.json.decode(read_whole(part.folder / REPORT)) for part in parts]


def total_of(reports: Sequence[Mapping[str, Any]], *names: str) -> dict[str, Any]:
    """Add up what parts counted."""
    return {name: sum(report[name] for report in reports) for name in names}
