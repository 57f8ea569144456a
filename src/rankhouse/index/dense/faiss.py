"""Search structures by FAISS over an index's vectors: quicker than comparing every row, or smaller.

A structure only proposes rows; the score of what it proposes is computed from the vectors themselves, so a
document has the same score whichever structure found it. Structures live in memory while they are used and
are saved beside the vectors they were made from, with the vectors' fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import numpy as np

from rankhouse.core.arguments import check_whole
from rankhouse.core.errors import BadIndex, OutputFailed, WrongUse, needs
from rankhouse.core.notation import make, write
from rankhouse.core.nouns import FloatArray
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.index.append_state import AGAIN
from rankhouse.index.dense.exact import ExactSearcher, Neighbours, Rows, Searcher, rescore, settle
from rankhouse.index.dense.vectors import Vectors
from rankhouse.io.checksums import BadEnvelope, file_sum, sealed, unsealed
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import others, replacing_folder


@dataclass(frozen=True)
class Structure:
    """Structure to build or open: a name and numbers; None is the default, or the value it was built with."""

    name: str
    build: dict[str, int | None] = field(default_factory=dict)
    search: dict[str, int | None] = field(default_factory=dict)

    def __str__(self) -> str:
        numbers = {key: n for key, n in (self.build | self.search).items() if n is not None}
        return write(self.name, **numbers)


def _flat() -> Structure:
    return Structure("flat")


def _sq8() -> Structure:
    return Structure("sq8")


def _hnsw(m: int | None = None, ef: int | None = None, effort: int | None = None) -> Structure:
    return Structure("hnsw", _counts("hnsw", m=m, effort=effort), _counts("hnsw", ef=ef))


def _ivf(lists: int | None = None, probe: int | None = None) -> Structure:
    return Structure("ivf", _counts("ivf", lists=lists), _counts("ivf", probe=probe))


STRUCTURES: dict[str, Callable[..., Structure]] = {"flat": _flat, "sq8": _sq8, "hnsw": _hnsw, "ivf": _ivf}
"""The table of names, for :func:`rankhouse.core.notation.make`."""


def _counts(name: str, **numbers: int | None) -> dict[str, int | None]:
    check_whole(name, 1, **{key: number for key, number in numbers.items() if number is not None})
    if numbers.get("m") == 1:
        raise WrongUse(f"{name}: m=1, but a graph needs at least 2 links a row")
    return numbers


def filled_in(asked: Structure, n: int) -> Structure:
    """Return a structure over n vectors with a number wherever none was asked for.

    Raises:
        WrongUse: More lists than vectors.
    """
    lists = max(1, min(round(4 * n**0.5), n // 39 or 1))  # FAISS wants 39 rows a centre
    usual = {"m": 32, "effort": 200, "ef": 128, "lists": lists, "probe": 32}
    build, search = (
        {key: usual[key] if number is None else number for key, number in numbers.items()}
        for numbers in (asked.build, asked.search)
    )
    if build.get("lists", 1) > n:
        raise WrongUse(f"ivf: lists={build['lists']}, but there are only {n:,} vectors; ask for fewer lists")
    return Structure(asked.name, dict(build), dict(search))


_SEED: Final = 1234
_ADDED_AT_ONCE: Final = 16_384
_SAMPLE: Final = 64  # rows for each centre that ivf learns


class _Sheet(msgspec.Struct, frozen=True):
    """Description of a saved structure, stored beside it."""

    name: str
    build: dict[str, int]
    search: dict[str, int]
    vectors: str
    bytes: int
    crc32: int


class FaissSearcher:
    """A FAISS structure over vectors, ready to search. Make one with :func:`build` or :meth:`open`."""

    def __init__(self, vectors: Vectors, structure: Structure, index: Any) -> None:  # noqa: ANN401 - FAISS has no types
        self.vectors, self.structure, self._index = vectors, structure, index

    @classmethod
    def open(cls, vectors: Vectors, notation: str | Structure) -> Self:
        """Open the saved structure of this name.

        Args:
            vectors: The vectors it was made from.
            notation: Its notation; numbers of building must be those it was built with, numbers of searching
                are free.

        Raises:
            WrongUse: No such structure is known, or none was built.
            BadIndex: It was built from other vectors or with other numbers, or is damaged.
            MissingExtra: FAISS is not installed.
        """
        structure = make(notation, STRUCTURES, "vector structure") if isinstance(notation, str) else notation
        folder = _folder(vectors, structure.name)
        sheet = _read_sheet(vectors, structure)
        for key, number in structure.build.items():
            if number is not None and number != sheet.build[key]:
                raise BadIndex(
                    f"{folder}: was built with {key}={sheet.build[key]}, {key}={number} is asked for; leave "
                    f'it out, or rebuild it with  --vectors "{structure}"'
                )
        chosen = {key: sheet.search[key] if n is None else n for key, n in structure.search.items()}
        file = folder / "index.faiss"
        if not file.exists() or file_sum(file)[:2] != (sheet.bytes, sheet.crc32):
            # FAISS reads what it is given and may crash on it, so it gets nothing that is not sound.
            raise BadIndex(f"{file}: was changed after it was written; {AGAIN}")
        index = _faiss().read_index(str(file))
        return cls(vectors, Structure(structure.name, dict(sheet.build), dict(chosen)), index)

    def save(self) -> None:
        """Save beside the vectors, in place of an earlier one of its name, whole or not at all.

        Raises:
            OutputFailed: No permission, disk full.
        """
        folder = _folder(self.vectors, self.structure.name)
        build = {key: int(n or 0) for key, n in self.structure.build.items()}
        search = {key: int(n or 0) for key, n in self.structure.search.items()}
        with replacing_folder(folder, _foreign) as temporary:
            temporary.mkdir()
            file = temporary / "index.faiss"
            try:
                _faiss().write_index(self._index, str(file))
            except RuntimeError as error:
                raise OutputFailed(f"{folder}: cannot be written: {error}") from error
            size, crc, _ = file_sum(file)
            sheet = _Sheet(
                self.structure.name, build, search, self.vectors.fingerprint, bytes=size, crc32=crc
            )
            (temporary / "sheet.json").write_bytes(sealed(msgspec.json.encode(sheet)))

    def best(self, points: FloatArray, k: int) -> list[Neighbours]:
        """Find about the best k documents for each of q points (q, d); their scores are exact."""
        if not len(self.vectors):
            return ExactSearcher(self.vectors).best(points, k)
        points = np.ascontiguousarray(points, np.float32)
        # A few more than k: what float32 or 8 bits put just below the cut may belong just above it.
        fetched = min(k + k // 8 + 16, len(self.vectors))
        proposed = self._propose(points, fetched)
        return [self._settle(point, rows, k, fetched) for point, rows in zip(points, proposed, strict=True)]

    def _settle(self, point: FloatArray, rows: Rows, k: int, fetched: int) -> Neighbours:
        """Ask for more rows until they belong to k documents or there are no more; then score them."""
        while (
            len(np.unique(self.vectors.owners[rows])) < k
            and len(rows) == fetched
            and fetched < len(self.vectors)
        ):
            fetched = min(2 * fetched, len(self.vectors))
            [rows] = self._propose(point[None], fetched)
        return settle(self.vectors, rows, rescore(self.vectors, point, rows), k)

    def _propose(self, points: FloatArray, n: int) -> list[Rows]:
        """Ask FAISS for n rows a point, each list in ascending order; fewer where its lists run out."""
        faiss, options = _faiss(), None
        if self.structure.name == "hnsw":
            options = faiss.SearchParametersHNSW(efSearch=max(n, self.structure.search["ef"] or 1))
        elif self.structure.name == "ivf":
            options = faiss.SearchParametersIVF(nprobe=self.structure.search["probe"])
        _, neighbours = self._index.search(points, n, params=options)
        return [np.sort(rows[rows >= 0]) for rows in neighbours]


def searcher_of(vectors: Vectors, structure: str) -> Searcher:
    """Return what searches vectors.

    Raises:
        WrongUse: There is no such structure.
    """
    return ExactSearcher(vectors) if structure == "exact" else FaissSearcher.open(vectors, structure)


def build(
    vectors: Vectors, notation: str | Structure, *, threads: int = 1, progress: Progress | None = None
) -> FaissSearcher:
    """Build a structure and save it beside the vectors.

    Args:
        vectors: What it is made from.
        notation: ``flat``, ``sq8``, ``hnsw(m=32)``, ``ivf(lists=1000)``.
        threads: For building. A graph built by several threads differs a little from run to run; the other
            structures do not.
        progress: Progress callback.

    Raises:
        WrongUse: No such structure is known, bad numbers, or no vectors.
        MissingExtra: FAISS is not installed.
        OutputFailed: No permission, disk full.
    """
    asked = make(notation, STRUCTURES, "vector structure") if isinstance(notation, str) else notation
    n = len(vectors)
    if not n:
        raise WrongUse(
            f"{vectors.folder}: there are no vectors to build {asked} from; encode documents first"
        )
    structure = filled_in(asked, n)
    with _threads(threads):
        index = _MAKERS[structure.name](vectors, structure)
        for start in range(0, n, _ADDED_AT_ONCE):
            index.add(np.ascontiguousarray(vectors.rows[start : start + _ADDED_AT_ONCE], np.float32))
            if progress is not None:
                progress(min(n, start + _ADDED_AT_ONCE), n)
    built = FaissSearcher(vectors, structure, index)
    built.save()
    return built


def recall(exact: Run, other: Run, k: int) -> float:
    """Return the mean share of each query's best k of exact search that another search has in its best k.

    Raises:
        WrongUse: k below 1, or nothing to compare.
    """
    if k < 1:
        raise WrongUse(f"k={k}: compare 1 document or more")
    shares = []
    for query_id in exact:
        wanted = set(exact[query_id].doc_ids[:k])
        if wanted:
            hits = other[query_id].doc_ids[:k] if query_id in other else ()
            shares.append(len(wanted.intersection(hits)) / len(wanted))
    if not shares:
        raise WrongUse("recall needs an exact run that holds documents; this one is empty")
    return float(np.mean(shares))


# --- FAISS ----------------------------------------------------------------------------------------------


def _faiss() -> Any:  # noqa: ANN401 - FAISS has no types
    with needs("dense", "a FAISS structure over vectors"):
        import faiss  # noqa: PLC0415 - optional package, needed only here
    return faiss


@contextmanager
def _threads(n: int) -> Iterator[None]:
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _metric(vectors: Vectors) -> int:
    faiss = _faiss()
    return int(faiss.METRIC_L2 if vectors.state.similarity == "l2" else faiss.METRIC_INNER_PRODUCT)


def _make_flat(vectors: Vectors, _: Structure) -> Any:  # noqa: ANN401 - FAISS has no types
    return _faiss().IndexFlat(vectors.dimension, _metric(vectors))


def _make_sq8(vectors: Vectors, _: Structure) -> Any:  # noqa: ANN401 - FAISS has no types
    """Learn the range of each component from its least and its greatest value: all FAISS needs to see."""
    faiss = _faiss()
    index = faiss.IndexScalarQuantizer(vectors.dimension, faiss.ScalarQuantizer.QT_8bit, _metric(vectors))
    least = np.full(vectors.dimension, np.inf, np.float32)
    greatest = -least
    for start in range(0, len(vectors), _ADDED_AT_ONCE):
        block = np.asarray(vectors.rows[start : start + _ADDED_AT_ONCE], np.float32)
        least, greatest = np.minimum(least, block.min(axis=0)), np.maximum(greatest, block.max(axis=0))
    index.train(np.stack([least, greatest]))
    return index


def _make_hnsw(vectors: Vectors, structure: Structure) -> Any:  # noqa: ANN401 - FAISS has no types
    index = _faiss().IndexHNSWFlat(vectors.dimension, structure.build["m"], _metric(vectors))
    index.hnsw.efConstruction = structure.build["effort"]
    return index


def _make_ivf(vectors: Vectors, structure: Structure) -> Any:  # noqa: ANN401 - FAISS has no types
    faiss, metric, lists = _faiss(), _metric(vectors), structure.build["lists"] or 1
    centres = faiss.IndexFlat(vectors.dimension, metric)
    index = faiss.IndexIVFFlat(centres, vectors.dimension, lists, metric)
    index.cp.seed = _SEED
    index.cp.spherical = vectors.state.similarity == "cosine"
    index.cp.max_points_per_centroid = _SAMPLE
    index.cp.min_points_per_centroid = 1  # FAISS would print a warning; small collections are no fault
    wanted = min(len(vectors), lists * _SAMPLE)
    sample = np.sort(np.random.default_rng(_SEED).choice(len(vectors), wanted, replace=False))
    index.train(np.ascontiguousarray(vectors.rows[sample], np.float32))
    return index


_MAKERS: dict[str, Callable[[Vectors, Structure], Any]] = {
    "flat": _make_flat,
    "sq8": _make_sq8,
    "hnsw": _make_hnsw,
    "ivf": _make_ivf,
}


def _foreign(folder: Path) -> list[str]:
    return others(folder, (), ("index.faiss", "sheet.json"))


def _folder(vectors: Vectors, name: str) -> Path:
    return vectors.folder / "structures" / name


def _read_sheet(vectors: Vectors, asked: Structure) -> _Sheet:
    folder = _folder(vectors, asked.name)
    if not folder.exists():
        there = sorted(p.name for p in folder.parent.iterdir()) if folder.parent.is_dir() else []
        built = f"built are: {', '.join(there)}" if there else "none is built"
        raise WrongUse(
            f"{vectors.folder}: has no structure {asked.name}, {built}; build it with  rankhouse encode "
            f'--vectors "{asked}", or search exactly'
        )
    try:
        content = unsealed((folder / "sheet.json").read_bytes(), bare=True)
        sheet = msgspec.json.decode(content, type=_Sheet)
        if sheet.build.keys() != asked.build.keys() or sheet.search.keys() != asked.search.keys():
            raise BadIndex(f"{folder}: was made by another version; {AGAIN}")
    except (OSError, BadEnvelope, *UNREADABLE) as error:
        raise BadIndex(f"{folder}: cannot be read ({error}); {AGAIN}") from error
    if sheet.vectors != vectors.fingerprint:
        raise BadIndex(
            f'{folder}: was built from other vectors than there are now; rebuild it with  --vectors "{asked}"'
        )
    return sheet
