"""Why a passage scores what it scores: each family of rankers by the method that suits it."""

from __future__ import annotations

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Pair, Ranker
from rankhouse.explanation.answer import Explanation
from rankhouse.explanation.options import ExplainOptions, Method
from rankhouse.explanation.reading import family_of, uncached
from rankhouse.explanation.removal import explain_removal
from rankhouse.explanation.shapley import explain_shapley

__all__ = [
    "ANY_FAMILY",
    "SOME_FAMILIES",
    "ExplainOptions",
    "explain_pair",
    "family_of",
    "methods_for",
]

ANY_FAMILY: dict[str, Method] = {"removal": explain_removal, "shapley": explain_shapley}
"""Methods that explain any ranker, by the names they are asked for."""

SOME_FAMILIES = {"gradients": frozenset({"crossencoder", "monot5"})}
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
    method = _chosen(ranker, options.method) if options.method else _own(ranker)
    return method(ranker, pair, options)


def methods_for(ranker: Ranker) -> tuple[str, ...]:
    """Return the names of the methods that a ranker can be explained by, besides its own."""
    ranker = uncached(ranker)
    inside = [name for name, families in SOME_FAMILIES.items() if family_of(ranker) in families]
    return (*ANY_FAMILY, *inside)


def _own(ranker: Ranker) -> Method:
    """Return the method of a ranker's family; what is no ranker of this house is explained by removal."""
    if not (family := family_of(ranker)):
        return explain_removal
    from rankhouse.explanation.families import METHODS  # noqa: PLC0415 - loads torch

    return METHODS.get(family, explain_removal)


def _chosen(ranker: Ranker, name: str) -> Method:
    """Look a method up by name; refuse what cannot look into this ranker."""
    choose(name, dict.fromkeys((*ANY_FAMILY, *SOME_FAMILIES)), "method of explanation")
    if name not in (possible := methods_for(ranker)):
        families = ", ".join(sorted(SOME_FAMILIES[name]))
        raise WrongUse(
            f'method="{name}" looks into a model of the families {families}; this ranker is '
            f"{family_of(ranker) or 'no model of this house'}: choose from {', '.join(possible)}, or leave "
            "method out"
        )
    if name in ANY_FAMILY:
        return ANY_FAMILY[name]
    from rankhouse.explanation.families import INSIDE  # noqa: PLC0415 - loads torch

    return INSIDE[name]
