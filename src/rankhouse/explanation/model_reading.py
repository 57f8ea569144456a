"""How the models of rankhouse read; loading it loads torch."""

from __future__ import annotations

from typing import Any

from rankhouse.core.nouns import Pair
from rankhouse.models.biencoder import BiEncoder
from rankhouse.models.cedr import CEDR
from rankhouse.models.contract import Model, TokenModel
from rankhouse.models.mp_hcnn import MPHCNN
from rankhouse.models.word_models import WordModel


def knows_words(model: Model[Any]) -> bool:
    """Return whether a model knows words by number, each apart; not so transformers."""
    return isinstance(model, WordModel | MPHCNN)


def characters_of(model: Model[Any], pair: Pair) -> int | None:
    """Return the characters of a passage that fit a model; None: no limit cuts anything off."""
    text = pair.passage.text
    if isinstance(model, TokenModel):
        return model.pair_reader.passage_tokens(pair).characters_read
    if isinstance(model, BiEncoder):
        prompt = model.policy["passage_prompt"]
        end = model.text_reader.tokens(prompt + text).characters_read
        return None if end is None else max(0, end - len(prompt))
    if isinstance(model, MPHCNN | CEDR):
        return model.characters_read(text)
    return model.reader.characters_read(text) if isinstance(model, WordModel) else None
