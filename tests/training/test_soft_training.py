"""Learning from a teacher's scores: the losses by hand, the lists, and every family taught."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadData, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.io.pairs import LabelledPair, write_pairs
from rankhouse.labels.soft_scores import JoinedTeachers, RunTeacher, z_scores
from rankhouse.training.distillation import TeacherScores, comparable, soft_loss, targets_for, with_scores
from rankhouse.training.examples import from_judgements, from_pairs
from rankhouse.training.fit import fit
from rankhouse.training.settings import Settings, defaults
from rankhouse.training.teacher_batches import MixedBatches, SoftBatches, batches_for

ALL = ("knrm", "conv_knrm", "tk", "samcnn")


class Words:
    """A teacher: the number of the question's words that a passage has, on any scale."""

    fingerprint = "words"

    def __init__(self, scale="score"):
        self.scale, self.asked = scale, []

    def score(self, pairs):
        self.asked += [(query.id, passage.doc_id) for query, passage in pairs]
        shares = [len(set(q.text.split()) & set(p.text.split())) / len(set(q.text.split())) for q, p in pairs]
        return np.array(shares, np.float32)


def settings(family, **changes):
    quick = {"epochs": 3, "rate": 0.01, "rates": {}, "schedule": "constant", "batch": 8, "device": "cpu"}
    return defaults(family).but(**quick | {"by_query": 0, "measure": "AP", "optimizer": "adam"} | changes)


def test_margins_are_compared_over_all_two_pairs_of_a_list():
    student, teacher = torch.tensor([[1.0, 0.5, 2.0], [0, 0, 0]]), torch.tensor([[3.0, 1.0, 1.0], [1, 2, 4]])
    differences = [
        ((student[g, i] - student[g, j]) - (teacher[g, i] - teacher[g, j])) ** 2
        for g in range(2)
        for i in range(3)
        for j in range(3)
        if i != j
    ]
    assert float(soft_loss("margin-mse")(student, teacher)) == pytest.approx(float(np.mean(differences)))
    two = soft_loss("margin_mse")(torch.tensor([[2.0, 1.0]]), torch.tensor([[5.0, 1.0]]))
    assert float(two) == pytest.approx((1 - 4) ** 2)  # Hofstätter et al., eq. 5


def test_the_listwise_loss_is_zero_where_the_distributions_are_one():
    teacher = torch.tensor([[1.0, 2.0, -1.0]])
    assert float(soft_loss("listwise-kl")(teacher + 7, teacher)) == pytest.approx(0, abs=1e-6)
    wanted, given = teacher.softmax(1)[0], torch.tensor([1 / 3] * 3)
    by_hand = float((wanted * (wanted / given).log()).sum())
    assert float(soft_loss("listwise_kl")(torch.zeros(1, 3), teacher)) == pytest.approx(by_hand)


def test_a_sharper_listwise_loss_compares_multiples_of_both():
    student, teacher = torch.tensor([[0.5, 0.0, 2.0]]), torch.tensor([[1.0, 2.0, -1.0]])
    sharper, plain = soft_loss("listwise-kl(sharpness=2)"), soft_loss("listwise-kl")
    assert float(sharper(student, teacher)) == float(plain(2 * student, 2 * teacher))
    assert float(sharper(student, teacher)) != float(plain(student, teacher))
    with pytest.raises(WrongUse, match="sharpness=0: scores are multiplied by a number above 0"):
        soft_loss("listwise-kl(sharpness=0)")


def test_the_pointwise_loss_is_the_cross_entropy_of_probabilities():
    p, x = 0.8, 0.3
    by_hand = -(p * np.log(1 / (1 + np.exp(-x))) + (1 - p) * np.log(1 - 1 / (1 + np.exp(-x))))
    assert float(
        soft_loss("pointwise")(torch.tensor([[x]]), torch.logit(torch.tensor([[p]])))
    ) == pytest.approx(by_hand)


def scored(score, label=None, query=None):
    n = len(score)
    return TeacherScores(
        np.zeros(n, np.int64) if query is None else np.array(query),
        np.array(score, np.float32),
        np.full(n, -1) if label is None else np.array(label),
    )


def test_the_size_of_a_teachers_scores_does_not_matter_unless_a_factor_is_given():
    small, large = scored([0.1, 0.2, 0.5, 0.9], query=[0, 0, 1, 1]), scored([1, 2, 5, 9], query=[0, 0, 1, 1])
    loss = soft_loss("margin-mse")
    one, other = (targets_for(loss, "score", pairs)(pairs.score) for pairs in (small, large))
    np.testing.assert_allclose(one, other, rtol=1e-5)
    per_query = [np.var(one[:2]), np.var(one[2:])]
    assert np.sqrt(np.mean(per_query)) == pytest.approx(2)
    fixed = targets_for(soft_loss("margin-mse(factor=15)"), "score", small)
    np.testing.assert_allclose(fixed(small.score), 15 * small.score)
    np.testing.assert_allclose(
        targets_for(soft_loss("margin-mse(factor=1)"), "probability", scored([0.5, 0.9]))(np.float32([0.9])),
        [np.log(9)],
        rtol=1e-5,
    )
    with pytest.raises(BadData, match="one score"):
        targets_for(loss, "score", scored([1, 1]))


def test_scores_without_probability_are_calibrated_on_judged_pairs():
    rng = np.random.default_rng(0)
    score = rng.normal(5, 3, 4000)
    label = (rng.random(4000) < 1 / (1 + np.exp(-(0.7 * score - 2)))).astype(int)
    targets = targets_for(soft_loss("pointwise"), "similarity", scored(score, label))
    assert (targets.slope, targets.intercept) == (pytest.approx(0.7, abs=0.06), pytest.approx(-2, abs=0.3))
    with pytest.raises(WrongUse, match="0 relevant and 0 other"):
        targets_for(soft_loss("pointwise"), "similarity", scored([1, 2]))
    assert targets_for(soft_loss("pointwise"), "logit", scored([1, 2])).slope == 1


def test_a_calibrated_teacher_needs_no_judgements():
    fitted, pairs = 'platt(2.0, -1.0, of="similarity")', scored([0.2, 0.9])
    np.testing.assert_allclose(
        targets_for(soft_loss("pointwise"), fitted, pairs)(pairs.score), 2 * pairs.score - 1, rtol=1e-5
    )
    steps = 'isotonic((0.95, 0.4), (1.0, 0.5), of="similarity")'  # all scores one probability
    plain = targets_for(soft_loss("margin-mse"), "similarity", pairs)
    assert targets_for(soft_loss("margin-mse"), steps, pairs) == plain


def test_scores_are_compared_as_log_odds(fresh):
    pairs = [
        Pair(Query("q", "word1 word2"), Passage(f"d{n}", 0, text))
        for n, text in enumerate(("word1 answer", "fill3"))
    ]
    model = fresh("samcnn").eval()
    assert model.scale == "logprob"  # what its forward gives
    with torch.no_grad():
        odds, scores = (torch.tensor(f(model.encode(pairs)).tolist()) for f in (model.log_odds, model))
        assert torch.equal(comparable(model, model.encode(pairs)), odds)
    assert odds[0] != odds[1]
    torch.testing.assert_close(torch.nn.functional.logsigmoid(odds), scores)
    kernels = fresh("knrm").eval()
    assert kernels.scale == "score"
    assert comparable(kernels, kernels.encode(pairs)).tolist() == kernels(kernels.encode(pairs)).tolist()


def lists(examples, **changes):
    chosen = settings("tk", **{"loss": "margin-mse"} | changes)
    return batches_for(examples, "contrasts", chosen)


def test_every_scored_pair_comes_once_an_epoch_beside_others_of_its_query(toy):
    batches = lists(replace(toy.examples, teacher=Words()), count=4)
    for epoch in (0, 1):
        groups = list(batches.epoch(epoch))
        assert len(groups) == batches.per_epoch
        rows = np.concatenate([one.label for one in groups])
        assert rows.shape[1] == 5
        assert sorted(rows.ravel().tolist()) == list(range(len(toy.examples)))
        assert all(len(set(one)) == 1 for one in toy.examples.query[rows].tolist())
    assert not np.array_equal(rows, np.concatenate([one.label for one in batches.epoch(0)]))
    again = lists(replace(toy.examples, teacher=Words()), count=4)
    assert all(
        np.array_equal(one.label, other.label)
        for one, other in zip(batches.epoch(1), again.epoch(1), strict=True)
    )


def test_lists_far_longer_than_any_query_are_refused(toy):
    taught = replace(toy.examples, teacher=Words())
    with pytest.raises(WrongUse, match="count=99999: no query has more than"):
        lists(taught, count=99_999)
    assert lists(taught, count=99_999, loss="pointwise").size == 1  # which has no lists


def test_a_short_query_has_some_pairs_twice_and_a_single_pair_none(toy):
    few = toy.examples.restrict(["q0", "q1"])
    keep = np.array([0, 1, 5, 10])
    few = replace(few, **{name: getattr(few, name)[keep] for name in ("query", "item", "label", "rank")})
    batches = lists(replace(few, teacher=Words()), count=4)
    (only,) = batches.epoch(0)
    assert only.label.shape == (1, 5)
    assert set(only.label.ravel().tolist()) == {0, 1, 2}


def test_the_teacher_is_asked_about_each_pair_once(toy):
    teacher = Words()
    batches = lists(replace(toy.examples, teacher=teacher))
    for epoch in (0, 1):
        for groups in batches.epoch(epoch):
            texts = batches.read(groups)
            expected = batches.targets(Words().score(texts.pairs)).reshape(texts.targets.shape)
            np.testing.assert_allclose(texts.targets, expected, rtol=1e-6)
    assert sorted(teacher.asked) == sorted(set(teacher.asked))
    assert len(teacher.asked) == len(toy.examples)


@pytest.mark.quick("knrm-*", "tk-margin-mse")
@pytest.mark.parametrize("loss", ["margin-mse", "listwise-kl", "pointwise"])
@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.slow if name == "samcnn" else ()) for name in ALL]
)
def test_every_family_learns_from_every_loss(toy, fresh, tmp_path, family, loss):
    examples = replace(toy.examples, teacher=Words("probability"), label=np.full(len(toy.examples), -1))
    rate = {} if family != "samcnn" else {"rate": 0.003, "epochs": 6}
    chosen = settings(family, loss=loss, count=4, **rate)
    model = fresh(family)
    outcome = fit(model, examples, chosen, tmp_path / "t", toy.validation)
    assert outcome.best > outcome.validations[0][1] + 0.1


def test_scores_of_a_pairs_file_are_learned_and_resume(toy, fresh, tmp_path):
    teacher, lines = Words(), []
    for query in toy.queries[:30]:
        for doc_id, document in toy.documents.items():
            if doc_id.startswith(f"{query.id}d"):
                from rankhouse.core.nouns import Passage

                pair = Pair(query, Passage(doc_id, 0, document.full_text))
                lines.append(LabelledPair.of(pair, -1, float(teacher.score([pair])[0]), "score"))
    write_pairs(lines, tmp_path / "p.jsonl")
    examples = from_pairs(tmp_path / "p.jsonl")
    assert examples.scale == "score"
    assert set(examples.label.tolist()) == {-1}
    outcome = fit(
        fresh("knrm"), examples, settings("knrm", loss="listwise-kl", count=4), tmp_path / "t", toy.validation
    )
    assert outcome.best > outcome.validations[0][1] + 0.1
    other = replace(examples, score=examples.score + 1)
    with pytest.raises(WrongUse, match="holds another training"):
        fit(
            fresh("knrm"),
            other,
            settings("knrm", loss="listwise-kl", count=4),
            tmp_path / "t",
            toy.validation,
        )


def test_scores_on_two_scales_are_refused_with_the_line_where_they_are_learned(tmp_path):
    line = {"query_id": "q", "query": "a", "doc_id": "d", "passage": 0, "text": "b", "label": 1, "score": 0.5}
    records = [line | {"scale": "logit"}, line | {"doc_id": "e", "scale": "score", "label": 0}]
    (tmp_path / "p").write_text("".join(json.dumps(one) + "\n" for one in records))
    examples = from_pairs(tmp_path / "p")
    labels = settings("tk")
    assert batches_for(examples, "contrasts", labels).per_epoch == 1
    refused = 'p, line 2: the score is on the scale "score", those before on "logit"'
    with pytest.raises(BadData, match=refused):
        lists(examples)
    denoising = settings("tk", denoise="margin(0.1)")
    with pytest.raises(BadData, match=refused):
        batches_for(examples, "contrasts", denoising)


def test_judgements_are_mixed_in_by_weight(toy, fresh):
    examples = replace(toy.examples, teacher=Words())
    chosen = settings("tk", loss="margin-mse", judged=0.25)
    mixed = batches_for(examples, "contrasts", chosen)
    assert isinstance(mixed, MixedBatches)
    steps = list(mixed.plan(0))
    assert len(steps) == mixed.per_epoch
    for soft, hard in steps:
        assert (soft.weight, hard.weight) == (0.75, 0.25)
        assert soft.read(soft.groups).targets is not None
        assert hard.read(hard.groups).targets is None
        assert hard.groups.label.sum(1).tolist() == [1] * len(hard.groups.label)
    following = list(mixed.plan(1))
    one_epoch = list(mixed.judged.epoch(0))
    if len(steps) < len(one_epoch):  # judged batches go on where the epoch before stopped
        assert np.array_equal(following[0][1].groups.item, one_epoch[len(steps)].item)


def test_a_mixed_step_is_the_weighted_sum_of_both_gradients(toy, fresh):
    from rankhouse.training.steps import Stepper

    examples = replace(toy.examples, teacher=Words())

    def gradient(**changes):
        chosen = settings("knrm", loss="margin-mse", **changes)
        model = fresh("knrm")
        stepper = Stepper(model, chosen)
        tasks = next(batches_for(examples, "contrasts", chosen).plan(0))
        return stepper, tasks, model

    stepper, tasks, model = gradient(judged=0.25)
    losses = []
    for part in stepper.encode(tasks):
        losses.append(float(stepper._loss(part).detach()))
    alone = [
        float(soft_loss("margin-mse")(comparable(model, p.batch).view(p.targets.shape), p.targets).detach())
        if p.targets is not None
        else float(model.loss(p.batch, p.labels).detach())
        for p in stepper.encode(tasks)
    ]
    assert losses == pytest.approx([0.75 * alone[0], 0.25 * alone[1]], rel=1e-5)


def test_a_run_is_enough_for_a_teacher(toy):
    with pytest.raises(BadData):
        from_judgements(toy.queries, {}, toy.documents, toy.run)
    examples = from_judgements(toy.queries, {}, toy.documents, toy.run, unjudged=True)
    assert set(examples.label.tolist()) == {-1}
    assert isinstance(lists(replace(examples, teacher=Words())), SoftBatches)


def test_runs_and_several_teachers_score_all_pairs_before_the_training(toy):
    examples = from_judgements(toy.queries, {}, toy.documents, toy.run, unjudged=True)
    some = toy.run.restrict(["q0", "q1"]).top(5)
    alone = with_scores(examples, RunTeacher(some))
    known = np.isin(examples.query, [0, 1])
    assert np.isnan(alone.score[~known]).all()
    assert alone.score[examples.query == 0].min() == some["q0"].scores[-1]  # of what the run lacks
    assert isinstance(lists(alone), SoftBatches)
    both, told = JoinedTeachers([Words(), RunTeacher(some)]), []
    joined = with_scores(examples, both, lambda *now: told.append(now))
    assert told[0] == (0, len(examples))
    for row in (0, 1, 2):
        places = np.flatnonzero(examples.query == row)
        passages = examples.fetch(examples.item[places].tolist())
        pairs = [Pair(toy.queries[row], passage) for passage in passages]
        sources = [Words(), RunTeacher(some)] if row < 2 else [Words()]
        values = np.column_stack([teacher.score(pairs) for teacher in sources]).astype(float)
        np.testing.assert_allclose(joined.score[places], z_scores(values), rtol=1e-5, atol=1e-6)
    with pytest.raises(WrongUse, match="scores already"):
        with_scores(alone, both)


def test_wrong_settings_say_what_is_accepted(toy):
    with pytest.raises(WrongUse, match="choose from: listwise-kl, margin-mse, pointwise"):
        Settings(loss="mse")
    with pytest.raises(WrongUse, match="have a meaning with a loss on scores"):
        Settings(judged=0.5)
    with pytest.raises(WrongUse, match="from 0 to below 1"):
        Settings(loss="margin-mse", judged=1.0)
    with pytest.raises(WrongUse, match="factor=-1"):
        Settings(loss="margin-mse(factor=-1)")
    with pytest.raises(BadData, match="has 2 pairs with a score"):
        lists(toy.examples)
    chosen = settings("tk")
    with pytest.raises(WrongUse, match="learned by a loss"):
        batches_for(replace(toy.examples, teacher=Words()), "contrasts", chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RankhouseWarning)
        both = replace(
            toy.examples, teacher=Words("logit"), score=np.ones(len(toy.examples), np.float32), scale="score"
        )
        with pytest.raises(BadData, match='on the scale "score", the teacher gives "logit"'):
            lists(both)


def crossed(examples, **changes):
    chosen = settings("tk", loss="listwise-kl", crossed=True, **changes)
    return batches_for(examples, "contrasts", chosen)


def test_crossed_batches_put_every_query_beside_every_passage(toy):
    examples = replace(toy.examples, teacher=Words())
    batches = crossed(examples, batch=2, count=4)
    begun = []
    for groups in batches.epoch(0):
        queries, items = groups.query[:, 0], groups.item[0]
        assert (groups.query == queries[:, None]).all()
        assert (groups.item == items).all()
        assert len(set(queries.tolist())) == len(queries)
        assert len(set(items.tolist())) == len(items)
        begin = queries[:2]
        begun += begin.tolist()
        candidates = {(q, i) for q, i in zip(examples.query.tolist(), examples.item.tolist(), strict=True)}
        assert all(any((q, i) in candidates for q in begin.tolist()) for i in items.tolist())
        texts = batches.read(groups)
        wanted = Words().score(texts.pairs).reshape(texts.targets.shape)
        np.testing.assert_allclose(texts.targets / texts.targets.max(), wanted / wanted.max(), rtol=1e-5)
    assert sorted(begun) == list(range(30))
    again = [groups.item for groups in crossed(examples, batch=2, count=4).epoch(0)]
    assert all(np.array_equal(one.item, other) for one, other in zip(batches.epoch(0), again, strict=True))


def test_queries_join_whose_own_documents_are_candidates():
    from rankhouse.core.nouns import Document, Query
    from rankhouse.core.run import Run

    documents = {f"d{n}": Document(f"d{n}", f"word{n} word{n + 1} word{n + 2}") for n in range(6)}
    queries = [Query(f"q{n}", f"word{n} word{n + 1}") for n in range(6)]
    run = Run.of({f"q{n}": {f"d{(n + k) % 6}": 3.0 - k for k in range(3)} for n in range(6)})
    qrels = {f"q{n}": {f"d{n}": 1} for n in range(6)}
    examples = replace(from_judgements(queries, qrels, documents, run), teacher=Words())
    for groups in crossed(examples, batch=1, count=3).epoch(0):
        first = int(groups.query[0, 0])
        assert set(groups.query[:, 0].tolist()) == {first, (first + 1) % 6, (first + 2) % 6}


def test_crossed_pairs_give_tk_the_gradients_of_the_pairs_apart(toy, fresh):
    model = fresh("tk")
    batches = crossed(replace(toy.examples, teacher=Words()), batch=8, count=6)
    pairs = batches.read(next(batches.epoch(0))).pairs
    together = model.encode(pairs)
    assert together.crossed
    gradients = []
    for batch in (together, replace(together, crossed=False)):
        model.zero_grad()
        model(batch).square().sum().backward()
        gradients.append({name: weight.grad.clone() for name, weight in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-3, atol=1e-5)
    assert not model.encode(pairs[:3]).crossed


@pytest.mark.parametrize("family", ["tk", "knrm"])
def test_families_learn_from_crossed_pairs(toy, fresh, tmp_path, family):
    chosen = settings(family, loss="listwise-kl", crossed=True, batch=2, count=6, epochs=6)
    examples = replace(toy.examples, teacher=Words())
    outcome = fit(fresh(family), examples, chosen, tmp_path / "t", toy.validation)
    assert outcome.best > outcome.validations[0][1] + 0.1


def test_crossed_pairs_need_a_teacher_and_a_loss_that_compares(toy):
    with pytest.raises(WrongUse, match="give a teacher"):
        crossed(toy.examples)
    with pytest.raises(WrongUse, match="they have a meaning with a loss on scores"):
        Settings(crossed=True)
    chosen = settings("samcnn", loss="pointwise", crossed=True, count=1)
    with pytest.raises(WrongUse, match="compares passages"):
        batches_for(replace(toy.examples, teacher=Words()), "points", chosen)
