"""False negatives are found by a teacher's margin, left out, and counted."""

from dataclasses import replace

import numpy as np
import pytest

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.training.distillation import DENOISERS, denoise
from rankhouse.training.examples import from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.settings import Settings, defaults
from rankhouse.training.teacher_batches import batches_for


class Known:
    """A teacher that says what a table says."""

    scale, fingerprint = "score", "known"

    def __init__(self, scores):
        self.scores = scores

    def score(self, pairs):
        return np.array([self.scores[query.id, passage.doc_id] for query, passage in pairs], np.float32)


TABLE = {
    ("q0", "a"): 0.9, ("q0", "b"): 0.85, ("q0", "c"): 0.5, ("q0", "d"): 0.95,
    ("q1", "a"): 0.2, ("q1", "b"): 0.6, ("q1", "c"): 0.7, ("q1", "d"): 0.1,
    ("q2", "a"): 0.9, ("q2", "b"): 0.8, ("q2", "c"): 0.7, ("q2", "d"): 0.6,
}  # fmt: skip


@pytest.fixture
def examples():
    documents = {name: Document(name, f"text {name}") for name in "abcd"}
    queries = [Query(f"q{n}", f"question {n}") for n in range(3)]
    qrels = {"q0": {"a": 1, "c": 0}, "q1": {"b": 1, "c": 1}}
    run = Run.of({query.id: {name: 1.0 - ord(name) / 1000 for name in "abcd"} for query in queries})
    return from_judgements(queries, qrels, documents, run)


def pairs(examples):
    names = examples.fetch(examples.item.tolist())
    rows = zip(examples.query.tolist(), names, strict=True)
    return {(examples.queries[query].id, passage.doc_id) for query, passage in rows}


@pytest.mark.parametrize(
    ("bound", "removed"),
    [
        ("margin(0)", {("q0", "d")}),
        ("margin(0.1)", {("q0", "d"), ("q0", "b")}),
        ("share(0.5)", {("q0", "d"), ("q0", "b"), ("q0", "c")}),
    ],
)
def test_negatives_near_the_relevant_passage_are_left_out(examples, bound, removed):
    from rankhouse.core.notation import make

    done = denoise(replace(examples, teacher=Known(TABLE)), make(bound, DENOISERS, "bound"))
    assert pairs(examples) - pairs(done.examples) == removed
    assert (done.removed, done.negatives) == (len(removed), 9)
    scores = np.array([TABLE[q, d] for q, d in _in_order(examples)], np.float32)
    known = denoise(replace(examples, score=scores), make(bound, DENOISERS, "bound"))
    assert pairs(known.examples) == pairs(done.examples)
    assert len(known.examples.score) == len(known.examples)


def _in_order(examples):
    passages = examples.fetch(examples.item.tolist())
    return [
        (examples.queries[q].id, p.doc_id) for q, p in zip(examples.query.tolist(), passages, strict=True)
    ]


@pytest.mark.slow
def test_it_is_said_how_many_and_labels_are_learned_as_usual(toy, fresh, tmp_path):
    class Words:
        scale, fingerprint = "score", "words"

        def score(self, pairs):
            return np.array([len(set(q.text.split()) & set(p.text.split())) for q, p in pairs], np.float32)

    settings = defaults("knrm").but(
        epochs=2, rate=0.01, rates={}, batch=8, schedule="constant", denoise="margin(1)", device="cpu"
    )
    outcome = fit(
        fresh("knrm"), replace(toy.examples, teacher=Words()), settings, tmp_path / "t", toy.validation
    )
    (said,) = [remark for remark in outcome.remarks if "negatives are left out" in remark]
    assert said.startswith("0 of 210") or " of 210 negatives" in said
    assert outcome.best > outcome.validations[0][1]


def test_scores_are_learned_of_what_is_no_negative(examples):
    teacher = replace(examples, teacher=Known(TABLE))
    settings = defaults("tk").but(loss="margin-mse", judged=0.5, denoise="margin(0)")
    mixed = batches_for(teacher, "contrasts", settings)
    assert (mixed.false_negatives, mixed.negatives) == (1, 9)
    assert len(mixed.soft.examples) == len(examples)
    assert len(mixed.judged.examples) == len(examples) - 1


def test_wrong_bounds_and_nobody_to_ask_are_refused(examples):
    for wrong in ("margin(-1)", "share(0)", "share(1.5)", "topk(3)"):
        with pytest.raises(WrongUse):
            Settings(denoise=wrong)
    with pytest.raises(BadData, match="false negatives are found by a teacher's scores"):
        denoise(examples, DENOISERS["share"]())
