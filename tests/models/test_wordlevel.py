"""The contract of every word-level family."""

import msgspec
import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadData, BadModel, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models import bundle
from rankhouse.models.drmm import DRMMDesign
from rankhouse.models.knrm import ConvKNRMDesign, KNRMDesign
from rankhouse.models.matchpyramid import MatchPyramidDesign
from rankhouse.models.mp_hcnn import MPHCNNDesign
from rankhouse.models.pacrr import PACRRDesign
from rankhouse.models.samcnn import SamCNNDesign
from rankhouse.models.tk import TKDesign
from rankhouse.nn.machine import choose

SMALL = {"width": 12, "min_count": 1, "words": "blingfire", "query_length": 6, "passage_length": 20}
DESIGNS = {
    "tk": TKDesign(**SMALL, heads=2, attention_width=4, feed_forward=6),
    "tk attention first": TKDesign(
        **SMALL, heads=2, attention_width=0, feed_forward=6, order="attention-first"
    ),
    "tk windows": TKDesign(**SMALL, heads=2, attention_width=4, feed_forward=6, windows=[3, 7, 50]),
    "knrm": KNRMDesign(**SMALL),
    "conv_knrm": ConvKNRMDesign(**SMALL, filters=5),
    "drmm": DRMMDesign(**SMALL),
    "pacrr": PACRRDesign(**SMALL, filters=4, hidden=8),
    "pacrr_drmm": PACRRDesign(**SMALL, filters=4, hidden=8, aggregate="terms", tune_vectors=True),
    "matchpyramid": MatchPyramidDesign(**SMALL),
    "matchpyramid dot": MatchPyramidDesign(**SMALL, similarity="dot"),
    "matchpyramid indicator": MatchPyramidDesign(**SMALL, similarity="indicator"),
    "samcnn": SamCNNDesign(**SMALL, attention=None, filters=12, hidden=8, final=6, dropout=0.1),
    "samcnn query": SamCNNDesign(**SMALL, attention="query", filters=12, hidden=8, final=6, dropout=0.1),
    "samcnn position": SamCNNDesign(
        **SMALL, attention="position", filters=12, hidden=8, final=6, dropout=0.1, filter_length=3
    ),
    "samcnn equal": SamCNNDesign(
        **SMALL, filters=12, hidden=8, final=6, dropout=0.1, importance="equal", overlap=False, unknown=8
    ),
    "mp_hcnn": MPHCNNDesign(**SMALL, filters=6, layers=2, trigram_width=7, hidden=9),
}
TEXTS = [
    "how tall is the old mountain", "the mountain is very tall and old", "a river runs through the valley",
    "who runs the river club", "tall trees grow near the old river http://example.org/river-club",
    "", "mountain", "the the the the", "unheard-of words only", "valley",
]  # fmt: skip


def pair(query, passage):
    return Pair(Query("q", query), Passage("d", 0, passage))


QUERIES = ("tall mountain", "river club old", "", "zzz", "who runs the tall old mountain river")
PAIRS = [pair(query, text) for query in QUERIES for text in TEXTS]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=DESIGNS, ids=lambda name: name.replace(" ", "-"))
def model(request):
    made = DESIGNS[request.param].fresh([text for text in TEXTS if "unheard" not in text], seed=4)
    with torch.no_grad():  # away from where training starts, so that every term matters
        generator = torch.Generator().manual_seed(1)
        for name, parameter in made.named_parameters():
            if "embedding" not in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return made.eval()


def scores(model, pairs):
    with torch.no_grad():
        return model(model.encode(pairs)).numpy()


@pytest.mark.quick("tk*", "samcnn*", "knrm*", "drmm*", "pacrr*", "match*")
def test_a_score_does_not_depend_on_the_batch(model):
    together = scores(model, PAIRS)
    assert together.shape == (len(PAIRS),)
    assert np.isfinite(together).all()
    alone = np.concatenate([scores(model, [each]) for each in PAIRS])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(PAIRS))
    np.testing.assert_allclose(
        scores(model, [PAIRS[i] for i in order]), together[order], rtol=1e-5, atol=1e-5
    )
    assert together.std() > 1e-4


def test_scoring_and_training_compute_the_same(model):
    np.testing.assert_allclose(
        model(model.encode(PAIRS)).detach().numpy(), scores(model, PAIRS), rtol=1e-5, atol=1e-5
    )


def test_empty_and_one_word_texts_have_finite_gradients(model):
    model.zero_grad()
    pairs = [pair("", ""), pair("", "river"), pair("river", ""), pair("zzz", "river")]
    labels = (
        torch.tensor([[1.0, 0.0]] * 2)
        if model.objective == "contrasts"
        else torch.tensor([[1.0], [0], [1], [0]])
    )
    model.loss(model.encode(pairs), labels).backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert torch.isfinite(parameter.grad).all(), name


def test_a_model_is_made_again_from_policy_vocabulary_and_weights(model):
    policy = msgspec.json.decode(msgspec.json.encode(model.policy))
    assert policy["max_length"] == 26
    again = type(model).rebuild(policy, model.assets()).eval()
    again.load_state_dict(model.state_dict())
    assert again.family == model.family
    assert again.policy == model.policy
    assert np.array_equal(scores(again, PAIRS), scores(model, PAIRS))


def test_a_damaged_bundle_is_refused(model):
    with pytest.raises(BadModel, match=r"no vocabulary\.json"):
        type(model).rebuild(model.policy, {})
    with pytest.raises(BadModel, match="this version needs"):
        type(model).rebuild({**model.policy, "invented": 1}, model.assets())


def test_words_that_do_not_fit_are_counted(model):
    batch = model.encode([pair("a b c", "d"), pair("a b c d e f g h", " ".join("x" * 25))])
    assert batch.lost.tolist() == [0, 2 + 5]
    assert len(batch) == 2
    assert batch.take(torch.tensor([1])).lengths.shape == (1,)


def test_evidence_shows_what_the_score_is_made_of(model):
    for each in (pair("tall river", "a river near the mountain"), pair("", "river"), pair("river", "")):
        evidence = model.evidence(each)
        assert evidence.score == pytest.approx(float(scores(model, [each])[0]), abs=1e-5)
        q, p = len(evidence.query_words), len(evidence.passage_words)
        assert (q, p) == (len(each.query.text.split()), len(each.passage.text.split()))
        assert evidence.matches
        assert all(match.shape == (q, p) for match in evidence.matches.values())
        assert all(
            evidence.gathered[name].shape == (q, len(evidence.columns[name])) for name in evidence.columns
        )
        if evidence.additive:
            assert sum(evidence.parts.values()) == pytest.approx(evidence.score, abs=1e-4)


def test_the_scorer_gives_the_forward_scores(model):
    compute = choose("fp32", "cpu")
    with compute.active():
        quick = model.scorer(compute)(model.encode(PAIRS)).numpy()
    np.testing.assert_allclose(quick, scores(model, PAIRS), rtol=1e-6, atol=1e-6)


@pytest.mark.quick("knrm", "tk", "drmm")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "mp_hcnn" else ()) for name in DESIGNS]
)
def test_a_family_learns_which_passage_answers(name):
    model = DESIGNS[name].fresh(TEXTS, seed=2).train()
    questions = [("tall mountain", TEXTS[1], TEXTS[2]), ("river valley", TEXTS[2], TEXTS[1]),
                 ("who runs club", TEXTS[3], TEXTS[7]), ("old trees", TEXTS[4], TEXTS[3])]  # fmt: skip
    pairs = [pair(q, p) for q, good, bad in questions for p in (good, bad)]
    labels = torch.tensor([[1.0, 0.0]] * 4)
    if model.objective == "points":
        labels = labels.reshape(-1, 1)
    batch = model.encode(pairs)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.005)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        losses = []
        for _ in range(80):
            optimiser.zero_grad()
            loss = model.loss(batch, labels)
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
    assert np.mean(losses[-10:]) < 0.8 * losses[0], losses[::10]
    good, bad = scores(model.eval(), pairs).reshape(-1, 2).T
    assert (good > bad).all()


@pytest.mark.parametrize("name", ["tk", "samcnn position", "mp_hcnn", "pacrr"])
def test_the_same_seed_starts_the_same_model(name):
    first, second = (DESIGNS[name].fresh(iter(TEXTS), seed=7) for _ in range(2))
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )
    other = DESIGNS[name].fresh(iter(TEXTS), seed=8)
    assert any(
        not torch.equal(a, b)
        for a, b in zip(first.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_start_vectors_come_from_a_file(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("river 1 2 3\nmountain 4 5 6\n")
    model = KNRMDesign(vectors=str(path), min_count=1).fresh(TEXTS)
    row = model.reader.vocabulary.ids(["river"])[0]
    assert model.embedding.weight[row].tolist() == [1, 2, 3]
    assert model.policy["width"] == 3
    assert "vectors" not in model.policy


def test_no_frequent_word_is_said_at_once():
    with pytest.raises(BadData, match="vocabulary would be empty"):
        KNRMDesign(min_count=50).fresh(TEXTS)


@pytest.mark.parametrize(
    ("design", "options", "said"),
    [
        (TKDesign, {"windows": [0]}, "windows"),
        (TKDesign, {"query_length": 0}, "query_length=0"),
        (ConvKNRMDesign, {"grams": 0}, "grams=0"),
        (DRMMDesign, {"bins": 1}, "bins=1"),
        (PACRRDesign, {"aggregate": "sum"}, "query, terms"),
        (MatchPyramidDesign, {"similarity": "l2"}, "cosine, dot, indicator"),
        (MatchPyramidDesign, {"square": 2}, "odd"),
        (SamCNNDesign, {"attention": "self"}, '"query", "position"'),
        (SamCNNDesign, {"dropout": 1.0}, "dropout"),
        (SamCNNDesign, {"class_weights": [0.1]}, "two numbers"),
        (SamCNNDesign, {"unknown": 0}, "unknown=0"),
        (SamCNNDesign, {"importance": "tf"}, '"equal", "idf"'),
        (MPHCNNDesign, {"layers": 0}, "layers=0"),
    ],
)
def test_wrong_options_are_refused_with_what_is_accepted(design, options, said):
    with pytest.raises(WrongUse, match=said):
        design(**options)


def test_wrong_orders_and_heads_are_refused():
    with pytest.raises(WrongUse, match="attention-first, ff-first"):
        TKDesign(**SMALL, order="sideways").fresh(TEXTS)
    with pytest.raises(WrongUse, match="divides the attention width"):
        TKDesign(**SMALL, heads=5, attention_width=12).fresh(TEXTS)


def test_class_weights_change_what_a_mistake_costs():
    pairs, labels = [pair("river", TEXTS[2]), pair("river", TEXTS[1])], torch.tensor([[1.0], [0.0]])
    small = {**SMALL, "filters": 6, "hidden": 5, "final": 4}
    even, skewed = (SamCNNDesign(**small, class_weights=w).fresh(TEXTS).eval() for w in ((), [0.1, 1.0]))
    logs = even.log_probabilities(even.encode(pairs))
    expected = -(logs[0, 1] + 0.1 * logs[1, 0]) / 1.1
    torch.testing.assert_close(skewed.loss(skewed.encode(pairs), labels), expected)


def test_contrasts_need_groups_of_two():
    model = KNRMDesign(**SMALL).fresh(TEXTS)
    with pytest.raises(WrongUse, match="groups of 2"):
        model.loss(model.encode(PAIRS[:2]), torch.ones(2, 1))


@pytest.mark.parametrize(
    ("family", "storage", "tolerance"),
    [
        ("tk", "float32", 1e-5),
        ("tk", "float16", 1e-3),
        ("tk", "int8", 0.05),
        ("tk windows", "float32", 1e-5),
        ("tk windows", "float16", 1e-3),
        ("tk windows", "int8", 0.05),
        ("conv_knrm", "float32", 1e-5),
        ("conv_knrm", "float16", 1e-3),
        ("conv_knrm", "int8", 0.05),
        ("knrm", "uint16", 0),
    ],
)
def test_stored_passages_give_a_models_own_scores(family, storage, tolerance):
    model = DESIGNS[family].fresh(TEXTS, seed=3).eval()
    stored = model.store_passages(TEXTS, *(() if model.id_format else (storage,)))
    assert stored.values.dtype == storage
    assert stored.offsets.tolist()[0] == 0
    for query in (*QUERIES, ""):
        expected = scores(model, [pair(query, text) for text in TEXTS])
        np.testing.assert_allclose(
            model.score_stored(query, stored), expected, rtol=tolerance, atol=tolerance
        )
    assert model.score_stored("river", model.store_passages([])).shape == (0,)


def test_stored_passages_refuse_what_they_cannot_serve():
    model = DESIGNS["tk"].fresh(TEXTS, seed=3)
    with pytest.raises(WrongUse, match="float16, float32, int8"):
        model.store_passages(TEXTS, "int4")


def test_a_tk_in_windows_begins_with_the_layers_of_a_trained_one(tmp_path):
    given = TKDesign(**SMALL, heads=2, attention_width=4, feed_forward=6, layers=1)
    trained = given.fresh(TEXTS, seed=3)
    with torch.no_grad():
        trained.mix.fill_(0.8)
    bundle.save(trained, tmp_path / "mine" / "ranker")  # as the folder of a training holds it
    begun = TKDesign(start=str(tmp_path / "mine"), windows=(4, 8), passage_length=50).fresh(
        ["others"], seed=1
    )
    expected = {"passage_length": 50, "windows": [4, 8], "heads": 2, "layers": 1}
    assert {name: begun.policy.get(name) for name in (*expected, "start")} == expected | {"start": None}
    own, there = begun.state_dict(), trained.state_dict()
    assert begun.reader.vocabulary.words == trained.reader.vocabulary.words
    shared = {name for name in there if not name.startswith("head.")}
    assert len(shared) > 10
    assert all(torch.equal(own[name], there[name]) for name in shared)
    pairs = [pair("river banks", text) for text in TEXTS]
    saved = bundle.load(bundle.save(begun, tmp_path / "windows"))
    assert np.array_equal(scores(saved, pairs), scores(begun, pairs))


def test_a_start_that_does_not_fit_is_refused(tmp_path):
    bundle.save(DESIGNS["tk"].fresh(TEXTS, seed=3), tmp_path / "tk")
    bundle.save(DESIGNS["knrm"].fresh(TEXTS, seed=3), tmp_path / "knrm")
    with pytest.raises(WrongUse, match="layers=7: the TK in .* leave it out"):
        TKDesign(start=str(tmp_path / "tk"), layers=7).fresh(TEXTS)
    with pytest.raises(WrongUse, match="family knrm"):
        TKDesign(start=str(tmp_path / "knrm")).fresh(TEXTS)
    with pytest.raises(WrongUse, match="leave vectors out"):
        TKDesign(start="tk", vectors="words.txt")
