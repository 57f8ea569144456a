"""Why a passage scores what it scores: each family of rankers by the method that suits it."""

from __future__ import annotations

from importlib import import_module

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Pair, Ranker
from rankhouse.explanation.answer import Explanation
from rankhouse.explanation.methods import ExplainOptions, Method, family_of, uncached
from rankhouse.explanation.removal import explain_removal, explain_shapley
from rankhouse.models.families import FAMILIES

ANY_FAMILY: dict[str, Method] = {"removal": explain_removal, "shapley": explain_shapley}
"""Methods that explain any ranker, by the names they are asked for."""

SOME_FAMILIES = ("gradients",)
"""Methods that look into a model; each is named as what a family says of it."""


def explain_pair(ranker: Ranker, pair: Pair, options: ExplainOptions | None = None) -> Explanation:
    """Explain the score of one passage for a query.

    Args:
        ranker: One of rankhouse, with or without a cache, or anything that scores pairs.
        options: Method and bounds; None: those that suit the ranker.

    Raises:
        WrongUse: An unknown method, or one that cannot look into this ranker.
        BadModel: A score is not a finite number.
    """
    ranker, options = uncached(ranker), options or ExplainOptions()
    method = _chosen(ranker, options.method) if options.method else own_method(ranker)
    return method(ranker, pair, options)


def methods_for(ranker: Ranker) -> tuple[str, ...]:
    """Return the names of the methods that a ranker can be explained by, besides its own."""
    family = FAMILIES.get(family_of(uncached(ranker)))
    return (*ANY_FAMILY, *(name for name in SOME_FAMILIES if getattr(family, name, False)))


def own_method(ranker: Ranker) -> Method:
    """Return the method of a ranker's family; a black box is explained by removal."""
    family = FAMILIES.get(family_of(ranker))
    return _load(family.explain) if family else explain_removal


def _load(name: str) -> Method:
    """Import ``module.function`` of this package, or ``package.module:function``: most of them load torch."""
    module, _, function = name.partition(":" if ":" in name else ".")
    method: Method = getattr(
        import_module(module if ":" in name else f"rankhouse.explanation.{module}"), function
    )
    return method


def _chosen(ranker: Ranker, name: str) -> Method:
    """Look a method up by name; refuse what cannot look into this ranker."""
    choose(name, dict.fromkeys((*ANY_FAMILY, *SOME_FAMILIES)), "method of explanation")
    if name not in (possible := methods_for(ranker)):
        families = ", ".join(sorted(one for one, family in FAMILIES.items() if getattr(family, name)))
        raise WrongUse(
            f'method="{name}" looks into a model of the families {families}; this ranker is '
            f"{family_of(ranker) or 'no model of rankhouse'}: choose from {', '.join(possible)}, or leave "
            "method out"
        )
    return ANY_FAMILY[name] if name in ANY_FAMILY else _load("gradients.explain_gradients")
