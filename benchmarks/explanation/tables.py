"""Measurements as the tables of docs/explanation-quality.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rankhouse.core.scores import Doubles

from .faithful import interval
from .rankers import DATA, DESIGNS

SAID = {
    "knrm": "KNRM",
    "conv_knrm": "Conv-KNRM",
    "tk": "TK",
    "tk_windows": "TK, windows",
    "drmm": "DRMM",
    "pacrr": "PACRR",
    "pacrr_drmm": "PACRR-DRMM",
    "matchpyramid": "MatchPyramid",
    "samcnn": "samCNN",
    "mp_hcnn": "MP-HCNN",
    "biencoder": "bi-encoder",
    "crossencoder": "cross-encoder",
    "monot5": "monoT5",
}
LEAST_PAIRS = 20
COLLECTIONS = {"wikiqa": "WikiQA", "nfcorpus": "NFCorpus"}

Row = Sequence[str]


def page(pieces: Mapping[str, Any]) -> str:
    """Return all tables, with a heading each.

    Args:
        pieces: CHECK-DATA-RANKER -> what was measured.
    """
    tables = {
        "Completeness": _complete(pieces),
        "Deletion and insertion": _faithful(pieces),
        "Against sampling": _sampling(pieces),
        "Bound to model and text": _bound(pieces),
        "Planted": _planted(pieces),
        "Time": _speed(pieces),
    }
    return "\n\n".join(f"## {head}\n\n" + "\n".join(table) for head, table in tables.items())


def _markdown(head: Row, rows: Iterator[Row], words: int = 2) -> Iterator[str]:
    """Yield a table whose first columns are words."""
    yield _line(head)
    yield _line(["---"] * words + ["---:"] * (len(head) - words))
    yield from map(_line, rows)


def _line(cells: Row) -> str:
    return f"| {' | '.join(cells)} |"


def _each(pieces: Mapping[str, Any], check: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield (collection, ranker, what was measured), in the order of the page."""
    for name in DATA:
        for ranker in DESIGNS:
            if told := pieces.get(f"{check}-{name}-{ranker}"):
                yield COLLECTIONS[name], SAID[ranker], told


def _stages(pieces: Mapping[str, Any], check: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in DATA:
        if told := pieces.get(f"{check}-{name}-first_stages"):
            yield COLLECTIONS[name], told


def _every(pieces: Mapping[str, Any], check: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield (collection, what is explained and how, what was measured): first stages, then rankers."""
    for data, stages in _stages(pieces, check):
        yield from ((data, stage, told) for stage, told in stages.items())
    for data, ranker, ways in _each(pieces, check):
        yield data, ranker, ways["own"]
        for way in ("gradients", "twenty sentences"):
            if way in ways:
                yield data, f"{ranker}, {way}", ways[way]


def _complete(pieces: Mapping[str, Any]) -> Iterator[str]:
    rows = (_gaps(*piece) for piece in _every(pieces, "complete"))
    head = ["collection", "ranker", "exact", "pairs", "median", "99th percentile", "largest", "A − B", "swap"]
    return _markdown(head, rows, 3)


def _gaps(data: str, name: str, told: Mapping[str, Any]) -> Row:
    numbers = [f"{told[key]:.1e}" for key in ("median", "p99", "most", "difference", "swap")]
    return [data, name, "yes" if told["exact"] else "no", f"{told['pairs']:,}", *numbers]


def _faithful(pieces: Mapping[str, Any]) -> Iterator[str]:
    """Yield the gains over random order, in standard deviations of the ranker's scores."""

    def cells(told: Mapping[str, Any], method: str) -> list[str]:
        row = told["methods"][method]
        return [_gain(row[side], told["spread"]) for side in ("deletion", "insertion")]

    sides = [f"{data}, {side}" for data in COLLECTIONS.values() for side in ("deletion", "insertion")]
    return _markdown(["ranker", "units", "method", *sides], _by_method(pieces, cells, 2), 3)


def _sampling(pieces: Mapping[str, Any]) -> Iterator[str]:
    """Yield what inexact methods gain over sampling with the same passes, mean of both areas."""

    def cells(told: Mapping[str, Any], method: str) -> list[str]:
        row, other = (told["methods"].get(name) for name in (method, f"sampling, as {method}"))
        if other is None:
            return []
        sides = [np.subtract(row[side], other[side]) for side in ("deletion", "insertion")]
        passes = f"{np.mean(row['passes']):.0f}"
        return [
            str(told["pairs"]),
            f"{told['units']:.0f}",
            passes,
            _gain(np.mean(sides, axis=0), told["spread"]),
        ]

    columns = [f"{d}, {c}" for d in COLLECTIONS.values() for c in ("pairs", "units", "passes", "gain")]
    return _markdown(["ranker", "units", "method", *columns], _by_method(pieces, cells, 4), 3)


def _by_method(
    pieces: Mapping[str, Any], cells: Callable[[Mapping[str, Any], str], list[str]], width: int
) -> Iterator[Row]:
    """Yield a row for each ranker, unit and method, with the cells of each collection."""
    found: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for data, ranker, units in _each(pieces, "faithful"):
        for unit, told in units.items():
            methods = [name for name in told["methods"] if not name.startswith("sampling")]
            for method in methods if told["pairs"] >= LEAST_PAIRS else ():
                if made := cells(told, method):
                    found.setdefault((ranker, f"{unit}s", _method(ranker, method)), {})[data] = made
    order = list(SAID.values())
    for names, row in sorted(found.items(), key=lambda item: order.index(item[0][0])):
        yield [*names, *(cell for data in COLLECTIONS.values() for cell in row.get(data, ["–"] * width))]


def _method(ranker: str, method: str) -> str:
    """Name a method; DRMM's and PACRR-DRMM's own leaves passage words out of what is exact."""
    return method if method != "own" or "DRMM" in ranker else "own, exact"


def _gain(values: Sequence[float] | Doubles, spread: float) -> str:
    mean, low, high = (number / spread for number in interval(values))
    mark = "" if low > 0 else " (no better)" if high >= 0 else " (worse)"
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]{mark}"


def _bound(pieces: Mapping[str, Any]) -> Iterator[str]:
    def rows() -> Iterator[Row]:
        aliens = {each[:2]: each[2] for each in _each(pieces, "irrelevant")}
        for data, ranker, ways in _each(pieces, "bound"):
            for way, told in ways.items():
                method, _, unit = way.partition(" ")
                correlation = irrelevant = "–"
                if len(told.get("correlation", ())) >= LEAST_PAIRS:
                    mean, low, high = interval(told["correlation"])
                    correlation = f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
                if answers := aliens.get((data, ranker), {}).get(way):
                    irrelevant = f"{sum(answers)} of {len(answers)}"
                same = "yes" if told["same bytes"] else "NO"
                yield [data, ranker, f"{method}, {unit}s", correlation, irrelevant, same]

    head = ["collection", "ranker", "method", "correlation", "irrelevant below the top", "same bytes"]
    return _markdown(head, rows(), 3)


def _planted(pieces: Mapping[str, Any]) -> Iterator[str]:
    def rows() -> Iterator[Row]:
        for data, methods in _stages(pieces, "planted"):
            for method, told in methods.items():
                yield [data, method, f"{told['recovered']} of {told['pairs']}"]

    return _markdown(["collection", "method", "recovered exactly"], rows())


def _speed(pieces: Mapping[str, Any]) -> Iterator[str]:
    rows = (_times(*piece) for piece in _every(pieces, "speed"))
    head = ["collection", "ranker", "pairs", "passes", "median ms", "95th percentile ms", "score alone ms"]
    return _markdown(head, rows)


def _times(data: str, name: str, told: Mapping[str, Any]) -> Row:
    if "calls" in told:
        name = name.replace("twenty", f"{told['sentences']}")
        return [data, name, "1", f"{told['passes']} in {told['calls']} call", "", "", ""]
    numbers = [f"{told['passes']:.0f}", f"{told['median']:.1f}", f"{told['p95']:.1f}"]
    return [data, name, str(told["pairs"]), *numbers, f"{told['score']:.1f}" if "score" in told else ""]
