"""How rankers read: their family, and how much of a passage they look at."""

from __future__ import annotations

import re

from rankhouse.core.nouns import Pair, Ranker
from rankhouse.models.biencoder import BiEncoder
from rankhouse.models.contract import TokenModel
from rankhouse.models.mp_hcnn import MPHCNN
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.word_models import WordModel
from rankhouse.ranking.cache import CachedRanker

_SPACE = re.compile(r"\s|\Z")
_LONGEST_WORD = 64  # characters; where no white space is so near, there are no words to finish


def uncached(ranker: Ranker) -> Ranker:
    """Return the ranker behind a cache of scores: variants of texts are asked once and belong in no cache."""
    return uncached(ranker.ranker) if isinstance(ranker, CachedRanker) else ranker


def family_of(ranker: Ranker) -> str:
    """Return the family of a ranker of this house; "" for any other, which is a black box."""
    return str(ranker.model.family) if isinstance(ranker, NeuralRanker) else ""


def reads_words(ranker: Ranker) -> bool:
    """Return whether a ranker knows words by number, each apart; not so transformers and black boxes."""
    return isinstance(ranker, NeuralRanker) and isinstance(ranker.model, WordModel | MPHCNN)


def characters_read(ranker: Ranker, pair: Pair) -> int:
    """Return how many characters of a passage, from its beginning, a ranker looks at.

    A word that is read in part counts as read. What a black box reads is not known: all is taken as read.

    Args:
        ranker: Anything that scores.
        pair: Query and passage.
    """
    text = pair.passage.text
    end = _limit(ranker, pair)
    if end is None or end >= len(text):
        return len(text)
    word_end = _SPACE.search(text, end, end + _LONGEST_WORD)
    return word_end.start() if word_end else end


def _limit(ranker: Ranker, pair: Pair) -> int | None:
    """Return the characters that fit a model; None: no limit cuts anything off."""
    model = ranker.model if isinstance(ranker, NeuralRanker) else None
    text = pair.passage.text
    if isinstance(model, TokenModel):
        return model.pair_reader.passage_tokens(pair).characters_read
    if isinstance(model, BiEncoder):
        prompt = model.policy["passage_prompt"]
        end = model.text_reader.tokens(prompt + text).characters_read
        return None if end is None else max(0, end - len(prompt))
    if isinstance(model, MPHCNN):
        return model.characters_read(text)
    return model.reader.characters_read(text) if isinstance(model, WordModel) else None
