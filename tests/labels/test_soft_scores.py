"""Soft labels: scores kept with their scale, several teachers joined, no kill or chunk that matters."""

import json
import warnings

import numpy as np
import pytest

from rankhouse.core.errors import BadData, RankhouseWarning, WrongUse
from rankhouse.io.pairs import read_pairs
from rankhouse.labels.candidates import none, random
from rankhouse.labels.label import LabelPlan, label
from rankhouse.labels.leaf_rules import judged, ranked, taught
from rankhouse.labels.soft_scores import JOINS, ranks, z_scores


class Length:
    """A second teacher, on another scale: longer passages are better."""

    scale = "score"
    fingerprint = "length"

    def score(self, pairs):
        return np.array([len(pair.passage.text) for pair in pairs], np.float32)


class Dies(Length):
    """Breaks down on its third call."""

    calls = 0

    def score(self, pairs):
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt
        return super().score(pairs)


def written(world, rule, path, **plan):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankhouseWarning)
        done = label(
            rule,
            world.run,
            world.queries,
            world.documents,
            path,
            LabelPlan(split=world.split, negatives=plan.pop("negatives", none()), scores=True, **plan),
        )
    return done, list(read_pairs(path))


def test_every_pair_asked_is_written_with_the_teachers_score_and_scale(world, teacher, tmp_path):
    done, pairs = written(world, taught(teacher, threshold=0.5), tmp_path / "p")
    assert [(p.query_id, p.doc_id, p.passage) for p in pairs] == [
        (pair.query.id, pair.passage.doc_id, pair.passage.index) for pair in world.pairs
    ]
    for pair in pairs:
        assert np.float32(pair.score) == teacher.score([pair.pair])[0]
        assert (pair.scale, pair.label) == ("probability", int(pair.score >= 0.5))
    assert (done.scored, done.undecided, done.scale) == (len(pairs), 0, "probability")


def test_what_the_teacher_refuses_among_the_relevant_is_undecided(world, teacher, tmp_path):
    rule = judged(world.qrels) & taught(teacher, threshold=0.5)
    done, pairs = written(world, rule, tmp_path / "p", negatives=random(1))
    asked = [p for p in pairs if p.score is not None]
    assert {p.label for p in asked} == {1, -1}
    assert sum(p.label == -1 for p in asked) == done.undecided > 0
    assert all(p.label == 0 and not p.scale for p in pairs if p.score is None)
    whole, everything = written(world, rule, tmp_path / "q", ask_all=True)
    assert whole.scored == len(everything) == len(world.pairs)
    assert {p.label for p in everything} == {1, 0, -1}


def test_several_teachers_are_joined_within_each_query(world, teacher, tmp_path):
    rule = taught(teacher, threshold=0.5) & taught(Length(), threshold=1, scale="score")
    for how in JOINS:
        done, pairs = written(world, rule, tmp_path / how, join=how, ask_all=True)
        assert done.scale == {p.scale for p in pairs}.pop() == "score"
        for query in world.queries:
            own = [p for p in pairs if p.query_id == query.id]
            both = np.array([[teacher.score([p.pair])[0], len(p.text)] for p in own], np.float64)
            np.testing.assert_allclose([p.score for p in own], JOINS[how](both), rtol=1e-5, atol=1e-6)


def test_the_joins_by_hand():
    values = np.array([[0.0, 10], [1, 10], [2, 10]])
    np.testing.assert_allclose(z_scores(values), np.array([-1, 0, 1]) * (1.5**0.5) / 2)
    np.testing.assert_allclose(ranks(values), [(0 + 0.5) / 2, 0.5, (1 + 0.5) / 2])
    np.testing.assert_allclose(ranks(np.array([[3.0]])), [0])


def test_a_run_with_scores_is_a_source(world, tmp_path):
    done, pairs = written(world, ranked(world.run, 2), tmp_path / "p")
    assert done.scored == len(world.pairs)
    for pair in pairs:
        ranking = world.run[pair.query_id]
        place = ranking.doc_ids.index(pair.doc_id)
        assert (pair.score, pair.label) == (ranking.scores[place], int(place < 2))
    short, some = written(world, ranked(world.run.top(3), 2), tmp_path / "q")
    assert 0 < short.scored == len(some) < done.scored


@pytest.mark.parametrize("chunk", [1, 7])
def test_neither_chunks_nor_a_kill_change_a_byte(world, teacher, tmp_path, chunk):
    def rule(second):
        return taught(teacher, threshold=0.5) | taught(second, threshold=20, scale="score")

    written(world, rule(Length()), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        written(world, rule(Dies()), tmp_path / "killed", chunk=chunk)
    done, _ = written(world, rule(Length()), tmp_path / "killed", chunk=chunk)
    assert done.resumed > 0
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "whole").read_bytes()


def test_scores_need_somebody_who_scores(world, tmp_path):
    with pytest.raises(WrongUse, match="has nothing that scores pairs"):
        written(world, judged(world.qrels), tmp_path / "p")
    with pytest.raises(WrongUse, match='"mean" is not a known way to join scores'):
        LabelPlan(join="mean")


def test_an_undecided_pair_needs_a_score(tmp_path):
    line = {"query_id": "q", "query": "a", "doc_id": "d", "passage": 0, "text": "b", "label": -1}
    (tmp_path / "p").write_text(json.dumps(line | {"score": 0.25, "scale": "logit"}) + "\n")
    (pair,) = read_pairs(tmp_path / "p")
    assert (pair.label, pair.score, pair.scale) == (-1, 0.25, "logit")
    (tmp_path / "p").write_text(json.dumps(line) + "\n")
    with pytest.raises(BadData, match="the label -1 is neither"):
        list(read_pairs(tmp_path / "p"))
