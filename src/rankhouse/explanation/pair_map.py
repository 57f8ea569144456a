"""What a ranker's vectors see: the candidates of a query as points, near where their vectors are near.

samCNN's paper (Shi, Rao, Lin, NAACL 2019, figure 4) projects the last hidden state of each pair by t-SNE (van
der Maaten, Hinton, JMLR 2008) for BiCNN, QAtt and PAtt. Here likewise, for samCNN's variants and for encoders
of texts (extra: figures). A t-SNE shows neighbourhoods, not distances, and finds clumps in noise. So each
picture comes with a number that is measured in the vectors themselves: how often the nearest neighbours of a
relevant document are relevant. Neither explains a score.

Shapes: n documents, d width of a vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, MissingExtra, WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Ranker, TextEncoder
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.samcnn import SamCNN
from rankhouse.page.charts import Palette, shortened, write, write_heading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Bools = NDArray[np.bool_]
NEIGHBOURS = 10
_AT_ONCE = 256
_LEAST = 5
_EXACT_UP_TO = 1000  # points: beyond them the quicker, approximate gradient
_PERPLEXITY = 30.0


class PairMap(NamedTuple):
    """The candidates of one query as one ranker sees them.

    Attributes:
        name: The ranker's.
        points: (n, 2) of the t-SNE.
        relevant: (n,) whether each is relevant.
        neighbours: How many of a relevant document's ten nearest others are relevant, in the vectors
            themselves, as a share; NaN with fewer than two relevant ones.
        expected: That share if vectors knew nothing of relevance.
    """

    name: str
    points: FloatArray
    relevant: Bools
    neighbours: float
    expected: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        known = {
            name: None if math.isnan(value) else value
            for name, value in (("neighbours", self.neighbours), ("expected", self.expected))
        }
        return {"name": self.name, "points": self.points.tolist(), "relevant": self.relevant.tolist()} | known


def pair_vectors(ranker: Ranker, pairs: Sequence[Pair]) -> FloatArray:
    """Return a vector of each pair: (n, d).

    Of samCNN the last hidden state, which has read query and post; of an encoder the passage's vector, which
    is the same for every query.

    Args:
        ranker: A samCNN, or an encoder of texts.
        pairs: n of them.

    Raises:
        WrongUse: A ranker of another family.
    """
    model = ranker.model if isinstance(ranker, NeuralRanker) else None
    if isinstance(model, SamCNN):
        model.eval()
        device = model.decide.weight.device
        with torch.inference_mode():
            blocks = [
                model.hidden_state(model.encode(pairs[start : start + _AT_ONCE]).to(device)).float().cpu()
                for start in range(0, len(pairs), _AT_ONCE)
            ]
        rows: FloatArray = torch.cat(blocks).numpy()
        return rows
    if isinstance(ranker, TextEncoder):
        return ranker.encode_passages([pair.passage.text for pair in pairs])
    family = model.family if model is not None else type(ranker).__name__
    raise WrongUse(f"a {family} has no vector of a pair that could be drawn; give samCNN rankers or encoders")


def map_pairs(
    name: str, ranker: Ranker, pairs: Sequence[Pair], relevant: Sequence[bool], seed: int = 0
) -> PairMap:
    """Project a ranker's vectors of one query's candidates.

    Args:
        name: What to call the ranker.
        ranker: A samCNN, or an encoder of texts.
        pairs: The query with each of n candidates, five or more.
        relevant: Whether each is relevant.
        seed: Of the t-SNE.

    Raises:
        WrongUse: A ranker whose vectors cannot be drawn.
        BadData: Fewer than five candidates.
        MissingExtra: scikit-learn is not installed.
    """
    if len(pairs) < _LEAST:
        raise BadData(f"{len(pairs)} candidates are too few for a map; a t-SNE needs {_LEAST} or more")
    vectors, marks = pair_vectors(ranker, pairs), np.array(relevant, bool)
    others = float(marks.sum() - 1) / (len(marks) - 1) if marks.sum() > 1 else math.nan
    return PairMap(name, project(vectors, seed), marks, _relevant_neighbours(vectors, marks), others)


def project(vectors: FloatArray, seed: int = 0) -> FloatArray:
    """Lay vectors out in the plane by t-SNE, (n, d) -> (n, 2); the same every time.

    Args:
        vectors: (n, d).
        seed: Of the t-SNE; it begins at the two main components.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    try:
        from sklearn.manifold import TSNE  # noqa: PLC0415 - optional, and slow to load
    except ImportError as error:
        raise MissingExtra("a t-SNE", "figures") from error
    n = len(vectors)
    spread = vectors.astype(np.float64) - vectors.mean(axis=0)
    if not spread.any():  # one vector for all: one point for all
        return np.zeros((n, 2), np.float32)
    method = "exact" if n <= _EXACT_UP_TO else "barnes_hut"
    layout = TSNE(
        perplexity=min(_PERPLEXITY, (n - 1) / 3), init="pca", random_state=seed, method=method, n_jobs=1
    )
    points: FloatArray = layout.fit_transform(spread).astype(np.float32)
    return points


def _relevant_neighbours(vectors: FloatArray, relevant: Bools) -> float:
    """Return which share of the relevant ones' nearest others are relevant, by distance in the vectors."""
    if relevant.sum() < 2 or len(vectors) <= NEIGHBOURS + 1:  # all others are neighbours: chance by necessity
        return math.nan
    rows = vectors.astype(np.float64)
    squares = (rows**2).sum(axis=1)
    apart = squares[:, None] + squares - 2 * rows @ rows.T
    np.fill_diagonal(apart, np.inf)
    nearest = np.argsort(apart, axis=1, kind="stable")[:, :NEIGHBOURS]
    return float(relevant[nearest[relevant]].mean())


def write_maps(maps: Sequence[PairMap], title: str, path: Path | str) -> None:
    """Draw maps side by side into a PNG or SVG file.

    Args:
        maps: One a ranker, of the same candidates.
        title: The query, say.
        path: A .png or .svg file.

    Raises:
        WrongUse: Another suffix.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    write(lambda palette: _figure(maps, title, palette), path, "\t".join(m.name for m in maps))


def _figure(maps: Sequence[PairMap], title: str, palette: Palette) -> Figure:
    """Lay the chart out: a panel a ranker; relevant ones filled, the others crosses."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

    figure = Figure(figsize=(9.0, 9.0 / max(2, len(maps)) + 0.95), facecolor="none")
    height = figure.get_figheight()
    panels = figure.subplots(1, max(2, len(maps)), squeeze=False)[0]
    figure.subplots_adjust(left=0.01, right=0.99, top=1 - 0.85 / height, bottom=0.1 / height, wspace=0.04)
    count = int(maps[0].relevant.sum())
    said = (
        f"{len(maps[0].relevant):,} candidates, {count:,} relevant (filled); axes have no meaning. "
        f"Percent: relevant ones among the {NEIGHBOURS} nearest of a relevant one"
    )
    write_heading(figure, palette, (shortened(title, 90), said))
    for axes in panels[len(maps) :]:
        axes.set_visible(False)
    for axes, one in zip(panels, maps, strict=False):
        x, y = one.points.T
        dots: dict[str, Any] = {"zorder": 2, "linewidths": 0.9}
        axes.scatter(
            x[~one.relevant], y[~one.relevant], marker="x", s=16, color=palette.muted, alpha=0.6, **dots
        )
        dots = {"zorder": 3, "linewidths": 0}
        axes.scatter(x[one.relevant], y[one.relevant], marker="o", s=26, color=palette.gain, **dots)
        known = (
            f", {one.neighbours:.0%} (chance {one.expected:.0%})" if not math.isnan(one.neighbours) else ""
        )
        axes.set_title(f"{shortened(one.name, 24)}{known}", loc="left", color=palette.ink, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_facecolor("none")
        axes.spines[:].set_color(palette.grid)
        axes.margins(0.06)
    return figure
