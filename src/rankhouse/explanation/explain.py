"""Why a passage scores what it scores: each family of rankers by the method that suits it."""

from __future__ import annotations

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Pair, Ranker
from rankhouse.explanation.answer import Explanation
from rankhouse.explanation.gates import explain_drmm, explain_pacrr_drmm
from rankhouse.explanation.gradients import explain_gradients
from rankhouse.explanation.kernels import explain_conv_knrm, explain_knrm, explain_tk
from rankhouse.explanation.options import ExplainOptions, Method
from rankhouse.explanation.reading import family_of, uncached
from rankhouse.explanation.removal import explain_removal
from rankhouse.explanation.shapley import explain_shapley
from rankhouse.explanation.vectors import explain_biencoder

__all__ = [
    "ANY_FAMILY",
    "METHODS",
    "SOME_FAMILIES",
    "ExplainOptions",
    "explain_pair",
    "family_of",
    "methods_for",
]

METHODS: dict[str, Method] = {
    "crossencoder": explain_removal,
    "monot5": explain_removal,
    "biencoder": explain_biencoder,
    "tk": explain_tk,
    "knrm": explain_knrm,
    "conv_knrm": explain_conv_knrm,
    "samcnn": explain_shapley,
    "drmm": explain_drmm,
    "pacrr": explain_shapley,
    "pacrr_drmm": explain_pacrr_drmm,
    "matchpyramid": explain_shapley,
    "mp_hcnn": explain_shapley,
}
"""Family -> the method of its own; what is no ranker of this house is explained by removal."""

ANY_FAMILY: dict[str, Method] = {"removal": explain_removal, "shapley": explain_shapley}
"""Methods that explain any ranker, by the names they are asked for."""

SOME_FAMILIES: dict[str, tuple[Method, frozenset[str]]] = {
    "gradients": (explain_gradients, frozenset({"crossencoder", "monot5"})),
}
"""Methods that look into a model, by name, and the families that they can look into."""


def explain_pair(ranker: Ranker, pair: Pair, options: ExplainOptions | None = None) -> Explanation:
    """Explain the score of one passage for a query.

    Args:
        ranker: One of this house, with or without a cache, or anything that scores pairs.
        pair: Query and passage.
        options: Method and bounds; None: those that suit the ranker.

    Raises:
        WrongUse: An unknown method, or one that cannot look into this ranker.
        BadModel: A score is not a finite number.
    """
    ranker, options = uncached(ranker), options or ExplainOptions()
    own = METHODS.get(family_of(ranker), explain_removal)
    if not options.method:
        return own(ranker, pair, options)
    return _chosen(ranker, options.method)(ranker, pair, options)


def methods_for(ranker: Ranker) -> tuple[str, ...]:
    """Return the names of the methods that a ranker can be explained by, besides its own."""
    ranker = uncached(ranker)
    inside = [name for name, (_, families) in SOME_FAMILIES.items() if family_of(ranker) in families]
    return (*ANY_FAMILY, *inside)


def _chosen(ranker: Ranker, name: str) -> Method:
    """Look a method up by name; refuse what cannot look into this ranker."""
    every = ANY_FAMILY | {name: method for name, (method, _) in SOME_FAMILIES.items()}
    method = choose(name, every, "method of explanation")
    if name not in (possible := methods_for(ranker)):
        families = ", ".join(sorted(SOME_FAMILIES[name][1]))
        raise WrongUse(
            f'method="{name}" looks into a model of the families {families}; this ranker is '
            f"{family_of(ranker) or 'no model of this house'}: choose from {', '.join(possible)}, or leave "
            "method out"
        )
    return method
