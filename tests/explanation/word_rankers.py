"""Small word-level rankers, untrained, with weights away from where training starts."""

import numpy as np
import torch

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.drmm import DRMMDesign
from rankhouse.models.knrm import ConvKNRMDesign, KNRMDesign
from rankhouse.models.pacrr import PACRRDesign
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.tk import TKDesign
from rankhouse.nn.machine import Compute

WORDS = [
    *("river", "mountain", "club", "tall", "old", "valley", "runs", "tree", "the", "of", "who", "is"),
    *(f"word{i}" for i in range(60)),
]
SMALL = {"width": 12, "min_count": 1, "words": "whitespace", "query_length": 6, "passage_length": 30}
DESIGNS = {
    "knrm": KNRMDesign(**SMALL),
    "conv_knrm": ConvKNRMDesign(**SMALL, filters=5),
    "tk": TKDesign(**SMALL, heads=2, attention_width=4, feed_forward=6),
    "tk windows": TKDesign(**SMALL, heads=2, attention_width=4, feed_forward=6, windows=[3, 7, 50]),
    "drmm": DRMMDesign(**SMALL),
    "pacrr_drmm": PACRRDesign(**SMALL, filters=4, hidden=8, aggregate="terms"),
}


def at_work(model):
    """From a model to its ranker, on one thread of the processor."""
    return NeuralRanker(model.eval(), Compute("fp32", torch.device("cpu"), 1))


def fresh(design, seed=3):
    """An untrained model of a design, or of a family's small design."""
    return (DESIGNS[design] if isinstance(design, str) else design).fresh([" ".join(WORDS)], seed)


def shaken(model, by, seed=1):
    """Move all weights but the word vectors away from their start, by so much; gives the model back."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embedding" not in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=by)
        if hasattr(getattr(model, "head", None), "scales"):
            model.head.scales.mul_(0.1)  # exponents of windows stay in the range of numbers
    return model


def pair(query, passage, doc_id="d", index=0):
    """A pair of two texts."""
    return Pair(Query("q", query), Passage(doc_id, index, passage))


def random_pairs(n, seed=0):
    """n pairs of frequent and rare, known and unknown words; some sides empty, some beyond the limit."""
    draws = np.random.default_rng(seed)
    chances = 1 / np.arange(1, len(WORDS) + 2)

    def text(most):
        words = draws.choice([*WORDS, "unheard"], draws.integers(0, most + 1), p=chances / chances.sum())
        return " ".join(words)

    return [pair(text(7), text(36), f"d{i}") for i in range(n)]
