"""How the stages of a pipeline join: passages into a document (here), runs into a fusion (``fusion.py``).

The value of a part is what the stage below it adds, exactly; its ``why`` is that stage's own explanation, in
a unit of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document, FloatArray, Pair, Passage, Query, Ranker, fingerprint_of
from rankhouse.core.scores import Doubles, base_of
from rankhouse.explanation.answer import Explanation, Grid, Part, ReadText
from rankhouse.explanation.explain import ExplainOptions, explain_pair
from rankhouse.explanation.units import ordinal
from rankhouse.ranking.pool import Pool
from rankhouse.ranking.rerank import in_portions, pooled_ones, readable
from rankhouse.text.split import Split, Whole, dropped_words

MOST_PARTS: Final = 100
"""Passages that have a part each; the others have one together."""
MOST_WHYS: Final = 3
"""Passages that are explained in full."""
_AT_ONCE: Final = 2_048
_AGREE: Final = 1e-5


@dataclass(frozen=True)
class _Pooling:
    """The passages of a document with their share in its score.

    Attributes:
        pool: What makes one score of theirs.
        passages: p of them, those that the pool looks at.
        scores: (p,) as the ranker gives them.
        factors: (p,) what the pool multiplies each by, on its scale.
        added: (p,) what each adds to the document's score.
        is_linear: Whether the pool works on the ranker's own scale.
    """

    pool: Pool
    passages: Sequence[Passage]
    scores: FloatArray
    factors: Doubles
    added: Doubles
    is_linear: bool

    @property
    def order(self) -> list[int]:
        """Places of the passages that count, best first; of equals the earlier one."""
        best = np.argsort(-self.scores, kind="stable").tolist()
        return [place for place in best if self.factors[place] != 0]

    def name(self, place: int) -> str:
        """Return what people call a passage of the document."""
        return f"passage {self.passages[place].index + 1}"


def explain_reranked(
    ranker: Ranker,
    query: Query,
    document: Document,
    split: Split,
    pool: Pool,
    options: ExplainOptions | None = None,
    most: int = MOST_WHYS,
) -> Explanation:
    """Explain a document's score by its passages: which of them counted, and why they score what they do.

    Parts are named by the passages' order of merit ("best passage", "2nd passage"), so that those of two
    documents can be compared. With documents that are not split, the answer is that of the one passage.

    Args:
        most: How many passages are explained in full, the best of those that count; at least 1.

    Raises:
        BadData: The document has no text to score.
        WrongUse: The pool cannot work on the ranker's scale, or does not say how passages share.
        BadModel: A score is not a number.
    """
    scale, passages = pool.check(ranker), pooled_ones(readable(document, split), pool)
    if not passages:
        where = " in its first passage" if pool.first_only else ""
        raise BadData(
            f'document "{document.id}" has no text{where}, so no ranker reads it; a run keeps it at the end, '
            "with a placeholder for a score"
        )
    pairs = [Pair(query, passage) for passage in passages]
    scores, indexes = in_portions(ranker.score, pairs, _AT_ONCE), [passage.index for passage in passages]
    is_linear = pool.scale in ("score", scale)
    pooling = _Pooling(pool, passages, scores, *pool.shares(scores, scale, indexes), is_linear)
    order = pooling.order
    whys = {place: explain_pair(ranker, pairs[place], options) for place in order[: max(1, most)]}
    notes = (*_pool_notes(pooling, whys, document.id), *_losses(document, split))
    if isinstance(split, Whole) and is_linear and pooling.factors[0] == 1:
        return replace(whys[0], notes=tuple(dict.fromkeys(notes)))
    return Explanation(
        query,
        document.id,
        float(np.float32(pool(scores, scale, indexes))),
        f"passages, pooled by {pool}",
        exact=all(why.exact for why in whys.values()),
        unit=base_of(scale) if is_linear else pool.scale,
        parts=_of_passages(pooling, whys),
        cost=sum(why.cost for why in whys.values()),
        texts=tuple(text for place, why in whys.items() for text in _texts(pooling, place, why)),
        query_words=whys[order[0]].query_words if order else (),
        grids=_passage_grid(pooling),
        notes=notes,
        ranker=fingerprint_of(ranker),
    )


def _of_passages(pooling: _Pooling, whys: Mapping[int, Explanation]) -> tuple[Part, ...]:
    """Return a part for each passage that counts, best first; beyond a hundred they share one."""
    order, parts = pooling.order, []
    for merit, place in enumerate(order[:MOST_PARTS], 1):
        why, factor = whys.get(place), float(pooling.factors[place])
        note = f"{pooling.name(place)}, score {pooling.scores[place]:.6g}"
        note += f", counts {factor:.4g}" if factor != 1 else ""
        facts = {"passage": pooling.passages[place].index, "score": float(pooling.scores[place])}
        finer = _times(_complete(why), factor) if why and pooling.is_linear else ()
        name = _merit(merit) if not pooling.pool.first_only else "first passage"
        parts.append(Part(name, float(pooling.added[place]), note, facts | {"factor": factor}, finer, why))
    if rest := order[MOST_PARTS:]:
        value = math.fsum(pooling.added[rest])
        parts.append(Part("other passages", value, f"{len(rest):,} passages together"))
    return tuple(parts)


def _merit(rank: int) -> str:
    return "best passage" if rank == 1 else f"{ordinal(rank)} passage"


def _complete(why: Explanation) -> tuple[Part, ...]:
    """Return the parts of a passage's score, and what they leave of it where that is more than rounding."""
    if abs(why.gap) <= _AGREE * max(1, abs(why.score)):
        return why.parts
    return (*why.parts, Part("left by the parts", why.gap, "what the method leaves unexplained"))


def _times(parts: Sequence[Part], factor: float) -> tuple[Part, ...]:
    return tuple(
        replace(part, value=part.value * factor, parts=_times(part.parts, factor), why=None) for part in parts
    )


def _texts(pooling: _Pooling, place: int, why: Explanation) -> list[ReadText]:
    value = float(pooling.scores[place])
    return [text._replace(name=pooling.name(place), value=value) for text in why.texts]


def _passage_grid(pooling: _Pooling) -> tuple[Grid, ...]:
    """Return scores and shares of the passages that have parts, in reading order."""
    shown = sorted(pooling.order[:MOST_PARTS])
    if len(pooling.passages) < 2:
        return ()
    values = np.stack([pooling.scores[shown], pooling.added[shown]], axis=1).astype(np.float32)
    return (Grid("passages", tuple(map(pooling.name, shown)), ("score", "adds"), values),)


def _pool_notes(pooling: _Pooling, whys: Mapping[int, Explanation], doc_id: str) -> tuple[str, ...]:
    """Say which passage won, what was not looked into, and what the passages' own explanations note."""
    order, notes = pooling.order, []
    if len(order) == 1 < len(pooling.passages):
        notes.append(f"{pooling.name(order[0]).capitalize()} of {len(pooling.passages)} speaks for {doc_id}.")
        equals = int((pooling.scores == pooling.scores[order[0]]).sum())
        if equals > 1:
            notes.append(f"{equals} passages of {doc_id} have this score; the earliest is shown.")
    if len(order) > len(whys):
        notes.append(
            f"{len(whys)} of the {len(order):,} passages of {doc_id} that count were looked into; the words "
            "of the others were not."
        )
    several = len(pooling.passages) > 1
    for place, why in whys.items():
        notes += [f"{pooling.name(place).capitalize()}: {note}" if several else note for note in why.notes]
    return tuple(notes)


def _losses(document: Document, split: Split) -> tuple[str, ...]:
    lost = dropped_words(split)(document)
    cut = notation.name_of(split)
    return (f"{lost:,} words of {document.id} are in no passage ({cut}) and were not read.",) if lost else ()
