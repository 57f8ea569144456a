"""CEDR beside a reimplementation of its authors' arithmetic: padded queries, plain loops."""

import math

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.bundle import open_ranker, save
from rankhouse.models.cedr_design import CEDRDesign
from rankhouse.models.families import open_model
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn import machine
from rankhouse.nn.machine import Compute
from rankhouse.training.optimizer import parameter_groups
from rankhouse.training.settings import defaults

from .conftest import WORDS, make_pairs

HEADS = ("knrm", "pacrr", "drmm")
SLOTS = 8


def begun(folder, head, seed=3, **more):
    model = CEDRDesign(folder, head, **({"query_length": SLOTS, "passage_length": 90} | more)).fresh([], seed)
    return model.eval()


class Authors:
    """Their forward pass for one pair: the query padded to its slots with masked tokens."""

    def __init__(self, model, folder):
        from transformers import AutoTokenizer, BertModel

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.bert = BertModel.from_pretrained(folder).eval()
        self.head, self.kind = model.head, model.policy["head"]
        self.most, self.longest = model.policy["row_length"], model.policy["passage_length"]

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def states(self, query, passage):
        cls, sep = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        q, d = self.ids(query)[:SLOTS], self.ids(passage)[: self.longest]
        count = max(1, math.ceil(len(d) / (self.most - SLOTS - 3)))
        size = math.ceil(len(d) / count)
        pieces = [d[i * size : (i + 1) * size] for i in range(count)]
        rows, masks, kinds = [], [], []
        for piece in pieces:
            short = SLOTS - len(q)
            fill = size - len(piece)
            rows.append([cls, *q, *[0] * short, sep, *piece, *[0] * fill, sep])
            masks.append([1, *[1] * len(q), *[0] * short, 1, *[1] * len(piece), *[0] * fill, 1])
            kinds.append([0] * (2 + SLOTS) + [1] * (1 + size))
        given = {"input_ids": rows, "attention_mask": masks, "token_type_ids": kinds}
        with torch.inference_mode():
            layers = self.bert(
                **{name: torch.tensor(value) for name, value in given.items()}, output_hidden_states=True
            ).hidden_states
        asked = [layer[0, 1 : 1 + len(q)] for layer in layers]
        read = [
            torch.cat([layer[i, SLOTS + 2 : SLOTS + 2 + len(p)] for i, p in enumerate(pieces)])
            for layer in layers
        ]
        return asked, read, layers[-1][:, 0].mean(0)

    def score(self, query, passage):
        asked, read, first = self.states(query, passage)
        matches = []
        for a, b in zip(asked, read, strict=True):
            sizes = (a.norm(dim=1)[:, None] + 1e-9) * (b.norm(dim=1)[None] + 1e-9)
            matches.append((a @ b.T) / sizes)
        with torch.inference_mode():
            return float(getattr(self, self.kind)(matches, first))

    def knrm(self, matches, first):
        sums = []
        for centre, width in zip(self.head.centres, self.head.widths, strict=True):
            for match in matches:
                kernel = torch.exp(-0.5 * (match - centre) * (match - centre) / width / width)
                sums.append(sum((row.sum() + 1e-6).log() for row in kernel))
        return self.head.combine(torch.cat([torch.stack(sums), first]))

    def pacrr(self, matches, first):
        whole = torch.zeros(len(matches), SLOTS, matches[0].shape[1])
        for layer, match in enumerate(matches):
            whole[layer, : len(match)] = match
        best = []
        for size, square in zip((1, 2, 3), self.head.squares, strict=True):
            padded = torch.nn.ConstantPad2d((0, size - 1, 0, size - 1), 0)(whole[None])
            filters = torch.relu(torch.nn.functional.conv2d(padded, square.weight, square.bias))
            best.append(filters.max(dim=1).values[0].topk(2, dim=1).values)
        features = torch.cat([torch.cat([one[row] for one in best]) for row in range(SLOTS)])
        return self.head.network(torch.cat([features, first]))

    def drmm(self, matches, first):
        votes = 0.0
        for word in range(SLOTS):
            counts = torch.zeros(11, len(matches))
            for layer, match in enumerate(matches):
                for cosine in match[word] if word < len(match) else ():
                    counts[int((cosine + 1.000001) / 2.0 * 10), layer] += 1
            row = torch.cat([(counts + 1e-5).log().flatten(), first])
            votes = votes + self.head.vote(torch.relu(self.head.hidden(row)))
        return votes


def texts(*sizes, seed=1):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, n)) for n in sizes]


@pytest.mark.quick("knrm")
@pytest.mark.parametrize("head", HEADS)
def test_scores_are_the_authors(head, checkpoint, fp32):
    folder = checkpoint("bert_plain")
    model = begun(folder, head)
    yardstick, ranker = Authors(model, folder), NeuralRanker(model, fp32)
    queries = texts(1, 3, SLOTS, 20, seed=2)
    passages = texts(2, 5, 30, 53, 70, 140)  # one piece, several, and more than is read
    pairs = [Pair(Query(q, q), Passage("d", 0, d)) for q in queries for d in passages]
    expected = [yardstick.score(pair.query.text, pair.passage.text) for pair in pairs]
    np.testing.assert_allclose(ranker.score(pairs), expected, rtol=2e-4, atol=2e-4)
    with torch.inference_mode():
        np.testing.assert_allclose(model(model.encode(pairs)).numpy(), expected, rtol=2e-4, atol=2e-4)
    assert np.std(expected) > 1e-2, "all scores are alike: a poor test"


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("kind", ["bert_plain", "roberta", "electra"])
def test_a_score_depends_on_its_pair_only(head, kind, checkpoint, fp32):
    model = begun(checkpoint(kind), head)
    ranker, pairs = NeuralRanker(model, fp32), [*make_pairs(12, seed=4, longest=90)]
    pairs += [Pair(Query("q", ""), pairs[0].passage), Pair(pairs[0].query, Passage("d", 0, ""))]
    together = ranker.score(pairs)
    assert np.isfinite(together).all()
    alone = np.array([ranker.score([pair])[0] for pair in pairs])
    np.testing.assert_array_equal(together, alone)
    turned = NeuralRanker(model, fp32, budget=64).score(pairs[::-1])[::-1]
    np.testing.assert_array_equal(together, turned)
    with torch.inference_mode():  # padded, as in training
        np.testing.assert_allclose(model(model.encode(pairs)).numpy(), together, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", HEADS)
def test_the_compiled_way_stays_near(head, checkpoint, fp32, many):
    model = begun(checkpoint("wide_bert"), head)
    exact = NeuralRanker(model, fp32).score(many)
    for precision in ("bf16", "int8") if machine.has_int8() else ("bf16",):
        rough = NeuralRanker(model, Compute(precision, torch.device("cpu"), 1)).score(many)
        assert np.corrcoef(exact, rough)[0, 1] > (0.9 if head == "drmm" else 0.95)  # its counts jump
        assert np.abs(exact - rough).max() > 0


def test_a_training_in_bf16_compares_in_fp32(checkpoint):
    model, matches = begun(checkpoint("bert_plain"), "knrm"), []
    model.head.register_forward_pre_hook(lambda _, given: matches.append(given[0]))
    with torch.autocast("cpu", torch.bfloat16):
        scores = model(model.encode(make_pairs(4)))
    assert scores.dtype is torch.float32
    assert all((match != match.bfloat16().float()).any() for match in matches)


def test_every_layer_counts_and_the_widths_are_the_authors(checkpoint):
    folder = checkpoint("bert_plain")
    layers, width = 3, 32
    knrm, pacrr, drmm = (begun(folder, head).head for head in HEADS)
    assert knrm.combine.in_features == 11 * layers + width
    assert [(conv.in_channels, conv.out_channels, conv.kernel_size) for conv in pacrr.squares] == [
        (layers, 32, (size, size)) for size in (1, 2, 3)
    ]
    assert pacrr.network[0].in_features == SLOTS * 3 * 2 + width
    assert drmm.hidden.in_features == 11 * layers + width


def test_what_is_not_read_is_counted(checkpoint, fp32):
    ranker = NeuralRanker(begun(checkpoint("bert_plain"), "knrm", passage_length=20), fp32)
    query, long = texts(12, 50)
    ranker.score(
        [Pair(Query("q", "storm"), Passage("a", 0, "grain")), Pair(Query("q", query), Passage("b", 0, long))]
    )
    tokens = len(ranker.model._texts([query])[0].kept), len(ranker.model._texts([long])[0].kept)
    assert tokens == (12, 20) or tokens[1] == 20
    assert (ranker.report.seen, ranker.report.truncated) == (2, 1)
    assert ranker.report.tokens_lost >= 12 - SLOTS + 50 - 20
    assert ranker.report.query_tokens_lost == 12 - SLOTS


@pytest.mark.parametrize("head", HEADS)
def test_a_bundle_scores_the_same(head, checkpoint, fp32, tmp_path):
    model = begun(checkpoint("bert_plain"), head)
    pairs = make_pairs(6, seed=6)
    before = NeuralRanker(model, fp32).score(pairs)
    save(model, tmp_path / "cedr", {"pool": "max"})
    ranker = open_ranker(str(tmp_path / "cedr"), fp32)
    assert ranker.family == f"cedr_{head}"
    np.testing.assert_array_equal(ranker.score(pairs), before)


@pytest.mark.parametrize("head", HEADS)
def test_both_parts_learn_where_they_can(head, checkpoint):
    torch.manual_seed(0)
    model = begun(checkpoint("bert_plain"), head)
    pairs = [
        Pair(Query("q", "storm harbour"), Passage(str(i), 0, text))
        for i, text in enumerate(texts(9, 12, 60, 7))
    ]
    batch, labels = model.encode(pairs), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    optimiser = torch.optim.Adam(
        [
            {"params": model.head.parameters(), "lr": 1e-3},
            {"params": model.network.parameters(), "lr": 2e-4},
        ]
    )
    losses = []
    for _ in range(12):
        optimiser.zero_grad()
        loss = model.loss(batch, labels)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] - 0.05
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.head.parameters())
    words = model.network.embeddings.word_embeddings.weight.grad
    assert words.abs().sum() > 0
    scores = model(batch).detach().view(2, 2)
    expected = (1 - scores.softmax(1)[:, 0]).mean()
    assert float(model.loss(batch, labels).detach()) == pytest.approx(float(expected))


@pytest.mark.parametrize("head", HEADS)
def test_encoder_and_head_learn_at_rates_of_their_own(head, checkpoint):
    model = begun(checkpoint("bert_plain"), head)
    settings = defaults(model.family)
    groups = parameter_groups(model, settings.rate, settings.rates)
    sizes = {group["lr"]: sum(p.numel() for p in group["params"]) for group in groups}
    parts = {1e-3: model.head, 2e-5: model.network}
    assert sizes == {rate: sum(p.numel() for p in part.parameters()) for rate, part in parts.items()}


def test_a_classifiers_encoder_may_be_the_start(checkpoint, fp32):
    pairs = make_pairs(3, seed=7)
    assert np.isfinite(NeuralRanker(begun(checkpoint("bert"), "knrm"), fp32).score(pairs)).all()


def test_a_cross_encoder_that_was_trained_here_may_be_the_start(checkpoint, tmp_path):
    cross = open_model(f'crossencoder("{checkpoint("bert")}", max_length=40)')
    save(cross, tmp_path / "mine")
    model = begun(str(tmp_path / "mine"), "knrm")
    published = begun(checkpoint("bert"), "knrm")
    assert model.policy == published.policy | {"row_length": 40}
    for name, weight in cross.network.base_model.state_dict().items():
        assert torch.equal(model.network.state_dict()[name], weight), name
    save(begun(checkpoint("bert"), "knrm"), tmp_path / "cedr")
    with pytest.raises(BadModel, match="is a cedr_knrm; CEDR begins with"):
        begun(str(tmp_path / "cedr"), "knrm")


def test_the_seed_draws_the_head(checkpoint):
    one, same, other = (
        begun(checkpoint("bert_plain"), "pacrr", seed).head.state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_faults_are_explained(checkpoint):
    with pytest.raises(WrongUse, match="it is trained: run  rankhouse train"):
        open_model(f'cedr_knrm("{checkpoint("bert_plain")}")')
    refused = {"distilbert": "a DistilBERT", "deberta": "a DeBERTa", "modernbert": "a ModernBERT"}
    for kind, name in (refused | {"mpnet": "an MPNet"}).items():
        with pytest.raises(BadModel, match=f"is {name} checkpoint; CEDR reads encoders like BERT"):
            begun(checkpoint(kind), "knrm")
    with pytest.raises(WrongUse, match="query_length=61: .* leaves none for the passage; give 60 or less"):
        begun(checkpoint("bert_plain"), "knrm", query_length=61)
    with pytest.raises(WrongUse, match="knrm, pacrr, drmm"):
        CEDRDesign("x", "tk")
