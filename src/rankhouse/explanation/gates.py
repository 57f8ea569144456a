"""Gated votes (DRMM, PACRR-DRMM): what each query word adds, exactly; passage words by leaving each out.

A query word adds gate × vote. What it votes for a passage without words goes into the part "no words", so
that a word without a match adds little or nothing. A vote is no sum over passage words: what one of them
adds is what the score loses when the ranker reads the passage without it.
Shapes: q query words, p passage words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair, Passage, Ranker
from rankhouse.core.scores import Doubles
from rankhouse.explanation.answer import Explanation, Grid, Part
from rankhouse.explanation.methods import ExplainOptions, family_of
from rankhouse.explanation.units import numbered
from rankhouse.explanation.word_texts import ScoredPair, best_matches, explanation_of, no_words, scored
from rankhouse.models.drmm import DRMM
from rankhouse.models.pacrr import PACRR
from rankhouse.nn.layers.ragged import Ragged, TwoSided

METHOD = "gated votes"
_ONE_BY_ONE = (
    "Query words' parts are exact; a passage word's value is what the score loses without it, words of one "
    "passage may stand in for each other, and their values need not sum to the score."
)


def explain_drmm(ranker: Ranker, pair: Pair, options: ExplainOptions) -> Explanation:
    """Explain DRMM: a part for each query word; passage words are left out of the histograms in turn."""
    of = scored(ranker, pair, DRMM)
    ids = of.model.reader.ids(of.evidence.passage_words)
    firsts = {number: place for place, number in reversed(list(enumerate(ids)))}
    return _explained(of, [firsts[number] for number in ids], "log histogram", options)


def explain_pacrr_drmm(ranker: Ranker, pair: Pair, options: ExplainOptions) -> Explanation:
    """Explain PACRR-DRMM: a part for each query word; passage words are left out in turn."""
    if family_of(ranker) == "pacrr":
        raise WrongUse('PACRR has no gates, unlike PACRR-DRMM: leave method out, or choose method="shapley"')
    of = scored(ranker, pair, PACRR)
    return _explained(of, range(len(of.evidence.passage_words)), "best matches", options)


def _explained(
    of: ScoredPair[DRMM] | ScoredPair[PACRR], stand_ins: Sequence[int], table: str, options: ExplainOptions
) -> Explanation:
    """Explain a pair.

    Stand-ins are (p,) the place whose leaving out tells what each word adds: DRMM does not see order, and the
    same word adds the same wherever it stands.
    """
    seen, names = of.evidence, tuple(numbered(of.evidence.query_words))
    gated = seen.gathered["gates and votes"].astype(np.float64)
    nothing = Pair(of.pair.query, Passage(of.pair.passage.doc_id, 0, ""))
    with of.ranker.compute.active():
        votes = of.model.evidence(nothing).gathered["gates and votes"][:, 1].astype(np.float64)
    floors = gated[:, 0] * votes
    parts = []
    for name, note, (gate, vote), floor in zip(
        names, best_matches(seen), gated.tolist(), floors, strict=True
    ):
        facts = {"gate": gate, "vote": vote, "vote without passage": floor / gate if gate else 0.0}
        parts.append(Part(name, gate * vote - floor, note, facts))
    places = sorted(set(stand_ins))[: options.passes - 1]  # one pass goes to the passage without words
    losses = dict(zip(places, (of.score - _without_each(of, places)).tolist(), strict=True))
    notes, several = [_ONE_BY_ONE], len(set(stand_ins))
    if len(places) < several:
        notes.append(
            f"Only the first {len(places):,} of {several:,} passage words were left out, so the others have "
            "no value."
        )
    return explanation_of(
        of,
        METHOD,
        (*parts, no_words(math.fsum(floors))),
        [losses.get(place) for place in stand_ins],
        grids=(Grid(table, names, seen.columns[table], seen.gathered[table]),),
        notes=notes,
        cost=len(places) + 1,
    )


def _without_each(of: ScoredPair[DRMM] | ScoredPair[PACRR], places: Sequence[int]) -> Doubles:
    """Score the words that were read without the one at each place: (m,); no unread word moves up."""
    ids = np.array(of.model.reader.ids(of.evidence.passage_words), np.int64)
    asked = of.model.reader.ids(of.evidence.query_words)
    variants = [of.pair._replace(passage=of.pair.passage._replace(index=place)) for place in places]

    def encode(some: Sequence[Pair]) -> TwoSided:
        rows = [np.delete(ids, variant.passage.index) for variant in some]
        return TwoSided(
            Ragged.of([asked] * len(some)), Ragged.of(rows), torch.zeros(len(some), dtype=torch.int64)
        )

    return of.ranker.score_with(variants, encode).astype(np.float64)
