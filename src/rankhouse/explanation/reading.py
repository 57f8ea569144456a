"""How rankers read: their family, and how much of a passage they look at; a black box needs no torch."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from rankhouse.core.nouns import Pair, Ranker
from rankhouse.ranking.cache import CachedRanker

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

_SPACE = re.compile(r"\s|\Z")
_LONGEST_WORD = 64  # characters; where no white space is so near, there are no words to finish


def uncached(ranker: Ranker) -> Ranker:
    """Return the ranker behind a cache of scores: variants of texts are asked once and belong in no cache."""
    return uncached(ranker.ranker) if isinstance(ranker, CachedRanker) else ranker


def family_of(ranker: Ranker) -> str:
    """Return the family of a ranker of this house; "" for any other, which is a black box."""
    known = _of_this_house(ranker)
    return str(known.model.family) if known else ""


def reads_words(ranker: Ranker) -> bool:
    """Return whether a ranker knows words by number, each apart; not so transformers and black boxes."""
    if (known := _of_this_house(ranker)) is None:
        return False
    from rankhouse.explanation.model_reading import knows_words  # noqa: PLC0415 - loads torch

    return knows_words(known.model)


def characters_read(ranker: Ranker, pair: Pair) -> int:
    """Return how many characters of a passage, from its beginning, a ranker looks at.

    A word that is read in part counts as read. What a black box reads is not known: all is taken as read.
    """
    text = pair.passage.text
    if (known := _of_this_house(ranker)) is None:
        return len(text)
    from rankhouse.explanation.model_reading import characters_of  # noqa: PLC0415 - loads torch

    end = characters_of(known.model, pair)
    if end is None or end >= len(text):
        return len(text)
    word_end = _SPACE.search(text, end, end + _LONGEST_WORD)
    return word_end.start() if word_end else end


def _of_this_house(ranker: Ranker) -> NeuralRanker | None:
    """Return a ranker that is one of this house; None: a black box."""
    if "rankhouse.models.ranker" not in sys.modules:  # who holds such a ranker has loaded it
        return None
    from rankhouse.models.ranker import NeuralRanker  # noqa: PLC0415 - loads torch

    return ranker if isinstance(ranker, NeuralRanker) else None
