"""The collection at a glance: how long its documents are, of which kinds, and a map of their vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import RankhouseError
from rankhouse.core.progress import counted
from rankhouse.core.scores import Doubles
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.index import Index
from rankhouse.io.files import COMPRESSIONS
from rankhouse.serve.contracts.requests import deadline_of
from rankhouse.serve.folder.files import FolderContents
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.page.curves import BOTTOM, HEIGHT, LEFT, RIGHT, WIDTH, Scale, Tick, upwards
from rankhouse.serve.page.files import report_of, titled
from rankhouse.serve.page.render import Line, page
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.shapes import SearchBody, SearchHit

SAMPLED = 600
"""Passages that a map shows, spread evenly over the index."""
MAP_WIDTH, MAP_HEIGHT, MAP_EDGE = 720, 480, 16
HITS, _BARS, _KINDS, _PATIENCE = 20, 24, 10, 20.0
_LEAST = 3  # passages that make a map


class CollectionFields(Struct):
    """An index, and a question whose hits are marked on its map."""

    index: Line = ""
    query: Line = ""


class Bar(NamedTuple):
    """A bar of a histogram, in units of its picture, and what it says."""

    x: float
    y: float
    width: float
    height: float
    text: str


class Histogram(NamedTuple):
    """Bars, ticks of the axis below, and what it shows."""

    bars: Sequence[Bar]
    below: Sequence[Tick]
    most: str
    sentence: str


class Point(NamedTuple):
    """A passage on the map: its place, its document and that one's title, its rank among the hits or 0."""

    x: float
    y: float
    doc_id: str
    title: str
    rank: int = 0


class VectorMap(NamedTuple):
    """A map: a sample of the passages, the hits of a question, and what it shows."""

    points: Sequence[Point]
    hits: Sequence[Point]
    sentence: str


def show(service: ServedCollection, request: Request, asked: CollectionFields) -> Response:
    """Return the page of a collection."""
    view = service.catalogue.view(asked.index)
    index, system = view.index, service.catalogue.default(view).name
    content: dict[str, object] = {
        "title": "Collection",
        "index": view.name,
        "count": len(index.documents),
        "query": asked.query,
        "system": system,
        "hits": (), "notes": (), "histogram": None, "kinds": (), "map": None,
    }  # fmt: skip
    if not isinstance(index, Index) or not len(index):
        return page(request, "collection.html.j2", content)
    lengths = np.concatenate([segment.lengths for segment in index.segments])
    hits: Sequence[SearchHit] = ()
    if asked.query:
        body = SearchBody(query=asked.query, system=system, index=view.name, k=HITS, snippets=False)
        try:
            hits = search(service.catalogue, body, deadline_of(request, _PATIENCE)).hits
        except RankhouseError as error:
            content["notes"] = (str(error),)
    content |= {"histogram": histogram_of(lengths), "kinds": kinds_of(index, service.contents), "hits": hits}
    encoders = [ranker for ranker in service.catalogue.rankers.values() if ranker.is_encoder]
    name = next(filter(None, map(view.vectors_of, encoders)), "")
    with suppress(RankhouseError):  # being replaced: the next look has a map
        content["map"] = map_of(index, name, hits) if name else None
    return page(request, "collection.html.j2", content)


def histogram_of(lengths: np.ndarray) -> Histogram:
    """Return how many documents have which length; the longest hundredth is one bar."""
    top = max(1, int(np.ceil(np.quantile(lengths, 0.99))))
    step = max(1, -(-top // _BARS))
    counts = np.bincount(np.minimum(lengths // step, -(-top // step)).astype(np.int64))
    x = Scale(0, len(counts), LEFT, WIDTH - RIGHT)
    y = upwards([float(counts.max())])
    bars = []
    for place, count in enumerate(counts.tolist()):
        low, is_last = place * step, place == len(counts) - 1
        said = f"{low:,} or more" if is_last else f"{low:,} to {low + step - 1:,}" if step > 1 else f"{low:,}"
        text = f"{said} {'word' if said == '1' else 'words'}: {counted(count, 'document')}"
        width, height = round(x(place + 1) - x(place) - 1, 1), round(HEIGHT - BOTTOM - y(count), 1)
        bars.append(Bar(x(place), y(count), width, height, text=text))
    middle, longest = int(np.median(lengths)), int(lengths.max())
    ticks = [Tick(x(place), f"{place * step:,}") for place in (0, len(counts) // 2, len(counts) - 1)]
    sentence = f"Indexed words per document: median {middle:,}, longest {longest:,}"
    return Histogram(bars, ticks, f"{counts.max():,}", sentence)


def kinds_of(index: Index, contents: Path | None = None) -> list[tuple[str, int, int]]:
    """Return kinds of files with their counts and shares: those of a folder, else the endings of ids.

    There are none where ids are no names of files.
    """
    if contents is not None:
        report = report_of(FolderContents.load(contents))
        return _shares(Counter({titled(one.kind): one.documents for one in report.kinds}))
    paths = (PurePosixPath(doc_id.partition("#")[0].lower()) for doc_id in index.documents)
    counts = Counter((path.with_suffix("") if path.suffix in COMPRESSIONS else path).suffix for path in paths)
    held = {one[1:]: count for one, count in counts.items() if 1 < len(one) <= 10 and one[1:].isalpha()}
    known = Counter(held)
    return [] if known.total() < counts.total() / 2 else _shares(known, counts.total())


def _shares(counts: Counter[str], total: int = 0) -> list[tuple[str, int, int]]:
    """Return the most frequent kinds, and how many of the total are others."""
    common = counts.most_common(_KINDS)
    if (rest := max(total, counts.total()) - sum(count for _, count in common)) > 0:
        common.append(("other", rest))
    most = max((count for _, count in common), default=0)
    return [(name, count, max(1, round(100 * count / most))) for name, count in common]  # all are seen


def map_of(index: Index, name: str, hits: Sequence[SearchHit]) -> VectorMap | None:
    """Return the map of an index's vectors: two principal components of a sample of its passages."""
    vectors = Vectors.open(vectors_folder(index.path, name))
    if len(vectors) < _LEAST:
        return None
    rows = np.unique(np.linspace(0, len(vectors) - 1, SAMPLED).astype(np.int64))
    sample = vectors.rows[rows].astype(np.float64)
    middle, axes, share = principal(sample)
    numbers = {hit.doc_id: index.row_of(hit.doc_id) for hit in hits if hit.doc_id in index.documents}
    found = {doc: at for doc, number in numbers.items() if len(at := vectors.rows_of(number))}
    means = [vectors.rows[at].astype(np.float64).mean(axis=0) for at in found.values()]
    places = np.concatenate([sample, np.array(means).reshape(-1, sample.shape[1])]) - middle
    x, y = _placed(places @ axes)
    ids = vectors.ids.take(vectors.owners[rows].astype(np.int64))
    titles = {one.id: one.title for one in index.documents.fetch(dict.fromkeys([*ids, *found]))}
    ranks = {hit.doc_id: hit.rank for hit in hits}
    points = [
        Point(a, b, doc, titles[doc], rank=ranks[doc] if place >= len(ids) else 0)
        for place, (a, b, doc) in enumerate(zip(x, y, [*ids, *found], strict=True))
    ]
    shown = f"{len(rows):,} of {len(vectors):,}" if len(rows) < len(vectors) else f"All {len(rows):,}"
    sentence = (
        f"{shown} passages; those with similar meaning lie close together. The two axes show {share:.0%} of "
        "the variance of their vectors"
    )
    return VectorMap(points[: len(ids)], points[: len(ids) - 1 : -1], sentence)


def principal(sample: Doubles) -> tuple[Doubles, Doubles, float]:
    """Return the mean (d,), the first two principal axes (d, 2) and their share of the variance.

    The same sample gives the same axes: the largest component of each is positive.
    """
    middle = sample.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(sample - middle, rowvar=False))
    first = axes[:, [-1, -2]]
    largest = first[np.abs(first).argmax(axis=0), [0, 1]]
    total = float(variances.sum())
    share = float(variances[-2:].sum()) / total if total else 0.0
    return middle, first * np.where(largest < 0, -1.0, 1.0), share


def _placed(points: Doubles) -> tuple[list[float], list[float]]:
    """Return places (n, 2) in units of the picture."""
    low, high = points.min(axis=0), points.max(axis=0)
    x = Scale(float(low[0]), float(high[0]), MAP_EDGE, MAP_WIDTH - MAP_EDGE)
    y = Scale(float(low[1]), float(high[1]), MAP_HEIGHT - MAP_EDGE, MAP_EDGE)
    return [x(float(a)) for a in points[:, 0]], [y(float(b)) for b in points[:, 1]]
