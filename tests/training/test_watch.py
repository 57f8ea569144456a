"""Trouble in trainings that is noticed."""

import warnings

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadData, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.training.batches import Batches
from rankhouse.training.diagnostics import (
    Remarks,
    check_batches,
    check_encoder,
    check_outcome,
    check_overlap,
    check_reach,
    collapsed,
    spread,
)
from rankhouse.training.examples import from_judgements
from rankhouse.training.optimizer import take_step
from rankhouse.training.settings import Settings, defaults

TRAINING = [Query("1", "How tall is it?"), Query("2", "Who was there?")]


def test_the_same_question_in_other_letters_and_signs_and_under_another_id_is_found():
    held_out = [Query("9", " ＨＯＷ  tall, is it?! "), Query("1", "Something else")]
    with pytest.warns(RankhouseWarning, match='1 of 2 validation queries are training queries too \\("9"\\)'):
        check_overlap(TRAINING, held_out, "warn", Remarks())
    with pytest.raises(WrongUse):
        check_overlap(TRAINING, held_out, "error", Remarks())
    check_overlap(TRAINING, held_out, "allow", Remarks())
    check_overlap(TRAINING, held_out[1:], "error", Remarks())


@pytest.mark.parametrize(("negatives", "said"), [("any", True), ("random", False), ("given", False)])
def test_relevant_passages_that_the_run_lacks_beside_negatives_that_it_has_are_said(negatives, said):
    documents = {f"d{i}": Document(f"d{i}", "a text") for i in range(6)}
    qrels = {"1": {"d0": 1, "d1": 1, "d2": 1, "d3": 0}}
    run = Run.of([("1", doc_id, 1.0) for doc_id in ("d0", "d4", "d5")])
    examples = from_judgements(TRAINING[:1], qrels, documents, run)
    batches = Batches(examples, "contrasts", Settings(negatives=negatives, batch=4))
    remarks = Remarks()
    if said:
        with pytest.warns(RankhouseWarning, match="2 of 3 relevant pairs are not in the run"):
            check_batches(batches, remarks)
    else:
        check_batches(batches, remarks)
    assert ("not in the run" in remarks.texts) == said


def test_too_few_steps_for_the_rate_are_said_with_what_to_do():
    settings = defaults("knrm")
    with pytest.warns(RankhouseWarning, match=r"96 steps at rate 0\.001 .* rate=1e-2"):
        check_reach("knrm", settings, 96, Remarks())
    quiet = Remarks()
    check_reach("knrm", settings.but(rate=1e-2), 96, quiet)
    check_reach("knrm", settings, 10_000, quiet)
    check_reach("samcnn", defaults("samcnn"), 2, quiet)  # SGD's steps are as long as its gradients
    assert not quiet.texts


def test_each_kind_of_remark_is_made_once():
    remarks = Remarks({"old": "said before"})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for kind in ("old", "new", "new"):
            remarks.say(kind, f"something {kind}")
    assert [str(warning.message) for warning in said] == ["something new"]
    assert list(remarks.texts) == ["old", "new"]


def run_of(spreads):
    return Run.of([(f"q{i}", f"d{j}", 5 + j * s) for i, s in enumerate(spreads) for j in range(4)])


def test_collapse_is_seen_when_nearly_all_queries_have_constant_scores():
    assert collapsed(run_of([0.0] * 10), 100)
    assert collapsed(run_of([1e-7] * 9 + [1.0]), 100)
    assert not collapsed(run_of([0.0] * 8 + [1.0] * 2), 100)
    assert not collapsed(run_of([1e-3] * 10), 100)
    assert not collapsed(Run.of([("q", "d", 1.0)]), 100)  # one document says nothing


def test_only_the_scores_of_documents_read_are_looked_at():
    run = Run.of([("q", f"d{i}", s) for i, s in enumerate([1.0, 1.0, 1.0, -50.0])])
    assert collapsed(run, 3)
    assert not collapsed(run, 4)


def test_spread_is_relative_to_the_scores_size():
    assert spread(np.array([1.0], np.float32)) == 0
    assert spread(np.array([0.0, 0.0], np.float32)) == 0
    assert spread(np.array([-100.0, -99.0], np.float32)) == pytest.approx(0.01)


def test_trouble_is_named_and_leaves_the_weights_as_they_are():
    weight = torch.nn.Parameter(torch.ones(1))
    groups = [{"params": [weight], "lr": 0.5, "start": 0.5}]
    optimiser = torch.optim.SGD(groups)
    for loss, gradient, said in (
        (float("nan"), 1.0, "the loss is nan"),
        (0.5, float("inf"), "the norm of the gradients is inf"),
    ):
        weight.grad = torch.full((1,), gradient)
        assert take_step(optimiser, [weight], loss, 1.0, clip=0) == (gradient, said)
        assert weight.item() == 1
    weight.grad = torch.ones(1)
    assert take_step(optimiser, [weight], 0.5, 1.0, clip=0) == (1.0, "")
    assert weight.item() == 0.5


def test_a_training_that_brought_nothing_says_so():
    remarks = Remarks()
    check_outcome(0.6, 0.5, 0.4, "AP", remarks)
    assert not remarks.texts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_outcome(0.3, 0.3, 0.4, "AP", remarks)
    assert set(remarks.texts) == {"below the first stage", "no gain"}


def test_a_training_that_makes_less_of_an_encoder_than_it_was_alone_says_what_to_use():
    remarks = Remarks()
    check_encoder(0.61, 0.6, "biencoder('m')", "AP", remarks)
    assert not remarks.texts
    with pytest.warns(RankhouseWarning, match=r"AP 0\.6000, is not above 0\.6000.*--ranker 'biencoder"):
        check_encoder(0.6, 0.6, "biencoder('m')", "AP", remarks)
    assert set(remarks.texts) == {"below the encoder"}


def test_labels_that_call_everything_relevant_leave_no_contrast_to_learn():
    documents = {f"d{d}": Document(f"d{d}", f"text {d}") for d in range(3)}
    asked = [Query(f"q{q}", f"about {q}") for q in range(3)]
    examples = from_judgements(asked, {query.id: dict.fromkeys(documents, 1) for query in asked}, documents)
    batches = Batches(examples, "positives", Settings(negatives="given", count=0))
    with pytest.raises(BadData, match="no two relevant pairs can stand in one batch"):
        check_batches(batches, Remarks())
