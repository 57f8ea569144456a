"""Cross-validation by query: who is tested when, in a file that every experiment can share.

The file is JSON: ``{"seed": 1, "folds": [["q1", "q7"], ["q2", "q5"]]}``. A query belongs to one fold only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.core.sampling import order
from rankhouse.io.decoding import from_json
from rankhouse.io.files import read_whole
from rankhouse.io.outputs import writing


class Split(NamedTuple):
    """One round: queries of one fold to test on, of the next to choose by, of the rest to learn from."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]


class Folds(NamedTuple):
    """Queries dealt into folds; ``seed`` is None for folds that someone else made."""

    seed: int | None
    folds: tuple[tuple[str, ...], ...]

    @property
    def query_ids(self) -> tuple[str, ...]:
        """All queries, fold by fold."""
        return tuple(query_id for fold in self.folds for query_id in fold)

    def split(self, number: int, validate: bool = True) -> Split:
        """Test on one fold (counted from 0), choose on the next, learn from the others.

        Args:
            number: The fold to test on.
            validate: False gives the next fold to training too and leaves ``valid`` empty.

        Raises:
            WrongUse: No such fold, or two folds and a validation fold wanted.
        """
        count = len(self.folds)
        if not 0 <= number < count:
            raise WrongUse(f"fold {number} was asked for; there are folds 0 to {count - 1}")
        if validate and count == 2:
            raise WrongUse("two folds leave nothing to learn from beside test and validation; make 3 or more")
        held = (number + 1) % count if validate else number
        train = [fold for i, fold in enumerate(self.folds) if i not in (number, held)]
        valid = self.folds[held] if validate else ()
        return Split(tuple(q for fold in train for q in fold), valid, self.folds[number])


def deal(query_ids: Iterable[str], folds: int = 5, seed: int = 0) -> Folds:
    """Deal queries into folds of equal size (or one more), by a hash of seed and query id.

    The same queries and seed give the same folds, whatever the order, the machine or the versions.

    Args:
        query_ids: All different.
        folds: How many, 2 or more.
        seed: Another one, other folds.

    Raises:
        WrongUse: Fewer than two folds, or fewer queries than folds.
        BadData: A query is given twice.
    """
    ids = list(query_ids)
    if repeated := [query_id for query_id, times in Counter(ids).items() if times > 1]:
        raise BadData(f"queries given twice: {name_few(repeated, 8)}; a query belongs to one fold")
    if not 2 <= folds <= len(ids):
        raise WrongUse(f"{folds} folds of {len(ids)} queries were asked for; 2 to {len(ids)} are possible")
    shuffled = sorted(ids, key=lambda query_id: order(seed, query_id))
    return Folds(seed, tuple(tuple(sorted(shuffled[start::folds])) for start in range(folds)))


def write_folds(folds: Folds, path: Path | str) -> None:
    """Write a fold file, one fold a line.

    Args:
        folds: What to write.
        path: The file.

    Raises:
        OutputFailed: It cannot be written.
    """
    lines = [msgspec.json.encode(fold).decode() for fold in folds.folds]
    seed = msgspec.json.encode(folds.seed).decode()
    with writing(Path(path)) as out:
        out.write(f'{{"seed": {seed}, "folds": [\n' + ",\n".join(lines) + "\n]}\n")


class _File(msgspec.Struct, forbid_unknown_fields=True):
    folds: list[list[str]]
    seed: int | None = None


_decoder = msgspec.json.Decoder(_File)
_WANTED = 'is no fold file; a fold file holds  {"seed": 1, "folds": [["q1", "q2"], ["q3", "q4"]]}'


def read_folds(path: Path | str) -> Folds:
    """Read and check a fold file.

    Raises:
        MissingInput: No such file.
        BadData: Not such JSON, fewer than two folds, an empty fold, or a query in two places.
    """
    path = Path(path)
    file = from_json(_decoder, read_whole(path), _WANTED, path)
    places: dict[str, list[int]] = {}
    for number, fold in enumerate(file.folds):
        for query_id in fold:
            places.setdefault(query_id, []).append(number)
    if leaks := [f"{q} (folds {' and '.join(map(str, at))})" for q, at in places.items() if len(at) > 1]:
        raise BadData(
            f"{len(leaks)} queries stand in more than one place, so that training sees what is tested: "
            f"{name_few(leaks, 8)}; keep each in one fold",
            path,
        )
    if len(file.folds) < 2 or not all(file.folds):
        sizes = ", ".join(str(len(fold)) for fold in file.folds) or "none"
        raise BadData(f"two or more folds with queries are needed; the sizes found are: {sizes}", path)
    return Folds(file.seed, tuple(map(tuple, file.folds)))
