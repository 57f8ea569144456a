"""Pictures of what models see: samCNN's attention over a post, and the candidates of a query as points.

Neither explains a score: :mod:`rankhouse.explanation.methods` does. What follows the attention (maxima, two
layers, batch norm) may use or ignore any of it. PAtt weighs each word of the post by its cosine with the
query word (Shi, Rao, Lin, NAACL 2019, eq. 2-4): these are its weights. QAtt multiplies its filters by the
query word (eq. 1) and has no weight of a word; what is shown is where the maxima of its filters come from.

The paper (figure 4) projects the last hidden state of each pair by t-SNE (van der Maaten, Hinton, JMLR 2008)
for BiCNN, QAtt and PAtt. Here likewise, for samCNN's variants and for encoders of texts (extra: figures). A
t-SNE shows neighbourhoods, not distances, and finds clumps in noise. So each picture comes with a number that
is measured in the vectors themselves: how often the nearest neighbours of a relevant document are relevant.

Shapes: q query words, p post words, f filters, k filter length, n documents, d width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from rankhouse.core.errors import BadData, WrongUse, needs
from rankhouse.core.nouns import FloatArray, Pair, Ranker, TextEncoder
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.samcnn import SamCNN
from rankhouse.nn.layers.match import word_cosines
from rankhouse.page.charts import Palette, blank, shortened, write, write_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_WORDS = 45
_LONGEST = 16
_KINDS = {
    "position": "cosine of query word and post word: the weight that PAtt gives it",
    "query": "where the maxima of QAtt's filters come from, as shares",
}


class AttentionMap(NamedTuple):
    """A query's attention over one post.

    Attributes:
        query_words: As the model reads them, q.
        post_words: As the model reads them, p.
        weights: (q, p).
        kind: "position" or "query".
    """

    query_words: tuple[str, ...]
    post_words: tuple[str, ...]
    weights: FloatArray
    kind: str
    doc_id: str
    score: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return self._asdict() | {"weights": self.weights.tolist()}


def attention_over(ranker: Ranker, pair: Pair) -> AttentionMap:
    """Return the weights that a samCNN lays on the words of a post.

    Raises:
        WrongUse: Another ranker, or a samCNN without attention.
        BadData: No word to look at.
    """
    model = ranker.model if isinstance(ranker, NeuralRanker) else None
    if not isinstance(model, SamCNN):
        name = model.family if model is not None else type(ranker).__name__
        raise WrongUse(f"a {name} has no attention of samCNN's kind to draw; give a samcnn ranker")
    kind = model.design.attention
    if kind is None:
        raise WrongUse(
            "this samCNN has attention=None: no query word attends to the post; give a QAtt or PAtt"
        )
    query_words, post_words = model.reader.words(pair)
    if not query_words or not post_words:
        side = "post" if query_words else "query"
        raise BadData(f'the {side} of document "{pair.passage.doc_id}" has no words for this ranker to read')
    model.eval()
    if kind == "query":
        weights = _maxima_shares(model, pair)
    else:
        batch = model.encode([pair]).to(model.decide.weight.device)
        with torch.inference_mode():
            cosines = word_cosines(model.embedding, batch.query.pad(), batch.passage.pad())
        weights = cosines[0].cpu().numpy()
    score = float(ranker.score([pair])[0])
    return AttentionMap(query_words, post_words, weights, kind, doc_id=pair.passage.doc_id, score=score)


def _maxima_shares(model: SamCNN, pair: Pair) -> FloatArray:
    """Return which share of QAtt's filters has its maximum at each post word: (q, p).

    A window of k words shares its maximum among its words; filters that are nowhere above 0 give nothing.
    """
    places = filter_places(model, pair)
    length = model.design.filter_length
    p = places.shape[2] - length + 1
    best = places.argmax(axis=2)
    shares = np.zeros((len(places), p), np.float32)
    for row, (at, heights) in enumerate(zip(best, places.max(axis=2), strict=True)):
        for place in at[heights > 0].tolist():
            words = range(max(0, place - length + 1), min(p, place + 1))
            shares[row, list(words)] += 1 / len(words)
    shares /= places.shape[1]
    return shares


@torch.inference_mode()
def filter_places(model: SamCNN, pair: Pair) -> FloatArray:
    """Return what QAtt's filters give at each place of the post before the maximum: (q, f, p + k - 1)."""
    if model.attended is None:
        raise WrongUse("this samCNN has attention=None: no query word sweeps the post")
    batch, filters = model.encode([pair]).to(model.decide.weight.device), model.attended.filters
    query, post = model.embedding(batch.query.values), model.embedding(batch.passage.values)
    met = query[:, None, :] * post  # (q, p, d)
    kernel = filters.weight.permute(0, 2, 1)
    given = F.conv1d(met.transpose(1, 2), kernel, filters.bias, padding=kernel.shape[2] - 1)
    places: FloatArray = given.cpu().numpy()
    return places


def write_attention(answers: Sequence[AttentionMap], title: str, path: Path | str) -> None:
    """Draw posts one below the other, each as a field of query words by post words.

    Errors as of :func:`rankhouse.page.charts.write`.
    """
    salt = "\t".join(answer.doc_id for answer in answers)
    write(lambda palette: _attention_figure(answers, title, palette), path, f"attention\t{salt}")


def _attention_figure(answers: Sequence[AttentionMap], title: str, palette: Palette) -> Figure:
    """Lay the chart out: the darker, the more weight."""
    band = 1.25 + 0.26 * len(answers[0].query_words)  # inches a post: its words stand above it
    height = 0.6 + band * len(answers)
    figure = blank(9.0, height)
    note = f"{_KINDS[answers[0].kind]}; the model's own weights, no explanation of its score"
    write_heading(figure, palette, (shortened(title, 90), note))
    for number, answer in enumerate(answers):
        bottom = height - 0.6 - band * (number + 1) + 0.32
        size = (0.85, 0.26 * len(answer.query_words) / height)
        _field(answer, palette, figure.add_axes((0.13, bottom / height, *size)))
    return figure


def _field(answer: AttentionMap, palette: Palette, axes: Axes) -> None:
    """Draw one post; more than 45 words of it are not drawn, and said so."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - optional, and slow to load

    words, weights = answer.post_words[:_MOST_WORDS], answer.weights[:, :_MOST_WORDS]
    most = max(float(weights.max()), 1e-9)
    for row, values in enumerate(weights.tolist()):
        for column, value in enumerate(values):
            box = Rectangle((column - 0.47, row - 0.44), 0.94, 0.88, facecolor=palette.gain, linewidth=0)
            box.set_alpha(0.04 + 0.96 * max(0.0, value) / most)
            axes.add_patch(box)
    axes.set_xlim(-0.5, max(len(words), 12) - 0.5)
    axes.set_ylim(len(weights) - 0.5, -0.5)
    axes.xaxis.tick_top()
    shown = [shortened(word, _LONGEST) for word in words]
    axes.set_xticks(range(len(words)), shown, rotation=60, ha="left", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(weights)), [shortened(word, _LONGEST) for word in answer.query_words])
    axes.tick_params(colors=palette.ink, length=0)
    left = len(answer.post_words) - len(words)
    cut = f"; {left} more words of the post are not drawn" if left else ""
    note = f"{shortened(answer.doc_id, 40)}, score {answer.score:.4g}; darkest {most:.2f}{cut}"
    axes.set_xlabel(note, color=palette.muted, loc="left")
    axes.spines[:].set_visible(False)
    axes.set_facecolor("none")


Bools = NDArray[np.bool_]
NEIGHBOURS = 10
_LEAST = 5


class PairMap(NamedTuple):
    """The candidates of one query as one ranker sees them.

    Attributes:
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

    Raises:
        WrongUse: A ranker of another family.
    """
    model = ranker.model if isinstance(ranker, NeuralRanker) else None
    if isinstance(model, SamCNN):
        model.eval()
        with torch.inference_mode():
            batches = (model.encode(pairs[at : at + 256]) for at in range(0, len(pairs), 256))
            blocks = [model.hidden_state(batch.to(model.decide.weight.device)) for batch in batches]
        rows: FloatArray = torch.cat(blocks).float().cpu().numpy()
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
        pairs: The query with each of n candidates, five or more.

    Raises:
        WrongUse: A ranker whose vectors cannot be drawn.
        BadData: Fewer than five candidates.
        MissingExtra: scikit-learn is not installed.
    """
    if len(pairs) < _LEAST:
        raise BadData(f"{len(pairs)} candidates are too few for a map; a t-SNE needs {_LEAST} or more")
    vectors, marks = pair_vectors(ranker, pairs), np.array(relevant, bool)
    others = float(marks.sum() - 1) / (len(marks) - 1) if marks.sum() > 1 else math.nan
    return PairMap(name, project(vectors, seed), marks, _relevant_neighbours(vectors, marks), expected=others)


def project(vectors: FloatArray, seed: int = 0) -> FloatArray:
    """Lay vectors out in the plane by t-SNE, (n, d) -> (n, 2); the same every time.

    Args:
        seed: Of the t-SNE; it begins at the two main components.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    with needs("figures", "a t-SNE"):
        from sklearn.manifold import TSNE  # noqa: PLC0415 - optional, and slow to load
    n = len(vectors)
    spread = vectors.astype(np.float64) - vectors.mean(axis=0)
    if not spread.any():  # one vector for all: one point for all
        return np.zeros((n, 2), np.float32)
    method = "exact" if n <= 1000 else "barnes_hut"  # the quicker, approximate gradient
    perplexity = min(30.0, (n - 1) / 3)
    layout = TSNE(perplexity=perplexity, init="pca", random_state=seed, method=method, n_jobs=1)
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
    """Draw maps side by side into a PNG or SVG file; errors as of :func:`rankhouse.page.charts.write`."""
    write(lambda palette: _map_figure(maps, title, palette), path, "\t".join(m.name for m in maps))


def _map_figure(maps: Sequence[PairMap], title: str, palette: Palette) -> Figure:
    """Lay the chart out: a panel a ranker; relevant ones filled, the others crosses."""
    height = 9.0 / max(2, len(maps)) + 0.95
    figure = blank(9.0, height)
    panels = figure.subplots(1, max(2, len(maps)), squeeze=False)[0]
    figure.subplots_adjust(left=0.01, right=0.99, top=1 - 0.85 / height, bottom=0.1 / height, wspace=0.04)
    count = int(maps[0].relevant.sum())
    note = (
        f"{len(maps[0].relevant):,} candidates, {count:,} relevant (filled); axes have no meaning. "
        f"Percent: relevant ones among the {NEIGHBOURS} nearest of a relevant one"
    )
    write_heading(figure, palette, (shortened(title, 90), note))
    for axes in panels[len(maps) :]:
        axes.set_visible(False)
    for axes, one in zip(panels, maps, strict=False):
        crosses: dict[str, Any] = {"marker": "x", "s": 16, "color": palette.muted, "alpha": 0.6}
        discs: dict[str, Any] = {"marker": "o", "s": 26, "color": palette.gain, "zorder": 3}
        axes.scatter(*one.points[~one.relevant].T, **crosses, zorder=2, linewidths=0.9)
        axes.scatter(*one.points[one.relevant].T, **discs, linewidths=0)
        known = "" if math.isnan(one.neighbours) else f", {one.neighbours:.0%} (chance {one.expected:.0%})"
        axes.set_title(f"{shortened(one.name, 24)}{known}", loc="left", color=palette.ink, fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_facecolor("none")
        axes.spines[:].set_color(palette.grid)
        axes.margins(0.06)
    return figure
