"""duoT5 beside an implementation of its own: transformers' T5, whole prompts, both orders, sums."""

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Document, Passage, Query
from rankhouse.core.run import Run
from rankhouse.models.duot5 import ComparisonReader, DuoT5Ranker, TextComparison, fit_comparison, open_duot5
from rankhouse.nn.machine import Compute
from rankhouse.ranking.pairwise import PairwisePlan, rerank_pairwise

from .conftest import make_pairs

CHECKPOINTS = ("t5", "t5_1_1", "wide_t5")


def yardstick(folder, query, texts, max_length=512):
    """(k, k) preferences by transformers alone, one padded batch of finished prompts."""
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = T5ForConditionalGeneration.from_pretrained(folder).eval()
    pairs = [(i, j) for i in range(len(texts)) for j in range(len(texts)) if i != j]
    prompts = [f"Query: {query} Document0: {texts[i]} Document1: {texts[j]} Relevant:" for i, j in pairs]
    given = tokenizer(prompts, return_tensors="pt", padding=True)
    assert given.input_ids.shape[1] <= max_length
    words = [tokenizer(word, add_special_tokens=False).input_ids[0] for word in ("true", "false")]
    with torch.inference_mode():
        start = torch.zeros((len(pairs), 1), dtype=torch.long)
        logits = network(**given, decoder_input_ids=start).logits[:, 0, words]
    matrix = np.zeros((len(texts), len(texts)))
    for (i, j), p in zip(pairs, logits.softmax(-1)[:, 0].tolist(), strict=True):
        matrix[i, j] = p
    return matrix


def passages_of(n, seed=0, longest=25):
    texts = [pair.passage.text or "grain" for pair in make_pairs(n, seed, longest)]
    return [Passage(f"d{i}", 0, text) for i, text in enumerate(texts)]


@pytest.mark.quick("t5")
@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_preferences_are_those_of_transformers(kind, checkpoint, fp32):
    ranker = DuoT5Ranker(open_duot5(checkpoint(kind)), fp32)
    query, passages = Query("q", "storm in the harbour"), passages_of(7)
    own = ranker.preferences(query, passages)
    expected = yardstick(checkpoint(kind), query.text, [p.text for p in passages])
    np.testing.assert_allclose(own, expected, atol=2e-5)
    assert (np.diag(own) == 0).all()
    assert not np.allclose(own + own.T, 1 - np.eye(7), atol=1e-3), "both orders say the same: a poor test"


def test_a_run_is_ordered_by_the_sum_over_both_orders(checkpoint, fp32):
    ranker = DuoT5Ranker(open_duot5(checkpoint("t5")), fp32)
    queries = [Query("q1", "storm in the harbour"), Query("q2", "grain prices")]
    documents = {p.doc_id: Document(p.doc_id, p.text) for p in passages_of(9)}
    run = Run.of({q.id: {d: float(9 - i) for i, d in enumerate(documents)} for q in queries})
    done = rerank_pairwise(ranker, run, queries, documents, PairwisePlan(depth=6))
    for query in queries:
        best = run[query.id].doc_ids[:6]
        p = yardstick(checkpoint("t5"), query.text, [documents[d].text for d in best])
        expected = {d: sum(p[i, j] + 1 - p[j, i] for j in range(6) if j != i) for i, d in enumerate(best)}
        ranking = done[query.id]
        assert list(ranking.doc_ids[:6]) == sorted(expected, key=lambda d: -expected[d])
        np.testing.assert_allclose(ranking.scores[:6], [expected[d] for d in ranking.doc_ids[:6]], atol=1e-4)
        assert ranking.doc_ids[6:] == run[query.id].doc_ids[6:]
        assert (np.diff(ranking.scores) < 0).all()


@pytest.mark.quick("fp32")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_preference_depends_on_its_two_passages_only(checkpoint, precision):
    model = open_duot5(checkpoint("wide_t5"))
    compute = Compute(precision, torch.device("cpu"), 1)
    ranker, query, passages = DuoT5Ranker(model, compute), Query("q", "storm"), passages_of(6)
    whole = ranker.preferences(query, passages)
    order = [3, 0, 5, 1, 4, 2]
    turned = ranker.preferences(query, [passages[i] for i in order])
    close = {"atol": 1e-6 if precision == "fp32" else 2e-2}
    np.testing.assert_allclose(turned, whole[np.ix_(order, order)], **close)
    small = DuoT5Ranker(model, compute, budget=64)
    np.testing.assert_allclose(small.preferences(query, passages), whole, **close)
    for i, j in ((0, 1), (4, 2)):
        alone = ranker.preferences(query, [passages[i], passages[j]])
        np.testing.assert_allclose([alone[0, 1], alone[1, 0]], [whole[i, j], whole[j, i]], **close)


@pytest.mark.parametrize(
    ("sizes", "room", "kept"),
    [
        ((3, 10, 10), 30, (3, 10, 10)),
        ((3, 50, 50), 23, (3, 10, 10)),
        ((3, 50, 4), 23, (3, 16, 4)),
        ((3, 4, 50), 23, (3, 4, 16)),
        ((50, 50, 50), 20, (15, 2, 3)),
    ],
)
def test_what_does_not_fit_is_shared(sizes, room, kept):
    assert fit_comparison(*sizes, room) == kept


def test_long_passages_are_cut_alike_and_counted(checkpoint, fp32):
    model = open_duot5(checkpoint("t5"), max_length=48)
    reader = ComparisonReader(model.pair_reader.texts, model.policy["end"], 48)
    long, short = "grain prices rose " * 40, "storm"
    batch = reader([TextComparison("storm", long, long), TextComparison("storm", short, short)])
    rows = batch.ids.pad()
    assert batch.ids.lengths.tolist()[0] == 48
    assert (batch.lost[0] > 0, batch.lost[1]) == (True, 0)
    whole = open_duot5(checkpoint("t5"))
    untouched = ComparisonReader(whole.pair_reader.texts, 1, 512)(
        [TextComparison("storm", short, short)]
    ).ids.pad()
    assert rows[1, : untouched.shape[1]].tolist() == untouched[0].tolist()
    tail = untouched[0].tolist()[-4:]
    assert rows[0].tolist()[-4:] == tail, "Relevant: and </s> survive"
    ranker = DuoT5Ranker(model, fp32)
    ranker.preferences(
        Query("q", "storm"), [Passage("a", 0, long), Passage("b", 0, short), Passage("c", 0, long)]
    )
    assert (ranker.report.seen, ranker.report.truncated) == (6, 6)


def test_faults_are_explained(checkpoint, fp32):
    with pytest.raises(WrongUse, match="max_length=17: .* tokens are the prompt's own; give at least"):
        DuoT5Ranker(open_duot5(checkpoint("t5"), max_length=17), fp32)
    model = open_duot5(checkpoint("t5"))
    with torch.no_grad():
        model.network.shared.weight[7:].fill_(float("nan"))
    ranker = DuoT5Ranker(model, fp32)
    with pytest.raises(BadModel, match='comparing documents "d0" and "d1" for query "q" gives no number'):
        ranker.preferences(Query("q", "storm"), passages_of(3))
    with pytest.raises(BadModel, match="is a BERT checkpoint; monot5 reads T5 and mT5 only"):
        open_duot5(checkpoint("bert"))
