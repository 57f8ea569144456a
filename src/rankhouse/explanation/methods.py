"""Why a passage scores what it scores: each family of rankers by the method that suits it.

And what all methods share: their options, how rankers read, and scores of a pair's variants. A ranker that is
not of this package is a black box, and needs no torch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rankhouse.core.arguments import Option, check_least
from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Pair, Ranker, fingerprint_of
from rankhouse.core.scores import Doubles, base_of, numbers_only, one_each, scale_of
from rankhouse.explanation.answer import Explanation
from rankhouse.models.families import FAMILIES
from rankhouse.ranking.cache import CachedRanker

if TYPE_CHECKING:
    from rankhouse.models.contract import ReadingModel
    from rankhouse.models.ranker import NeuralRanker

_SPACE = re.compile(r"\s|\Z")
_LONGEST_WORD = 64  # characters; where no white space is so near, there are no words to finish


@dataclass(frozen=True)
class ExplainOptions:
    """Options of explaining a score.

    Attributes:
        method: "removal", "shapley" or "gradients"; "": the one that suits the ranker's family.
        unit: What is left out at a time, "sentence" or "word"; "": what suits ranker and text.
        passes: Most pairs scored for one set of parts; where a text has more units, neighbours are joined.
        steps: Steps of integrated gradients; the more, the smaller their gap.

    Raises:
        WrongUse: An unknown unit, or numbers below their least.
    """

    method: Annotated[str, Option("removal, shapley, gradients.", default="what suits the ranker")] = ""
    unit: Annotated[
        str, Option("The unit to leave out: sentence or word.", default="what suits ranker and text")
    ] = ""
    passes: Annotated[int, Option("Most pairs scored per document.", least=1)] = 1024
    steps: int = 32

    def __post_init__(self) -> None:
        """Refuse an unknown unit and numbers that leave nothing to compute."""
        choose(self.unit, dict.fromkeys(("", "sentence", "word")), "unit of an explanation")
        check_least(self, 2, "passes")
        check_least(self, 1, "steps")


Method = Callable[[Ranker, Pair, ExplainOptions], Explanation]
"""One way to explain the score of one passage."""

ANY_FAMILY = {"removal": "removal.explain_removal", "shapley": "removal.explain_shapley"}
"""Name of a method that explains any ranker -> its module and function."""

_GRADIENTS = {"gradients": "gradients.explain_gradients"}  # look into a model, of some families only


def explain_pair(ranker: Ranker, pair: Pair, options: ExplainOptions | None = None) -> Explanation:
    """Explain the score of one passage for a query.

    Args:
        ranker: One of rankhouse, with or without a cache, or anything that scores pairs.

    Raises:
        WrongUse: An unknown method, or one that cannot look into this ranker.
        BadModel: A score is not a finite number.
    """
    ranker, options = uncached(ranker), options or ExplainOptions()
    if not options.method:
        return own_method(ranker)(ranker, pair, options)
    where = choose(options.method, ANY_FAMILY | _GRADIENTS, "method of explanation")
    if options.method not in (possible := methods_for(ranker)):
        families = ", ".join(sorted(name for name, family in FAMILIES.items() if family.gradients))
        raise WrongUse(
            f'method="{options.method}" looks into a model of the families {families}; this ranker is '
            f"{family_of(ranker) or 'no model of rankhouse'}: choose from {', '.join(possible)}, or leave "
            "method out"
        )
    return _load(where)(ranker, pair, options)


def methods_for(ranker: Ranker) -> tuple[str, ...]:
    """Return the names of the methods that a ranker can be explained by, besides its own."""
    family = FAMILIES.get(family_of(uncached(ranker)))
    return (*ANY_FAMILY, *(_GRADIENTS if family and family.gradients else ()))


def own_method(ranker: Ranker) -> Method:
    """Return the method of a ranker's family; a black box is explained by removal."""
    family = FAMILIES.get(family_of(ranker))
    return _load(family.explain if family else ANY_FAMILY["removal"])


def _load(name: str) -> Method:
    """Import ``module.function`` of this package, or ``package.module:function``: most of them load torch."""
    if ":" not in name:
        name = "rankhouse.explanation." + name.replace(".", ":")
    module, _, function = name.partition(":")
    method: Method = getattr(import_module(module), function)
    return method


def uncached(ranker: Ranker) -> Ranker:
    """Return the ranker behind a cache of scores: variants of texts are asked once and belong in no cache."""
    return uncached(ranker.ranker) if isinstance(ranker, CachedRanker) else ranker


def family_of(ranker: Ranker) -> str:
    """Return the family of a ranker of rankhouse; "" for any other, which is a black box."""
    known = _neural(ranker)
    return str(known.model.family) if known else ""


def reads_words(ranker: Ranker) -> bool:
    """Return whether a ranker knows words by number, each apart; not so transformers and black boxes."""
    known = _reading(ranker)
    return known is not None and known.reads_words


def characters_read(ranker: Ranker, pair: Pair) -> int:
    """Return how many characters of a passage, from its beginning, a ranker looks at.

    A word that is read in part counts as read. What a black box reads is not known: all is taken as read.
    """
    text, known = pair.passage.text, _reading(ranker)
    end = None if known is None else known.characters_read(pair)
    if end is None or end >= len(text):
        return len(text)
    word_end = _SPACE.search(text, end, end + _LONGEST_WORD)
    return word_end.start() if word_end else end


def _reading(ranker: Ranker) -> ReadingModel | None:
    """Return the model of a ranker of rankhouse that says how it reads; None: a black box."""
    if (known := _neural(ranker)) is None:
        return None
    from rankhouse.models.contract import ReadingModel  # noqa: PLC0415 - loads torch

    return known.model if isinstance(known.model, ReadingModel) else None


def _neural(ranker: Ranker) -> NeuralRanker | None:
    """Return a ranker that is one of rankhouse; None: a black box."""
    if "rankhouse.models.ranker" not in sys.modules:  # such a ranker has loaded it
        return None
    from rankhouse.models.ranker import NeuralRanker  # noqa: PLC0415 - loads torch

    return ranker if isinstance(ranker, NeuralRanker) else None


def finite_scores(ranker: Ranker, pairs: Sequence[Pair]) -> Doubles:
    """Score n pairs in one call: (n,) float64.

    Raises:
        BadModel: A score is not a number, or infinite, so that nothing can be taken from it.
    """
    if not pairs:
        return np.empty(0)
    scores = numbers_only(one_each(len(pairs), ranker.score(pairs)), pairs)
    if (bad := np.flatnonzero(np.isinf(scores))).size:
        query, passage = pairs[int(bad[0])]
        raise BadModel(
            f'a score of document "{passage.doc_id}" for query "{query.id}" is {scores[bad[0]]}: no '
            "difference can be taken from it, so it cannot be explained; use a scale without infinities, "
            "like logit"
        )
    return scores.astype(np.float64)


def explanation_for(ranker: Ranker, pair: Pair, score: float) -> partial[Explanation]:
    """Return what makes an explanation of a pair's score, in the unit of the ranker's scale."""
    unit, fingerprint = base_of(scale_of(ranker)), fingerprint_of(ranker)
    return partial(Explanation, pair.query, pair.passage.doc_id, score, unit=unit, ranker=fingerprint)


def with_text(pair: Pair, text: str) -> Pair:
    """Return a pair whose passage says something else."""
    return pair._replace(passage=pair.passage._replace(text=text))
