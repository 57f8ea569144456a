"""Parts: a folder with what one slice gave, and a manifest that says of which job and what its files must be.

    PART/
        part.json    command, options, what the job depends on, the slice, sizes and checksums of all files
        ...          the files; which ones is the command's affair

A part is whole or absent. It is verified to the last byte before it is merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from rankhouse import __version__
from rankhouse.core.errors import BadData, MissingInput, RankhouseError, WrongUse, name_few
from rankhouse.io.checksums import BadEnvelope, FileSum, differs, file_sum, sealed, unsealed
from rankhouse.io.locks import only_writer
from rankhouse.io.outputs import PART, others, real_path, replacing_folder
from rankhouse.io.scratch import recover, tidy_beside
from rankhouse.jobs.slices import Shard, Slice, shard

FORMAT: Final = "rankhouse-part"
VERSION: Final = 1

Found = Mapping[str, str]


class PartManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a part says of itself.

    Attributes:
        command: The command that made it.
        unit: What its slices are stretches of: queries, documents, bytes.
        options: How the job can be made again.
        identity: What the result depends on: option -> its value, or a hash of the file it names.
        found: The same, as far as it is only known while working (a ranker's fingerprint).
        slice: Which stretch.
        shard: As ``--shard`` said it; "" where nobody did.
        files: Path -> size and checksum.
    """

    command: str
    unit: str
    options: dict[str, Any]
    identity: dict[str, str]
    found: dict[str, str]
    slice: Slice
    shard: str
    files: dict[str, FileSum]
    format: str = FORMAT
    version: int = VERSION
    made_by: str = f"rankhouse {__version__}"


class Part(NamedTuple):
    """A part on disk.

    Attributes:
        folder: Where it is.
        manifest: What it says of itself.
    """

    folder: Path
    manifest: PartManifest

    @property
    def slice(self) -> Slice:
        """Which stretch of the input it was made of."""
        return self.manifest.slice

    def __str__(self) -> str:
        return f"{self.folder} ({named(self.slice, self.manifest.unit, self.manifest.shard)})"

    def verify(self) -> None:
        """Read every file and compare it with the manifest.

        Raises:
            BadData: One is missing, or not what was written.
        """
        for name, expected in self.manifest.files.items():
            try:
                what = differs(_sum(self.folder / name), expected)
            except OSError as error:
                what = f"is missing or cannot be read ({error.strerror})"
            if what:
                raise BadData(
                    f"{self.folder / name}: {what}; the part is damaged: remove {self.folder} and make "
                    f"{named(self.slice, self.manifest.unit, self.manifest.shard)} again"
                )


class PartResult(NamedTuple):
    """What became of a part.

    Attributes:
        part: It.
        kept: Whether it was there already, sound and of this very job and slice.
        reason: Why one that was there was made again; "" where there was none.
    """

    part: Part
    kept: bool
    reason: str = ""


def named(part: Slice, unit: str, label: str = "") -> str:
    """Name a slice for people: ``slice 2/4, queries 26 to 50 of 100``."""
    name = f"slice {label}, " if label else ""
    stretch = f"{unit} {part.start + 1:,} to {part.stop:,} of {part.total:,}" if part else f"no {unit}"
    return f"{name}{stretch}"


def load_part(folder: Path) -> Part:
    """Read the manifest of a part.

    Raises:
        MissingInput: There is no such folder, or it is no part.
        BadData: Its manifest is damaged or of another version.
    """
    recover(folder)
    path = folder / PART
    try:
        manifest = msgspec.json.decode(unsealed(path.read_bytes()), type=PartManifest)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = f"is no part (it has no {PART})" if folder.exists() else "there is no such part"
        raise MissingInput(
            f"{folder}: {what}; parts are made by index, encode, rerank or label with --shard i/n"
        ) from error
    except (BadEnvelope, msgspec.DecodeError, OSError) as error:
        raise BadData(f"{path}: the part is damaged ({error}); remove it and make its slice again") from error
    if (manifest.format, manifest.version) != (FORMAT, VERSION):
        raise BadData(
            f'{path}: holds "{manifest.format}" version {manifest.version} by {manifest.made_by}; this '
            f'program reads "{FORMAT}" version {VERSION}: make the part again'
        )
    return Part(folder, manifest)


def write_part(
    folder: Path,
    wanted: PartManifest,
    make: Callable[[Path], Found],
    *,
    overwrite: bool = True,
) -> PartResult:
    """Make a part, unless it is there already; whole or not at all.

    Raises:
        WrongUse: Something else is there, or another process is writing it.
        OutputFailed: It cannot be written.
    """
    with only_writer(folder):
        reason = ""
        if (folder / PART).exists():
            there, reason = _still_right(folder, wanted)
            if there is not None:
                tidy_beside(real_path(folder))  # where a kill came right after the part was put in place
                return PartResult(there, kept=True)
            if not overwrite:
                raise WrongUse(
                    f"{folder}: {reason}; name another folder, or replace the part with --overwrite"
                )
        with replacing_folder(folder, _foreign) as scratch:
            scratch.mkdir()
            found = make(scratch)
            files = {str(path.relative_to(scratch)): _sum(path) for path in _written(scratch)}
            manifest = msgspec.structs.replace(wanted, found=dict(found), files=files)
            (scratch / PART).write_bytes(sealed(msgspec.json.encode(manifest)))
    return PartResult(Part(folder, manifest), kept=False, reason=reason)


def read_parts(paths: Iterable[Path]) -> list[Part]:
    """Find parts, see that they are one whole, verify them, and return them in the order of their slices.

    Raises:
        MissingInput: A path is no part, or holds none.
        BadData: A slice is missing or there twice, a part is of another job, or damaged; says which.
    """
    parts = [part for path in paths for part in _parts_at(path)]
    if not parts:
        raise MissingInput("no part was named; name those that --shard made, or a folder that holds them")
    _refuse_all_but_one_whole(parts)
    for part in parts:
        part.verify()
    return parts


def refuse_incomplete(paths: Iterable[Path]) -> None:
    """Refuse folders of parts in which a slice is missing; an index, or a part named by itself, may pass.

    Raises:
        BadData: As :func:`read_parts`, but no file is verified.
    """
    for path in paths:
        parts = [part for part in _parts_at(path, others=False) if part.folder != path]
        if parts:
            _refuse_all_but_one_whole(parts)


def with_documents(paths: Sequence[Path]) -> list[Path]:
    """Return what there is to be searched: all but parts of an index whose slice holds no document.

    Args:
        paths: What was named; all of them, where none holds a document.
    """
    return [path for path in paths if not _is_empty(path)] or list(paths)


def _is_empty(path: Path) -> bool:
    with suppress(RankhouseError):  # no part, or a damaged one: opening it says so
        made = load_part(path).manifest
        return made.command == "index" and not any(name.startswith("index/") for name in made.files)
    return False


def _refuse_all_but_one_whole(parts: list[Part]) -> None:
    """Put parts in the order of their slices, and refuse them if they are not one whole."""
    _refuse_strangers(parts)
    parts.sort(key=lambda part: (part.slice.start, part.slice.stop))
    _refuse_overlaps(parts)
    _refuse_gaps(parts)


def _parts_at(path: Path, *, others: bool = True) -> list[Part]:
    """Return the part that a path is, or those it holds; without ``others`` what is neither may pass."""
    inside = sorted(path.iterdir()) if path.is_dir() and not (path / PART).exists() else []
    folders = [one for one in inside if not one.name.startswith(".") and (one / PART).exists()]
    return [load_part(folder) for folder in folders or [path] * others]


def _still_right(folder: Path, wanted: PartManifest) -> tuple[Part | None, str]:
    """Return the part that is there if it is the one wanted, else why it is not."""
    try:
        part = load_part(folder)
        part.verify()
    except BadData as error:
        return None, f"holds a damaged part ({error.reason})"
    held = part.manifest
    if other := difference(held, wanted):
        return None, f"holds a part of another job ({other})"
    if held.slice != wanted.slice:
        return None, f"holds {named(held.slice, held.unit, held.shard)}"
    return part, ""


def difference(held: PartManifest, wanted: PartManifest) -> str:
    """Say in what two jobs differ, as far as is known of both; "" where they are one."""
    if held.command != wanted.command:
        return f"it was made by {held.command}, not by {wanted.command}"
    if held.slice.total != wanted.slice.total:
        return f"of {held.slice.total:,} {held.unit}, not of {wanted.slice.total:,}"
    if held.made_by != wanted.made_by:
        return f"it was made by {held.made_by}, not by {wanted.made_by}"
    ours, theirs = {**wanted.identity, **wanted.found}, {**held.identity, **held.found}
    unlike = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    return "; ".join(f'{name} is "{theirs[name]}" there and "{ours[name]}" here' for name in unlike)


def _refuse_strangers(parts: Sequence[Part]) -> None:
    """Refuse parts that are not of the job that most are of."""
    jobs = Counter(_key(part.manifest) for part in parts)
    usual = next(part for part in parts if _key(part.manifest) == jobs.most_common(1)[0][0])
    for part in parts:
        if other := difference(part.manifest, usual.manifest):
            raise BadData(
                f"{part} is of another job than {usual.folder}: {other}; name the parts of one job only, or "
                "make this slice again"
            )


def _key(manifest: PartManifest) -> bytes:
    parts = (manifest.command, manifest.made_by, manifest.slice.total, manifest.identity, manifest.found)
    return msgspec.json.encode(parts, order="sorted")


def _refuse_overlaps(parts: Sequence[Part]) -> None:
    full = [part for part in parts if part.slice]
    for before, after in pairwise(full):
        if after.slice.start < before.slice.stop:
            what = "the same slice" if before.slice == after.slice else "slices that overlap"
            raise BadData(f"{before} and {after} hold {what}; name one of them")


def _refuse_gaps(parts: Sequence[Part]) -> None:
    """Refuse parts that do not make a whole; names the slices that are missing."""
    unit, total = parts[0].manifest.unit, parts[0].slice.total
    gaps, reached = list[Slice](), 0
    for part in parts:
        if part.slice and part.slice.start > reached:
            gaps.append(Slice(reached, part.slice.start, total))
        reached = max(reached, part.slice.stop)
    if reached < total:
        gaps.append(Slice(reached, total, total))
    if not gaps:
        return
    missing = name_few((name for gap in gaps for name in _names(gap, unit, _common(parts))), 10)
    raise BadData(
        f"of {total:,} {unit}, not all are in the {len(parts):,} parts; missing: {missing}; make them first"
    )


def _common(parts: Sequence[Part]) -> int:
    """Return into how many slices the job was cut; 0 where parts say different things, or nothing."""
    counts = {Shard.parse(part.manifest.shard).of if part.manifest.shard else 0 for part in parts}
    return counts.pop() if len(counts) == 1 else 0


def _names(gap: Slice, unit: str, of: int) -> Iterator[str]:
    """Name the slices that lie in a gap, as --shard names them, or the gap itself."""
    if not of:
        yield named(gap, unit)
        return
    for number in range(1, of + 1):
        one = shard(number, of, gap.total)
        if one and gap.start <= one.start < gap.stop:
            yield f"slice {number}/{of}"


def _foreign(folder: Path) -> list[str]:
    """Name what a folder that is no part holds; a part may be replaced, whatever it holds."""
    return others(folder, [entry.name for entry in folder.iterdir()], (PART,))


def _written(folder: Path) -> list[Path]:
    """List the files of a part, without locks."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not path.name.endswith(".lock")]


def _sum(path: Path) -> FileSum:
    """Measure a file; checksums of its blocks are left out, as a part is always read whole."""
    return file_sum(path)._replace(blocks=b"")
