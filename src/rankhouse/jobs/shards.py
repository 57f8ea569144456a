"""Shards: consecutive units of a command's input, and the folders with what was made of them.

    SHARD/
        part.json    command, options, what the job depends on, the shard, sizes and checksums of all files
        ...          the files; which ones is the command's affair

A shard's folder is whole or absent. It is verified to the last byte before it is merged.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from rankhouse import __version__
from rankhouse.core.errors import BadData, MissingInput, RankhouseError, WrongUse, name_few
from rankhouse.io.checksums import BadEnvelope, FileSum, differs, file_sum, unsealed
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import SHARD_MANIFEST
from rankhouse.io.scratch import recover

FORMAT: Final = "rankhouse-part"
VERSION: Final = 1
MOST: Final = 1_000_000
_NUMBER: Final = re.compile("([0-9]{1,9})/([0-9]{1,9})").fullmatch

Facts = Mapping[str, str]


class Shard(NamedTuple):
    """Consecutive units (queries, documents ...) of a job's input: ``start``, from 0, to before ``stop``."""

    start: int
    stop: int
    total: int  # units of the whole input

    def __len__(self) -> int:
        return self.stop - self.start

    def __bool__(self) -> bool:
        return self.stop > self.start


class ShardNumber(NamedTuple):
    """Value of ``--shard 2/4``: the second of four shards."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> ShardNumber:
        """Read i/n, where i goes from 1 to n; WrongUse for anything else."""
        match = _NUMBER(text.strip())
        found = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= found.number <= found.of <= MOST:
            raise WrongUse(
                f'--shard "{text}": write i/n, the i-th of n shards, i from 1 to n; for a Slurm array '
                "sbatch --array=1-4  write  --shard $SLURM_ARRAY_TASK_ID/4"
            )
        return found

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def of_total(self, total: int) -> Shard:
        """Return the shard of so many units; shards follow each other and differ by at most 1 in size."""
        return Shard((self.number - 1) * total // self.of, self.number * total // self.of, total)


class ShardManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Manifest of a shard, in ``part.json`` in its folder."""

    command: str  # that made it
    unit: str  # what is counted: queries, documents, bytes
    options: dict[str, Any]  # how the job can be made again
    identity: dict[str, str]  # what the result depends on: option -> its value, or a hash of its file
    found: dict[str, str]  # the same, as far as it is only known while working (a ranker's fingerprint)
    shard: Shard = msgspec.field(name="slice")  # which units
    number: str = msgspec.field(name="shard")  # as ``--shard`` said it; "" where nobody did
    files: dict[str, FileSum]  # path -> size and checksum
    format: str = FORMAT
    version: int = VERSION
    made_by: str = f"rankhouse {__version__}"

    def __str__(self) -> str:
        return named(self.shard, self.unit, self.number)


class ShardFolder(NamedTuple):
    """A shard on disk: where it is, and what it says of itself."""

    folder: Path
    manifest: ShardManifest

    @property
    def shard(self) -> Shard:
        """Of which units it was made."""
        return self.manifest.shard

    def __str__(self) -> str:
        return f"{self.folder} ({self.manifest})"

    def verify(self) -> None:
        """Read every file and compare it with the manifest; BadData where one is missing or was changed."""
        for name, expected in self.manifest.files.items():
            try:
                what = differs(sum_of(self.folder / name), expected)
            except OSError as error:
                what = f"is missing or cannot be read ({error.strerror})"
            if what:
                raise BadData(
                    f"{self.folder / name}: {what}; the shard is damaged: remove {self.folder} and make "
                    f"{self.manifest} again"
                )


def named(shard: Shard, unit: str, number: str = "") -> str:
    """Name a shard for people: ``shard 2/4, queries 26 to 50 of 100``."""
    units = f"{unit} {shard.start + 1:,} to {shard.stop:,} of {shard.total:,}" if shard else f"no {unit}"
    return f"shard {number}, {units}" if number else units


def load_shard(folder: Path) -> ShardFolder:
    """Read the manifest of a shard.

    Raises MissingInput where there is no such folder, or it is no shard; BadData where its manifest is
    damaged or of another version.
    """
    recover(folder)
    path = folder / SHARD_MANIFEST
    try:
        manifest = msgspec.json.decode(unsealed(path.read_bytes()), type=ShardManifest)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = f"is no shard (it has no {SHARD_MANIFEST})" if folder.exists() else "there is no such shard"
        raise MissingInput(
            f"{folder}: {what}; shards are made by index, encode, rerank or label with --shard i/n"
        ) from error
    except (BadEnvelope, *UNREADABLE, OSError) as error:
        raise BadData(f"{path}: the shard is damaged ({error}); remove it and make it again") from error
    if (manifest.format, manifest.version) != (FORMAT, VERSION):
        raise BadData(
            f'{path}: holds "{manifest.format}" version {manifest.version} by {manifest.made_by}; this '
            f'program reads "{FORMAT}" version {VERSION}: make the shard again'
        )
    return ShardFolder(folder, manifest)


def read_shards(paths: Iterable[Path]) -> list[ShardFolder]:
    """Find shards, see that they are one whole, verify them, and return them in their order.

    Raises MissingInput where a path is no shard and holds none; BadData where a shard is missing or there
    twice, of another job, or damaged, and says which.
    """
    shards = [shard for path in paths for shard in _shards_at(path)]
    if not shards:
        raise MissingInput("no shard was named; name those that --shard made, or a folder that holds them")
    _refuse_all_but_one_whole(shards)
    for shard in shards:
        shard.verify()
    return shards


def refuse_incomplete(paths: Iterable[Path]) -> None:
    """Refuse folders of shards of which one is missing; an index, or a shard named by itself, may pass.

    Raises BadData as :func:`read_shards`, but no file is verified.
    """
    for path in paths:
        shards = [shard for shard in _shards_at(path, others=False) if shard.folder != path]
        if shards:
            _refuse_all_but_one_whole(shards)


def with_documents(paths: Sequence[Path]) -> list[Path]:
    """Return what there is to search: all but shards of an index without documents; all if none has any."""
    return [path for path in paths if not _is_empty(path)] or list(paths)


def _is_empty(path: Path) -> bool:
    with suppress(RankhouseError):  # no shard, or a damaged one: opening it says so
        made = load_shard(path).manifest
        return made.command == "index" and not any(name.startswith("index/") for name in made.files)
    return False


def _refuse_all_but_one_whole(shards: list[ShardFolder]) -> None:
    """Put shards in their order, and refuse them if they are not one whole."""
    _refuse_strangers(shards)
    shards.sort(key=lambda one: (one.shard.start, one.shard.stop))
    _refuse_overlaps(shards)
    _refuse_gaps(shards)


def _shards_at(path: Path, *, others: bool = True) -> list[ShardFolder]:
    """Return the shard that a path is, or those it holds; without ``others`` what is neither may pass."""
    inside = sorted(path.iterdir()) if path.is_dir() and not (path / SHARD_MANIFEST).exists() else []
    folders = [one for one in inside if not one.name.startswith(".") and (one / SHARD_MANIFEST).exists()]
    return [load_shard(folder) for folder in folders or [path] * others]


def difference(held: ShardManifest, wanted: ShardManifest) -> str:
    """Say in what two jobs differ, as far as is known of both; "" where they are one."""
    if held.command != wanted.command:
        return f"it was made by {held.command}, not by {wanted.command}"
    if held.shard.total != wanted.shard.total:
        return f"of {held.shard.total:,} {held.unit}, not of {wanted.shard.total:,}"
    if held.made_by != wanted.made_by:
        return f"it was made by {held.made_by}, not by {wanted.made_by}"
    ours, theirs = {**wanted.identity, **wanted.found}, {**held.identity, **held.found}
    unlike = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    return "; ".join(f'{name} is "{theirs[name]}" there and "{ours[name]}" here' for name in unlike)


def _refuse_strangers(shards: Sequence[ShardFolder]) -> None:
    """Refuse shards that are not of the job that most are of."""
    keys = [_key(one.manifest) for one in shards]
    usual = shards[keys.index(Counter(keys).most_common(1)[0][0])]
    for one in shards:
        if other := difference(one.manifest, usual.manifest):
            raise BadData(
                f"{one} is of another job than {usual.folder}: {other}; name the shards of one job only, or "
                "make this one again"
            )


def _key(manifest: ShardManifest) -> bytes:
    job = (manifest.command, manifest.made_by, manifest.shard.total, manifest.identity, manifest.found)
    return msgspec.json.encode(job, order="sorted")


def _refuse_overlaps(shards: Sequence[ShardFolder]) -> None:
    for before, after in pairwise([one for one in shards if one.shard]):
        if after.shard.start < before.shard.stop:
            what = "the same shard" if before.shard == after.shard else "shards that overlap"
            raise BadData(f"{before} and {after} hold {what}; name one of them")


def _refuse_gaps(shards: Sequence[ShardFolder]) -> None:
    """Refuse shards that do not make a whole; names those that are missing."""
    unit, total = shards[0].manifest.unit, shards[0].shard.total
    if left := gaps((one.shard for one in shards if one.shard), total):
        numbers = {one.manifest.number for one in shards}
        counts = {ShardNumber.parse(number).of if number else 0 for number in numbers}
        of = counts.pop() if len(counts) == 1 else 0  # 0 where they say different things, or nothing
        missing = name_few((name for gap in left for name in _names(gap, unit, of)), 10)
        raise BadData(
            f"of {total:,} {unit}, not all are in the {len(shards):,} shards; missing: {missing}; make them "
            "first"
        )


def gaps(done: Iterable[Shard], total: int) -> list[Shard]:
    """Return what is left between shards that are done, of ``total`` units.

    >>> gaps([Shard(4, 6, 9), Shard(0, 2, 9)], 9)
    [Shard(start=2, stop=4, total=9), Shard(start=6, stop=9, total=9)]
    """
    left, start = [], 0
    for one in [*sorted(done), Shard(total, total, total)]:
        if start < one.start:
            left.append(Shard(start, one.start, total))
        start = max(start, one.stop)
    return left


def _names(gap: Shard, unit: str, of: int) -> Iterator[str]:
    """Name the shards that lie in a gap, as --shard names them, or the gap itself."""
    if not of:
        yield named(gap, unit)
        return
    for number in range(1, of + 1):
        one = ShardNumber(number, of).of_total(gap.total)
        if one and gap.start <= one.start < gap.stop:
            yield f"shard {number}/{of}"


def sum_of(path: Path) -> FileSum:
    """Measure a file; checksums of its blocks are left out, as a shard is always read whole."""
    return file_sum(path)._replace(blocks=b"")
