"""samCNN's attention over a post: which words of the post each query word lays weight on.

A picture of the model's own weights, not an explanation of its score: what follows the attention (maxima, two
layers, batch norm) may use or ignore any of it. :mod:`rankhouse.explanation.explain` explains scores.

PAtt weighs each word of the post by its cosine with the query word (Shi, Rao, Lin, NAACL 2019, eq. 2-4):
these are its weights. QAtt multiplies its filters by the query word (eq. 1) and has no weight of a word; what
is shown is where the maxima of its filters come from.

Shapes: q query words, p post words, f filters, k filter length, d width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Ranker
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.samcnn import SamCNN
from rankhouse.nn.layers.match import word_cosines
from rankhouse.page.charts import Palette, shortened, write, write_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_WORDS = 45
_LONGEST = 16
_KINDS = {
    "position": "cosine of query word and post word: the weight that PAtt gives it",
    "query": "where the maxima of QAtt's filters come from, as shares",
}


class Attention(NamedTuple):
    """A query's attention over one post.

    Attributes:
        query_words: As the model reads them, q.
        post_words: As the model reads them, p.
        weights: (q, p).
        kind: "position" or "query".
        doc_id: The post.
        score: What the ranker gives the pair.
    """

    query_words: tuple[str, ...]
    post_words: tuple[str, ...]
    weights: FloatArray
    kind: str
    doc_id: str
    score: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return self._asdict() | {"weights": [[float(v) for v in row] for row in self.weights]}


def attention_over(ranker: Ranker, pair: Pair) -> Attention:
    """Return the weights that a samCNN lays on the words of a post.

    Args:
        ranker: A samCNN with attention.
        pair: Query and post.

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
    with torch.inference_mode():
        weights = _cosines(model, pair) if kind == "position" else _maxima_shares(model, pair)
    score = float(ranker.score([pair])[0])
    return Attention(query_words, post_words, weights, kind, pair.passage.doc_id, score)


def _cosines(model: SamCNN, pair: Pair) -> FloatArray:
    """Return PAtt's weights: (q, p)."""
    batch = model.encode([pair]).to(model.decide.weight.device)
    cosines: FloatArray = (
        word_cosines(model.embedding, batch.query.pad(), batch.passage.pad())[0].cpu().numpy()
    )
    return cosines


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
    """Return what QAtt's filters give at each place of the post before the maximum: (q, f, p + k - 1).

    Args:
        model: A QAtt.
        pair: Query and post.
    """
    if model.attended is None:
        raise WrongUse("this samCNN has attention=None: no query word sweeps the post")
    batch, filters = model.encode([pair]).to(model.decide.weight.device), model.attended.filters
    query, post = model.embedding(batch.query.values), model.embedding(batch.passage.values)
    met = query[:, None, :] * post  # (q, p, d)
    kernel = filters.weight.permute(0, 2, 1)
    given = F.conv1d(met.transpose(1, 2), kernel, filters.bias, padding=kernel.shape[2] - 1)
    places: FloatArray = given.cpu().numpy()
    return places


def write_attention(answers: Sequence[Attention], title: str, path: Path | str) -> None:
    """Draw posts one below the other, each as a field of query words by post words.

    Args:
        answers: Of one query and ranker.
        title: The query, say.
        path: A .png or .svg file.

    Raises:
        WrongUse: Another suffix.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    salt = "\t".join(answer.doc_id for answer in answers)
    write(lambda palette: _figure(answers, title, palette), path, f"attention\t{salt}")


def _figure(answers: Sequence[Attention], title: str, palette: Palette) -> Figure:
    """Lay the chart out: the darker, the more weight."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

    band = 1.25 + 0.26 * len(answers[0].query_words)  # inches a post: its words stand above it
    height = 0.6 + band * len(answers)
    figure = Figure(figsize=(9.0, height), facecolor="none")
    said = f"{_KINDS[answers[0].kind]}; the model's own weights, no explanation of its score"
    write_heading(figure, palette, (shortened(title, 90), said))
    for number, answer in enumerate(answers):
        bottom = height - 0.6 - band * (number + 1) + 0.32
        size = (0.85, 0.26 * len(answer.query_words) / height)
        _field(answer, palette, figure.add_axes((0.13, bottom / height, *size)))
    return figure


def _field(answer: Attention, palette: Palette, axes: Axes) -> None:
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
    said = f"{shortened(answer.doc_id, 40)}, score {answer.score:.4g}; darkest {most:.2f}{cut}"
    axes.set_xlabel(said, color=palette.muted, loc="left")
    axes.spines[:].set_visible(False)
    axes.set_facecolor("none")
