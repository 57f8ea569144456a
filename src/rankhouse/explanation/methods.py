"""What every method of explanation shares: its options, how rankers read, and scores of a pair's variants.

A ranker that is not of this package is a black box, and needs no torch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Pair, Ranker
from rankhouse.core.scores import Doubles, numbers_only, one_each
from rankhouse.explanation.answer import Explanation
from rankhouse.ranking.cache import CachedRanker

if TYPE_CHECKING:
    from rankhouse.models.contract import Model
    from rankhouse.models.ranker import NeuralRanker


UNITS = {"": "", "sentence": "sentence", "word": "word"}


@dataclass(frozen=True)
class ExplainOptions:
    """How a score is explained.

    Attributes:
        method: "removal", "shapley" or "gradients"; "": the one that suits the ranker's family.
        unit: What is left out at a time, "sentence" or "word"; "": what suits ranker and text.
        passes: Most pairs scored for one set of parts; where a text has more units, neighbours are joined.
        steps: Steps of integrated gradients; the more, the smaller their gap.

    Raises:
        WrongUse: An unknown unit, or numbers below their least.
    """

    method: str = ""
    unit: str = ""
    passes: int = 1024
    steps: int = 32

    def __post_init__(self) -> None:
        """Refuse an unknown unit and numbers that leave nothing to compute."""
        choose(self.unit, UNITS, "unit of an explanation")
        for name, least in (("passes", 2), ("steps", 1)):
            if getattr(self, name) < least:
                raise WrongUse(f"{name}={getattr(self, name)}: give {least} or more")


Method = Callable[[Ranker, Pair, ExplainOptions], Explanation]
"""One way to explain the score of one passage."""


_SPACE = re.compile(r"\s|\Z")
_LONGEST_WORD = 64  # characters; where no white space is so near, there are no words to finish


def uncached(ranker: Ranker) -> Ranker:
    """Return the ranker behind a cache of scores: variants of texts are asked once and belong in no cache."""
    return uncached(ranker.ranker) if isinstance(ranker, CachedRanker) else ranker


def family_of(ranker: Ranker) -> str:
    """Return the family of a ranker of rankhouse; "" for any other, which is a black box."""
    known = _neural(ranker)
    return str(known.model.family) if known else ""


def reads_words(ranker: Ranker) -> bool:
    """Return whether a ranker knows words by number, each apart; not so transformers and black boxes."""
    if (known := _neural(ranker)) is None:
        return False
    from rankhouse.models.mp_hcnn import MPHCNN  # noqa: PLC0415 - loads torch
    from rankhouse.models.word_models import WordModel  # noqa: PLC0415 - as above

    return isinstance(known.model, WordModel | MPHCNN)


def characters_read(ranker: Ranker, pair: Pair) -> int:
    """Return how many characters of a passage, from its beginning, a ranker looks at.

    A word that is read in part counts as read. What a black box reads is not known: all is taken as read.
    """
    text = pair.passage.text
    if (known := _neural(ranker)) is None:
        return len(text)
    end = _characters_of(known.model, pair)
    if end is None or end >= len(text):
        return len(text)
    word_end = _SPACE.search(text, end, end + _LONGEST_WORD)
    return word_end.start() if word_end else end


def _characters_of(model: Model[Any], pair: Pair) -> int | None:
    """Return the characters of a passage that fit a model; None: no limit cuts anything off."""
    from rankhouse.models.cedr import CEDR  # noqa: PLC0415 - loads torch
    from rankhouse.models.contract import TokenModel  # noqa: PLC0415 - as above
    from rankhouse.models.dual_encoder import DualEncoder  # noqa: PLC0415 - as above
    from rankhouse.models.mp_hcnn import MPHCNN  # noqa: PLC0415 - as above
    from rankhouse.models.word_models import WordModel  # noqa: PLC0415 - as above

    text = pair.passage.text
    if isinstance(model, TokenModel):
        return model.pair_reader.passage_tokens(pair).characters_read
    if isinstance(model, DualEncoder):
        prompt = model.policy["passage_prompt"]
        end = model.text_reader.tokens(prompt + text).characters_read
        return None if end is None else max(0, end - len(prompt))
    if isinstance(model, MPHCNN | CEDR):
        return model.characters_read(text)
    return model.reader.characters_read(text) if isinstance(model, WordModel) else None


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


def with_text(pair: Pair, text: str) -> Pair:
    """Return a pair whose passage says something else."""
    return pair._replace(passage=pair.passage._replace(text=text))
