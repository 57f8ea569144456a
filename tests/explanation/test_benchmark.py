"""The measuring of explanations (benchmarks/explanation): all it asks is offered, its peer is a fair one."""

from pathlib import Path

import numpy as np
import pytest

from rankhouse.core.nouns import Pair, Passage, Query


@pytest.fixture
def measuring(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks.explanation import bound, ways

    return bound, ways


@pytest.mark.quick("biencoder cls")
@pytest.mark.parametrize("name", ["crossencoder", "monot5", "biencoder cls"])
def test_every_way_is_offered(name, measuring, opened, pair_of, long_text):
    _, ways = measuring
    ranker = opened(name)
    pair = pair_of(long_text[:120])
    for way in ways.ways_of(ranker):
        game = ways.game_of(ways.as_read(ranker, pair), way.unit)
        values, _ = ways.values_by(ranker, game, way)
        assert len(values) == len(game.units)


def test_sampling_without_a_penalty_recovers_counts_that_add_up(measuring):
    bound, ways = measuring
    text = "Ships bring grain. Pilots steer ships into the harbour, and other ships follow them slowly."
    pair = Pair(Query("1", "who steers ships"), Passage("d", 0, text))
    ranker, game = bound.Counts("ships"), ways.game_of(pair, "word")
    truth = ranker.truth([unit.text for unit in game.units])
    shrunk, plain = (ways.sampled(ranker, game, 60, 0, penalty=penalty) for penalty in (1.0, 0.0))
    assert np.abs(plain - truth).max() < 1e-6 < np.abs(shrunk - truth).max()
