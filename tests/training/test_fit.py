"""The loop: it learns, it stops, it notices failure."""

import math
import random
import warnings
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadData, BadModel, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.io.trec import read_run
from rankhouse.models import bundle
from rankhouse.models.bundle import load
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.machine import choose
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.training import checkpoint, diagnostics
from rankhouse.training.examples import from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.folder import TrainingOutcome
from rankhouse.training.log import read_log
from rankhouse.training.settings import defaults
from rankhouse.training.validation import Validation, Validator, interval

QUICK = {"batch": 16, "measure": "AP", "validate_every": 0, "patience": 0, "rates": {}, "device": "cpu"}
RATES = {"knrm": 0.01, "tk": 0.01, "samcnn": 0.03}


def quick(family, **changes):
    return defaults(family).but(**QUICK | {"rate": RATES[family], "epochs": 3} | changes)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.quick("tk", "knrm")
@pytest.mark.parametrize("family", ["knrm", "tk", "samcnn"])
def test_families_learn_to_rank_better_than_the_first_stage(toy, fresh, tmp_path, family):
    model = fresh(family)
    settings = quick(family, epochs=6, log_every=1)
    outcome = fit(model, toy.examples, settings, tmp_path, toy.validation)
    assert outcome.first_stage < 0.55
    assert outcome.best > 0.9
    losses = [entry["loss"] for entry in read_log(tmp_path / "log.jsonl") if "loss" in entry]
    assert len(losses) == outcome.steps
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    ranker = NeuralRanker(model, choose("fp32", "cpu"))
    given = toy.validation
    again = rerank(ranker, given.run, given.queries, given.documents, given.plan)
    assert Validator(given, "AP")._value_of(again) == outcome.best
    assert same(load(tmp_path / "ranker").state_dict(), weights(model))


def test_what_came_out_is_in_the_folder(toy, fresh, tmp_path):
    outcome = fit(fresh("knrm"), toy.examples, quick("knrm"), tmp_path, toy.validation)
    assert msgspec.json.decode((tmp_path / "outcome.json").read_bytes(), type=TrainingOutcome) == outcome
    assert {path.name for path in tmp_path.iterdir()} == {
        "log.jsonl", "settings.json", "outcome.json", "ranker", "untaught.run",
    }  # fmt: skip
    assert (outcome.epochs, outcome.stopped, outcome.ended) == (3, "", "all of epochs=3 are over")
    assert [step for step, _ in outcome.validations] == [0, 6, 12, 18]
    assert outcome.best == max(value for _, value in outcome.validations)
    assert (
        outcome.validations[[s for s, _ in outcome.validations].index(outcome.best_step)][1] == outcome.best
    )


@pytest.mark.parametrize(
    ("steps", "ended"),
    [
        (18, "steps=18 are done"),
        (40, "all of epochs=3 are over, after 18 steps; steps=40 would take --epochs 7"),
    ],
)
def test_what_ends_a_training_is_said(toy, fresh, tmp_path, steps, ended):
    outcome = fit(fresh("knrm"), toy.examples, quick("knrm", steps=steps), tmp_path)
    assert (outcome.steps, outcome.stopped, outcome.ended) == (18, "", ended)


def test_a_finished_training_given_again_is_given_back(toy, fresh, tmp_path):
    taught, again = fresh("knrm"), fresh("knrm")
    outcome = fit(taught, toy.examples, quick("knrm"), tmp_path, toy.validation)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    (tmp_path / "checkpoint.safetensors").write_bytes(b"killed before it was removed")
    assert fit(again, toy.examples, quick("knrm"), tmp_path, toy.validation) == outcome
    assert same(weights(again), weights(taught))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}.keys() == kept.keys()
    shallow = replace(toy.validation, plan=Plan(depth=3))
    others = [
        (fresh("knrm", seed=2), quick("knrm"), toy.validation),
        (fresh("knrm"), quick("knrm", rate=0.5), toy.validation),
        (fresh("knrm"), quick("knrm"), None),
        (fresh("knrm"), quick("knrm"), shallow),
    ]
    for model, settings, validation in others:
        with pytest.raises(WrongUse, match="holds another training, which is finished"):
            fit(model, toy.examples, settings, tmp_path, validation)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(toy, fresh, tmp_path):
    made = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        model = fresh("samcnn")
        random.random()  # the states outside do not matter
        torch.rand(1)
        fit(model, toy.examples, quick("samcnn", seed=seed, epochs=1), tmp_path / name)
        made.append(weights(model))
    assert same(made[0], made[1])
    assert not same(made[0], made[2])


def test_random_states_outside_are_left_as_they_were(toy, fresh, tmp_path):
    before = random.getstate(), torch.get_rng_state()
    fit(fresh("samcnn"), toy.examples, quick("samcnn", epochs=1), tmp_path)
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_a_batch_in_parts_is_the_same_step(toy, fresh, tmp_path):
    whole, parts = fresh("knrm"), fresh("knrm")
    fit(whole, toy.examples, quick("knrm", steps=3), tmp_path / "whole")
    fit(parts, toy.examples, quick("knrm", steps=3, accumulate=5), tmp_path / "parts")
    for name, tensor in weights(whole).items():
        torch.testing.assert_close(parts.state_dict()[name], tensor, rtol=1e-4, atol=1e-5)


def test_without_validation_the_last_model_is_kept(toy, fresh, tmp_path):
    model = fresh("knrm")
    outcome = fit(model, toy.examples, quick("knrm", epochs=2), tmp_path)
    assert (outcome.best_step, outcome.measure, outcome.validations) == (12, "", [])
    assert same(load(tmp_path / "ranker").state_dict(), weights(model))


@pytest.mark.parametrize("family", ["knrm", "tk", "samcnn"])
def test_bf16_learns_too(toy, fresh, tmp_path, family):
    outcome = fit(fresh(family), toy.examples, quick(family, precision="bf16"), tmp_path, toy.validation)
    assert outcome.best > 0.9


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [("adam", 0.03), ("adamw(weight_decay=0.1)", 0.03), ("sgd(momentum=0.9)", 0.1), ("adafactor", 1.0)],
)
def test_every_optimiser_lowers_the_loss(toy, fresh, tmp_path, optimizer, rate):
    settings = quick("knrm", optimizer=optimizer, rate=rate, log_every=1)
    fit(fresh("knrm"), toy.examples, settings, tmp_path)
    losses = [entry["loss"] for entry in read_log(tmp_path / "log.jsonl")]
    assert np.mean(losses[-3:]) < 0.7 * losses[0]


def test_parts_of_a_model_learn_at_rates_of_their_own(toy, fresh, tmp_path):
    model = fresh("tk")
    before = weights(model)
    settings = quick("tk", rates={"embedding": 0.0, "encoder.layers.0": 1e-9}, steps=2, optimizer="sgd")
    fit(model, toy.examples, settings, tmp_path)
    moved = {n: float((tensor - before[n]).abs().max()) for n, tensor in weights(model).items()}
    assert moved["embedding.weight"] == 0
    assert max(v for n, v in moved.items() if n.startswith("encoder.layers.0.")) < 1e-7
    assert max(v for n, v in moved.items() if n.startswith("encoder.layers.1.")) > 1e-7
    with pytest.raises(WrongUse, match="its parts are: embedding, encoder, head, mix"):
        fit(fresh("tk"), toy.examples, quick("tk", rates={"decoder": 1.0}), tmp_path / "x")


def test_gradients_are_clipped(toy, fresh, tmp_path):
    model = fresh("knrm")
    before = weights(model)
    settings = quick("knrm", optimizer="sgd", rate=1.0, clip=1e-3, steps=1, log_every=1)
    fit(model, toy.examples, settings, tmp_path)
    way = math.sqrt(sum(float(((t - before[n]) ** 2).sum()) for n, t in weights(model).items()))
    assert way == pytest.approx(1e-3, rel=1e-3)
    assert read_log(tmp_path / "log.jsonl")[0]["norm"] > 1e-3


def test_training_ends_when_validation_no_longer_rises(toy, fresh, tmp_path):
    settings = quick("knrm", rate=1e-12, epochs=50, patience=3)
    with pytest.warns(RankhouseWarning, match="no validation was better"):
        outcome = fit(fresh("knrm"), toy.examples, settings, tmp_path, toy.validation)
    assert outcome.stopped == outcome.ended == "no gain in 3 validations"
    assert len(outcome.validations) == 4
    assert outcome.best_step == 0


def test_the_rate_falls_on_a_plateau(toy, fresh, tmp_path):
    schedule = "plateau(factor=0.5, patience=1)"
    settings = quick("knrm", rate=1e-12, epochs=6, schedule=schedule, log_every=6)
    with pytest.warns(RankhouseWarning, match="no validation was better"):
        fit(fresh("knrm"), toy.examples, settings, tmp_path, toy.validation)
    rates = [entry["rate"] / 1e-12 for entry in read_log(tmp_path / "log.jsonl") if "rate" in entry]
    assert rates == pytest.approx([1, 1, 0.5, 0.5, 0.25, 0.25])


def test_validation_comes_every_so_many_steps_and_after_epochs(toy, fresh, tmp_path):
    settings = quick("knrm", epochs=2, validate_every=4)
    outcome = fit(fresh("knrm"), toy.examples, settings, tmp_path, toy.validation)
    assert [step for step, _ in outcome.validations] == [0, 4, 6, 8, 12]


@pytest.mark.filterwarnings("ignore:.*still improving when training ended")
def test_validation_by_steps_passes_epochs_over_but_not_the_end(toy, fresh, tmp_path):
    settings = quick("knrm", epochs=5, batch=18, validate_every="steps")  # five steps an epoch
    outcome = fit(fresh("knrm"), toy.examples, settings, tmp_path, toy.validation)
    assert [step for step, _ in outcome.validations] == [*range(0, 25, 2), 25]


def test_progress_is_told_at_once_and_after_every_step(toy, fresh, tmp_path):
    told = []
    settings = quick("knrm", epochs=2)
    fit(
        fresh("knrm"),
        toy.examples,
        settings,
        tmp_path,
        toy.validation,
        progress=lambda *now: told.append(now),
    )
    assert told == [(step, 12) for step in range(13)]


def test_loss_that_is_not_a_number_stops_with_the_last_good_model(toy, fresh, tmp_path):
    model = fresh("knrm")

    def poison(step, _):
        if step == 9:  # what an overflow leaves behind
            with torch.no_grad():
                model.weight.weight[0, 0] = float("nan")

    with pytest.warns(RankhouseWarning, match="at step 10 the loss is nan; kept is the model of step 6"):
        outcome = fit(model, toy.examples, quick("knrm"), tmp_path, toy.validation, progress=poison)
    assert "at step 10 the loss is nan" in outcome.stopped
    assert outcome.best_step == 6
    assert all(torch.isfinite(tensor).all() for tensor in model.state_dict().values())
    assert same(load(tmp_path / "ranker").state_dict(), weights(model))


def test_loss_that_explodes_before_anything_was_learned_is_an_error(toy, fresh, tmp_path):
    settings = quick("knrm", optimizer="sgd", rate=1e38, validate_every=0, epochs=1)
    with pytest.raises(BadModel, match="before anything was learned; try a lower rate"):
        fit(fresh("knrm"), toy.examples, settings, tmp_path, toy.validation)


@pytest.mark.parametrize("validated", [True, False])
def test_scores_that_became_a_constant_are_noticed(toy, fresh, tmp_path, validated):
    model = fresh("knrm")
    with torch.no_grad():
        model.weight.weight.zero_()
    settings = quick("knrm", rates={"weight": 0.0}, epochs=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        outcome = fit(model, toy.examples, settings, tmp_path, toy.validation if validated else None)
    assert any("it has collapsed" in str(warning.message) for warning in said)
    assert any("it has collapsed" in remark for remark in outcome.remarks)


def test_validation_below_the_first_stage_is_said(toy, fresh, tmp_path):
    given = toy.validation
    perfect = Run.of([(q, d, float(g)) for q, own in given.qrels.items() for d, g in own.items()])
    validation = Validation(perfect, given.queries, given.qrels, given.documents)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        outcome = fit(fresh("knrm"), toy.examples, quick("knrm", rate=1e-9), tmp_path, validation)
    assert outcome.first_stage == 1.0
    assert any("is below the first stage's 1.0000" in str(warning.message) for warning in said)


def test_a_training_too_short_for_its_rate_is_said_before_it_begins(toy, fresh, tmp_path):
    settings = defaults("knrm").but(batch=17, epochs=1, measure="AP", device="cpu", validate_every=0)
    model = fresh("knrm")
    with torch.no_grad():
        model.weight.weight.neg_()
    with pytest.warns(RankhouseWarning) as said:
        outcome = fit(model, toy.examples, settings, tmp_path / "short", toy.validation)
    assert "6 steps at rate 0.001" in str(said[0].message)
    assert any("6 steps at rate 0.001" in remark for remark in outcome.remarks)


def test_training_queries_in_validation_are_said_or_refused(toy, fresh, tmp_path):
    ids = [query.id for query in toy.queries[28:]]
    queries = [Query(query.id, f" {query.text.replace(' ', '  ')}") for query in toy.queries[28:]]
    both = Validation(toy.run.restrict(ids), queries, {q: toy.qrels[q] for q in ids}, toy.documents)
    with pytest.warns(RankhouseWarning, match="2 of 12 validation queries are training queries too"):
        fit(fresh("knrm"), toy.examples, quick("knrm", epochs=1), tmp_path / "a", both)
    with pytest.raises(WrongUse, match="2 of 12 validation queries"):
        fit(fresh("knrm"), toy.examples, quick("knrm", overlap="error"), tmp_path / "b", both)
    fit(fresh("knrm"), toy.examples, quick("knrm", overlap="allow", epochs=1), tmp_path / "c", both)


def test_queries_without_relevant_passages_are_counted(toy, fresh, tmp_path):
    qrels = {q: own if int(q[1:]) < 20 else dict.fromkeys(own, 0) for q, own in toy.qrels.items()}
    examples = from_judgements(toy.queries[:30], qrels, toy.documents, toy.run)
    with pytest.warns(RankhouseWarning, match="10 of 30 training queries have no relevant passage"):
        fit(fresh("knrm"), examples, quick("knrm", epochs=1), tmp_path)


def test_labels_of_one_class_are_an_error_before_anything_is_written(toy, fresh, tmp_path):
    examples = from_judgements([Query("q", "x")], {"q": {"d": 1}}, {"d": Document("d", "x")})
    with pytest.raises(BadData, match="labelled pairs are relevant"):
        fit(fresh("samcnn"), examples, quick("samcnn"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_validation_that_nobody_judged_is_an_error_before_training(toy, fresh, tmp_path):
    given = toy.validation
    unjudged = Validation(given.run, given.queries, {"other": {"d": 1}}, given.documents)
    with pytest.raises(BadData, match="no query in common"):
        fit(fresh("knrm"), toy.examples, quick("knrm"), tmp_path / "out", unjudged)
    without_texts = Validation(given.run, [], given.qrels, given.documents)
    with pytest.raises(BadData, match="have no text"):
        fit(fresh("knrm"), toy.examples, quick("knrm"), tmp_path / "out", without_texts)


def test_validation_is_measured_on_the_queries_that_are_asked(toy, fresh, tmp_path):
    """The mean was over all judged queries: 30 that are asked of 809 made a value of a twentieth."""
    given = toy.validation
    every = Validation(given.run, given.queries, toy.qrels, given.documents)
    assert Validator(every, "AP").first_stage == Validator(given, "AP").first_stage
    with pytest.warns(RankhouseWarning, match="30 of 40 judged queries are not among the 10 of validation"):
        fit(fresh("knrm"), toy.examples, quick("knrm", epochs=1), tmp_path / "all", every)
    assert not Validator(given, "AP").remark
    fewer = Validation(given.run.restrict(list(given.run)[1:]), given.queries, given.qrels, given.documents)
    assert (
        "1 of 10 judged validation queries are not in the run and count as 0" in Validator(fewer, "AP").remark
    )


def test_the_validation_depth_is_kept_to(toy, fresh, tmp_path):
    given = toy.validation
    shallow = Validation(given.run, given.queries, given.qrels, given.documents, Plan(depth=3))
    outcome = fit(fresh("knrm"), toy.examples, quick("knrm"), tmp_path, shallow)
    assert outcome.first_stage < outcome.best < 0.95


@pytest.mark.filterwarnings("ignore:.*still improving when training ended")
@pytest.mark.parametrize("family", ["knrm", "tk", "samcnn"])
def test_short_trainings_validate_ten_times(toy, fresh, tmp_path, family):
    settings = quick(family, validate_every="auto", epochs=1, batch=4, by_query=0, count=1)
    outcome = fit(fresh(family), toy.examples, settings, tmp_path, toy.validation)
    assert len(outcome.validations) >= 10
    steps = [step for step, _ in outcome.validations]
    assert max(np.diff(steps)) <= math.ceil(outcome.steps / 10)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::rankhouse.core.errors.RankhouseWarning"
)  # at this rate nothing is learned
def test_a_model_with_something_to_lose_is_validated_from_the_first_steps_on(toy, fresh, tmp_path):
    taught = fresh("knrm")
    fit(taught, toy.examples, quick("knrm", epochs=6), tmp_path / "taught", toy.validation)
    settings = quick("knrm", validate_every="auto", epochs=1, batch=1, rate=1e-9)
    again = fit(taught, toy.examples, settings, tmp_path / "again", toy.validation)
    assert [step for step, _ in again.validations][:6] == [0, 1, 2, 4, 9, 18]
    waiting = fit(taught, toy.examples, settings.but(patience=35), tmp_path / "waiting", toy.validation)
    assert [step for step, _ in waiting.validations][:3] == [0, 9, 18]
    poor = Validation(
        Run.of({q: {d: float(g) for d, g in own.items()} for q, own in toy.validation.qrels.items()}),
        *(toy.validation.queries, toy.validation.qrels, toy.validation.documents),
    )
    nothing = fit(fresh("knrm"), toy.examples, settings, tmp_path / "nothing", poor)
    assert [step for step, _ in nothing.validations][:3] == [0, 9, 18]


def test_validation_that_costs_much_comes_less_often_but_four_times(toy):
    settings = quick("knrm", validate_every="auto", patience=0)
    assert interval(settings, 80, toy.validation) == 8
    many = toy.validation.run.rows
    settings = settings.but(batch=1, count=1)
    assert 9 * 2 * 40 // many < 10
    assert interval(settings, 40, toy.validation) == 40 // max(4, 9 * 2 * 40 // many)
    assert interval(settings, 4, toy.validation) == 1
    assert interval(settings.but(patience=35), 300_000, toy.validation) == 2000
    assert interval(settings.but(validate_every=0), 80, toy.validation) == 0


def test_the_untaught_model_is_measured_beside_what_it_learned(toy, fresh, tmp_path):
    given, untaught = toy.validation, NeuralRanker(fresh("knrm").eval(), choose("fp32", "cpu"))
    before = rerank(untaught, given.run, given.queries, given.documents, given.plan)
    outcome = fit(fresh("knrm"), toy.examples, quick("knrm"), tmp_path, given)
    kept = read_run(tmp_path / "untaught.run")
    assert {q: kept[q].doc_ids for q in kept} == {q: before[q].doc_ids for q in before}
    assert Validator(given, "AP")._value_of(kept) == outcome.validations[0][1]


RISES = {
    "rising to the end": ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], True),
    "slowly at last, a tenth of all": ([0.1, 0.3, 0.45, 0.55, 0.6, 0.63, 0.68], True),
    "levelled off": ([0.1, 0.4, 0.55, 0.62, 0.64, 0.65, 0.66], False),
    "best before the end": ([0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.6], False),
    "nothing learned": ([0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4], False),
    "too few to tell": ([0.1, 0.7], False),
}


@pytest.mark.parametrize("case", RISES)
def test_a_training_that_ended_while_still_improving_says_so(case):
    values, expected = RISES[case]
    validations = [(10 * i, value) for i, value in enumerate(values)]
    noticed = diagnostics.Remarks()
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        diagnostics.check_rise(validations, quick("knrm"), noticed)
        assert bool(noticed.texts) == expected
        if expected:
            assert "--epochs 6" in noticed.texts["still rising"]


def test_a_short_training_writes_its_ranker_once_and_no_checkpoint(toy, fresh, tmp_path, monkeypatch):
    written = []
    for where, name in ((bundle, "save"), (checkpoint, "save_state")):
        real = getattr(where, name)
        monkeypatch.setattr(
            where, name, lambda *a, real=real, name=name, **b: (written.append(name), real(*a, **b))
        )
    outcome = fit(fresh("knrm"), toy.examples, quick("knrm"), tmp_path / "short", toy.validation)
    assert written == ["save"]
    every = quick("knrm", checkpoint_seconds=0)
    assert fit(fresh("knrm"), toy.examples, every, tmp_path / "safe", toy.validation).best == outcome.best
    assert written.count("save_state") == len(outcome.validations)
    short, safe = load(tmp_path / "short" / "ranker"), load(tmp_path / "safe" / "ranker")
    assert same(short.state_dict(), safe.state_dict())


def test_a_folder_of_something_else_is_left_alone(toy, fresh, tmp_path):
    for name, text in (
        ("thesis.tex", "years"),
        ("settings.json", '{"theme": "dark"}'),
        ("log.jsonl", "{}\n"),
    ):
        mine = tmp_path / name.partition(".")[0]
        mine.mkdir()
        (mine / name).write_text(text)
        with pytest.raises(WrongUse, match="holds something else"):
            fit(fresh("knrm"), toy.examples, quick("knrm"), mine)
        assert [path.name for path in mine.iterdir()] == [name]
        assert (mine / name).read_text() == text
